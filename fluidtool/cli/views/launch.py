"""What `launch` shows: a live table on a terminal, plain lines in a pipe, or lines of JSON.

Views keep the stdout that they find: while a job runs, whatever else is printed in this process goes to stderr.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from typing import Any

from fluidtool.cli.failures import say
from fluidtool.cli.render import Table, amount, counted, in_color, number, printable, show, size, table
from fluidtool.cli.views.watch import WatchView
from fluidtool.distribute.launch.status import Outcome, RoleStatus
from fluidtool.io.jsonable import jsonable

SCHEMA = "fluidtool.launch/1"
SECONDS_BETWEEN_LINES = 10.0
SECONDS_BETWEEN_DRAWINGS = 0.5
COLORS = ("cyan", "magenta", "yellow", "green", "blue", "bright_red")


class PlainView:
    """Lines of roles with their names before them, and every now and then one that says how things stand."""

    def __init__(self, width: int) -> None:
        self.width, self._out = width, sys.stdout
        self._due = time.monotonic() + SECONDS_BETWEEN_LINES

    def line(self, role: str, text: str, is_error: bool) -> None:
        """stdout of a role goes to stdout, its stderr to stderr."""
        stream = sys.stderr if is_error else self._out
        stream.write(f"{role:{self.width}} | {printable(text)}\n")
        stream.flush()

    def event(self, text: str, **_: Any) -> None:
        """Talk."""
        say(text)

    def status(self, roles: Sequence[RoleStatus]) -> None:
        """A line after some seconds without one."""
        if time.monotonic() >= self._due:
            self._due = time.monotonic() + SECONDS_BETWEEN_LINES
            say(status_text(roles))


class JsonView:
    """Lines of JSON on stdout, one for each event, and for how things stand; what roles write goes to stderr."""

    def __init__(self, width: int) -> None:
        self.width, self._out = width, sys.stdout
        self._due = time.monotonic() + SECONDS_BETWEEN_LINES

    def line(self, role: str, text: str, is_error: bool) -> None:
        """Everything goes to stderr."""
        sys.stderr.write(f"{role:{self.width}} | {printable(text)}\n")

    def event(self, text: str, **fields: Any) -> None:
        """An event with its text."""
        self._write({"schema": SCHEMA, **fields, "text": text})

    def status(self, roles: Sequence[RoleStatus]) -> None:
        """A line after some seconds without one."""
        if time.monotonic() >= self._due:
            self._due = time.monotonic() + SECONDS_BETWEEN_LINES
            self._write({"schema": SCHEMA, "event": "status", "roles": [role.fields() for role in roles]})

    def _write(self, line: dict[str, Any]) -> None:
        self._out.write(json.dumps(jsonable(line), allow_nan=False) + "\n")
        self._out.flush()


class LiveView:
    """A table at the foot of a terminal, above which the lines of the roles go by."""

    def __init__(self, width: int) -> None:
        from rich.console import Console
        from rich.live import Live

        self.width, self.colors = width, in_color(sys.stdout)
        self._console = Console(file=sys.stdout, highlight=False, markup=False, emoji=False)
        self._live = Live(console=self._console, auto_refresh=False, transient=True)
        self._seen: list[str] = []
        self._due = 0.0

    @contextmanager
    def shown(self) -> Iterator[None]:
        """Within the block the table is there."""
        with self._live:
            yield

    def line(self, role: str, text: str, is_error: bool) -> None:
        """A role's name in its color, and what it wrote."""
        from rich.text import Text

        if role not in self._seen:
            self._seen.append(role)
        color = COLORS[self._seen.index(role) % len(COLORS)] if self.colors else ""
        self._console.print(Text(f"{role:{self.width}} | ", style=color) + Text(printable(text)))

    def event(self, text: str, **_: Any) -> None:
        """Talk, between the lines of the roles."""
        from rich.text import Text

        self._console.print(Text(printable(text), style="bold" if self.colors else ""))

    def status(self, roles: Sequence[RoleStatus]) -> None:
        """Draw the table anew, twice a second."""
        if time.monotonic() < self._due:
            return
        from rich.table import Table

        self._due = time.monotonic() + SECONDS_BETWEEN_DRAWINGS
        drawn = Table(box=None, pad_edge=False, header_style="bold")
        for title in HEADINGS:
            drawn.add_column(title.lstrip(">!"), justify="right" if title.startswith(">") else "left", no_wrap=True)
        for role in roles:
            drawn.add_row(*cells(role))
        self._live.update(drawn, refresh=True)


HEADINGS = ("!role", "!state", ">starts", ">step", ">steps/s", ">loss", ">sent", ">received")
AnyView = PlainView | JsonView | LiveView | WatchView


def cells(role: RoleStatus) -> tuple[str, ...]:
    """A row of the table."""
    rate, step = role.steps_per_second, role.step
    traffic = (size(role.sent) if role.sent else "-", size(role.received) if role.received else "-")
    return (
        role.name,
        role.state,
        str(role.starts),
        "-" if step is None else amount(step),
        number(None if rate is None else round(rate, 1)),
        number(role.loss),
        *traffic,
    )


def status_text(roles: Sequence[RoleStatus]) -> str:
    """'trainer_0 step 120, 3.4 steps/s, loss 0.53; …'."""
    parts = []
    for role in roles:
        if role.step is None:
            continue
        rate = role.steps_per_second
        fields = [f"step {role.step}"]
        fields += [] if rate is None else [f"{rate:.1f} steps/s"]
        fields += [] if role.loss is None else [f"loss {number(role.loss)}"]
        parts.append(f"{role.name} {', '.join(fields)}" + ("" if role.state == "running" else f" ({role.state})"))
    return "; ".join(parts) or f"{counted(len(roles), 'role')}, none has reported yet"


@contextmanager
def view(roles: Sequence[str], as_json: bool, watch: bool = False) -> Iterator[AnyView]:
    """The view for where stdout goes; what is printed within the block, as Ray does, goes to stderr.

    watch: on a terminal, one page instead of lines above a table.
    """
    width = max((len(role) for role in roles), default=0)
    if as_json or not sys.stdout.isatty():
        plain = JsonView(width) if as_json else PlainView(width)
        with redirect_stdout(sys.stderr):
            yield plain
        return
    live = WatchView(width) if watch else LiveView(width)
    with live.shown(), redirect_stdout(sys.stderr):
        yield live


def show_outcome(outcome: Outcome, as_json: bool) -> None:
    """How the job ended: a last line of JSON, or a table."""
    if as_json:
        JsonView(0).event(outcome.reason, **outcome_fields(outcome))
    else:
        show(outcome_table(outcome))


def outcome_fields(outcome: Outcome) -> dict[str, Any]:
    """What --json says at the end."""
    return {
        "event": "end",
        "exit_code": outcome.exit_code,
        "reason": outcome.reason or None,
        "seconds": round(outcome.seconds, 3),
        "restarts": outcome.restarts,
        "roles": [role.fields() for role in outcome.roles],
    }


def outcome_table(outcome: Outcome) -> Table:
    """What is shown at the end."""
    out = table("", *HEADINGS)
    for role in outcome.roles:
        out.add(*cells(role))
    return out
