"""What is to be started: a command and an environment for each role."""

from __future__ import annotations

import os
import site
import sys
from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from pathlib import Path

from fluidtool.distribute.environment import PSERVER, TRAINER
from fluidtool.distribute.launch.contract import (
    CHECKPOINT_DIR,
    CHECKPOINT_EVERY,
    CHECKPOINT_KEEP,
    ELASTIC,
    ELASTIC_TRAINERS,
    METRICS,
    REPLICA,
    REPLICAS_DIR,
    ROLE_VARIABLES,
    STRAGGLERS,
    Cluster,
    Member,
    role_environment,
    without_role,
)
from fluidtool.distribute.launch.jobs import JobFolder, check_endpoints
from fluidtool.distribute.rpc.options import REPLICAS
from fluidtool.records import dataclass

SECOND = "_replica"
THREADS = ("FLUIDTOOL_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


@dataclass(frozen=True, slots=True)
class Checkpoints:
    """Where every role saves, after how many steps each, and how many are kept. No folder: nobody saves."""

    folder: Path | None = None
    every: int = 100
    keep: int = 2

    def environment(self) -> dict[str, str]:
        """What roles read."""
        if self.folder is None:
            return {}
        values = {CHECKPOINT_DIR: self.folder.resolve(), CHECKPOINT_EVERY: self.every, CHECKPOINT_KEEP: self.keep}
        return {name: str(value) for name, value in values.items()}


@dataclass(frozen=True, slots=True)
class Role:
    """One process: the words of fluidtool's command line that it runs, and the variables that it finds."""

    name: str
    kind: str
    words: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_trainer(self) -> bool:
        """Whether the job is done when this one (and its like) is."""
        return self.kind == TRAINER


@dataclass(frozen=True, slots=True)
class Elastic:
    """least: trainers without which a job in which they come and go does not continue; None: they do not. stragglers: what
    becomes of those that are much slower than the others, "report" or "drop", with ":FACTOR" ("": nobody looks).
    """

    least: int | None = None
    stragglers: str = ""

    def environment(self, trainers: int) -> dict[str, str]:
        """What roles read; trainers: how many are started."""
        found = {} if self.least is None else {ELASTIC: str(self.least), ELASTIC_TRAINERS: str(trainers)}
        return {**found, STRAGGLERS: self.stragglers} if self.stragglers else found


def folder_roles(
    job: JobFolder, arguments: Sequence[str], checkpoints: Checkpoints, trainers: int | None = None
) -> tuple[Role, ...]:
    """Roles that run the programs of a job folder; the arguments are the trainers'. trainers: only so many. Raises
    UnreadableError for programs that talk to others than the job's own endpoints.
    """
    check_endpoints(job)
    roles = []
    for member in job.cluster.members():
        if member.kind == TRAINER and trainers is not None and member.index >= trainers:
            continue
        words = ["run", str(job.folder(member)), "--allow-network"]
        if member.kind == TRAINER:
            words += arguments
        roles.append(_role(job.cluster, member, words, checkpoints))
    return tuple(roles)


def script_roles(
    cluster: Cluster, script: Path, arguments: Sequence[str], checkpoints: Checkpoints
) -> tuple[Role, ...]:
    """Roles that all run one script, which asks the environment what it is."""
    words = ["exec", str(script), *arguments]
    return tuple(_role(cluster, member, words, checkpoints) for member in cluster.members())


def _role(cluster: Cluster, member: Member, words: Sequence[str], checkpoints: Checkpoints) -> Role:
    environment = role_environment(cluster, member) | checkpoints.environment()
    return Role(member.name, member.kind, tuple(words), environment)


def with_variables(roles: Sequence[Role], more: Mapping[str, str]) -> tuple[Role, ...]:
    """The roles, which find these variables, too."""
    return tuple(replace(role, environment={**role.environment, **more}) for role in roles) if more else tuple(roles)


def with_copies(roles: Sequence[Role], others: Mapping[str, str], folder: Path) -> tuple[Role, ...]:
    """The roles, with a second copy of each server behind the first. others: where it listens, by the server's endpoint.
    folder: where the two find out which of them serves.
    """
    common = {REPLICAS: ",".join(f"{endpoint}={other}" for endpoint, other in others.items())}
    found: list[Role] = []
    for role in with_variables(roles, common):
        if role.kind != PSERVER:
            found.append(role)
            continue
        for place, name in enumerate((role.name, second_of(role.name))):
            own = {REPLICA: str(place), REPLICAS_DIR: str(folder)}
            found.append(replace(role, name=name, environment={**role.environment, **own}))
    return tuple(found)


def second_of(name: str) -> str:
    """The name of the second copy of a server."""
    return name + SECOND


def saved_as(name: str) -> str:
    """The name under which a role has checkpoints: both copies of a server have the same."""
    return name.removesuffix(SECOND)


def other_copy(name: str) -> str:
    """The name of the other copy of a server."""
    return name.removesuffix(SECOND) if name.endswith(SECOND) else second_of(name)


def with_metrics(roles: Sequence[Role], first: str) -> tuple[Role, ...]:
    """The roles, told to show metrics: one at the endpoint `first`, the others at the ports after it. "": unchanged."""
    if not first:
        return tuple(roles)
    host, _, port = first.rpartition(":")
    endpoints = (f"{host}:{int(port) + index}" for index in range(len(roles)))
    pairs = zip(roles, endpoints, strict=True)
    return tuple(replace(role, environment={**role.environment, METRICS: endpoint}) for role, endpoint in pairs)


# ---------------------------------------------------------------- processes
def role_process(role: Role) -> tuple[str, ...]:
    """The command of a process that plays a role."""
    return (sys.executable, "-m", "fluidtool", *role.words)


def take_role(role: Role, more: Mapping[str, str]) -> None:
    """Make this process find what a role finds, and nothing of another one."""
    for name in ROLE_VARIABLES:
        os.environ.pop(name, None)
    os.environ.update({**role.environment, **more})


def base_environment(roles: int, environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """What all roles of one machine find: whatever is there but another role; output that is not held back; a share of
    the processors each, unless the user has decided on threads; and this fluidtool.
    """
    found = without_role(environment) | {"PYTHONUNBUFFERED": "1"}
    share = str(max((os.cpu_count() or 1) // max(roles, 1), 1))
    for name in THREADS:
        found.setdefault(name, share)
    package = str(Path(__file__).resolve().parents[3])
    if package not in site.getsitepackages():
        found["PYTHONPATH"] = os.pathsep.join(filter(None, [package, found.get("PYTHONPATH", "")]))
    return found
