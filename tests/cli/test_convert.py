"""`fluidtool convert`: output, `--json`, exit codes, misuse."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.support import (
    BIAS,
    DIGITS,
    TOPICS,
    WEIGHT,
    call,
    call_json,
    error_of,
    everything_below,
    linear_program,
    write_model,
)
from tests.onnx_export.support import require_onnx

require_onnx()


@pytest.fixture
def blocked(tmp_path: Path) -> Path:
    """A model with an operator that no format has."""
    program = linear_program()
    program.global_block().ops[-2]._type = "sampling_id"
    return write_model(tmp_path / "model", program, w=WEIGHT, b=BIAS)


def test_what_is_shown(tmp_path: Path) -> None:
    result = call("convert", DIGITS, "-o", tmp_path / "m.onnx", "--verify", "--batch", 2)
    assert result.exit_code == 0, result.stderr
    assert result.stdout.splitlines()[0].split() == ["output", "type", "shape", "difference", "relative", "fault"]
    assert "ONNX Runtime gives the same 1 output" in result.stderr
    assert f"1 file saved: {tmp_path / 'm.onnx'}" in result.stderr


def test_the_document(tmp_path: Path) -> None:
    found = call_json(
        "convert", TOPICS, "-o", tmp_path / "m.onnx", "--to", "onnx", "--opset", 18, "--external-data", "--json"
    )
    assert found["schema"] == "fluidtool.convert/1"
    assert (found["to"], found["opset"], found["single_sequence"], "comparison" in found) == ("onnx", 18, True, False)
    assert found["files"] == [str(tmp_path / "m.onnx"), str(tmp_path / "m.onnx.data")] and found["blockers"] == []


def test_the_document_of_a_verification(tmp_path: Path) -> None:
    found = call_json("convert", DIGITS, "-o", tmp_path / "m.onnx", "--verify", "--json")["comparison"]
    assert (found["tolerance"], found["agrees"]) == (1e-4, True)
    assert found["outputs"][0]["relative_difference"] <= 1e-4 and found["outputs"][0]["fault"] is None


def test_blockers_are_shown_and_nothing_is_written(blocked: Path, tmp_path: Path) -> None:
    result = call("convert", blocked, "-o", tmp_path / "out" / "m.onnx")
    assert result.exit_code == 4
    assert "sampling_id" in result.stdout and "[FT420]" in result.stderr
    assert not (tmp_path / "out").exists()


def test_blockers_as_a_document(blocked: Path, tmp_path: Path) -> None:
    import json

    result = call("convert", blocked, "-o", tmp_path / "m.onnx", "--json")
    found = json.loads(result.stdout)
    assert result.exit_code == 4 and found["files"] == []
    assert found["error"]["code"] == "FT420" and found["error"]["exit_code"] == 4
    assert found["error"]["location"]["operator"] == found["blockers"][0]["operator"]


def test_outputs_that_differ_have_exit_code_1(tmp_path: Path) -> None:
    result = call("convert", DIGITS, "-o", tmp_path / "m.onnx", "--verify", "--tolerance", "0")
    assert result.exit_code in (0, 1)
    assert ("by more than" in result.stderr) is (result.exit_code == 1)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--to", "onx"], "did you mean onnx?"),
        (["--opset", "12"], "the opset must be 13 to 23, found 12"),
        (["--feed", "x.npy"], "--feed applies to verification; give --verify too"),
        (["--tolerance", "0.1"], "--tolerance applies to verification; give --verify too"),
        (["--verify", "--tolerance", "-1"], "the tolerance must not be negative"),
    ],
)
def test_misuse(arguments: list[str], message: str, tmp_path: Path) -> None:
    result = call("convert", DIGITS, "-o", tmp_path / "m.onnx", *arguments)
    assert result.exit_code == 2 and message in error_of(result)
    assert everything_below(tmp_path) == set()


def test_an_existing_file_stays_without_force(tmp_path: Path) -> None:
    (tmp_path / "m.onnx").write_text("mine")
    result = call("convert", DIGITS, "-o", tmp_path / "m.onnx")
    assert result.exit_code == 2 and "--force" in error_of(result)
    assert (tmp_path / "m.onnx").read_text() == "mine"
    assert call("convert", DIGITS, "-o", tmp_path / "m.onnx", "--force").exit_code == 0


def test_another_layout_says_what_was_read(tmp_path: Path) -> None:
    result = call("convert", TOPICS, "-o", tmp_path / "out", "--to", "combined")
    assert result.exit_code == 0 and not result.stdout
    assert (
        f"read the program {TOPICS / 'model'} with parameters in {TOPICS / 'params'} (one combined file)"
        in result.stderr
    )
    assert f"2 files saved: {tmp_path / 'out' / '__model__'}, {tmp_path / 'out' / '__params__'}" in result.stderr


def test_the_document_of_a_layout(tmp_path: Path) -> None:
    found = call_json("convert", DIGITS, "-o", tmp_path / "w", "--to", "safetensors", "--json")
    assert (found["schema"], found["to"], found["files"]) == (
        "fluidtool.convert/1",
        "safetensors",
        [str(tmp_path / "w")],
    )
    assert found["parameters"] == 12 and found["opset"] is None and "comparison" not in found


def test_unknown_operators_do_not_keep_a_layout_from_being_written(blocked: Path, tmp_path: Path) -> None:
    assert call("convert", blocked, "-o", tmp_path / "out", "--to", "paddle2").exit_code == 0


def test_what_is_no_program_is_named(tmp_path: Path) -> None:
    call("convert", DIGITS, "-o", tmp_path / "m.onnx")
    result = call("convert", tmp_path / "m.onnx", "-o", tmp_path / "out", "--to", "paddle2")
    assert result.exit_code == 3 and "is an ONNX model, not a Fluid program" in error_of(result)
