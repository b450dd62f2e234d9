"""`fluidtool ops`: the list, one operator, and what a model needs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from fluidtool.ops.index import EXCLUDED, MODULES
from fluidtool.ops.paddle_185 import REGISTERED
from tests.cli.support import BIAS, DIGITS, WEIGHT, call, call_json, error_of, linear_program, write_model
from tests.support.tables import table


def test_the_list_has_every_operator() -> None:
    result = call("ops")
    assert result.exit_code == 0
    names = [line.split()[0] for line in result.stdout.split("\n\nNot supported")[0].splitlines()[1:]]
    assert names == sorted(MODULES)
    assert f"{len(MODULES)} operators" in result.stderr


def test_the_list_by_pattern() -> None:
    out = call("ops", "softmax*").stdout
    assert re.search(r"^softmax +X +Out +yes +X->Out$", out, re.MULTILINE)
    assert "relu" not in out


def test_one_operator() -> None:
    out = call("ops", "softmax").stdout
    assert re.search(r"^meaning +Softmax of X", out, re.MULTILINE)
    assert re.search(r"^gradient +softmax_grad$", out, re.MULTILINE)
    assert re.search(r"^axis +INT +-1$", out, re.MULTILINE)
    assert "Inputs\nslot  takes\nX     one variable\n" in out


def test_slots_say_what_they_take() -> None:
    out = call("ops", "conv2d").stdout
    assert re.search(r"^Bias +one variable, may be absent$", out, re.MULTILINE)
    assert re.search(r"^X +several variables$", call("ops", "sum").stdout, re.MULTILINE)


def test_one_operator_in_json() -> None:
    data = call_json("ops", "mul")["operator"]
    assert [slot["name"] for slot in data["inputs"]] == ["X", "Y"]
    assert data["attributes"]["x_num_col_dims"] == {"type": "INT", "default": 1, "required": False}
    assert data["gradient"] == "mul_grad"


def test_an_unknown_operator_is_answered_with_near_ones() -> None:
    result = call("ops", "sofmax")
    assert result.exit_code == 4 and "did you mean softmax" in error_of(result)


def test_a_pattern_without_a_match() -> None:
    result = call("ops", "zz*")
    assert result.exit_code == 4 and "no operator matches 'zz*'" in error_of(result)


def test_an_excluded_operator_has_its_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(EXCLUDED, "strange", "needs hardware that nobody has")
    result = call("ops", "strange")
    assert result.exit_code == 4 and "operator strange is not supported: needs hardware that nobody has" in error_of(
        result
    )
    assert "strange   needs hardware that nobody has" in call("ops", "strang*").stdout


def test_coverage_of_a_model() -> None:
    result = call("ops", "--coverage", DIGITS)
    assert result.exit_code == 0
    assert re.search(r"^conv2d +2 +yes$", result.stdout, re.MULTILINE)
    assert "8 operators, all supported" in result.stderr


def test_coverage_of_a_model_with_an_unknown_operator(tmp_path: Path) -> None:
    program = linear_program()
    program.global_block().ops[3].type = "strange"
    folder = write_model(tmp_path / "m", program, w=WEIGHT, b=BIAS)
    result = call("ops", "--coverage", folder)
    assert result.exit_code == 4
    assert re.search(r"^strange +1 +no +unknown$", result.stdout, re.MULTILINE)
    assert "1 of 4 operators not supported: strange" in result.stderr


def test_an_operator_and_a_model_are_two_questions() -> None:
    result = call("ops", "mul", "--coverage", DIGITS)
    assert result.exit_code == 2 and "not both" in error_of(result)


def test_counts_add_up_to_the_table_of_paddle() -> None:
    counted = call_json("ops")["counts"]
    assert counted["paddle_1_8_5_total"] == len(table("op_table_185"))
    assert counted["paddle_1_8_5_implemented"] + counted["paddle_1_8_5_excluded"] == counted["paddle_1_8_5_total"]
    assert 0 < counted["paddle_1_8_5_with_gradient"] < counted["paddle_1_8_5_implemented"]


def test_the_list_of_paddle_1_8_5_is_its_table() -> None:
    assert frozenset(table("op_table_185")) == REGISTERED
