"""What operators keep of the values of attributes."""

from __future__ import annotations

import math

import pytest

from fluidtool.errors import ProgramError
from fluidtool.ir import Operator, Program
from fluidtool.ops.registry import find_op
from fluidtool.proto.enums import AttrType


def operator() -> Operator:
    return Operator(Program().global_block(), type="scale")


def test_numbers_are_kept_in_32_bits_as_paddle_keeps_them() -> None:
    op = operator()
    op.set_attr("scale", 0.1)
    op.set_attr("factors", [0.1, 1.0])
    assert op.attr("scale") == 0.10000000149011612
    assert op.attr("factors") == [0.10000000149011612, 1.0]


def test_numbers_of_64_bits_are_kept_whole() -> None:
    op = operator()
    op.set_attr("scale", 0.1, AttrType.FLOAT64)
    assert op.attr("scale") == 0.1


def test_a_number_beyond_32_bits_is_infinite() -> None:
    op = operator()
    op.set_attr("scale", -1e300)
    assert op.attr("scale") == -math.inf


def test_a_default_is_what_a_program_with_this_value_computes_with() -> None:
    assert find_op("hard_sigmoid").attrs["slope"].default == 0.20000000298023224


def test_text_is_no_number() -> None:
    with pytest.raises(ProgramError, match="attribute scale of operator scale is FLOAT, but 'much' does not match it"):
        operator().set_attr("scale", "much", AttrType.FLOAT)


def test_scripts_keep_what_they_like_with_variables_and_operators() -> None:
    block = Program().global_block()
    x = block.create_var(name="x", shape=[2], dtype="float32")
    y = block.create_var(name="y")
    op = block.append_op(type="relu", inputs={"X": [x]}, outputs={"Out": [y]})
    for item in (x, op):
        item.gradient = True  # type: ignore[attr-defined]
        assert item.gradient  # type: ignore[attr-defined]
        with pytest.raises(AttributeError, match="nosuch"):
            item.nosuch  # type: ignore[attr-defined]  # noqa: B018


def test_an_input_that_is_none_is_left_out() -> None:
    block = Program().global_block()
    x, y = block.create_var(name="x"), block.create_var(name="y")
    op = block.append_op(type="reshape2", inputs={"X": x, "Shape": None}, outputs={"Out": y}, attrs={"shape": [1]})
    assert "Shape" not in op.inputs
