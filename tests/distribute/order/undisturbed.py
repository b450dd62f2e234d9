"""Synchronous servers in earnest, without a network: python -m tests.distribute.order.undisturbed --steps 100000.

Three servers - of a table alone, of a dense parameter alone, of nothing - serve two trainers, which call what the model's
trainers call. Each checks every value that it reads: it must hold the updates of the rounds before, no more and no fewer.
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any

import numpy as np
import pytest

from fluidtool.distribute.roles import server_programs
from fluidtool.distribute.rpc.handler import Barrier, Message
from fluidtool.distribute.settings import Settings
from fluidtool.fluid import optimizer
from fluidtool.tensor import LoDTensor
from tests.distribute.order.model import Asked, Keeps, script
from tests.distribute.pserver.support import Trainer, rows, running, start, table, together

KEEPS = (Keeps.TABLE, Keeps.DENSE, Keeps.NOTHING)
ENDPOINTS = tuple(f"127.0.0.1:{6174 + number}" for number in range(len(KEEPS)))
TRAINERS, ROW = 2, 7
ONES = np.ones((4, 1), np.float32)
Pause = Callable[[], None]


class Client:
    """A trainer: makes the calls of a script and checks what it reads."""

    def __init__(self, number: int, handlers: Sequence[Any], pause: Pause) -> None:
        self.number, self.pause = number, pause
        self.links = [Trainer(handler, number) for handler in handlers]

    def run(self, steps: int) -> None:
        """Train."""
        for posted in script(KEEPS, steps):
            self.pause()
            self._call(self.links[posted.server], posted.asked, posted.step)

    def _call(self, link: Trainer, asked: Asked, step: int) -> None:
        if asked is Asked.ROWS:
            ids = LoDTensor(np.array([[ROW]], np.int64))
            found = link.handler.prefetch(Message("rows", ids, "out", "emb", self.number), link.call).array[0, 0]
            assert found == 1 - (step - 1), f"trainer {self.number} reads {found} in step {step}"
        elif asked is Asked.PARAMETER:
            found = link.get("w")[0, 0]
            assert found == 0.5 - step, f"trainer {self.number} fetches {found} in step {step}"
        elif asked is Asked.GRADIENT and link is self.links[0]:
            link.send(f"emb@GRAD.trainer_{self.number}", rows([ROW], ONES.reshape(1, 4)))
        elif asked is Asked.GRADIENT:
            link.send(f"w@GRAD.trainer_{self.number}", ONES)
        elif asked is Asked.SENT:
            link.handler.barrier(Barrier.SEND, link.call)
        else:
            link.fetched()


def undisturbed(steps: int, seed: int, longest: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run the job. Every call and every update is delayed by up to `longest` seconds."""
    chance = random.Random(seed)

    def pause() -> None:
        if longest:
            time.sleep(chance.random() * longest)

    settings = Settings(0, TRAINERS, ENDPOINTS)
    with ExitStack() as stack:
        handlers = []
        for role in server_programs(*table(lambda: optimizer.SGD(1.0)), settings, ENDPOINTS):
            handler = stack.enter_context(running(role.main, start(role), monkeypatch)).handler
            handler._update = _delayed(handler._update, pause)
            handlers.append(handler)
        together(*(lambda n=n: Client(n, handlers, pause).run(steps) for n in range(TRAINERS)), patience=steps + 60.0)
        assert [handler.rounds.updated for handler in handlers] == [steps] * len(handlers)


def _delayed(update: Callable[[Any], None], pause: Pause) -> Callable[[Any], None]:
    def late(received: Any) -> None:
        pause()
        update(received)

    return late


def main() -> None:
    """Run it from the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--longest", type=float, default=0.0, help="seconds by which calls and updates are delayed at most"
    )
    options = parser.parse_args()
    began = time.monotonic()
    with pytest.MonkeyPatch.context() as monkeypatch:
        undisturbed(options.steps, options.seed, options.longest, monkeypatch)
    print(f"{options.steps} steps in {time.monotonic() - began:.0f} s: nothing refused, nothing lost", flush=True)


if __name__ == "__main__":
    main()
