"""A server without a network: the program runs in a thread, and tests call what a transport would call."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

import fluidtool.fluid as fluid
from fluidtool import runtime
from fluidtool.distribute.pserver import asynchronous, serving
from fluidtool.distribute.pserver import server as waiting
from fluidtool.distribute.roles import RolePrograms, server_programs, trainer_programs
from fluidtool.distribute.rpc.handler import Barrier, Call, Message
from fluidtool.distribute.settings import Settings
from fluidtool.ir import Program
from fluidtool.runtime import Policy, Scope
from fluidtool.tensor import LoDTensor, SelectedRows

PATIENCE = 20.0
ANY = Policy(endpoints=None)
EMPTY: dict[str, Any] = {}


@dataclass
class Transport:
    """What stands for the network."""

    handler: Any
    port: int = 6174
    stopped: bool = False

    def stop(self, grace: float = 0.0) -> None:
        self.stopped = True


@dataclass
class Running:
    """A server that runs in a thread; leaving the `with` block of `running` ends it."""

    scope: Scope
    thread: threading.Thread
    handler: Any = None
    error: BaseException | None = None
    ready: threading.Event = field(default_factory=threading.Event)

    def wait(self) -> None:
        """Wait for the end; raises what the server raised."""
        self.thread.join(PATIENCE)
        assert not self.thread.is_alive(), "the server has not ended"
        if self.error is not None:
            raise self.error

    def value(self, name: str) -> Any:
        found = self.scope.find_var(name)
        assert found is not None
        return np.array(found.get_tensor())


@contextmanager
def running(program: Program, scope: Scope, monkeypatch: pytest.MonkeyPatch) -> Iterator[Running]:
    """Run a server's main program until its end, or until the block ends."""
    server = Running(scope, threading.Thread())

    def serve(endpoint: str, handler: Any, options: Any, lost: Any, traffic: Any) -> Transport:
        server.handler = handler
        server.ready.set()
        return Transport(handler)

    def run() -> None:
        try:
            runtime.Executor(policy=ANY).run(program, {}, [], scope)
        except BaseException as error:
            server.error = error
        finally:
            server.ready.set()

    monkeypatch.setattr(serving, "serve", serve)
    monkeypatch.setattr(serving, "LINGER", 0.0)  # there is no connection that could have broken
    for module in (waiting, asynchronous):
        monkeypatch.setattr(module, "POLL", 0.01)
    server.thread = threading.Thread(target=run, daemon=True)
    server.thread.start()
    assert server.ready.wait(PATIENCE)
    try:
        yield server
    finally:
        if server.handler is not None:
            server.handler.stop()
        server.thread.join(PATIENCE)
        assert not server.thread.is_alive()


def start(role: RolePrograms) -> Scope:
    """A scope in which the startup program was run."""
    scope = Scope()
    runtime.Executor(policy=ANY, seed=1).run(role.startup, {}, [], scope)
    return scope


@dataclass
class Trainer:
    """What a trainer tells a server. own: it says who it is and where it stands, as Paddle's do not."""

    handler: Any
    number: int
    own: bool = True
    step: int = 0
    active: Callable[[], bool] = lambda: True

    @property
    def call(self) -> Call:
        peer = f"ipv4:127.0.0.1:{40000 + self.number}"
        return Call(self.number, self.step, peer, self.active) if self.own else Call(None, None, peer, self.active)

    def send(self, name: str, value: Any) -> None:
        value = value if isinstance(value, (LoDTensor, SelectedRows)) else LoDTensor(np.asarray(value, np.float32))
        self.handler.send(Message(name, value, trainer_id=self.number), self.call)

    def barrier(self) -> None:
        self.handler.barrier(Barrier.SEND, self.call)

    def get(self, name: str, table_name: str = "") -> Any:
        value = self.handler.get(Message(name, None, name, table_name, self.number), self.call)
        return np.array(value.array) if isinstance(value, LoDTensor) else value

    def fetched(self) -> None:
        self.handler.barrier(Barrier.FETCH, self.call)
        self.step += 1

    def complete(self) -> None:
        self.handler.complete(self.number, self.call)


class Several:
    """Runs one function for each trainer at the same time."""

    def __init__(self, *jobs: Callable[[], Any]) -> None:
        self.errors: list[BaseException] = []
        self.threads = [threading.Thread(target=self._run, args=(job,), daemon=True) for job in jobs]
        for thread in self.threads:
            thread.start()

    def _run(self, job: Callable[[], Any]) -> None:
        try:
            job()
        except BaseException as error:
            self.errors.append(error)

    def join(self, patience: float = PATIENCE) -> None:
        """Wait for all; raises the first error."""
        for thread in self.threads:
            thread.join(patience)
            assert not thread.is_alive(), "a trainer waits forever"
        if self.errors:
            raise self.errors[0]


def together(*jobs: Callable[[], Any], patience: float = PATIENCE) -> None:
    """Run these at the same time, and wait for them."""
    Several(*jobs).join(patience)


def until(condition: Callable[[], bool]) -> None:
    """Wait for something that is to happen soon."""
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.002)


def line(optimizer: Any = None) -> tuple[Program, Program]:
    """(main, startup) of y = x [4] w + b, w = 0.5, b = 0.25, squared error; SGD of 0.1 unless told otherwise."""
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        x, y = fluid.layers.data("x", [4]), fluid.layers.data("y", [1])
        weight = fluid.ParamAttr(name="w", initializer=fluid.initializer.Constant(0.5))
        bias = fluid.ParamAttr(name="b", initializer=fluid.initializer.Constant(0.25))
        out = fluid.layers.fc(x, 1, param_attr=weight, bias_attr=bias)
        loss = fluid.layers.mean(fluid.layers.square_error_cost(out, y))
        (optimizer() if optimizer is not None else fluid.optimizer.SGD(0.1)).minimize(loss)
    return main, startup


def table(optimizer: Any = None, is_distributed: bool = False) -> tuple[Program, Program]:
    """(main, startup) of a sparse table `emb` [10, 4] of ones and a layer without bias."""
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        ids = fluid.layers.data("ids", [1], dtype="int64")
        attr = fluid.ParamAttr(name="emb", initializer=fluid.initializer.Constant(1.0))
        rows = fluid.layers.embedding(ids, [10, 4], is_sparse=True, is_distributed=is_distributed, param_attr=attr)
        weight = fluid.ParamAttr(name="w", initializer=fluid.initializer.Constant(0.5))
        loss = fluid.layers.mean(fluid.layers.fc(rows, 1, param_attr=weight, bias_attr=False))
        (optimizer() if optimizer is not None else fluid.optimizer.SGD(0.1)).minimize(loss)
    return main, startup


def server_role(programs: tuple[Program, Program], trainers: int = 2, **options: Any) -> RolePrograms:
    """The programs of the one server of a job."""
    settings = Settings(0, trainers, ("127.0.0.1:6174",), **options)
    (role,) = server_programs(*programs, settings, settings.servers)
    return role


def trainer_role(programs: tuple[Program, Program], number: int, trainers: int = 2, **options: Any) -> RolePrograms:
    """The programs of one trainer of a job with one server."""
    settings = Settings(0, trainers, ("127.0.0.1:6174",), **options)
    (role,) = trainer_programs(*programs, settings, [number])
    return role


def rows(ids: list[int], values: Any, height: int = 10) -> SelectedRows:
    """Rows of a table."""
    return SelectedRows(ids, height, np.asarray(values, np.float32))
