"""Which roles are started again after one of them failed, and from which step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from fluidtool.distribute.checkpoints import forget_after, latest_complete
from fluidtool.distribute.environment import PSERVER
from fluidtool.distribute.launch.plans import Role


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
    """The roles to start, and the step of the checkpoints that they go on from; None: from the beginning."""

    roles: tuple[Role, ...]
    step: int | None


@dataclass(frozen=True, slots=True)
class Recovery:
    """sync: trainers wait for one another, so all roles go back to the newest step that all have saved.

    Otherwise a role that died starts alone, from the newest step of its own. elsewhere: something else restarts roles.
    """

    restarts: int = 0
    sync: bool = True
    saved: Saved = field(default_factory=NothingSaved)
    elsewhere: bool = False

    def after(self, failed: Role, roles: Sequence[Role], done: int) -> Restart | None:
        """What to start again when `failed` has failed and there were `done` restarts before; None: give up."""
        if done >= self.restarts:
            return None
        if self.sync:
            return self._from_newest(roles)
        restart = self._from_newest([failed])
        if failed.kind == PSERVER and restart.step is None:
            return None  # what it had learnt is gone, and the trainers would not notice
        return restart

    def _from_newest(self, roles: Sequence[Role]) -> Restart:
        names = [role.name for role in roles]
        step = self.saved.newest(names)
        if step is None:
            self.saved.forget(names)
        return Restart(tuple(roles), step)

    def refusal(self, failed: Role, done: int) -> str:
        """Why `after` gave up."""
        if self.elsewhere:
            return "what started it may restart it"
        if done < self.restarts:
            return f"{failed.name} has no checkpoint to go on from; give --checkpoint DIR"
        return (
            "no restarts are allowed (--restarts N)"
            if not self.restarts
            else f"all {self.restarts} restarts are used up"
        )
