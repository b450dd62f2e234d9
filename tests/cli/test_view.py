"""`fluidtool view`: files, standard output, what is said, the document, and every misuse."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.cli.support import call, call_json, error_of, linear_model, on_terminal, write_model
from tests.drawing.programs import EVIL, chain, looping, named


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return linear_model(tmp_path / "model")


def test_what_was_drawn_is_said(model: Path, tmp_path: Path) -> None:
    result = call("view", model, "-o", tmp_path / "a.html")
    assert (result.exit_code, result.stdout) == (0, "")
    assert result.stderr == f"6 operators drawn in {tmp_path / 'a.html'}\n"


def test_what_is_folded_is_said(tmp_path: Path) -> None:
    path = write_model(tmp_path / "chain", chain(100))
    said = call("view", path, "-o", tmp_path / "a.svg", "--fold", "always").stderr
    assert re.search(r"10 nodes at first, with 8 groups folded: operators 1–\d+, ", said), said


def test_unknown_operators_are_drawn_and_named(tmp_path: Path) -> None:
    path = write_model(tmp_path / "model", named("x"))
    result = call("view", path, "-o", tmp_path / "a.svg")
    assert result.exit_code == 0 and "1 operator of unknown types drawn: mystery" in result.stderr


def test_json(tmp_path: Path) -> None:
    path = write_model(tmp_path / "model", looping())
    assert call_json("view", path, "-o", tmp_path / "a.html") == {
        "schema": "fluidtool.view/1",
        "files": [str(tmp_path / "a.html")],
        "format": "html",
        "operators": 9,
        "shown": 6,
        "groups": [{"title": "while", "why": "block", "block": 1, "operators": 3}],
        "unknown": [],
        "colors": [],
    }


def test_json_names_unknown_operators_and_colors(tmp_path: Path) -> None:
    path = write_model(tmp_path / "model", named("x"))
    (tmp_path / "time.json").write_text('{"items": [{"output": "y", "seconds": 1}, {"output": "z", "seconds": 1}]}')
    found = call_json("view", path, "-o", tmp_path / "a.svg", "--profile", tmp_path / "time.json")
    assert found["unknown"] == [{"block": 0, "operator": 2, "type": "mystery"}]
    assert found["colors"] == [{"by": "time", "operators": 1, "unmatched": 1}]


@pytest.mark.parametrize(
    ("format", "start"), [([], b"<!DOCTYPE html>"), (["--format", "svg"], b"<svg "), (["--format", "dot"], b"digraph ")]
)
def test_standard_output(model: Path, format: list[str], start: bytes) -> None:
    result = call("view", model, "-o", "-", *format)
    assert result.exit_code == 0 and result.stdout_bytes.startswith(start)
    assert result.stderr == "6 operators drawn\n"


def test_a_program_on_standard_input(model: Path, tmp_path: Path) -> None:
    result = call("view", "-", "-o", tmp_path / "a.dot", input=(model / "__model__").read_bytes())
    assert result.exit_code == 0 and "6 operators drawn" in result.stderr
    result = call("view", "-", "-o", tmp_path / "b.dot", input=b"nonsense")
    assert result.exit_code == 3 and not (tmp_path / "b.dot").exists()


def test_a_terminal_is_not_filled(model: Path) -> None:
    assert "would fill the terminal" in " ".join(on_terminal("view", model, "-o", "-").split())


def test_two_things_do_not_go_to_one_place(model: Path) -> None:
    assert "--output - and --json both write to standard output" in error_of(call("view", model, "-o", "-", "--json"))


def test_another_suffix(model: Path, tmp_path: Path) -> None:
    result = call("view", model, "-o", tmp_path / "a.pdf")
    assert result.exit_code == 2 and "expected .html, .svg or .dot" in error_of(result)


def test_the_format_may_be_said(model: Path, tmp_path: Path) -> None:
    assert call("view", model, "-o", tmp_path / "picture", "--format", "svg").exit_code == 0
    assert (tmp_path / "picture").read_text("utf-8").startswith("<svg")


def test_an_existing_file_stays_without_force(model: Path, tmp_path: Path) -> None:
    path = tmp_path / "a.dot"
    path.write_text("mine")
    assert "already exists" in error_of(call("view", model, "-o", path))
    assert path.read_text() == "mine"
    assert call("view", model, "-o", path, "--force").exit_code == 0


def test_without_output(model: Path) -> None:
    assert "missing option" in error_of(call("view", model))


def test_a_model_that_is_not_there(tmp_path: Path) -> None:
    result = call("view", tmp_path / "none", "-o", tmp_path / "a.svg")
    assert result.exit_code == 3 and "there is no model" in error_of(result)
    assert not (tmp_path / "a.svg").exists()


@pytest.mark.parametrize("suffix", ["html", "svg", "dot"])
@pytest.mark.parametrize("name", [EVIL, "n" * 10_000])
def test_names_do_no_harm(tmp_path: Path, name: str, suffix: str) -> None:
    path = tmp_path / "model.pb"
    path.write_bytes(named(name).serialize_to_string())
    result = call("view", path, "-o", tmp_path / f"a.{suffix}")
    assert result.exit_code == 0, result.stderr
    text = (tmp_path / f"a.{suffix}").read_text("utf-8")
    assert "\x1b" not in text + result.stderr and "\u202e" not in text and "<script>alert" not in text
