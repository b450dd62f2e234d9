"""What stdout looks like: plain columns in a pipe, tables that fit on a terminal, JSON that every reader takes."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path

import numpy as np
import pytest

from fluidtool.cli.render import amount, counted, fields, number, plain, printable, size, table
from fluidtool.io.jsonable import jsonable
from tests.cli.support import DIGITS, call, on_terminal, process

pytest.importorskip("pty", reason="pseudo-terminals exist on POSIX systems only")
ANSI = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


# ---------------------------------------------------------------- in a pipe
def test_plain_columns_stand_in_line() -> None:
    out = table("Title", "name", ">count")
    out.add("a", 1)
    out.add("longer", 22)
    assert plain(out) == "Title\nname    count\na           1\nlonger     22\n"


def test_plain_fields_have_no_header() -> None:
    assert plain(fields("", [("a", 1), ("bcd", "e f")])) == "a    1\nbcd  e f\n"


def test_one_long_cell_does_not_widen_every_line() -> None:
    out = table("", "name", "values", ">count")
    out.add("long", "v" * 100_000, 1)
    for position in range(1_000):
        out.add(f"short{position}", "v", position)
    assert len(plain(out)) < 100_000 + 1_000 * 300


def test_plain_cells_are_one_line() -> None:
    out = table("", "x", "y")
    out.add("a\nb", "c")
    assert plain(out) == "x    y\na b  c\n"


def test_a_pipe_gets_no_escape_and_whole_names() -> None:
    out = call("inspect", DIGITS, env={"COLUMNS": "40"}).stdout
    assert "\x1b" not in out
    assert "save_infer_model/scale_0.tmp_0  float32  (-1, 10)" in out


# ---------------------------------------------------------------- on a terminal
@pytest.mark.parametrize("columns", [80, 120])
@pytest.mark.parametrize(
    "args",
    [
        ["inspect", str(DIGITS)],
        ["inspect", str(DIGITS), "--with-params"],
        ["inspect", str(DIGITS), "--plan"],
        ["run", str(DIGITS), "--random", "--fetch-all"],
        ["ops", "batch_norm*"],
    ],
    ids=lambda value: "-".join(value[2:] or value[:1]) if isinstance(value, list) else None,
)
def test_tables_fit_the_terminal(columns: int, args: list[str]) -> None:
    shown = ANSI.sub("", on_terminal(*args, columns=columns))
    assert max(len(line) for line in shown.splitlines()) <= columns
    assert "Traceback" not in shown and "error:" not in shown


def test_long_names_are_folded_not_cut() -> None:
    lines = ANSI.sub("", on_terminal("inspect", DIGITS, "--vars", columns=60)).splitlines()
    end = next(line for line in lines if line.startswith("variable")).index("kind")
    names = "".join(line[:end].strip() for line in lines)
    assert "…" not in names
    assert "save_infer_model/scale_0.tmp_0" in names


def test_a_terminal_gets_bold_but_not_with_no_color() -> None:
    assert "\x1b[1m" in on_terminal("inspect", DIGITS)
    assert "\x1b[3" not in on_terminal("inspect", DIGITS, NO_COLOR="1")
    assert "\x1b[1;31m" in on_terminal("inspect", "nothing")
    assert "\x1b" not in on_terminal("inspect", "nothing", NO_COLOR="1")


def test_errors_are_wrapped_at_words_on_a_terminal() -> None:
    shown = on_terminal("inspect", "nothing", columns=60, NO_COLOR="1")
    assert max(len(line) for line in shown.splitlines()) <= 60
    assert " ".join(shown.split()).startswith("error: there is no model at nothing: no such file or folder")


# ---------------------------------------------------------------- JSON and numbers
def test_json_has_no_number_that_json_does_not_know() -> None:
    data = jsonable({"a": [math.nan, math.inf, -math.inf, 1.5], "b": np.float32(2), "c": np.array([[1, 2]]), "d": b"x"})
    assert data == {"a": ["NaN", "Infinity", "-Infinity", 1.5], "b": 2.0, "c": [[1, 2]], "d": "x"}
    json.dumps(data, allow_nan=False)


@pytest.mark.parametrize(
    ("count", "text"), [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (2**30, "1.0 GiB"), (500 * 2**20, "500 MiB")]
)
def test_sizes(count: int, text: str) -> None:
    assert size(count) == text


@pytest.mark.parametrize(("count", "text"), [(9999, "9999"), (25_600_000, "25.6 M"), (4_089_184_256, "4.1 G")])
def test_amounts(count: int, text: str) -> None:
    assert amount(count) == text


@pytest.mark.parametrize(
    ("value", "text"), [(3, "3"), (0.123456, "0.1235"), (None, "-"), (1e-9, "1e-09"), (True, "True")]
)
def test_numbers(value: object, text: str) -> None:
    assert number(value) == text


def test_control_characters_are_written_out() -> None:
    assert printable("a\x1b]0;title\x07b") == "a\\x1b]0;title\\x07b"


def test_names_from_a_program_cannot_command_the_terminal(tmp_path: Path) -> None:
    from tests.cli.support import linear_program

    program = linear_program()
    program.global_block().rename_var("sum", "s\x1b[2Jum")
    file = tmp_path / "program.pb"
    file.write_bytes(program.serialize_to_string())
    for view in ("--vars", "--ops", "--with-details", "--format=text"):
        done = process("inspect", file, view)
        assert done.returncode == 0
        assert b"\x1b" not in done.stdout


def test_one_is_singular() -> None:
    assert [counted(count, "file") for count in (0, 1, 2)] == ["0 files", "1 file", "2 files"]
