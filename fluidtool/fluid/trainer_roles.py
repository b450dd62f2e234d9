"""A Trainer as one process of several: a server serves, a trainer trains (Paddle 0.14 trainer.py).

Besides the variables of 0.14, those of later versions are understood (fluidtool.distribute.environment). Checkpoints are
those of the job (`fluidtool launch --checkpoint`); a CheckpointConfig is not used.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Any

import numpy as np

from fluidtool.distribute.checkpoints import Checkpoint, Schedule
from fluidtool.distribute.environment import LOCAL, PSERVER, Role, role_from_environment
from fluidtool.distribute.fetched import fetched_variables
from fluidtool.distribute.launch.progress import Report, Reporter
from fluidtool.distribute.metrics.endpoint import open_metrics
from fluidtool.distribute.metrics.roles import of_any_role, of_trainer
from fluidtool.distribute.plan import DistributePlan
from fluidtool.errors import UsageError
from fluidtool.fluid.strategies import BuildStrategy
from fluidtool.fluid.transpiler.distribute_config import DistributeTranspilerConfig
from fluidtool.fluid.transpiler.distribute_transpiler import DistributeTranspiler
from fluidtool.io.checkpoints import random_states
from fluidtool.io.parameters import Value
from fluidtool.ir import Program, Variable
from fluidtool.records import dataclass
from fluidtool.tensor import LoDTensor

if TYPE_CHECKING:
    from fluidtool.distribute.metrics.page import MetricsPage


@dataclass(slots=True)
class TrainerRole:
    """This process as one of several. `steps` counts the steps since the beginning of the training."""

    role: Role
    schedule: Schedule | None
    reporter: Reporter
    metrics: MetricsPage | None = None
    steps: int = 0
    _plan: DistributePlan | None = None
    _resumed: Checkpoint | None = None
    _fetched: set[str] = field(default_factory=set)
    _over: bool = False

    @property
    def serves(self) -> bool:
        """Whether this is a parameter server."""
        return self.role.kind == PSERVER

    # ------------------------------------------------------------ programs
    def transpile(self, main: Program, startup: Program) -> tuple[Program, Program]:
        """The programs of this role, (main, startup), from those of a single process, which are rewritten."""
        role = self.role
        if role.is_collective:
            config = DistributeTranspilerConfig()
            config.mode = "nccl2"
            DistributeTranspiler(config).transpile(
                role.trainer_id,
                main,
                trainers=",".join(role.trainer_endpoints),
                startup_program=startup,
                current_endpoint=role.current_endpoint,
            )
            return main, startup
        transpiler = DistributeTranspiler()
        servers = ",".join(role.servers)
        transpiler.transpile(role.trainer_id, main, pservers=servers, trainers=role.trainers, startup_program=startup)
        self._plan = transpiler.plan
        if self.serves:
            return transpiler.get_pserver_programs(role.current_endpoint)
        main = transpiler.get_trainer_program()
        self._fetched, _ = fetched_variables(main)
        return main, startup

    @property
    def build_strategy(self) -> BuildStrategy | None:
        """Which of the trainers that sum their gradients this is; None if servers do that."""
        if not self.role.is_collective:
            return None
        strategy = BuildStrategy()
        strategy.num_trainers, strategy.trainer_id = self.role.trainers, self.role.trainer_id
        return strategy

    def own(self, variables: Sequence[Variable]) -> list[Variable]:
        """The variables that are not fetched from servers."""
        return [var for var in variables if var.name not in self._fetched]

    def shards(self, values: Mapping[str, Value]) -> dict[str, Value]:
        """The saved parameters that this server keeps, by the names of its shards; all of them for a trainer."""
        if self._plan is None or not self.serves:
            return dict(values)
        found: dict[str, Value] = {}
        for parameter in self._plan.parameters:
            value, start = values.get(parameter.name), 0
            for placement in parameter.placements if isinstance(value, LoDTensor) else ():
                rows = placement.parameter.shape[0] if placement.parameter.shape else 0
                if placement.endpoint == self.role.current_endpoint:
                    assert isinstance(value, LoDTensor)
                    whole = value.numpy()
                    found[placement.parameter.name] = LoDTensor(
                        whole[start : start + rows] if parameter.is_cut else whole
                    )
                start += rows
        return found

    # ------------------------------------------------------------ training
    def resume(self) -> Checkpoint | None:
        """The checkpoint to resume from; None at the beginning, and for a server, whose operator handles it."""
        if self.schedule is None or self.serves:
            return None
        self._resumed = self.schedule.resume()
        self.steps = 0 if self._resumed is None else self._resumed.step
        return self._resumed

    def holds(self, epoch: int, step: int) -> bool:
        """Whether the checkpoint includes this step."""
        state = None if self._resumed is None else self._resumed.state
        return state is not None and (epoch, step) <= (state["epoch"], state["step"])

    def begin(self) -> None:
        """Before training; raises UsageError if this trainer has already told the others that it has finished."""
        if self._over:
            raise UsageError(
                "this trainer of a distributed job has already trained, and told the others that it has finished; run all "
                "epochs in one call of train"
            )

    def count(self, metrics: Sequence[Any]) -> bool:
        """Count a step and report it; returns whether to write a checkpoint."""
        self.steps += 1
        self.reporter.report(Report(self.steps, float(np.ravel(metrics[0])[0]) if len(metrics) else None))
        return self.schedule is not None and self.schedule.is_due(self.steps)

    def save(
        self, epoch: int, step: int, values: Mapping[str, Value], generators: Sequence[np.random.Generator]
    ) -> None:
        """Write the checkpoint after a step."""
        assert self.schedule is not None
        state = {"epoch": epoch, "step": step, "random": random_states(generators)}
        self.schedule.save(self.steps, values, state)

    def finish(self) -> None:
        """Called after the last step."""
        self._over = True
        self.reporter.close()
        if self.metrics is not None:
            self.metrics.close()


def trainer_role(environment: Mapping[str, str]) -> TrainerRole | None:
    """The role of this process by the environment; None for training in one process. Raises UsageError."""
    role = role_from_environment(environment)
    if role.kind == LOCAL:
        return None
    index = role.servers.index(role.current_endpoint) if role.kind == PSERVER else role.trainer_id
    name = f"{role.kind}_{index}"
    reporter, metrics = Reporter.from_environment(environment), None
    if role.kind != PSERVER:  # a server shows its own
        metrics = open_metrics(environment, lambda: of_any_role(name, environment) + of_trainer(reporter.last))
    return TrainerRole(role, Schedule.from_environment(environment, name), reporter, metrics)
