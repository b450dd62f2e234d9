"""What `launch --watch` shows: one page of a terminal with the roles, what happened last, and what they wrote last."""

from __future__ import annotations

import sys
import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import field
from typing import TYPE_CHECKING, Any

from fluidtool.cli.render import amount, counted, number, printable
from fluidtool.distribute.launch.status import DONE, FAILED, RUNNING, STOPPED, WAITING, RoleStatus
from fluidtool.records import dataclass

if TYPE_CHECKING:
    from rich.console import Console, Group
    from rich.table import Table

SECONDS_BETWEEN_PAGES = 0.5
KEPT = 200  # lines of roles, for a tall terminal
TITLE_LINES, HEADING_LINES, EVENTS = 2, 1, 3
FEWEST_OUTPUT_LINES = 4
ATTENTION = (FAILED, STOPPED, WAITING, RUNNING, DONE)  # who is shown first if there is no room for all
STYLES = {FAILED: "bold red", STOPPED: "yellow", RUNNING: "green"}
COLUMNS = (  # heading, alignment, least width
    ("role", "left", 9),
    ("state", "left", 7),
    ("step", "right", 7),
    ("examples/s", "right", 10),
    ("restarts", "right", 8),
)


@dataclass(slots=True)
class Page:
    """What is known of a job. started: seconds of `time.monotonic`."""

    started: float
    roles: Sequence[RoleStatus] = ()
    events: deque[str] = field(default_factory=lambda: deque(maxlen=EVENTS))
    lines: deque[str] = field(default_factory=lambda: deque(maxlen=KEPT))

    def drawn(self, width: int, height: int, now: float) -> Group:
        """At most `height` lines of at most `width` columns: title, roles, events, and output in what room is left."""
        from rich.console import Group
        from rich.text import Text

        room = height - TITLE_LINES - HEADING_LINES - len(self.events) - 1
        shown = self._shown(max(room - FEWEST_OUTPUT_LINES, 1))
        left = len(self.roles) - len(shown)
        rest = [Text(f"and {left} more", style="dim")] if left else []
        room -= len(shown) + len(rest)
        output = list(self.lines)[-room:] if room > 0 else []
        events = [_line(text, width, "bold") for text in self.events]
        lines = [_line(text, width, "dim") for text in output]
        return Group(
            _line(self._title(now), width, "bold"), Text(""), self._table(shown, width), *rest, *events, *lines
        )

    def _shown(self, room: int) -> list[RoleStatus]:
        """The roles there is room for, in their order: those that need attention before others."""
        if len(self.roles) <= room:
            return list(self.roles)
        urgent = sorted(self.roles, key=lambda role: ATTENTION.index(role.state))[: max(room - 1, 1)]
        return [role for role in self.roles if any(role is each for each in urgent)]

    def _title(self, now: float) -> str:
        minutes, seconds = divmod(int(now - self.started), 60)
        hours, minutes = divmod(minutes, 60)
        states = [role.state for role in self.roles]
        parts = [f"{states.count(state)} {state}" for state in ATTENTION if state in states]
        rates = [rate for role in self.roles if (rate := role.examples_per_second) is not None]
        speed = [f"{amount(round(sum(rates)))} examples/s"] if rates else []
        return ", ".join([counted(len(states), "role"), *parts, *speed, f"{hours}:{minutes:02}:{seconds:02}"])

    def _table(self, roles: Iterable[RoleStatus], width: int) -> Table:
        from rich.table import Table
        from rich.text import Text

        drawn = Table(box=None, pad_edge=False, header_style="bold", width=width, padding=(0, 2, 0, 0))
        for heading, alignment, least in COLUMNS:
            drawn.add_column(heading, justify=alignment, min_width=least, no_wrap=True, overflow="ellipsis")  # type: ignore[arg-type]
        drawn.add_column("last error", ratio=1, no_wrap=True, overflow="ellipsis")
        for role in roles:
            state = Text(role.state, style=STYLES.get(role.state, ""))
            drawn.add_row(role.name, state, *_figures(role), Text(printable(role.last_error)))
        return drawn


def _figures(role: RoleStatus) -> tuple[str, str, str]:
    """Step, examples per second, restarts."""
    rate, step = role.examples_per_second, role.step
    return "-" if step is None else amount(step), number(None if rate is None else round(rate, 1)), str(role.restarts)


def _line(text: str, width: int, style: str) -> Any:
    from rich.text import Text

    line = Text(printable(text), style=style)
    line.truncate(width, overflow="ellipsis")
    return line


class WatchView:
    """A page that is drawn anew twice a second, in place of whatever the terminal showed; that comes back afterwards."""

    def __init__(self, width: int, console: Console | None = None) -> None:
        from rich.console import Console
        from rich.live import Live

        self.width = width
        self._console = console or Console(file=sys.stdout, highlight=False, markup=False, emoji=False)
        self._live = Live(console=self._console, auto_refresh=False, screen=True)
        self._page = Page(time.monotonic())
        self._due = 0.0

    @contextmanager
    def shown(self) -> Iterator[None]:
        """Within the block the page is there; afterwards the last events stand in the terminal."""
        with self._live:
            yield
        for text in self._page.events:
            self._console.print(printable(text))

    def line(self, role: str, text: str, is_error: bool) -> None:
        """A line of a role goes to the foot of the page."""
        self._page.lines.append(f"{role:{self.width}} | {text}")

    def event(self, text: str, **_: Any) -> None:
        """The last few stay on the page."""
        self._page.events.append(text)

    def status(self, roles: Sequence[RoleStatus]) -> None:
        """Draw the page, twice a second."""
        now = time.monotonic()
        self._page.roles = roles
        if now >= self._due:
            self._due = now + SECONDS_BETWEEN_PAGES
            self._live.update(self._page.drawn(*self._console.size, now), refresh=True)
