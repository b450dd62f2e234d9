"""`-q`, `-v`, `FORCE_COLOR`: how much is said on stderr, and in which colors."""

from __future__ import annotations

import re

import pytest

from fluidtool.cli.commands import COMMANDS
from tests.cli.support import DIGITS, call, on_terminal


@pytest.mark.parametrize("option", ["-q", "--quiet"])
def test_quiet_says_nothing_but_errors(option: str) -> None:
    loud, quiet = (call("run", DIGITS, "--random", "--seed", 1, *options) for options in ([], [option]))
    assert loud.stderr == "random input image: float32 (1, 1, 8, 8)\n"
    assert (quiet.stderr, quiet.stdout) == ("", loud.stdout)
    assert call("run", DIGITS, option).stderr.startswith("error: no value for the input image")


def test_verbose_says_how_long_each_part_took() -> None:
    lines = call("run", DIGITS, "--random", "-v").stderr.splitlines()
    assert re.fullmatch(rf"reading {re.escape(str(DIGITS))}: \d+\.\d{{3}} s", lines[0])
    assert re.fullmatch(r"running: \d+\.\d{3} s", lines[-1])


def test_what_is_said_does_not_last() -> None:
    call("run", DIGITS, "--random", "-q")
    assert call("run", DIGITS, "--random").stderr != ""


@pytest.mark.parametrize("name", [name for name in COMMANDS if name != "version"])
def test_every_command_takes_both(name: str) -> None:
    out = call(name, "--help").stdout
    assert "-q, --quiet" in out and "-v, --verbose" in out


def test_colors_in_a_pipe_where_they_are_forced() -> None:
    plain = call("inspect", DIGITS, "--ops").stdout
    forced = call("inspect", DIGITS, "--ops", env={"FORCE_COLOR": "1", "COLUMNS": None}).stdout
    assert "\x1b" not in plain and "\x1b[1m" in forced
    assert "SavedVariance=batch_norm_0.tmp_1" in forced  # not folded
    assert "\x1b" not in call("inspect", DIGITS, "--ops", env={"FORCE_COLOR": "1", "NO_COLOR": "1"}).stdout


def test_no_word_of_an_error_is_broken() -> None:
    path = "/nowhere/" + "long_name_" * 12
    shown = on_terminal("inspect", path, columns=60, NO_COLOR="1")
    assert path in shown.replace("\r", "")


def test_no_name_is_broken_within_a_word_on_a_terminal() -> None:
    shown = on_terminal("inspect", DIGITS, "--ops", TERM="dumb")
    lines = shown.splitlines()
    assert max(map(len, lines)) <= 80
    broken = [part for line in lines for part in line.split() if re.search(r"[A-Za-z]$", part)]
    whole = set(re.findall(r"[A-Za-z]+", call("inspect", DIGITS, "--ops").stdout))
    assert {re.findall(r"[A-Za-z]+", part)[-1] for part in broken} <= whole
