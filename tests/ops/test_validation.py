"""Operators of files are what their schemas say, or are refused before anything reads them."""

from __future__ import annotations

from typing import Any

import pytest

from fluidtool.errors import OperatorError
from fluidtool.ir import Operator, Program
from fluidtool.ops.registry import find_op
from fluidtool.ops.schema import AttrSpec
from fluidtool.ops.validation import fits, require_valid, require_valid_operator, schema_faults
from fluidtool.proto.enums import AttrType


def operator(op_type: str, inputs: dict[str, Any], outputs: dict[str, Any]) -> Operator:
    return Operator(Program().global_block(), type=op_type, inputs=inputs, outputs=outputs)


def product(**slots: list[str]) -> Operator:
    names = {"X": ["x"], "Y": ["y"], "Out": ["out"]} | slots
    return operator("mul", {slot: names[slot] for slot in ("X", "Y")}, {"Out": names["Out"]})


def faults(op: Operator) -> list[str]:
    return [fault.text for fault in schema_faults(op, find_op(op.type))]


def test_an_operator_of_paddle_is_sound() -> None:
    op = product()
    op.set_attr("x_num_col_dims", 2)
    assert faults(op) == []


def test_an_attribute_of_a_wrong_type() -> None:
    op = product()
    op.set_attr("x_num_col_dims", ["1"], AttrType.STRINGS)
    assert faults(op) == ["has attribute x_num_col_dims as STRINGS, expected INT"]


def test_an_attribute_that_the_schema_does_not_know_may_be_of_any_type() -> None:
    op = product()
    op.set_attr("x_number_of_columns", ["1"], AttrType.STRINGS)
    assert faults(op) == []


@pytest.mark.parametrize(("given", "result"), [("X", "Out"), ("x", "out")], ids=["Paddle 1.8.5", "Paddle 2.6.2"])
def test_slots_may_have_the_names_that_paddle_2_gave_them(given: str, result: str) -> None:
    assert faults(operator("broadcast", {given: ["a"]}, {result: ["b"]})) == []


def test_an_operator_that_runs_no_blocks_names_none() -> None:
    op = product()
    op.set_attr("sub_block", 1, AttrType.BLOCK)
    assert faults(op) == ["names a block in attribute sub_block, but runs none"]


def test_a_missing_attribute() -> None:
    assert faults(operator("feed", {"X": ["feed"]}, {"Out": ["x"]})) == ["lacks the required attribute col (INT)"]


def test_a_required_attribute_may_have_the_name_that_paddle_2_gave_it() -> None:
    op = operator("flip", {"X": ["x"]}, {"Out": ["out"]})
    assert faults(op) == ["lacks the required attribute dims (INTS)"]
    op.set_attr("axis", [0], AttrType.INTS)
    assert faults(op) == []


def test_an_attribute_may_have_the_type_that_paddle_2_gave_it() -> None:
    op = operator("allclose", {"Input": ["x"], "Other": ["y"]}, {"Out": ["out"]})
    op.set_attr("rtol", "1e-05", AttrType.STRING)
    assert faults(op) == []
    op.set_attr("equal_nan", "no", AttrType.STRING)
    assert faults(op) == ["has attribute equal_nan as STRING, expected BOOLEAN"]


@pytest.mark.parametrize(
    ("op_type", "inputs", "outputs"),
    [
        ("batch_norm", {"X": ["x"], "Mean": ["m"], "Variance": ["v"]}, {"Y": ["y"]}),
        (
            "lars_momentum",
            {key: ["a", "b"] for key in ("Param", "Grad", "Velocity", "LearningRate", "MasterParam")},
            {"ParamOut": ["a", "b"], "VelocityOut": ["c", "d"]},
        ),
        (
            "cudnn_lstm",
            {"Input": ["x"], "InitH": ["h"], "InitC": ["c"], "WeightList": ["w", "v"]},
            {"Out": ["y"], "LastH": ["i"], "LastC": ["d"], "Reserve": ["r"], "StateOut": ["s"]},
        ),
        ("c_sync_comm_stream", {"X": ["x", "y"]}, {"Out": ["x", "y"]}),
    ],
)
def test_what_paddle_2_leaves_out_or_gives_several_of(
    op_type: str, inputs: dict[str, list[str]], outputs: dict[str, list[str]]
) -> None:
    op = operator(op_type, inputs, outputs)
    assert [text for text in faults(op) if "attribute" not in text] == []


def test_an_output_that_paddle_2_leaves_out() -> None:
    assert faults(operator("moving_average_abs_max_scale", {"X": ["x"]}, {"OutScale": ["scale"]})) == []


def test_an_attribute_that_no_kernel_asks_for_may_be_missing_in_a_run() -> None:
    op = operator("flip", {"X": ["x"]}, {"Out": ["out"]})
    assert faults(op) == ["lacks the required attribute dims (INTS)"]
    require_valid_operator(op, find_op("flip"))


def test_raw_kernels_look_at_their_inputs_themselves() -> None:
    assert faults(operator("instance_norm", {"X": ["x"]}, {"Y": ["y"]})) == []


@pytest.mark.parametrize(("op_type", "slot"), [("feed", "X"), ("fetch", "X")])
def test_feed_and_fetch_have_their_holders(op_type: str, slot: str) -> None:
    op = operator(op_type, {}, {"Out": ["out"]})
    op.set_attr("col", 0)
    assert faults(op) == [f"names no variable for its required input {slot}"]


@pytest.mark.parametrize("slot", ["X", "Y"])
def test_an_input_without_a_variable(slot: str) -> None:
    assert faults(product(**{slot: []})) == [f"names no variable for its required input {slot}"]


def test_an_input_with_two_variables() -> None:
    assert faults(product(X=["a", "b"])) == ["names 2 variables for its input X, which takes one"]


def test_an_output_without_a_variable() -> None:
    assert faults(product(Out=[])) == ["names no variable for its required output Out"]


def test_an_output_with_two_variables() -> None:
    assert faults(product(Out=["a", "b"])) == ["names 2 variables for its output Out, which takes one"]


def test_outputs_that_only_a_gradient_reads_may_be_missing() -> None:
    op = operator("reshape2", {"X": ["x"]}, {"Out": ["out"]})
    op.set_attr("shape", [1], AttrType.INTS)
    assert faults(op) == []


def test_gradients_that_nobody_asks_for_may_be_missing() -> None:
    assert faults(operator("mul_grad", {"X": ["x"], "Y": ["y"], "Out@GRAD": ["g"]}, {"X@GRAD": ["gx"]})) == []


def test_an_unknown_operator_has_no_schema() -> None:
    require_valid(operator("brand_new", {}, {}).block.program)


def test_the_first_fault_of_a_program_is_told_with_its_place() -> None:
    op = product(X=[])
    op.block.ops.append(op)
    with pytest.raises(
        OperatorError, match=r"^operator mul in block 0 of net\.pb names no variable .*fluidtool\.check"
    ):
        require_valid(op.block.program, "net.pb")


@pytest.mark.parametrize(
    ("wanted", "value"),
    [
        (AttrType.BOOLEAN, 1),
        (AttrType.BOOLEAN, 0.0),
        (AttrType.INT, 2**40),
        (AttrType.LONG, 3.0),
        (AttrType.FLOAT, 3),
        (AttrType.FLOATS, [1, 2.5]),
        (AttrType.INTS, []),
        (AttrType.BLOCKS, []),
    ],
)
def test_values_that_stand_for_another_type(wanted: AttrType, value: Any) -> None:
    assert fits(AttrSpec(wanted), value, AttrType.SCALAR)


@pytest.mark.parametrize(
    ("wanted", "value"),
    [
        (AttrType.BOOLEAN, "no"),
        (AttrType.INT, 2.0),
        (AttrType.INT, [1]),
        (AttrType.LONG, 2.5),
        (AttrType.LONG, float("nan")),
        (AttrType.FLOAT, 1j),
        (AttrType.FLOAT, "1"),
        (AttrType.INTS, 1),
        (AttrType.INTS, [1.0]),
        (AttrType.STRINGS, "names"),
        (AttrType.STRING, ["name"]),
        (AttrType.STRING, []),
    ],
)
def test_values_that_do_not(wanted: AttrType, value: Any) -> None:
    assert not fits(AttrSpec(wanted), value, AttrType.SCALAR)


@pytest.mark.parametrize(("wanted", "found"), [(AttrType.BLOCK, AttrType.INT), (AttrType.INT, AttrType.BLOCK)])
def test_a_number_is_no_block(wanted: AttrType, found: AttrType) -> None:
    assert not fits(AttrSpec(wanted), 1, found)
