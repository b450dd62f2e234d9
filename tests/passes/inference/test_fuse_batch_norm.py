"""`fuse-batch-norm`: a batch_norm vanishes into what is linear before it, where no number changes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fluidtool.passes.inference.fuse_batch_norm import fuse_affine_channel, fuse_batch_norm
from fluidtool.runtime import Executor
from fluidtool.tensor import LoDTensor
from tests.passes.inference.checking import CheckedNet as Net

FILTERS = {
    "conv2d": (6, 4, 3, 3),
    "depthwise_conv2d": (4, 1, 3, 3),
    "conv3d": (6, 4, 3, 3, 3),
    "conv2d_transpose": (4, 6, 3, 3),
    "depthwise_conv2d_transpose": (4, 1, 3, 3),
    "conv3d_transpose": (4, 6, 3, 3, 3),
}


def convolution(type: str = "conv2d", bias: bool = False, dtype: str = "float64", **attrs: Any) -> tuple[Net, str]:
    """conv (+ bias) -> batch_norm -> relu; the name of what relu writes."""
    net = Net(dtype)
    shape = FILTERS[type]
    x = net.input("x", 2, 4, *[5] * (len(shape) - 2))
    channels = 4 if "depthwise" in type else 6
    if "depthwise" in type:
        attrs["groups"] = 4
    out = net.conv(x, net.parameter("w", *shape), type, **attrs)
    if bias:
        out = net.add(out, net.parameter("b", channels))
    return net, net.op("relu", {"X": net.batch_norm(out, channels)})


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("type", list(FILTERS))
def test_it_vanishes_into_every_convolution(type: str, bias: bool) -> None:
    net, out = convolution(type, bias)
    net.check(fuse_batch_norm, out)
    assert net.types == [type, "elementwise_add", "relu"]


@pytest.mark.parametrize("type, groups", [("conv2d", 2), ("conv2d_transpose", 2), ("conv3d_transpose", 2)])
def test_it_vanishes_into_grouped_convolutions(type: str, groups: int) -> None:
    net = Net()
    dims = 3 if "3d" in type else 2
    shape = (6, 2) if type == "conv2d" else (4, 3)
    x = net.input("x", 2, 4, *[5] * dims)
    out = net.conv(x, net.parameter("w", *shape, *[3] * dims), type, groups=groups)
    net.check(fuse_batch_norm, net.batch_norm(out, 6))
    assert net.types == [type, "elementwise_add"]


@pytest.mark.parametrize("type", ["mul", "matmul"])
def test_sequences_keep_their_lod(type: str) -> None:
    net = Net()
    out = net.op(type, {"X": net.input("x", 3, 4, lod=[[1, 2]]), "Y": net.parameter("w", 4, 6)})
    net.check(fuse_batch_norm, net.batch_norm(out, 6))
    assert net.types == [type, "elementwise_add"]


def test_the_results_have_the_names_of_paddle() -> None:
    net, out = convolution()
    normalized = net.block.ops[1].output("Y")
    net.check(fuse_batch_norm, out)
    conv, add, relu = net.block.ops
    assert conv.input("Filter") == ["w_fuse_bn"]
    assert add.input("Y") == ["bn.bias_fuse_bn"] and add.attr("axis") == 1
    assert add.output("Out") == normalized == relu.input("X")
    assert not {"w", "bn.scale", "bn.mean"} & set(net.block.vars)
    assert net.scope.find_var("w") is not None


def test_the_bias_of_the_convolution_gives_its_name() -> None:
    net, out = convolution(bias=True)
    normalized = net.block.ops[2].output("Y")
    net.check(fuse_batch_norm, out)
    assert net.block.ops[1].input("Y") == ["b_fuse_bn"]
    assert net.block.ops[1].output("Out") == normalized


def test_the_folded_numbers_follow_the_formula_with_the_operators_epsilon() -> None:
    net, out = convolution(bias=True)
    w, b = net.value("w"), net.value("b")
    scale, bias, mean, variance = (net.value(f"bn.{name}") for name in ("scale", "bias", "mean", "variance"))
    net.check(fuse_batch_norm, out)
    s = scale / np.sqrt(variance + float(np.float32(1e-3)))  # attributes are 32 bits wide
    np.testing.assert_allclose(net.value("w_fuse_bn"), w * s[:, None, None, None], rtol=1e-14)
    np.testing.assert_allclose(net.value("b_fuse_bn"), (b - mean) * s + bias, rtol=1e-13, atol=1e-15)


@pytest.mark.parametrize("dtype, rtol", [("float32", 1e-5), ("float64", 1e-12)])
def test_the_data_type_of_the_filter_stays(dtype: str, rtol: float) -> None:
    net, out = convolution(dtype=dtype)
    net.check(fuse_batch_norm, out, rtol=rtol)
    assert net.value("w_fuse_bn").dtype == net.value("bn.bias_fuse_bn").dtype == np.dtype(dtype)


def test_channels_last() -> None:
    net = Net()
    x = net.input("x", 2, 5, 5, 4)
    out = net.conv(x, net.parameter("w", 6, 4, 3, 3), data_format="NHWC")
    net.check(fuse_batch_norm, net.batch_norm(out, 6, data_layout="NHWC"))
    assert net.types == ["conv2d", "elementwise_add"] and net.block.ops[1].attr("axis") == 3


def test_layouts_that_differ_are_left() -> None:
    net = Net()
    x = net.input("x", 2, 4, 6, 6)
    out = net.conv(x, net.parameter("w", 6, 4, 3, 3))
    out = net.batch_norm(out, 6, data_layout="NHWC")
    net.check_left(fuse_batch_norm, out, reason="channels along axis 1 of 4, but NHWC normalizes along 3")


@pytest.mark.parametrize("shape, axis", [((6,), 1), ((1, 6, 1, 1), -1), ((6, 1, 1), 1), ((1,), -1)])
def test_biases_of_every_shape_that_means_one_number_per_channel(shape: tuple[int, ...], axis: int) -> None:
    net = Net()
    out = net.conv(net.input("x", 2, 4, 5, 5), net.parameter("w", 6, 4, 3, 3))
    net.check(fuse_batch_norm, net.batch_norm(net.add(out, net.parameter("b", *shape), axis), 6))
    assert net.types == ["conv2d", "elementwise_add"]


@pytest.mark.parametrize("shape, axis", [((6,), -1), ((6,), 2), ((6, 6), 1), ((1, 6, 6, 6), -1)])
def test_other_biases_are_left(shape: tuple[int, ...], axis: int) -> None:
    net = Net()
    out = net.conv(net.input("x", 2, 4, 6, 6), net.parameter("w", 6, 4, 3, 3))
    out = net.batch_norm(net.add(out, net.parameter("b", *shape), axis), 6)
    net.check_left(fuse_batch_norm, out, reason="is not one number per channel along axis 1")


@pytest.mark.parametrize("keep_inner_results", [False, True])
def test_two_in_a_row(keep_inner_results: bool) -> None:
    net = Net()
    out = net.conv(net.input("x", 2, 4, 5, 5), net.parameter("w", 6, 4, 3, 3))
    between = net.batch_norm(out, 6, "bn")
    out = net.batch_norm(between, 6, "other")
    if not keep_inner_results:
        net.check(fuse_batch_norm, out)
        assert net.types == ["conv2d", "elementwise_add"]
        return
    before = net.run(out, between)
    fuse_batch_norm(net.program, net.scope, keep_inner_results=True)
    for old, new in zip(before, net.run(out, between), strict=True):
        np.testing.assert_allclose(new, old, rtol=1e-9)
    assert len(Executor().plan(net.program, [out]).block(0).steps) == 2


# ---------------------------------------------------------------- products
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("type", ["mul", "matmul", "matmul_v2"])
def test_it_vanishes_into_products(type: str, bias: bool) -> None:
    net = Net()
    out = net.op(type, {"X": net.input("x", 3, 4), "Y": net.parameter("w", 4, 6)})
    if bias:
        out = net.add(out, net.parameter("b", 6))
    net.check(fuse_batch_norm, net.batch_norm(out, 6))
    assert net.types == [type, "elementwise_add"]
    assert net.block.ops[0].input("Y") == ["w_fuse_bn"]


def test_a_transposed_weight_and_a_factor() -> None:
    net = Net()
    out = net.op("matmul", {"X": net.input("x", 3, 4), "Y": net.parameter("w", 6, 4)}, transpose_Y=True, alpha=0.5)
    net.check(fuse_batch_norm, net.batch_norm(out, 6))
    assert net.types == ["matmul", "elementwise_add"]


@pytest.mark.parametrize("bias", [False, True])
def test_fc_takes_the_bias_into_its_own(bias: bool) -> None:
    net = Net()
    inputs = {"Input": net.input("x", 3, 4), "W": net.parameter("w", 4, 6)}
    if bias:
        inputs["Bias"] = net.parameter("b", 6)
    net.check(fuse_batch_norm, net.batch_norm(net.op("fc", inputs), 6))
    assert net.types == ["fc"]
    assert net.block.ops[0].input("Bias") == ["b_fuse_bn" if bias else "bn.bias_fuse_bn"]


def test_a_convolution_with_a_bias_of_its_own() -> None:
    net = Net()
    inputs = {
        "Input": net.input("x", 2, 4, 5, 5),
        "Filter": net.parameter("w", 6, 4, 3, 3),
        "Bias": net.parameter("b", 6),
    }
    net.check(fuse_batch_norm, net.batch_norm(net.op("conv2d", inputs, slot="Output"), 6))
    assert net.types == ["conv2d"] and net.block.ops[0].input("Bias") == ["b_fuse_bn"]


def test_an_fc_with_an_activation_is_left() -> None:
    net = Net()
    inputs = {"Input": net.input("x", 3, 4), "W": net.parameter("w", 4, 6)}
    out = net.batch_norm(net.op("fc", inputs, activation_type="relu"), 6)
    net.check_left(fuse_batch_norm, out, reason="ends with an activation (activation_type)")


def test_a_convolution_with_a_residual_is_left() -> None:
    net = Net()
    x = net.input("x", 2, 4, 5, 5)
    inputs = {"Input": x, "Filter": net.parameter("w", 4, 4, 3, 3), "ResidualData": x}
    out = net.op("conv2d", inputs, slot="Output", paddings=[1, 1], fuse_residual_connection=True)
    net.check_left(fuse_batch_norm, net.batch_norm(out, 4), reason="adds a residual")


def test_a_product_whose_channels_are_rows_is_left() -> None:
    net = Net()
    out = net.op("mul", {"X": net.input("x", 2, 6, 4), "Y": net.parameter("w", 4, 6)}, x_num_col_dims=2)
    net.check_left(fuse_batch_norm, net.batch_norm(out, 6), reason="channels along axis 2 of 3")


def test_a_product_of_two_activations_is_left() -> None:
    net = Net()
    out = net.op("matmul", {"X": net.input("x", 6, 6), "Y": net.input("y", 6, 6)})
    net.check_left(fuse_batch_norm, net.batch_norm(out, 6), reason="y is not a parameter: it is computed or fed")


# ---------------------------------------------------------------- what must stay
def test_a_second_reader_of_the_convolution_keeps_it() -> None:
    net, out = convolution()
    other = net.op("sigmoid", {"X": net.block.ops[0].output("Output")[0]})
    net.check_left(fuse_batch_norm, out, other, reason="is also read by sigmoid")


def test_a_second_reader_of_the_bias_sum_keeps_it() -> None:
    net, out = convolution(bias=True)
    other = net.op("sigmoid", {"X": net.block.ops[1].output("Out")[0]})
    net.check_left(fuse_batch_norm, out, other, reason="is also read by sigmoid")


@pytest.mark.parametrize("position, slot", [(0, "Output"), (1, "Out")])
def test_a_fetched_inner_result_keeps_it(position: int, slot: str) -> None:
    net, out = convolution(bias=True)
    inner = net.block.ops[position].output(slot)[0]
    net.check_left(fuse_batch_norm, out, inner, reason=f"{inner} is fetched or must be kept")


def test_a_fetch_operator_keeps_it() -> None:
    net, out = convolution()
    inner = net.block.ops[0].output("Output")[0]
    net.op("fetch", {"X": inner}, "fetch", col=0)
    net.check_left(fuse_batch_norm, out, reason=f"{inner} is also fetched")


def test_a_persistable_inner_result_keeps_it() -> None:
    net, out = convolution()
    net.block.var(net.block.ops[0].output("Output")[0]).persistable = True
    net.check_left(fuse_batch_norm, out, reason="is persistable")


def test_a_reader_in_a_sub_block_keeps_it() -> None:
    net, out = convolution()
    inner = net.block.ops[0].output("Output")[0]
    condition = net.op("fill_constant", {}, "condition", shape=[1], dtype=0, value=1.0)
    below = net.program.create_block()
    net.op("sigmoid", {"X": inner}, "below", block=below)
    net.program.rollback()
    net.block.create_var(name="below_seen", dtype=net.dtype)
    net.op("assign", {"X": inner}, "below_seen", block=below)
    net.op(
        "conditional_block",
        {"Cond": condition, "Input": []},
        "scope",
        "Scope",
        {"Out": ["below_seen"]},
        sub_block=below,
    )
    net.block.var("scope").type = 11  # STEP_SCOPES
    net.check_left(fuse_batch_norm, out, "below_seen", reason="is also read by conditional_block")


def test_a_batch_norm_in_training_stays() -> None:
    net = Net()
    out = net.conv(net.input("x", 2, 4, 5, 5), net.parameter("w", 6, 4, 3, 3))
    out = net.batch_norm(out, 6, is_test=False)
    result = fuse_batch_norm(net.program, net.scope, [out])
    assert not result.changed and "clone(for_test=True)" in result.left[0].reason


def test_a_batch_norm_with_global_statistics_goes_without_is_test() -> None:
    net = Net()
    out = net.conv(net.input("x", 2, 4, 5, 5), net.parameter("w", 6, 4, 3, 3))
    net.check(fuse_batch_norm, net.batch_norm(out, 6, is_test=False, use_global_stats=True))
    assert net.types == ["conv2d", "elementwise_add"]


def test_trainable_statistics_train_even_under_is_test() -> None:
    net = Net()
    out = net.conv(net.input("x", 2, 4, 5, 5), net.parameter("w", 6, 4, 3, 3))
    result = fuse_batch_norm(net.program, net.scope, [net.batch_norm(out, 6, trainable_statistics=True)])
    assert not result.changed


def test_a_batch_norm_that_ends_with_a_relu_stays() -> None:
    net = Net()
    out = net.conv(net.input("x", 2, 4, 5, 5), net.parameter("w", 6, 4, 3, 3))
    net.check_left(fuse_batch_norm, net.batch_norm(out, 6, fuse_with_relu=True), reason="fuse_with_relu")


def test_a_residual_in_place_of_a_bias_stays() -> None:
    net = Net()
    x = net.input("x", 2, 4, 5, 5)
    out = net.conv(x, net.parameter("w", 4, 4, 3, 3))
    net.check_left(fuse_batch_norm, net.batch_norm(net.add(out, x, -1), 4), reason="x is not a parameter")


def test_a_bias_to_which_the_convolution_is_added_stays() -> None:
    net = Net()
    out = net.conv(net.input("x", 2, 4, 5, 5), net.parameter("w", 4, 4, 3, 3))
    out = net.batch_norm(net.add(net.parameter("b", 2, 4, 5, 5), out, -1), 4)
    net.check_left(fuse_batch_norm, out, reason="which no convolution or product computes")


def test_a_result_added_to_itself_stays() -> None:
    net = Net()
    out = net.conv(net.input("x", 2, 4, 5, 5), net.parameter("w", 4, 4, 3, 3))
    net.check_left(fuse_batch_norm, net.batch_norm(net.add(out, out, -1), 4), reason="does not add a bias")


@pytest.mark.parametrize("name", ["w", "b", "bn.scale", "bn.bias", "bn.mean", "bn.variance"])
def test_a_parameter_without_a_value_is_named(name: str) -> None:
    net, out = convolution(bias=True)
    net.scope.erase([name])
    result = fuse_batch_norm(net.program, net.scope, [out])
    assert not result.changed
    assert result.left[0].reason == f"{name} has no value in the scope; load the parameters first"


@pytest.mark.parametrize("name", ["w", "b", "bn.scale"])
def test_a_parameter_that_the_program_writes_stays(name: str) -> None:
    net, out = convolution(bias=True)
    net.op("scale", {"X": name}, name, scale=1.5)
    result = fuse_batch_norm(net.program, net.scope, [out])
    assert not result.changed and result.left[0].reason == f"{name} is written by the program"


def test_a_fed_filter_stays() -> None:
    net = Net()
    x, w = net.input("x", 2, 4, 5, 5), net.input("w", 6, 4, 3, 3)
    net.check_left(fuse_batch_norm, net.batch_norm(net.conv(x, w), 6), reason="w is not a parameter")


def test_an_input_that_is_written_in_between_stays() -> None:
    net = Net()
    x = net.input("x", 2, 4, 5, 5)
    out = net.conv(x, net.parameter("w", 6, 4, 3, 3))
    net.op("relu", {"X": x}, x)
    net.check_left(fuse_batch_norm, net.batch_norm(out, 6), reason="x, which the conv2d reads, is written again")


def test_the_next_operator_in_the_list_is_not_the_one_that_follows_in_the_data() -> None:
    net = Net()
    x = net.input("x", 2, 4, 5, 5)
    conv = net.conv(x, net.parameter("w", 4, 4, 3, 3))
    out = net.add(net.batch_norm(x, 4), conv, -1)
    net.check_left(fuse_batch_norm, out, reason="does not come from a convolution or product: a run is given it")


def test_operators_in_between_do_not_matter() -> None:
    net = Net()
    x = net.input("x", 2, 4, 5, 5)
    conv = net.conv(x, net.parameter("w", 6, 4, 3, 3))
    other = net.op("sigmoid", {"X": x})
    net.check(fuse_batch_norm, net.batch_norm(conv, 6), other)
    assert net.types == ["sigmoid", "conv2d", "elementwise_add"]


def test_names_that_are_written_again_are_told_apart() -> None:
    net = Net()
    x = net.input("x", 2, 4, 5, 5)
    net.conv(x, net.parameter("w", 4, 4, 3, 3), type="conv2d")
    net.block.ops[-1].set_output("Output", ["t"])
    net.block.create_var(name="t", dtype=net.dtype)
    first = net.batch_norm("t", 4)
    net.op("relu", {"X": first}, "t")
    net.check(fuse_batch_norm, "t")
    assert net.types == ["conv2d", "elementwise_add", "relu"]


def test_in_place() -> None:
    net = Net()
    out = net.conv(net.input("x", 2, 4, 5, 5), net.parameter("w", 4, 4, 3, 3))
    net.batch_norm(out, 4)
    net.block.ops[-1].set_output("Y", [out])
    net.check(fuse_batch_norm, out)
    assert net.types == ["conv2d", "elementwise_add"]


def test_a_used_saved_mean_keeps_it() -> None:
    net, out = convolution()
    saved = net.block.ops[1].output("SavedMean")[0]
    net.check_left(fuse_batch_norm, out, reason=f"SavedMean ({saved}) is used", keep=[out, saved])


def test_numbers_that_the_data_type_does_not_hold_are_left() -> None:
    net, out = convolution(dtype="float32")
    net.scope.var("bn.variance").value = LoDTensor(np.full(6, -1.0, np.float32))
    result = fuse_batch_norm(net.program, net.scope, [out])
    assert not result.changed and "do not fit float32" in result.left[0].reason


def test_parameters_that_do_not_fit_each_other_are_left() -> None:
    net, out = convolution()
    net.scope.var("bn.mean").value = LoDTensor(np.zeros(5))
    result = fuse_batch_norm(net.program, net.scope, [out])
    assert result.left[0].reason == "its parameters differ in size: Scale 6, Bias 6, Mean 5, Variance 6"


def test_parameters_for_another_number_of_channels_are_left() -> None:
    net, out = convolution()
    for name in ("scale", "bias", "mean", "variance"):
        net.scope.var(f"bn.{name}").value = LoDTensor(np.ones(5))
    result = fuse_batch_norm(net.program, net.scope, [out])
    assert result.left[0].reason == "it normalizes 5 channels, and the conv2d computes 6"


# ---------------------------------------------------------------- shared parameters, names
def two_convolutions(same_norm: bool) -> tuple[Net, str]:
    net = Net()
    x = net.input("x", 2, 4, 5, 5)
    w = net.parameter("w", 4, 4, 3, 3)
    first = net.op("tanh", {"X": net.batch_norm(net.conv(x, w), 4, "bn")})
    return net, net.batch_norm(net.conv(first, w), 4, "bn" if same_norm else "other")


def test_a_shared_filter_gets_a_name_for_each_norm() -> None:
    net, out = two_convolutions(same_norm=False)
    net.check(fuse_batch_norm, out)
    assert [op.input("Filter") for op in net.block.ops if op.type == "conv2d"] == [["w_fuse_bn"], ["w_fuse_bn_1"]]


def test_the_same_numbers_share_a_name() -> None:
    net, out = two_convolutions(same_norm=True)
    net.check(fuse_batch_norm, out)
    assert [op.input("Filter") for op in net.block.ops if op.type == "conv2d"] == [["w_fuse_bn"], ["w_fuse_bn"]]


def test_a_filter_that_something_else_reads_stays_for_it() -> None:
    net, out = convolution()
    other = net.op("scale", {"X": "w"}, scale=2.0)
    net.check(fuse_batch_norm, out, other)
    assert "w" in net.block.vars and net.types == ["conv2d", "elementwise_add", "relu", "scale"]


def test_a_name_in_the_scope_is_not_overwritten() -> None:
    net, out = convolution()
    taken = LoDTensor(np.zeros(3))
    net.scope.var("w_fuse_bn").value = taken
    net.check(fuse_batch_norm, out)
    assert net.scope.find_var("w_fuse_bn").value is taken  # type: ignore[union-attr]
    assert net.block.ops[0].input("Filter") == ["w_fuse_bn_1"]


def test_two_copies_of_a_program_share_the_folded_parameters() -> None:
    net, out = convolution()
    copy = net.program.clone()
    fuse_batch_norm(net.program, net.scope, [out])
    fuse_batch_norm(copy, net.scope, [out])
    assert copy.global_block().ops[0].input("Filter") == ["w_fuse_bn"]


def test_within_a_sub_block() -> None:
    net = Net()
    x = net.input("x", 2, 4, 5, 5)
    condition = net.op("fill_constant", {}, "condition", shape=[1], dtype=0, value=1.0)
    w = net.parameter("w", 4, 4, 3, 3)
    net.block.create_var(name="out", dtype=net.dtype)
    below = net.program.create_block()
    net.program.rollback()
    net.batch_norm(x, 4, "bn")
    net.block.ops.pop()
    conv = net.op("conv2d", {"Input": x, "Filter": w}, slot="Output", block=below, paddings=[1, 1])
    inputs = {slot: f"bn.{slot.lower()}" for slot in ("Scale", "Bias", "Mean", "Variance")}
    more = {"MeanOut": "bn.mean", "VarianceOut": "bn.variance"}
    net.op("batch_norm", {"X": conv, **inputs}, "out", "Y", more, below, is_test=True)
    net.op("conditional_block", {"Cond": condition, "Input": []}, "scope", "Scope", {"Out": ["out"]}, sub_block=below)
    net.block.var("scope").type = 11  # STEP_SCOPES
    net.check(fuse_batch_norm, "out")
    assert [op.type for op in below.ops] == ["conv2d", "elementwise_add"]
    assert "w_fuse_bn" in net.block.vars


# ---------------------------------------------------------------- affine_channel
@pytest.mark.parametrize("bias", [False, True])
def test_affine_channel_vanishes_too(bias: bool) -> None:
    net = Net()
    out = net.conv(net.input("x", 2, 4, 5, 5), net.parameter("w", 6, 4, 3, 3))
    if bias:
        out = net.add(out, net.parameter("b", 6))
    out = net.op("affine_channel", {"X": out, "Scale": net.parameter("s", 6), "Bias": net.parameter("t", 6)})
    net.check(fuse_affine_channel, out)
    assert net.types == ["conv2d", "elementwise_add"]


def test_an_affine_channel_of_something_else_stays() -> None:
    net = Net()
    x = net.op("relu", {"X": net.input("x", 2, 6, 5, 5)})
    out = net.op("affine_channel", {"X": x, "Scale": net.parameter("s", 6), "Bias": net.parameter("t", 6)})
    net.check_left(fuse_affine_channel, out, reason="relu computes it")


# ---------------------------------------------------------------- inner results kept
def test_inner_results_can_be_kept() -> None:
    net, out = convolution(bias=True)
    inner = [net.block.ops[0].output("Output")[0], net.block.ops[1].output("Out")[0]]
    before = net.run(out, *inner)
    fuse_batch_norm(net.program, net.scope, keep_inner_results=True)
    assert "batch_norm" not in net.types
    after = net.run(out, *inner)
    np.testing.assert_allclose(after[0], before[0], rtol=1e-9)
    for old, new in zip(before[1:], after[1:], strict=True):
        np.testing.assert_array_equal(new, old)


def test_inner_results_cost_a_run_nothing_that_does_not_fetch_them() -> None:
    net, out = convolution(bias=True)
    inner = net.block.ops[1].output("Out")[0]
    fuse_batch_norm(net.program, net.scope, keep_inner_results=True)
    assert len(net.types) == 5
    steps = Executor().plan(net.program, [out]).block(0).steps
    assert [step.op.type for step in steps] == ["conv2d", "elementwise_add", "relu"]
    steps = Executor().plan(net.program, [out, inner]).block(0).steps
    assert len(steps) == 5
