"""Attributes that name variables (Paddle 2.5 and later): their values count when the operator runs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fluidtool.errors import FluidError, OperatorError
from fluidtool.ir import Operator, Program
from fluidtool.ir.reuse import rename_arguments
from fluidtool.ir.surgery import prune
from fluidtool.passes.verify import verify
from fluidtool.proto.enums import AttrType
from fluidtool.runtime import Executor, Scope

X = np.arange(24, dtype=np.float32).reshape(2, 3, 4)


def program_of(op_type: str, attrs: dict[str, Any], names: dict[str, str | list[str]], slot: str = "Out") -> Program:
    """One operator from x to y; `names`: the attributes that name variables, which are inputs of the program."""
    program = Program()
    block = program.global_block()
    for name in ("x", "y", "n", "m"):
        block.create_var(name=name)
    op = block.append_op(type=op_type, inputs={"X": ["x"]}, outputs={slot: ["y"]}, attrs=attrs)
    for attr, value in names.items():
        op.set_attr(attr, value, AttrType.VARS if isinstance(value, list) else AttrType.VAR)
    return program


def run(program: Program, **feed: Any) -> np.ndarray[Any, Any]:
    found: np.ndarray[Any, Any] = np.asarray(Executor().run(program, {"x": X, **feed}, ["y"], Scope())[0])
    return found


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_an_axis_is_read_at_every_run(dtype: Any) -> None:
    program = program_of("cumsum", {}, {"axis": "n"})
    executor, scope = Executor(), Scope()
    for axis in (0, 2, 1):
        (found,) = executor.run(program, {"x": X, "n": np.array([axis], dtype)}, ["y"], scope)
        np.testing.assert_array_equal(np.asarray(found), X.cumsum(axis=axis))


def test_a_variable_may_hold_all_numbers_of_a_list() -> None:
    found = run(program_of("reduce_sum", {}, {"dim": "n"}), n=np.array([0, 2]))
    np.testing.assert_array_equal(found, X.sum(axis=(0, 2)))


def test_several_variables_may_hold_a_number_each() -> None:
    found = run(program_of("reduce_max", {}, {"dim": ["n", "m"]}), n=np.array([2]), m=np.array([0]))
    np.testing.assert_array_equal(found, X.max(axis=(0, 2)))


def test_a_value_that_paddle_185_does_not_have() -> None:
    found = run(program_of("fill_any", {}, {"value": "n"}), n=np.float32([2.5]))
    assert (found == 2.5).all()


def test_what_computes_the_number_is_needed() -> None:
    program = program_of("cumsum", {}, {"axis": "n"})
    program.global_block().insert_op(
        0, type="fill_constant", outputs={"Out": ["n"]}, attrs={"shape": [1], "value": 1.0, "dtype": 2}
    )
    np.testing.assert_array_equal(run(program), X.cumsum(axis=1))
    kept = prune(program, [], ["y"])
    assert [op.type for op in kept.global_block().ops] == ["fill_constant", "cumsum"]


def test_renaming_reaches_attributes() -> None:
    op = program_of("reduce_sum", {}, {"dim": ["n", "m"]}).global_block().ops[0]
    op.rename_input("n", "k")
    rename_arguments(op, {"m": "k"})
    assert op.attr("dim") == ["k", "k"] and op.input_arg_names == ["x", "k", "k"]


@pytest.mark.parametrize(
    ("feed", "message"),
    [
        ({"n": np.array([0, 1])}, "attribute axis must be one number, but its variables hold 2"),
        ({"n": np.array([7])}, "axis"),
        ({}, "attribute axis of operator cumsum names variable n, which holds no tensor"),
    ],
)
def test_numbers_that_do_not_fit_are_named(feed: dict[str, Any], message: str) -> None:
    with pytest.raises(FluidError, match=message):
        run(program_of("cumsum", {}, {"axis": "n"}), **feed)


def test_only_attributes_that_paddle_reads_so_may_name_variables() -> None:
    program = program_of("softmax", {}, {"axis": "n"})
    assert [finding.code for finding in verify(program)] == ["FC404"]
    with pytest.raises(OperatorError, match="has attribute axis as VAR, expected INT"):
        run(program, n=np.array([1]))


def test_check_knows_the_variables() -> None:
    program = program_of("cumsum", {}, {"axis": "n"})
    assert verify(program) == []
    op: Operator = program.global_block().ops[0]
    op.set_attr("axis", "elsewhere", AttrType.VAR)
    assert [(finding.code, finding.variable) for finding in verify(program)] == [("FC102", "elsewhere")]
