"""`fluidtool launch --watch`: one page that fits the terminal, whatever the roles do and write; plain lines in a pipe."""

from __future__ import annotations

import io
import os
import re
from pathlib import Path

import pytest
from rich.console import Console

from fluidtool.cli.views.watch import Page, WatchView
from fluidtool.distribute.launch.progress import Report
from fluidtool.distribute.launch.status import RoleStatus
from tests.cli.support import call, error_of, on_terminal, process

ERROR = "error: server 10.0.0.1:6174 does not answer: its certificate expired on 2026-11-23; make new ones\x1b[2J"


def trainer(name: str, steps: int = 120, state: str = "running") -> RoleStatus:
    role = RoleStatus(name, "trainer", state, starts=1)  # type: ignore[arg-type]
    role.take(Report(0, examples=0), 0.0)
    role.take(Report(steps, 0.5, examples=steps * 32), 2.0)
    return role


def failed(name: str) -> RoleStatus:
    role = RoleStatus(name, "trainer", starts=3)
    role.complain(ERROR)
    role.fail("exit code 2")
    return role


def drawn(page: Page, width: int = 80, height: int = 24) -> list[str]:
    """The lines of the page on a terminal of that size."""
    written = io.StringIO()
    console = Console(file=written, width=width, height=height, color_system=None, legacy_windows=False)
    console.print(page.drawn(width, height, now=75.0))
    return [line.rstrip() for line in written.getvalue().splitlines()]


def page(*roles: RoleStatus) -> Page:
    return Page(0.0, roles)


def test_a_page_at_80_columns() -> None:
    made = page(RoleStatus("pserver_0", "pserver", "running", starts=1), trainer("trainer_0"), failed("trainer_1"))
    made.events.append("trainer_1 failed with exit code 2; restart 2 of 3")
    made.lines.append("trainer_0 | step 120")
    assert drawn(made) == [
        "3 roles, 1 failed, 2 running, 1920 examples/s, 0:01:15",
        "",
        "role       state       step  examples/s  restarts  last error",
        "pserver_0  running        -           -         0",
        "trainer_0  running      120        1920         0",
        "trainer_1  failed         -           -         2  exit code 2: error: server 1…",
        "trainer_1 failed with exit code 2; restart 2 of 3",
        "trainer_0 | step 120",
    ]


@pytest.mark.parametrize("width", [60, 80, 120])
@pytest.mark.parametrize("height", [12, 24, 50])
@pytest.mark.parametrize("count", [1, 8, 300])
def test_a_page_fits_its_terminal(width: int, height: int, count: int) -> None:
    made = page(*(trainer(f"trainer_{index}", 10**7) for index in range(count)), failed("trainer_last"))
    made.events.extend(["event " * 40] * 5)
    made.lines.extend(["output " * 40] * 200)
    lines = drawn(made, width, height)
    assert len(lines) <= height and max(map(len, lines)) <= width
    assert lines[2].startswith("role") and any(line.startswith("output") for line in lines)


def test_a_role_that_failed_is_shown_where_there_is_no_room_for_all() -> None:
    lines = drawn(page(*(trainer(f"trainer_{index}") for index in range(300)), failed("trainer_300")), height=12)
    assert any(line.startswith("trainer_300  failed") for line in lines)
    assert any(re.fullmatch(r"and \d+ more", line) for line in lines)


def test_what_could_command_the_terminal_is_written_out() -> None:
    lines = drawn(page(failed("trainer_1")), width=200)
    assert "\\x1b[2J" in lines[-1] and "\x1b" not in "".join(lines)


def test_the_view_draws_what_it_is_told() -> None:
    written = io.StringIO()
    console = Console(file=written, width=80, height=24, force_terminal=True, color_system=None)
    view = WatchView(9, console)
    with view.shown():
        view.event("started trainer_0")
        view.line("trainer_0", "hello", is_error=False)
        view.status([trainer("trainer_0")])
    shown, _, after = written.getvalue().partition("\x1b[?1049l")
    assert "trainer_0 | hello" in shown and "1920" in shown
    assert after.strip().endswith("started trainer_0")


def test_in_a_pipe_there_are_plain_lines(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text("print('hello')")
    done = process("launch", "--any-ports", "--mode", "collective", "--watch", tmp_path / "script.py", text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[0] == "trainer_0 | hello" and "\x1b" not in done.stdout + done.stderr


@pytest.mark.skipif(not hasattr(os, "openpty"), reason="there are no pseudo-terminals here")
def test_on_a_terminal_there_is_the_page(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text("print('hello')\nraise SystemExit(3)")
    written = on_terminal("launch", "--any-ports", "--mode", "collective", "--watch", tmp_path / "script.py")
    page, _, after = written.partition("\x1b[?1049l")
    assert "\x1b[?1049h" in page and "trainer_0" in page
    assert "trainer_0 failed with exit code 3" in after


def test_it_is_not_json(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text("")
    assert "--watch and --json" in error_of(call("launch", "--watch", "--json", tmp_path / "script.py"))
