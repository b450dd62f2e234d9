"""`fluid.communicator.Communicator`: runs beside asynchronous and Geo-SGD trainer programs (as in Paddle 1.8.5)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fluidtool.distribute import communicator as engines
from fluidtool.distribute.geo_communicator import GeoCommunicator
from fluidtool.distribute.settings import DistributedMode
from fluidtool.errors import ArgumentTypeError, UsageError
from fluidtool.fluid.executor import global_scope
from fluidtool.ir import Program
from fluidtool.runtime.remote import PROCESS

__all__ = ["Communicator"]


class Communicator:
    """Takes over the communication of a trainer program.

    program: transpiled with runtime_split_send_recv, or in geo_sgd_mode. mode: DistributedMode. kwargs: push_vars,
    trainers and push_nums for GEO, pserver_endpoints and trainer_id for SYNC. Its recv operators are switched off.
    """

    def __init__(
        self,
        program: Program,
        mode: int,
        kwargs: Mapping[str, Any] | None = None,
        envs: Mapping[str, Any] | None = None,
    ) -> None:
        if not isinstance(program, Program):
            raise ArgumentTypeError(f"Communicator takes the Program of a trainer, found {type(program).__name__}")
        self._given = dict(kwargs or {})
        trainer_id = int(self._given.get("trainer_id", _trainer_of(program)))
        self._connect = lambda endpoint: PROCESS.to(endpoint, trainer_id)
        self._engine = self._make(program, mode)
        self._running = False
        for op in program.global_block().ops:
            if op.type == "recv":
                op.set_attr("do_not_run", 1)

    def start(self) -> None:
        """Start; call it after the startup program and before the first step."""
        if not self._running:
            self._engine.start()
            PROCESS.communicator = self._engine
            self._running = True

    def stop(self) -> None:
        """Send what is left and stop; call it after the last step. Raises errors of the background threads."""
        if self._running:
            self._running = False
            PROCESS.communicator = None
            self._engine.stop()

    def is_running(self) -> bool:
        """Whether it was started and not stopped."""
        return self._running

    def _make(self, program: Program, mode: int) -> engines.Communicator:
        scope = global_scope()
        if mode == DistributedMode.GEO:
            variables = self._wanted("push_vars")
            parameters = {
                name: engines.Shards(
                    tuple(each["var_names"]), tuple(each["epmap"]), tuple(int(rows) for rows in each["sections"])
                )
                for name, each in variables.items()
            }
            sparse = frozenset(name for name, each in variables.items() if each["is_sparse"] == ["True"])
            trainers, every = int(self._wanted("trainers")), int(self._wanted("push_nums"))
            return GeoCommunicator(parameters, sparse, scope, self._connect, trainers, every)
        exchange = engines.Exchange(engines.sent_shards(program), engines.fetched_shards(program), scope, self._connect)
        if mode == DistributedMode.ASYNC:
            return engines.AsyncCommunicator(exchange)
        if mode == DistributedMode.HALF_ASYNC:
            return engines.HalfAsyncCommunicator(exchange)
        if mode == DistributedMode.SYNC:
            return engines.HalfAsyncCommunicator(exchange, self._wanted("pserver_endpoints"))
        raise UsageError(f"mode must be DistributedMode.SYNC, ASYNC, HALF_ASYNC or GEO, found {mode!r}")

    def _wanted(self, name: str) -> Any:
        if name not in self._given:
            raise UsageError(f"this mode of Communicator needs kwargs[{name!r}], found {sorted(self._given)}")
        return self._given[name]


def _trainer_of(program: Program) -> int:
    """The trainer that a program is for; geo programs do not name it, so the earlier connection decides."""
    numbers = [int(op.get_attr("trainer_id", 0) or 0) for op in program.global_block().ops]
    return max([*numbers, *PROCESS.trainers()], default=0)
