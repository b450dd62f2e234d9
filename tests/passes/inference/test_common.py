"""`merge-common`: what is computed twice from the same values is computed once, to the last bit."""

import numpy as np

from fluidtool.passes.inference.common import merge_common
from fluidtool.proto.enums import VarType
from tests.passes.inference.net import Net, append, reasons


def twice(**second: object) -> Net:
    """out = relu(a) + relu(b) for a = scale(x), b = scale(x)."""
    net = Net()
    net.data("x", net.numbers(2, 3))
    net.op("scale", {"X": ["x"]}, {"Out": ["a"]}, scale=2.0, bias=0.0)
    net.op("scale", {"X": ["x"]}, {"Out": ["b"]}, **{"scale": 2.0, "bias": 0.0, **second})
    net.op("relu", {"X": ["a"]}, {"Out": ["ra"]})
    net.op("relu", {"X": ["b"]}, {"Out": ["rb"]})
    net.op("elementwise_add", {"X": ["ra"], "Y": ["rb"]}, {"Out": ["out"]}, axis=-1)
    return net


def test_repeated_operators_and_what_follows_from_them_are_merged() -> None:
    net = twice()
    before = net.run("out")[0]
    result = merge_common(net.program, net.scope)
    assert net.types == ["scale", "relu", "elementwise_add"]
    assert [decision.variable for decision in result.done] == ["b", "rb"]
    assert "b" not in net.block.vars
    np.testing.assert_array_equal(net.run("out")[0], before)
    assert not merge_common(net.program, net.scope).changed


def test_where_an_operator_was_written_down_does_not_count() -> None:
    net = twice(op_callstack=["line 7"], op_namescope="/b/", op_role=256)
    assert merge_common(net.program, net.scope).changed


def test_other_attributes_are_another_value() -> None:
    assert merge_common(twice(bias=1.0).program, Net().scope).decisions == ()


def test_the_same_name_with_another_value_is_another_value() -> None:
    net = Net()
    net.data("x", net.numbers(2, 3))
    net.op("scale", {"X": ["x"]}, {"Out": ["a"]}, scale=2.0)
    net.op("relu", {"X": ["x"]}, {"Out": ["x"]})
    net.op("scale", {"X": ["x"]}, {"Out": ["b"]}, scale=2.0)
    net.op("elementwise_add", {"X": ["a"], "Y": ["b"]}, {"Out": ["out"]}, axis=-1)
    assert merge_common(net.program, net.scope).decisions == ()


def test_a_first_result_that_is_changed_in_place_cannot_stand_for_the_second() -> None:
    net = twice()
    net.block.ops[2].set_output("Out", ["a"])
    net.block.ops[4].set_input("X", ["a"])
    before = net.run("out")[0]
    assert reasons(merge_common(net.program, net.scope)) == ["a is written more than once"]
    np.testing.assert_array_equal(net.run("out")[0], before)


def test_operators_in_place_are_no_candidates() -> None:
    net = Net()
    net.data("x", net.numbers(2, 3))
    for _ in range(2):
        net.op("scale", {"X": ["x"]}, {"Out": ["x"]}, scale=2.0)
    assert merge_common(net.program, net.scope).decisions == ()


def test_a_fetched_result_keeps_its_name() -> None:
    net = twice()
    net.fetch("b")
    assert reasons(merge_common(net.program, net.scope)) == ["b is fetched"]


def test_a_result_to_be_kept_keeps_its_name() -> None:
    net = twice()
    assert reasons(merge_common(net.program, net.scope, keep=["b"])) == ["b is fetched or must be kept"]


def test_a_first_result_may_be_fetched() -> None:
    net = twice()
    net.fetch("a")
    assert merge_common(net.program, net.scope).changed


def test_persistable_results_stay() -> None:
    net = twice()
    net.block.var("b").persistable = True
    assert reasons(merge_common(net.program, net.scope)) == ["b is persistable, of an outer block, or not a tensor"]


def test_random_numbers_are_drawn_twice() -> None:
    net = Net()
    for name in ("a", "b"):
        net.op("gaussian_random", {}, {"Out": [name]}, shape=[2, 3], dtype=int(VarType.FP32), seed=3)
    assert merge_common(net.program, net.scope).decisions == ()


def test_other_data_types_are_not_merged() -> None:
    net = twice()
    net.block.var("b").dtype = VarType.FP64
    assert reasons(merge_common(net.program, net.scope)) == ["b and a are declared with different data types"]


def test_programs_that_train_are_left_alone() -> None:
    net = twice()
    net.block.ops[-1].set_attr("op_role", 1)
    assert set(reasons(merge_common(net.program, net.scope))) == {"the program trains"}


def test_results_that_a_sub_block_reads_stay_and_operators_of_a_sub_block_are_merged_there() -> None:
    net = twice()
    net.op("fill_constant", {}, {"Out": ["yes"]}, shape=[1], value=1.0, dtype=int(VarType.BOOL))
    body = net.program._create_block()
    append(body, "relu", {"X": ["b"]}, {"Out": ["c"]})
    append(body, "relu", {"X": ["b"]}, {"Out": ["d"]})
    append(body, "elementwise_add", {"X": ["c"], "Y": ["d"]}, {"Out": ["out"]}, axis=-1)
    net.program._rollback()
    net.block.create_var(name="branch", type=VarType.STEP_SCOPES)
    inputs = {"Cond": ["yes"], "Input": ["b"]}
    attrs = {"sub_block": body, "is_scalar_condition": True}
    outputs = {"Out": ["out"], "Scope": ["branch"]}
    net.block.append_op(type="conditional_block", inputs=inputs, outputs=outputs, attrs=attrs)
    before = net.run("out")[0]
    result = merge_common(net.program, net.scope)
    assert reasons(result) == ["b is read in a sub-block of conditional_block"]
    assert [op.type for op in body.ops] == ["relu", "elementwise_add"]
    np.testing.assert_array_equal(net.run("out")[0], before)
