"""Which roles are started again after one of them failed, and from which step."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import Protocol

from fluidtool.distribute.checkpoints import forget_after, latest_complete
from fluidtool.distribute.environment import PSERVER
from fluidtool.distribute.launch.plans import Role, other_copy, saved_as
from fluidtool.errors import EXIT_SUPERSEDED
from fluidtool.records import dataclass

EXIT_KILLED = 128  # and the number of the signal


class Saved(Protocol):
    """The checkpoints of a job."""

    def newest(self, roles: Sequence[str]) -> int | None:
        """The newest step of which all these roles have a complete one."""

    def forget(self, roles: Sequence[str]) -> None:
        """Remove those of these roles, which start from the beginning."""


class NothingSaved:
    """Of a job that saves no checkpoints."""

    def newest(self, roles: Sequence[str]) -> int | None:
        """None."""

    def forget(self, roles: Sequence[str]) -> None:
        """There is nothing to remove."""


@dataclass(frozen=True, slots=True)
class SavedIn:
    """The checkpoints below a folder."""

    folder: Path

    def newest(self, roles: Sequence[str]) -> int | None:
        """The newest step of which all these roles have a complete one."""
        return latest_complete(self.folder, roles)

    def forget(self, roles: Sequence[str]) -> None:
        """Remove those of these roles: mixed with new ones they would be taken for the same run's."""
        for role in roles:
            forget_after(self.folder, role, -1)


@dataclass(frozen=True, slots=True)
class SavedByServers:
    """Those of an elastic job: servers resume from the newest step that all of them have, a trainer from its own."""

    folder: Path
    servers: tuple[str, ...]

    def newest(self, roles: Sequence[str]) -> int | None:
        """The newest step of all servers, if these are servers; else that of these roles."""
        return latest_complete(self.folder, self.servers if {*roles} <= {*self.servers} else roles)

    def forget(self, roles: Sequence[str]) -> None:
        """Remove those of these roles."""
        SavedIn(self.folder).forget(roles)


Steps = Mapping[str, int | None]


@dataclass(frozen=True, slots=True)
class SavedByAll:
    """The checkpoints of a synchronous job below a folder as one of its roles sees them: only steps of all roles count."""

    folder: Path
    everybody: tuple[str, ...]

    def newest(self, roles: Sequence[str]) -> int | None:
        """The newest step of which every role of the job has a complete one."""
        return latest_complete(self.folder, self.everybody)

    def forget(self, roles: Sequence[str]) -> None:
        """Remove those of these roles."""
        SavedIn(self.folder).forget(roles)


@dataclass(frozen=True, slots=True)
class Restart:
    """The roles to start, and the step of the checkpoint that each resumes from; None: from the beginning."""

    roles: tuple[Role, ...]
    steps: Steps


@dataclass(frozen=True, slots=True)
class Recovery:
    """sync: trainers wait for one another, so all roles go back to the newest step that all have saved.

    Otherwise each role resumes from its own newest step. A trainer that died starts alone: servers know which of its updates
    they have. With a server all roles start again: what it had taken since its checkpoint, the trainers compute anew.
    numbered: trainers number their steps, as those of job folders do. Where they do not, as in scripts, nothing can be
    computed anew, and a server with a checkpoint starts alone, too. elsewhere: something else restarts roles.
    replicas: each server has two copies. One that is killed, or that the other one has replaced, starts alone, and copies what the
    other has.
    least: of an elastic job, how many trainers it needs. A trainer that died starts alone, or is left out; servers resume from
    the newest step that all servers have saved, and trainers begin with whatever round the servers are in.
    """

    restarts: int = 0
    sync: bool = True
    saved: Saved = field(default_factory=NothingSaved)
    numbered: bool = True
    elsewhere: bool = False
    least: int | None = None
    replicas: bool = False

    def survives(self, failed: Role, code: int, well: Collection[str]) -> bool:
        """Whether the job goes on without a role that left with `code`: the other copy of its server is well, and it was killed or
        has been replaced. well: the names of roles that run, or have ended well.
        """
        if not self.replicas or failed.kind != PSERVER or other_copy(failed.name) not in well:
            return False
        return code == EXIT_SUPERSEDED or code > EXIT_KILLED

    def after(self, failed: Role, roles: Sequence[Role], done: int, *, alone: bool = True) -> Restart | None:
        """What to start again when `failed` has failed and there were `done` restarts before; None: give up.

        alone: the others are well, and `failed` may join them.
        """
        if done >= self.restarts:
            return None
        waits = self.sync and self.least is None
        joins = not waits and alone and (failed.kind != PSERVER or self._may_join(failed))
        starting = (failed,) if joins else tuple(roles)
        steps = self.newest(starting)
        self.saved.forget([saved_as(name) for name, step in steps.items() if step is None])
        return Restart(starting, steps)

    def replacement(self, failed: Role, done: int) -> Restart | None:
        """Of a role without which the job goes on; None when there were so many restarts before that there are no more."""
        return Restart((failed,), {}) if done < self.restarts else None

    def newest(self, roles: Sequence[Role]) -> Steps:
        """The steps that these roles may resume from."""
        names = [role.name for role in roles]
        if self.sync and self.least is not None:
            servers = [role.name for role in roles if role.kind == PSERVER]
            own = {name: self._newest([name]) for name in names if name not in servers}
            return {**dict.fromkeys(servers, self._newest(servers)), **own}
        if self.sync:
            return dict.fromkeys(names, self._newest(names))
        return {name: self._newest([name]) for name in names}

    def _newest(self, names: Sequence[str]) -> int | None:
        return self.saved.newest(list(dict.fromkeys(map(saved_as, names))))

    def _may_join(self, server: Role) -> bool:
        """One that has saved nothing but what it began with would lose all updates."""
        return not self.numbered and bool(self.saved.newest([server.name]))

    def goes_on_without(self, failed: Role, running: int, done: int) -> bool:
        """Whether the job continues, or has ended, without a trainer. running, done: how many others train, or have trained."""
        if self.least is None or failed.kind == PSERVER:
            return False
        return running >= self.least or (not running and done > 0)

    def ends_without(self, failed: Role, trainers: Collection[bool], has_saved: bool = False) -> bool:
        """Whether the job is over, and has all that it was for. trainers: whether each has ended well.

        They have saved what the servers had, and checkpoints of a synchronous job are of steps that all have done. But an
        asynchronous server writes a last one after all updates: until it `has_saved` that, trainers' checkpoints may be of
        updates that no other one has.
        """
        if failed.kind != PSERVER or not trainers or not all(trainers):
            return False
        return self.sync or has_saved or isinstance(self.saved, NothingSaved)

    def refusal(self) -> str:
        """Why `after` gave up."""
        if self.elsewhere:
            return "what started it may restart it"
        return (
            "no restarts are allowed (--restarts N)"
            if not self.restarts
            else f"all {self.restarts} restarts are used up"
        )
