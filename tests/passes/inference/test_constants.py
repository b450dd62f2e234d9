"""`fold-constants`: results of constants become parameters, and the numbers stay to the last bit."""

import numpy as np

from fluidtool.passes.inference import constants
from fluidtool.passes.inference.constants import fold_constants
from fluidtool.proto.enums import VarType
from fluidtool.tensor import LoDTensor
from tests.passes.inference.net import Net, append, reasons


def transposed_weight(shape: tuple[int, int] = (4, 3)) -> Net:
    """out = x @ relu(w^T)."""
    net = Net()
    net.data("x", net.numbers(2, shape[1]))
    net.parameter("w", net.numbers(*shape))
    net.op("transpose2", {"X": ["w"]}, {"Out": ["wt"], "XShape": ["ws"]}, axis=[1, 0])
    net.op("relu", {"X": ["wt"]}, {"Out": ["wr"]})
    net.op("mul", {"X": ["x"], "Y": ["wr"]}, {"Out": ["out"]}, x_num_col_dims=1, y_num_col_dims=1)
    return net


def test_a_chain_of_a_weight_becomes_one_parameter() -> None:
    net = transposed_weight()
    before = net.run("out")[0]
    result = fold_constants(net.program, net.scope)
    assert net.types == ["mul"]
    assert [decision.variable for decision in result.done] == ["wt", "wr"]
    assert net.block.var("wr").persistable and "wt" not in net.block.vars and "w" not in net.block.vars
    np.testing.assert_array_equal(net.run("out")[0], before)
    assert not fold_constants(net.program, net.scope).changed


def test_a_shared_weight_stays_for_its_other_reader() -> None:
    net = transposed_weight()
    net.op("scale", {"X": ["w"]}, {"Out": ["other"]}, scale=2.0)
    net.op("elementwise_add", {"X": ["x"], "Y": ["other"]}, {"Out": ["sum"]}, axis=-1)
    net.op("relu", {"X": ["w"]}, {"Out": ["fetched"]})
    w = net.scope.find_var("w").value.numpy().copy()
    assert fold_constants(net.program, net.scope, keep=["w"]).changed is False
    assert fold_constants(net.program, net.scope).changed
    np.testing.assert_array_equal(net.scope.find_var("w").value.numpy(), w)


def test_what_is_kept_stays_under_its_name() -> None:
    net = transposed_weight()
    before = net.run("wt", "out")
    fold_constants(net.program, net.scope, keep=["wt"])
    for got, want in zip(net.run("wt", "out"), before, strict=True):
        np.testing.assert_array_equal(got, want)


def test_filled_constants_are_folded_with_their_readers() -> None:
    net = Net()
    net.data("x", net.numbers(2, 3))
    net.op("fill_constant", {}, {"Out": ["two"]}, shape=[1], value=2.0, dtype=int(VarType.FP32))
    net.op("sqrt", {"X": ["two"]}, {"Out": ["root"]})
    net.op("elementwise_mul", {"X": ["x"], "Y": ["root"]}, {"Out": ["out"]}, axis=-1)
    before = net.run("out")[0]
    assert fold_constants(net.program, net.scope).changed
    assert net.types == ["elementwise_mul"]
    np.testing.assert_array_equal(net.run("out")[0], before)


def test_a_filled_constant_alone_stays_an_operator() -> None:
    net = Net()
    net.data("x", net.numbers(2, 3))
    net.op("fill_constant", {}, {"Out": ["two"]}, shape=[1], value=2.0, dtype=int(VarType.FP32))
    net.op("elementwise_mul", {"X": ["x"], "Y": ["two"]}, {"Out": ["out"]}, axis=-1)
    assert fold_constants(net.program, net.scope).decisions == ()


PRIORS = {"min_sizes": [4.0], "aspect_ratios": [1.0], "variances": [0.1, 0.1, 0.2, 0.2]}


def boxes(image: str) -> Net:
    net = Net()
    net.data("image", net.numbers(2, 3, 32, 32))
    if image == "any size":
        net.block.var("image").shape = [-1, 3, -1, -1]
    net.op("pool2d", {"X": ["image"]}, {"Out": ["map"]}, ksize=[8, 8], strides=[8, 8], pooling_type="max")
    inputs = {"Input": ["map"], "Image": ["image"]}
    net.op("prior_box", inputs, {"Boxes": ["boxes"], "Variances": ["spread"]}, **PRIORS)
    net.op("relu", {"X": ["boxes"]}, {"Out": ["out"]})
    return net


def test_prior_boxes_of_declared_sizes_are_constants() -> None:
    net = boxes("32 by 32")
    before = net.run("out", "spread")
    assert fold_constants(net.program, net.scope, keep=["out", "spread"]).changed
    assert net.types == ["pool2d"]
    for got, want in zip(net.run("out", "spread"), before, strict=True):
        np.testing.assert_array_equal(got, want)


def test_prior_boxes_of_any_size_are_no_candidates() -> None:
    net = boxes("any size")
    assert fold_constants(net.program, net.scope).decisions == ()


def test_a_weight_that_an_operator_writes_is_no_constant() -> None:
    net = transposed_weight()
    net.op("scale", {"X": ["w"]}, {"Out": ["w"]}, scale=0.5)
    assert fold_constants(net.program, net.scope).decisions == ()


def test_a_fed_weight_is_no_constant() -> None:
    net = transposed_weight()
    net.block.create_var(name="feed", type=VarType.FEED_MINIBATCH, persistable=True)
    net.block.prepend_op(type="feed", inputs={"X": ["feed"]}, outputs={"Out": ["w"]}, attrs={"col": 0})
    assert fold_constants(net.program, net.scope).decisions == ()


def test_a_weight_without_a_value_is_no_constant() -> None:
    net = transposed_weight()
    net.scope.find_var("w").value = None
    assert fold_constants(net.program, net.scope).decisions == ()


def test_a_result_that_is_written_again_stays() -> None:
    net = transposed_weight()
    net.op("relu", {"X": ["wt"]}, {"Out": ["wt"]})
    before = net.run("out", "wt")
    result = fold_constants(net.program, net.scope, keep=["out", "wt"])
    assert reasons(result) == ["wt is written more than once"]
    for got, want in zip(net.run("out", "wt"), before, strict=True):
        np.testing.assert_array_equal(got, want)


def test_random_numbers_stay_random() -> None:
    net = Net()
    net.op("gaussian_random", {}, {"Out": ["noise"]}, shape=[2, 3], dtype=int(VarType.FP32))
    net.op("relu", {"X": ["noise"]}, {"Out": ["out"]})
    assert fold_constants(net.program, net.scope).decisions == ()


def test_a_huge_result_stays(monkeypatch) -> None:
    monkeypatch.setattr(constants, "SIZE_LIMIT", 64)
    net = Net()
    net.parameter("w", net.numbers(4, 4))
    net.op("expand", {"X": ["w"]}, {"Out": ["wide"]}, expand_times=[1, 100])
    result = fold_constants(net.program, net.scope, keep=["wide"])
    assert reasons(result) == ["the result would take 6400 bytes, more than 64"]


def test_programs_that_train_are_left_alone() -> None:
    net = transposed_weight()
    net.block.ops[-1].set_attr("op_role", 2)
    assert set(reasons(fold_constants(net.program, net.scope))) == {"the program trains"}


def test_a_value_with_sequences_stays() -> None:
    net = transposed_weight()
    net.scope.find_var("w").value = LoDTensor(net.numbers(4, 3), [[0, 1, 4]])
    assert fold_constants(net.program, net.scope).decisions == ()


def test_an_operator_that_cannot_be_computed_stays_with_its_error() -> None:
    net = transposed_weight()
    net.block.ops[0].set_attr("axis", [1, 7])
    result = fold_constants(net.program, net.scope)
    assert not result.changed and "transpose2" in reasons(result)[0]


def test_what_a_loop_reads_becomes_a_parameter_and_the_loop_keeps_its_own_operators() -> None:
    net = Net()
    net.parameter("w", net.numbers(1))
    net.op("fill_constant", {}, {"Out": ["i"]}, shape=[1], value=0.0, dtype=int(VarType.FP32))
    net.op("fill_constant", {}, {"Out": ["n"]}, shape=[1], value=3.0, dtype=int(VarType.FP32))
    net.op("fill_constant", {}, {"Out": ["sum"]}, shape=[1], value=0.0, dtype=int(VarType.FP32))
    net.op("scale", {"X": ["w"]}, {"Out": ["w2"]}, scale=2.0)
    net.op("less_than", {"X": ["i"], "Y": ["n"]}, {"Out": ["go"]})
    body = net.program._create_block()
    append(body, "scale", {"X": ["w2"]}, {"Out": ["w4"]}, scale=2.0)
    append(body, "elementwise_add", {"X": ["sum"], "Y": ["w4"]}, {"Out": ["sum"]}, axis=-1)
    append(body, "increment", {"X": ["i"]}, {"Out": ["i"]}, step=1.0)
    append(body, "less_than", {"X": ["i"], "Y": ["n"]}, {"Out": ["go"]})
    net.program._rollback()
    net.block.create_var(name="scopes", type=VarType.STEP_SCOPES)
    inputs = {"X": ["sum", "w2", "i", "n"], "Condition": ["go"]}
    outputs = {"Out": ["sum", "i"], "StepScopes": ["scopes"]}
    net.block.append_op(type="while", inputs=inputs, outputs=outputs, attrs={"sub_block": body, "is_test": True})
    before = net.run("sum")[0]
    result = fold_constants(net.program, net.scope, keep=["sum"])
    assert [decision.variable for decision in result.done] == ["w2"]
    assert [op.type for op in body.ops] == ["scale", "elementwise_add", "increment", "less_than"]
    np.testing.assert_array_equal(net.run("sum")[0], before)


def quantised_weight() -> Net:
    net = Net()
    net.data("x", net.numbers(2, 4))
    net.parameter("w", net.numbers(4, 3))
    net.parameter("scale", np.zeros(1, np.float32))
    net.op("fake_quantize_abs_max", {"X": ["w"]}, {"Out": ["wq"], "OutScale": ["scale"]}, bit_length=8)
    net.op("mul", {"X": ["x"], "Y": ["wq"]}, {"Out": ["out"]}, x_num_col_dims=1, y_num_col_dims=1)
    return net


def test_a_persistable_result_that_nothing_reads_is_left_in_the_scope_as_a_run_leaves_it() -> None:
    plain, net = quantised_weight(), quantised_weight()
    before = plain.run("out")[0]
    assert fold_constants(net.program, net.scope).changed
    assert net.types == ["mul"]
    np.testing.assert_array_equal(net.run("out")[0], before)
    scale = net.scope.find_var("scale").value.numpy()
    assert scale[0] > 0
    np.testing.assert_array_equal(scale, plain.scope.find_var("scale").value.numpy())


def test_a_persistable_result_that_something_reads_stays_computed() -> None:
    net = quantised_weight()
    net.op("relu", {"X": ["scale"]}, {"Out": ["other"]})
    assert reasons(fold_constants(net.program, net.scope)) == ["scale is persistable, and read by the program"]


def test_a_result_that_turns_out_otherwise_than_declared_is_declared_as_it_is() -> None:
    net = transposed_weight()
    net.block.var("wr").dtype, net.block.var("wr").shape = VarType.FP64, [7]
    before = net.run("out")[0]
    assert fold_constants(net.program, net.scope).changed
    assert net.block.var("wr").dtype == VarType.FP32 and net.block.var("wr").shape == (3, 4)
    np.testing.assert_array_equal(net.run("out")[0], before)


def test_what_initializes_a_parameter_stays() -> None:
    net = Net()
    net.op("fill_constant", {}, {"Out": ["value"]}, shape=[3], value=2.0, dtype=int(VarType.FP32))
    net.parameter("w", np.zeros(3, np.float32))
    net.op("scale", {"X": ["value"]}, {"Out": ["w"]}, scale=0.5)
    assert reasons(fold_constants(net.program, net.scope)) == ["it initializes a persistable variable"]
