"""The local engine: processes on this machine, in groups of their own, so that Ctrl-C reaches the supervisor alone."""

from __future__ import annotations

import selectors
import signal
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from fluidtool.distribute.launch.contract import PROGRESS, STARTS
from fluidtool.distribute.launch.plans import Role, role_process
from fluidtool.distribute.launch.processes import Child
from fluidtool.distribute.launch.progress import Note, ProgressFile, Report
from fluidtool.distribute.launch.supervisor import Line


class LocalProcess:
    """A process of this machine and the file that it reports to. `released` is told when its pipes are closed."""

    def __init__(self, child: Child, progress: ProgressFile, released: Callable[[int], object]) -> None:
        self._child, self._progress, self._released = child, progress, released

    @property
    def process(self) -> int:
        """Its number, which is also that of its group."""
        return self._child.process

    def lines(self) -> list[Line]:
        """What it has written since the last call."""
        found: list[Line] = []
        for is_error, output in enumerate(self._child.outputs):
            if not output.at_end:
                found += [(line, bool(is_error)) for line in output.read()]
                if output.at_end:
                    self._released(output.handle)
        return found

    def reports(self) -> list[Report | Note]:
        """What it has reported since the last call."""
        return self._progress.read()

    def exit_code(self) -> int | None:
        """What it left with; None while it runs."""
        return self._child.exit_code()

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the process and whatever it has started."""
        self._child.signal(number)

    def close(self) -> list[Line]:
        """Kill what is left of it; its last words."""
        self._child.signal(signal.SIGKILL)
        found: list[Line] = []
        for is_error, output in enumerate(self._child.outputs):
            if not output.at_end:
                found += [(line, bool(is_error)) for line in output.drain()]
                self._released(output.handle)
        self._child.close()
        return found


class LocalEngine:
    """Starts processes here. folder: where they put their reports. environment: what all of them find.

    command: from a role to the words of its process.
    """

    def __init__(
        self,
        folder: Path,
        environment: Mapping[str, str],
        command: Callable[[Role], Sequence[str]] = role_process,
    ) -> None:
        self.folder, self.environment, self.command = folder, dict(environment), command
        self._selector = selectors.DefaultSelector()

    def prepare(self, roles: Sequence[Role], *, all_roles: bool) -> None:
        """Nothing has to be."""

    def start(self, role: Role, environment: dict[str, str]) -> LocalProcess:
        """Start a role; raises OSError."""
        progress = ProgressFile(self.folder / f"{role.name}.{environment[STARTS]}.jsonl")
        found = {**self.environment, **role.environment, **environment, PROGRESS: str(progress.path)}
        child = Child(self.command(role), found)
        for output in child.outputs:
            self._selector.register(output.handle, selectors.EVENT_READ)
        return LocalProcess(child, progress, self._selector.unregister)

    def wait(self, seconds: float) -> None:
        """Until a role writes, at most so long."""
        self._selector.select(seconds)
