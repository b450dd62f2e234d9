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
