"""`fluidtool diff`: what is shown of two programs, the exit code, and every way to use it wrongly."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest

from tests.cli.support import (
    BIAS,
    DIGITS,
    PAIR,
    TOPICS,
    WEIGHT,
    call,
    error_of,
    linear_model,
    linear_program,
    on_terminal,
    write_model,
)


def without_relu(folder: Path) -> Path:
    """The linear model without its relu, and with another version."""
    program = linear_program()
    block = program.global_block()
    block.ops[4].set_input("X", ["sum"])
    block.ops[4].set_attr("axis", 1)
    del block.ops[3], block.vars["positive"]
    program.version = 2_006_002
    return write_model(folder, program, w=WEIGHT, b=BIAS + np.array([0, 0.5, 0], "float32"))


def rows(text: str) -> list[list[str]]:
    """The words of each line."""
    return [line.split() for line in text.splitlines()]


# ---------------------------------------------------------------- what is shown
@pytest.mark.parametrize("model", [DIGITS, DIGITS / "__model__", TOPICS, PAIR, f"{PAIR}.pdmodel"])
def test_a_model_does_not_differ_from_itself(model: object) -> None:
    result = call("diff", model, model)
    assert (result.exit_code, result.stdout) == (0, "")
    assert result.stderr == f"{model} and {model}: no difference\n"


def test_what_differs_is_shown_side_by_side(tmp_path: Path) -> None:
    a, b = linear_model(tmp_path / "a"), without_relu(tmp_path / "b")
    result = call("diff", a, b)
    assert result.exit_code == 1
    found = rows(result.stdout)
    assert ["version", "1008005", "2006002"] in found
    assert ["-", "3", "relu", "positive"] in found
    assert ["~", "4", "3", "softmax", "probability", "probability"] in found
    assert ["input", "X", "positive", "sum"] in found and ["axis", "-1", "1"] in found
    assert ["-", "positive", "float32", "(-1,", "3)"] in found
    assert result.stderr == f"{a} and {b}: 1 field, 2 operators and 1 variable differ\n"


def test_from_the_other_side_minus_is_plus(tmp_path: Path) -> None:
    found = rows(call("diff", without_relu(tmp_path / "b"), linear_model(tmp_path / "a")).stdout)
    assert ["+", "3", "relu", "positive"] in found and ["axis", "1", "-1"] in found


def test_json_has_every_field(tmp_path: Path) -> None:
    result = call("diff", linear_model(tmp_path / "a"), without_relu(tmp_path / "b"), "--json")
    assert result.exit_code == 1
    data = json.loads(result.stdout)
    assert data["equal"] is False and "parameters" not in data
    assert data["changes"] == [{"field": "version", "left": 1008005, "right": 2006002}]
    (block,) = data["blocks"]
    assert [(op["type"], op["left"], op["right"]) for op in block["operators"]] == [
        ("relu", 3, None),
        ("softmax", 4, 3),
    ]
    assert {"field": "axis", "left": -1, "right": 1} in block["operators"][1]["changes"]


def test_json_of_equal_models() -> None:
    result = call("diff", DIGITS, DIGITS, "--with-params", "--json")
    assert result.exit_code == 0
    assert json.loads(result.stdout) == {
        "schema": "fluidtool.diff/1",
        "equal": True,
        "changes": [],
        "blocks": [],
        "parameters": [],
    }


def test_programs_without_parameters_are_compared(tmp_path: Path) -> None:
    shutil.copy(DIGITS / "__model__", tmp_path / "main.pb")
    assert call("diff", DIGITS, tmp_path / "main.pb").exit_code == 0


def test_call_stacks_are_compared_when_asked_for(tmp_path: Path) -> None:
    program = linear_program()
    program.global_block().ops[3].set_attr("op_callstack", ["File a.py, line 1"])
    a, b = linear_model(tmp_path / "a"), write_model(tmp_path / "b", program, w=WEIGHT, b=BIAS)
    assert call("diff", a, b).exit_code == 0
    result = call("diff", a, b, "--callstack")
    assert result.exit_code == 1 and "op_callstack" in result.stdout


def test_of_long_lists_the_part_that_differs_is_shown(tmp_path: Path) -> None:
    paths = []
    for name, last in (("a", 7), ("b", 8)):
        program = linear_program()
        program.global_block().ops[3].set_attr("numbers", [*range(100), last])
        paths.append(write_model(tmp_path / name, program))
    found = rows(call("diff", *paths).stdout)
    assert ["numbers", *["101", "items,", "from", "100:", "7"], *["101", "items,", "from", "100:", "8"]] in found


# ---------------------------------------------------------------- parameters
def test_parameters_are_compared_when_asked_for(tmp_path: Path) -> None:
    a = linear_model(tmp_path / "a")
    b = write_model(tmp_path / "b", linear_program(), w=WEIGHT, b=BIAS + np.array([0, 0.5, 0], "float32"))
    assert call("diff", a, b).exit_code == 0
    result = call("diff", a, b, "--with-params")
    assert result.exit_code == 1
    assert ["~", "b", *["float32", "(3,)", "float32", "(3,)", "1", "of", "3", "0.5"]] in rows(result.stdout)
    assert result.stderr.endswith("1 parameter differs\n")


def test_equal_parameters_are_counted() -> None:
    result = call("diff", DIGITS, DIGITS, "--with-params")
    assert result.exit_code == 0 and "no difference, 12 parameters are equal" in result.stderr


def test_parameters_of_one_side_are_shown(tmp_path: Path) -> None:
    found = rows(call("diff", DIGITS, TOPICS, "--with-params").stdout)
    assert ["-", "conv2d_0.w_0", "float32", "(16,", "1,", "3,", "3)"] in found


def test_parameters_that_are_not_there_are_an_error(tmp_path: Path) -> None:
    shutil.copy(DIGITS / "__model__", tmp_path / "main.pb")
    result = call("diff", DIGITS, tmp_path / "main.pb", "--with-params")
    assert result.exit_code == 3 and "has no file for" in error_of(result)


# ---------------------------------------------------------------- wrong use
def test_two_models_are_needed() -> None:
    result = call("diff", DIGITS)
    assert result.exit_code == 2 and "missing argument 'B'" in error_of(result)


def test_a_model_that_is_not_there(tmp_path: Path) -> None:
    result = call("diff", DIGITS, tmp_path / "no")
    assert result.exit_code == 3 and "there is no model at" in error_of(result)


# ---------------------------------------------------------------- where it is shown
def test_color_on_a_terminal_only(tmp_path: Path) -> None:
    a, b = linear_model(tmp_path / "a"), without_relu(tmp_path / "b")
    assert "\x1b[31m" in on_terminal("diff", a, b)
    assert "\x1b[3" not in on_terminal("diff", a, b, NO_COLOR="1")
    assert "\x1b" not in call("diff", a, b).stdout


def test_eighty_columns_are_enough_on_a_terminal(tmp_path: Path) -> None:
    written = on_terminal("diff", DIGITS, TOPICS, NO_COLOR="1", TERM="dumb")
    assert max(len(line) for line in written.splitlines()) <= 80
    assert "batch_norm" in written


# ---------------------------------------------------------------- values that are no numbers
@pytest.mark.parametrize(("value", "shown"), [(np.nan, "nan"), (np.inf, "inf")])
def test_a_parameter_that_is_no_number_on_one_side(value: float, shown: str, tmp_path: Path) -> None:
    weight = WEIGHT.copy()
    weight[1, 2] = value
    left = linear_model(tmp_path / "left")
    right = write_model(tmp_path / "right", linear_program(), w=weight, b=BIAS)
    result = call("diff", left, right, "--with-params")
    assert result.exit_code == 1
    assert result.stdout.splitlines()[-1].split()[-4:] == ["1", "of", "12", shown]


def test_nan_at_the_same_places_is_no_difference(tmp_path: Path) -> None:
    weight = np.full_like(WEIGHT, np.nan)
    left, right = (write_model(tmp_path / side, linear_program(), w=weight, b=BIAS) for side in ("left", "right"))
    assert call("diff", left, right, "--with-params").exit_code == 0


def test_a_block_that_one_program_lacks_is_shown(tmp_path: Path) -> None:
    program = linear_program()
    program.create_block(0)
    left = write_model(tmp_path / "left", program, w=WEIGHT, b=BIAS)
    result = call("diff", left, linear_model(tmp_path / "right"))
    assert result.exit_code == 1 and re.search(r"^block +1 *$", result.stdout, re.MULTILINE)
