"""What a trainer of an elastic job asks servers in a step, and what it waits for before it goes on."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fluidtool.ir import Program
from fluidtool.ops.context import RemoteVariable
from fluidtool.runtime.policy import Policy
from fluidtool.runtime.remote import Connections, Servers
from fluidtool.tensor import LoDTensor

FIRST, OTHER = "127.0.0.1:1", "127.0.0.1:2"
ONE = LoDTensor(np.ones(1, np.float32))
STEP = [
    f"send to {OTHER}",
    f"send to {FIRST}",
    f"wait for {OTHER}",
    f"all sent, to {FIRST}",
    f"ask {OTHER} for w",
    f"ask {FIRST} for w",
    f"ask {FIRST} for the next roll",
    f"wait for {OTHER}",
    f"wait for {FIRST}",
]


class Recorded:
    """A client that writes down what it is asked. members: what the server says of the next round."""

    own = streaming = True
    is_replicated = False
    trainer_id = 0

    def __init__(self, endpoint: str, log: list[str]) -> None:
        self.endpoint, self.log, self.members = endpoint, log, [0, 1]

    def join(self) -> tuple[int, int]:
        return 7, 0

    def begin(self, term: int, number: int) -> None: ...

    def end_step(self) -> None: ...

    def flush(self) -> None: ...

    def post_send(self, name: str, value: Any) -> None:
        self.log.append(f"send to {self.endpoint}")

    def post_send_barrier(self) -> None:
        self.log.append(f"all sent, to {self.endpoint}")

    def settle(self) -> None:
        self.log.append(f"wait for {self.endpoint}")

    def post_get(self, name: str, out_name: str, *, with_barrier: bool = True) -> str:
        self.log.append(f"ask {self.endpoint} for {name}")
        return name

    def wait_value(self, pending: str) -> LoDTensor:
        self.log.append(f"wait for {self.endpoint}")
        return ONE

    def post_next_roll(self) -> str:
        self.log.append(f"ask {self.endpoint} for the next roll")
        return "roll"

    def next_roll(self, pending: str) -> list[int]:
        return self.members

    def roll(self) -> list[int]:
        self.log.append(f"ask {self.endpoint} for the roll, and wait")
        return [0]


class Recording(Connections):
    """Gives recorded clients."""

    def __init__(self) -> None:
        super().__init__()
        self.log: list[str] = []
        self.clients = {endpoint: Recorded(endpoint, self.log) for endpoint in (FIRST, OTHER)}

    def to(self, endpoint: str, trainer_id: int) -> Any:
        return self.clients[endpoint]


class Trainer:
    """Makes the calls of steps."""

    def __init__(self) -> None:
        self.connections = Recording()
        self.servers = Servers(Policy(endpoints=None), self.connections)
        self.op = Program().global_block().append_op(type="send_barrier", inputs={}, outputs={}, attrs={})
        self.servers.join(self.op, [FIRST, OTHER])
        self.fetch()

    def fetch(self) -> None:
        variables = [RemoteVariable(endpoint, "w", "w") for endpoint in (OTHER, FIRST)]
        self.servers.announce(self.op, variables)
        self.servers.receive(self.op, variables)
        self.servers.fetch_barrier(self.op, [FIRST, OTHER])

    def step(self) -> tuple[list[int], list[str]]:
        """The trainers of its round, and what was asked and waited for."""
        self.connections.log.clear()
        members = self.servers.roll()
        for endpoint in (OTHER, FIRST):
            self.servers.send(self.op, [(RemoteVariable(endpoint, "g", "g"), ONE)])
        self.servers.send_barrier(self.op, [FIRST, OTHER])
        self.fetch()
        return members, self.connections.log


@pytest.fixture
def trainer() -> Trainer:
    return Trainer()


def test_a_step_waits_for_the_other_servers_and_for_parameters(trainer: Trainer) -> None:
    """Not for the roll, which was asked for with the parameters before, and is there when they are."""
    assert trainer.step() == ([0, 1], STEP)
    assert trainer.step() == ([0, 1], STEP)


def test_a_step_waits_for_a_roll_that_was_not_known_when_it_was_asked_for(trainer: Trainer) -> None:
    trainer.connections.clients[FIRST].members = []
    assert trainer.step() == ([0], [f"ask {FIRST} for the roll, and wait", *STEP])


def test_a_trainer_that_joins_again_forgets_what_it_has_asked(trainer: Trainer) -> None:
    trainer.servers.join(trainer.op, [FIRST, OTHER])
    trainer.connections.log.clear()
    assert trainer.servers.roll() == [0]


def test_a_program_that_reads_no_parameters_asks_where_it_waits(trainer: Trainer) -> None:
    trainer.servers.roll()
    trainer.servers.fetch_barrier(trainer.op, [FIRST, OTHER])
    trainer.connections.log.clear()
    trainer.servers.roll()
    assert trainer.connections.log == [f"ask {FIRST} for the roll, and wait"]
