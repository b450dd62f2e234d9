"""GradAllReduce, LocalSGD and SingleProcessMultiThread (Paddle 1.5 to 1.8)."""

from __future__ import annotations

from collections.abc import Sequence

from fluidtool.distribute.collective.programs import (
    GRAD_ALLREDUCE,
    LOCAL_SGD,
    THREADS,
    CollectivePlan,
    shared_parameters,
    transpile_collective,
)
from fluidtool.distribute.endpoints import parse_endpoints
from fluidtool.distribute.waiting import wait_until_ready
from fluidtool.fluid.framework import default_main_program, default_startup_program
from fluidtool.ir import Program


class Collective:
    """Base of the transpilers whose programs exchange values directly; nrings communicators take turns."""

    mode = ""

    def __init__(self, nrings: int) -> None:
        self.nrings = nrings

    def transpile(
        self,
        startup_program: Program | None,
        main_program: Program | None,
        rank: int,
        endpoints: str | Sequence[str],
        current_endpoint: str,
        wait_port: bool,
    ) -> None:
        """Rewrite both programs (default: the default programs) in place for the process `rank` of `endpoints`.

        wait_port: process 0 waits until the others listen. Raises UsageError or ProgramError before any change.
        """
        startup = default_startup_program() if startup_program is None else startup_program
        main = default_main_program() if main_program is None else main_program
        listed = parse_endpoints(endpoints, "endpoints")
        parameters = shared_parameters(main, startup)
        plan = CollectivePlan(self.mode, rank, listed, current_endpoint, self.nrings, parameters)
        transpile_collective(main, startup, plan)
        if rank == 0 and wait_port and self.mode != THREADS:
            wait_until_ready(plan.others)


class GradAllReduce(Collective):
    """Sums the gradients of all processes before the optimizer uses them."""

    mode = GRAD_ALLREDUCE

    def __init__(self, nrings: int = 2) -> None:
        super().__init__(nrings)


class LocalSGD(Collective):
    """Every process takes its own steps, then the parameters are averaged."""

    mode = LOCAL_SGD

    def __init__(self, nrings: int = 2) -> None:
        super().__init__(nrings)


class SingleProcessMultiThread(GradAllReduce):
    """GradAllReduce between the GPUs of one process."""

    mode = THREADS

    def __init__(self) -> None:
        super().__init__(1)


__all__ = ["Collective", "GradAllReduce", "LocalSGD", "SingleProcessMultiThread"]
