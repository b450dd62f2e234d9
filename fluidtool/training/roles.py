"""Roles of a distributed job that run programs from files: a server serves, a trainer trains on its share of the data.

A trainer's checkpoint is its own: what it does not fetch from servers (statistics of batch_norm, in collective jobs
everything), its random state and its position. Servers keep theirs.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from fluidtool.distribute.checkpoints import Checkpoint, Schedule
from fluidtool.distribute.environment import PSERVER, TRAINER, role_from_environment
from fluidtool.distribute.fetched import fetched_variables
from fluidtool.distribute.launch.contract import Member
from fluidtool.distribute.launch.jobs import endpoints_of, is_job, member_of, read_job, replace_endpoints
from fluidtool.distribute.launch.progress import Report, Reporter
from fluidtool.errors import OutputError, UnreadableError, UsageError
from fluidtool.io.checkpoints import random_states, set_random_states
from fluidtool.io.parameters import Value
from fluidtool.ir import Program
from fluidtool.ops.context import RemoteVariable
from fluidtool.records import dataclass
from fluidtool.runtime import Executor, Policy, Scope
from fluidtool.runtime.persistent import values_of
from fluidtool.tensor import LoDTensor, Place
from fluidtool.training.checkpoint import CheckpointPlan, Position, check_run
from fluidtool.training.examples import Feed, Order, Source
from fluidtool.training.loop import Step, Training, digest
from fluidtool.training.programs import TrainingPrograms

SERVES = "listen_and_serv"
SENDS, ENDS_ROUND = "send", "fetch_barrier"
TALKS = frozenset({SENDS, "recv"})
EXCHANGES = frozenset({"c_allreduce_sum", "c_comm_init", "c_gen_nccl_id", "gen_nccl_id", "allreduce"})
SHARES_GRADIENTS, LOOKS_UP = "gen_nccl_id", "distributed_lookup_table"


@dataclass(frozen=True, slots=True)
class RolePlace:
    """Which role of which job the programs of a folder are. servers: the endpoints of all servers of the job, in order."""

    member: Member
    trainers: int
    servers: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """'pserver_0', 'trainer_1'."""
        return self.member.name


def role_kind(programs: TrainingPrograms) -> str | None:
    """ "pserver" or "trainer" as the operators of the programs show; None for programs of no job."""
    types = {op.type for program in (programs.main, programs.startup) if program for op in program.global_block().ops}
    if SERVES in types:
        return PSERVER
    return TRAINER if types & (TALKS | EXCHANGES) else None


def find_place(folder: Path, kind: str, environment: Mapping[str, str]) -> RolePlace:
    """Which role the programs in a folder are: as the manifest beside the folder says, else as the environment does.

    Raises UsageError where they contradict each other, UnreadableError for a damaged job.
    """
    parent = folder.resolve().parent
    if is_job(parent):
        job = read_job(parent, whole=False)
        member = member_of(job, folder)
        return RolePlace(member, job.cluster.trainers, job.cluster.servers)
    role = role_from_environment(environment)
    if role.kind not in ("local", kind):
        raise UsageError(
            f"the programs in {folder} belong to a {kind}, but the environment says that this is a {role.kind}"
        )
    if kind == PSERVER:
        index = role.servers.index(role.current_endpoint) if role.servers else 0
        return RolePlace(Member(PSERVER, index, role.current_endpoint), role.trainers, role.servers)
    return RolePlace(Member(TRAINER, role.trainer_id, role.current_endpoint), role.trainers, role.servers)


def serve(programs: TrainingPrograms, place: Place, policy: Policy, seed: int) -> None:
    """Initialize a server's parameters and serve until the last trainer is finished; raises RemoteError."""
    if programs.startup is None:
        raise UsageError("a server needs its startup program, startup.pb beside main.pb")
    scope, executor = Scope(), Executor(place, policy=policy, seed=seed)
    executor.run(programs.startup, {}, [], scope)
    executor.run(programs.main, {}, [], scope)


# ---------------------------------------------------------------- trainers
class RoleTraining(Training):
    """One trainer of several. schedule: where and how often it saves, and the step from which it goes on."""

    def __init__(
        self,
        programs: TrainingPrograms,
        data: Source,
        order: Order,
        loss: str,
        *,
        role: RolePlace,
        schedule: Schedule | None,
        reporter: Reporter,
        fetch: Sequence[str] = (),
        place: Place | None = None,
        policy: Policy | None = None,
        seed: int = 1,
        allow_nan: bool = False,
    ) -> None:
        seed += role.member.index  # trainers draw different numbers
        super().__init__(
            programs, data, order, loss, fetch=fetch, place=place, policy=policy, seed=seed, allow_nan=allow_nan
        )
        self.role, self.schedule, self.reporter = role, schedule, reporter
        self._digest = _digest(programs.main)
        received, pieces = fetched_variables(programs.main)
        self._local = [var for var in self._variables if var.name not in received]
        self._variables = [var for var in self._variables if var.name not in pieces]
        self._compiled: Any = None
        self._seen = 0  # examples
        if programs.startup is not None and _has(programs.startup, SHARES_GRADIENTS):
            self._compiled = _sharing_gradients(programs.main, self.loss, role, self.executor.place)

    def initialize(self, path: Path | None = None) -> list[str]:
        """As of a training; then go on from the checkpoint that the schedule names, or that the servers are ready for."""
        loaded = self._initialize_here(path)
        whole = self._whole_steps()
        found = self._resumed(whole)
        if whole is not None:
            self.executor.servers.begin_step(1 if found is None else found.step + 1)
        if found is not None:
            check_run(f"checkpoint {found.step} of {self.role.name}", found.state.get("run", {}), self._settings())
            for name, value in found.values.items():
                self._put(name, value)
            set_random_states(self._generators(), found.state["random"])
            self.position = self._position_after(found.step, found.state)
        return loaded

    def _initialize_here(self, path: Path | None) -> list[str]:
        """As of a training: run the startup program, and load what `path` has."""
        return super().initialize(path)

    def _is_asynchronous(self) -> bool:
        """Whether this trainer sends to servers, and waits for no other trainer."""
        types = {op.type for op in self.programs.main.global_block().ops}
        return SENDS in types and ENDS_ROUND not in types

    def _whole_steps(self) -> int | None:
        """How many steps of this trainer its asynchronous servers have; None in other jobs."""
        sends = next((op for op in self.programs.main.global_block().ops if op.type == SENDS), None)
        if sends is None or not self._is_asynchronous():
            return None
        return self.executor.servers.number_steps(sends, endpoints_of(self.programs.main), self.role.member.index)

    def _resumed(self, whole: int | None) -> Checkpoint | None:
        """The checkpoint to continue from. What servers have of later steps they leave out when it comes again."""
        if self.schedule is None:
            return None
        return self.schedule.resume() if whole is None else self.schedule.resume_by(whole)

    @contextmanager
    def until_asked(self) -> Iterator[None]:
        """Within the block, this process may be asked to end; trainers that others wait for just end."""
        yield

    def run(self, epochs: int, checkpoints: CheckpointPlan | None = None) -> Iterator[Step]:
        """The steps up to the end of epoch number `epochs`; each is reported, and saved when it is due."""
        for step in super().run(epochs, checkpoints):
            done = step.epoch * self.steps_per_epoch + step.step + 1
            if self.schedule is not None and self.schedule.is_due(done):
                self._save_step(self.schedule, done, step)
            servers, self._seen = self.executor.servers, self._seen + step.examples
            self.reporter.report(Report(done, step.loss, servers.sent, servers.received, self._seen, servers.waited))
            yield step

    def _save_step(self, schedule: Schedule, done: int, step: Step) -> None:
        """Write a checkpoint. A disk that refuses is told, and does not end the job: the one before is there."""
        try:
            schedule.save(done, values_of(self.scope, self._local, "a checkpoint"), self._state(step))
        except OutputError as error:
            sys.stderr.write(f"{error}\n")

    def close(self, *, failed: bool = False) -> None:
        """Leave the job: the others hear that this trainer is finished, or, where it failed, nothing."""
        self.reporter.close()
        if failed:
            self.executor.servers.drop()
        else:
            self.executor.close()

    def _execute(self, feed: Feed, names: Sequence[str]) -> list[Any]:
        if self._compiled is None:
            found = super()._execute(feed, names)
            self.executor.servers.end_step()
            return found
        values: list[Any] = self._compiled.run(self.executor, feed, list(names), self.scope, True, None)
        return values

    def _generators(self) -> list[np.random.Generator]:
        if self._compiled is None:
            return super()._generators()
        generators: list[np.random.Generator] = self._compiled.generators(self.executor, self.scope)
        return generators

    def _saved_values(self, what: str) -> dict[str, Value]:
        """What is here, and the tables that servers are asked row by row for, put together from their pieces."""
        found = super()._saved_values(what)
        for op in self.programs.main.global_block().ops:
            if op.type == LOOKS_UP and op.input("W")[0] not in found:
                pieces = zip(op.attr("endpoints"), op.attr("table_names"), strict=True)
                asked = [RemoteVariable(endpoint, name) for endpoint, name in pieces]
                answers = self.executor.servers.receive(op, asked, with_barrier=False)
                found[op.input("W")[0]] = LoDTensor(np.concatenate([answer.numpy() for answer in answers]))
        return found

    def _settings(self) -> dict[str, Any]:
        return {**super()._settings(), "number_of_trainers": self.role.trainers}

    def _state(self, step: Step) -> dict[str, Any]:
        position = {"epoch": step.epoch, "step": step.step}
        return {**position, "random": random_states(self._generators()), "run": self._settings()}

    def _position_after(self, step: int, state: Mapping[str, Any]) -> Position:
        position = Position(int(state["epoch"]), int(state["step"]))
        if position.epoch * self.steps_per_epoch + position.step + 1 != step:
            raise UnreadableError(
                f"the checkpoint of {self.role.name} after step {step} gives its position as step {position.step} of "
                f"epoch {position.epoch}; with this data an epoch has {self.steps_per_epoch} steps"
            )
        return position


def _digest(main: Program) -> str:
    """What tells a program from others, wherever the roles of its job are."""
    moved = main.clone()
    replace_endpoints(moved, {endpoint: f"place_{index}" for index, endpoint in enumerate(endpoints_of(moved))})
    return digest(moved)


def _sharing_gradients(main: Program, loss: str, role: RolePlace, place: Place) -> Any:
    """The program as one of several trainers that sum their gradients (nccl2 mode)."""
    from fluidtool.fluid.compiler import BuildStrategy, CompiledProgram

    strategy = BuildStrategy()
    strategy.num_trainers, strategy.trainer_id = role.trainers, role.member.index
    return CompiledProgram(main).with_data_parallel(loss, build_strategy=strategy, places=[place])


def _has(program: Program, op_type: str) -> bool:
    return any(op.type == op_type for op in program.global_block().ops)
