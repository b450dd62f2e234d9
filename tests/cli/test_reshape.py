"""`fluidtool reshape`: what is shown, what is refused, and that nothing is half-written."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from fluidtool.io.inference import inference_program
from fluidtool.ir import Program
from fluidtool.model import load
from tests.cli.support import BIAS, WEIGHT, call, call_json, error_of, linear_model, linear_program, write_model

EVIL = "<script>\x1b[31m\u202e" + "n" * 10_000


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return linear_model(tmp_path / "model")


@pytest.fixture
def baked(tmp_path: Path) -> Path:
    """x [2, 2, 3] in the shape [2, 6]."""
    return write_model(tmp_path / "baked", baked_program("x"))


def baked_program(name: str) -> Program:
    program = Program()
    block = program.global_block()
    block.create_var(name=name, shape=[2, 2, 3], dtype="float32")
    block.create_var(name="y", shape=[2, 6], dtype="float32")
    block.append_op(type="reshape", inputs={"X": [name]}, outputs={"Out": ["y"]}, attrs={"shape": [2, 6]})
    return inference_program(program, [name], ["y"])


def test_shapes_before_and_after(model: Path, tmp_path: Path) -> None:
    result = call("reshape", model, "x:[8,4]", "-o", tmp_path / "out")
    assert result.exit_code == 0, result.stderr
    lines = [line.split() for line in result.stdout.splitlines()]
    assert ["input", "x", "(-1,", "4)", "(8,", "4)"] in lines
    assert ["output", "probability", "(-1,", "3)", "(8,", "3)"] in lines
    assert "3 files saved" in result.stderr
    x = np.ones((8, 4), "float32")
    assert load(tmp_path / "out").run({"x": x})["probability"].numpy().shape == (8, 3)


def test_json(model: Path) -> None:
    assert call_json("reshape", model, "[8,4]") == {
        "schema": "fluidtool.reshape/1",
        "files": [],
        "inputs": [{"name": "x", "before": [-1, 4], "after": [8, 4]}],
        "outputs": [{"name": "probability", "before": [-1, 3], "after": [8, 3]}],
        "baked": [],
        "unknown": [],
        "error": None,
    }


def test_operators_with_the_old_batch_are_listed(baked: Path, tmp_path: Path) -> None:
    result = call("reshape", baked, "x:[5,2,3]", "-o", tmp_path / "out", "--json")
    assert result.exit_code == 4 and "--fix-baked-batch repairs 1 of 1" in result.stderr and "[FT430]" in result.stderr
    document = json.loads(result.stdout)
    assert document["error"]["code"] == "FT430" and document["error"]["location"]["variable"] == "y"
    (found,) = document["baked"]
    assert (found["block"], found["operator"], found["type"], found["output"]) == (0, 1, "reshape", "y")
    assert (found["attribute"], found["value"], found["repair"]) == ("shape", "[2, 6]", "shape [0, 6]")
    assert not (tmp_path / "out").exists()
    assert "[2, 6]" in call("reshape", baked, "x:[5,2,3]").stdout


def test_repaired_operators_are_shown(baked: Path, tmp_path: Path) -> None:
    result = call("reshape", baked, "x:[-1,2,3]", "--fix-baked-batch", "-o", tmp_path / "out")
    assert result.exit_code == 0 and "shape [0, 6]" in result.stdout
    assert load(tmp_path / "out").run({"x": np.ones((7, 2, 3), "float32")})["y"].numpy().shape == (7, 6)


@pytest.mark.parametrize(
    ("argument", "message"),
    [
        ("x:[8,4,1]", "has 2 sizes"),
        ("z:[8,4]", "'z' is not an input"),
        ("x:[8,?]", "expected NAME:[SIZES]"),
        ("x:[--8,4]", "expected NAME:[SIZES]"),
        ("x:[99999999999999,4]", "sizes are -1, or 1 to"),
    ],
)
def test_what_is_not_a_shape_is_refused(model: Path, tmp_path: Path, argument: str, message: str) -> None:
    result = call("reshape", model, argument, "-o", tmp_path / "out")
    assert result.exit_code == 2 and message in error_of(result)
    assert not (tmp_path / "out").exists()


def test_two_shapes_for_one_input_are_refused(model: Path) -> None:
    result = call("reshape", model, "x:[8,4]", "x:[9,4]")
    assert result.exit_code == 2 and "two new shapes" in error_of(result)


def test_an_existing_model_stays_without_force(model: Path) -> None:
    before = (model / "__model__").read_bytes()
    assert call("reshape", model, "x:[8,4]", "-o", model).exit_code == 2
    assert (model / "__model__").read_bytes() == before
    assert call("reshape", model, "x:[8,4]", "-o", model, "--force").exit_code == 0


def test_a_hostile_name_is_shown_without_harm(tmp_path: Path) -> None:
    folder = write_model(tmp_path / "evil", baked_program(EVIL))
    result = call("reshape", folder, f"{EVIL}:[5,2,3]", "--fix-baked-batch")
    assert result.exit_code == 0 and "\x1b" not in result.stdout and "\u202e" not in result.stdout
    assert call("reshape", folder, f"{EVIL}:[5,2,3]", "--json").exit_code == 4


def test_a_combined_model_of_another_layout_stays_one(tmp_path: Path) -> None:
    folder = write_model(tmp_path / "model", linear_program(), w=WEIGHT, b=BIAS)
    call("reshape", folder, "[2,4]", "-o", tmp_path / "out")
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"__model__", "w", "b"}
