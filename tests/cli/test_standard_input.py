"""`-` where a model is read: a program on standard input."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fluidtool
from fluidtool.cli import opening
from tests.cli.support import DIGITS, PAIR, call, error_of, on_terminal

PROGRAM = (DIGITS / "__model__").read_bytes()
WEIGHTS = ("--params", str(DIGITS))


@pytest.mark.parametrize(
    "words",
    [
        ["inspect", "-"],
        ["inspect", "-", "--ops"],
        ["inspect", "-", "--with-params", *WEIGHTS],
        ["check", "-", *WEIGHTS],
        ["ops", "--coverage", "-"],
        ["diff", DIGITS, "-"],
        ["params", "list", "-", *WEIGHTS],
        ["run", "-", "--random", *WEIGHTS],
        ["profile", "-", "--random", "--repeat", "1", *WEIGHTS],
        ["reshape", "-", "[8,1,8,8]"],
        ["transpile", "-", "--release-memory"],
    ],
    ids=lambda words: " ".join(map(str, words[:3])),
)
def test_a_program_is_read_from_standard_input(words: list[Any]) -> None:
    result = call(*words, "--json", input=PROGRAM)
    assert result.exit_code == 0, result.stderr


@pytest.mark.parametrize(
    "words",
    [
        ["prune", "-", "--targets", "fc_0.tmp_1", *WEIGHTS],
        ["reshape", "-", "[8,1,8,8]", *WEIGHTS],
        ["convert", "-", "--to", "separate", *WEIGHTS],
        ["transpile", "-", "--fuse-bn", *WEIGHTS],
    ],
    ids=lambda words: str(words[0]),
)
def test_what_is_written_is_a_model(words: list[Any], tmp_path: Path) -> None:
    result = call(*words, "-o", tmp_path / "out", input=PROGRAM)
    assert result.exit_code == 0, result.stderr
    model = fluidtool.load(tmp_path / "out")
    assert model.run({"image": np.zeros((8, 1, 8, 8), "float32")})
    assert (tmp_path / "out" / "__model__").is_file()


def test_a_pair_is_read_with_its_parameters(tmp_path: Path) -> None:
    program = Path(f"{PAIR}.pdmodel").read_bytes()
    result = call("run", "-", "--params", f"{PAIR}.pdiparams", "--random", input=program)
    assert result.exit_code == 0, result.stderr


def test_only_one_input_is_standard_input() -> None:
    assert "2 inputs are -" in error_of(call("diff", "-", "-", input=PROGRAM))
    assert "2 inputs are -" in error_of(call("run", "-", "--feed", "image=-", input=PROGRAM))


def test_outputs_on_standard_output_are_no_input() -> None:
    result = call("run", "-", "--random", "-o", "-", *WEIGHTS, input=PROGRAM)
    assert result.exit_code == 0 and result.stdout_bytes.startswith(b"PK")


def test_nothing_on_standard_input_is_refused() -> None:
    result = call("inspect", "-", input=b"")
    assert result.exit_code == 3 and "standard input is empty" in error_of(result)


def test_what_is_no_program_is_named(tmp_path: Path) -> None:
    result = call("inspect", "-", input=b"\x89HDF\r\n\x1a\n" + bytes(100))
    assert result.exit_code == 3 and "standard input is an HDF5 file" in error_of(result)
    assert "standard input" in error_of(call("check", "-", input=PROGRAM[:-10]))


def test_standard_input_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fluidtool.io.layout.LARGEST_PROGRAM", 100)
    assert "more than 100 bytes" in error_of(call("inspect", "-", input=PROGRAM))


def test_a_terminal_is_refused() -> None:
    assert "is a terminal" in on_terminal("inspect", "-", columns=200)


def test_the_source_is_named() -> None:
    assert opening.StandardInput(b"").name == "standard input" and isinstance(opening.StandardInput(b""), io.BytesIO)
