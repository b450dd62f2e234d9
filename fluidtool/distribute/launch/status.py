"""Where each role of a running job stands, and who is told of it."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Any, Literal, Protocol

from fluidtool.distribute.launch.progress import Report
from fluidtool.records import dataclass

if TYPE_CHECKING:
    from fluidtool.report.launch import RoleStatus as StatusFields

WINDOW = 10.0  # seconds over which a rate is taken
State = Literal["waiting", "running", "done", "failed", "stopped"]
WAITING: State = "waiting"
RUNNING: State = "running"
DONE: State = "done"
FAILED: State = "failed"
STOPPED: State = "stopped"


@dataclass(slots=True)
class RoleStatus:
    """One role as the supervisor sees it; `starts` counts its processes, the first included, `late` the rounds that waited for
    it much longer than for others.
    """

    name: str
    kind: str
    state: State = WAITING
    starts: int = 0
    process: int | None = None
    step: int | None = None
    loss: float | None = None
    sent: int = 0
    received: int = 0
    exit_code: int | None = None
    last_error: str = ""
    late: int = 0
    heard: float = 0.0
    _complaint: str = field(default="", repr=False)
    _reports: deque[tuple[float, int, int]] = field(default_factory=deque, repr=False)

    def take(self, report: Report, now: float) -> None:
        """What the role reports, at this moment."""
        self.step, self.heard = report.step, now
        self.loss = self.loss if report.loss is None else report.loss
        self.sent, self.received = report.sent, report.received
        self._reports.append((now, report.step, report.examples))
        while now - self._reports[0][0] > WINDOW and len(self._reports) > 2:
            self._reports.popleft()

    def complain(self, text: str) -> None:
        """What the role wrote to stderr; if it fails, the last of it is why."""
        self._complaint = text.strip() or self._complaint

    def fail(self, how: str) -> None:
        """The role has failed: an exit code or the name of a signal, and what it wrote last to stderr."""
        self.state = FAILED
        self.last_error = f"{how}: {self._complaint}" if self._complaint else how

    def restart(self) -> None:
        """The role starts again, and so does what it is measured by."""
        self._reports.clear()
        self._complaint = ""

    @property
    def restarts(self) -> int:
        """How often it was started again."""
        return max(self.starts - 1, 0)

    @property
    def has_moved(self) -> bool:
        """Whether it has reported a step since it was started."""
        return bool(self._reports)

    @property
    def steps_per_second(self) -> float | None:
        """Over the last seconds; None before there are two reports."""
        return self._rate(1)

    @property
    def examples_per_second(self) -> float | None:
        """Over the last seconds; None before there are two reports, or if the role reports no examples."""
        return self._rate(2) if self._reports and self._reports[-1][2] else None

    def _rate(self, column: int) -> float | None:
        if len(self._reports) < 2:
            return None
        first, last = self._reports[0], self._reports[-1]
        seconds = last[0] - first[0]
        return (last[column] - first[column]) / seconds if seconds > 0 else None

    def fields(self) -> StatusFields:
        """In terms of JSON."""
        rate, examples = self.steps_per_second, self.examples_per_second
        return {
            "role": self.name,
            "state": self.state,
            "starts": self.starts,
            "process": self.process,
            "step": self.step,
            "loss": self.loss,
            "steps_per_second": None if rate is None else round(rate, 3),
            "examples_per_second": None if examples is None else round(examples, 3),
            "bytes_sent": self.sent,
            "bytes_received": self.received,
            "exit_code": self.exit_code,
            "last_error": self.last_error or None,
            "late": self.late,
        }


class View(Protocol):
    """Who is told what happens; called from one thread only."""

    def line(self, role: str, text: str, is_error: bool) -> None:
        """A role wrote a line."""

    def event(self, text: str, **fields: Any) -> None:
        """The supervisor did something, or found something."""

    def status(self, roles: Sequence[RoleStatus]) -> None:
        """How things stand; called a few times a second."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a job ended. exit_code: as `fluidtool launch` leaves with it; reason: '' when all trainers are done."""

    exit_code: int
    reason: str
    roles: tuple[RoleStatus, ...]
    seconds: float
    restarts: int
