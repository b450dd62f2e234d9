"""`fuse-layer-norm`: the written-out normalization becomes one operator, to 1e-5."""

from typing import Any

import numpy as np
import pytest

from fluidtool.passes.inference.layer_norm import fuse_layer_norm
from fluidtool.proto.enums import VarType
from tests.passes.inference.net import Net, reasons


def written_out(
    square: str = "pow",
    inverse: bool = False,
    epsilon: float = 1e-5,
    dims: tuple[int, ...] = (-1,),
    keep_dim: bool = True,
    affine: bool = True,
    dtype: str = "float32",
) -> Net:
    net = Net()
    net.data("x", net.numbers(2, 3, 8, dtype=dtype))
    net.op("reduce_mean", {"X": ["x"]}, {"Out": ["mean"]}, dim=list(dims), keep_dim=keep_dim)
    net.op("elementwise_sub", {"X": ["x"], "Y": ["mean"]}, {"Out": ["d"]}, axis=-1)
    if square == "pow":
        net.op("pow", {"X": ["d"]}, {"Out": ["dd"]}, factor=2.0)
    elif square == "square":
        net.op("square", {"X": ["d"]}, {"Out": ["dd"]})
    else:
        net.op("elementwise_mul", {"X": ["d"], "Y": ["d"]}, {"Out": ["dd"]}, axis=-1)
    net.op("reduce_mean", {"X": ["dd"]}, {"Out": ["variance"]}, dim=list(dims), keep_dim=keep_dim)
    if inverse:
        net.op("fill_constant", {}, {"Out": ["epsilon"]}, shape=[1], value=epsilon, dtype=int(VarType.FP32))
        net.op("elementwise_add", {"X": ["variance"], "Y": ["epsilon"]}, {"Out": ["shifted"]}, axis=-1)
        net.op("rsqrt", {"X": ["shifted"]}, {"Out": ["root"]})
        net.op("elementwise_mul", {"X": ["d"], "Y": ["root"]}, {"Out": ["n"]}, axis=-1)
    else:
        net.op("scale", {"X": ["variance"]}, {"Out": ["shifted"]}, scale=1.0, bias=epsilon)
        net.op("sqrt", {"X": ["shifted"]}, {"Out": ["root"]})
        net.op("elementwise_div", {"X": ["d"], "Y": ["root"]}, {"Out": ["n"]}, axis=-1)
    if affine:
        net.parameter("gain", net.numbers(8, dtype=dtype))
        net.parameter("offset", net.numbers(8, dtype=dtype))
        net.op("elementwise_mul", {"X": ["n"], "Y": ["gain"]}, {"Out": ["g"]}, axis=2)
        net.op("elementwise_add", {"X": ["g"], "Y": ["offset"]}, {"Out": ["out"]}, axis=-1)
    return net


def fuses(net: Net, *fetched: str) -> None:
    before = net.run(*fetched)
    assert fuse_layer_norm(net.program, net.scope, keep=fetched).changed
    for got, want in zip(net.run(*fetched), before, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)
    assert not fuse_layer_norm(net.program, net.scope, keep=fetched).changed


@pytest.mark.parametrize("square", ["pow", "square", "product"])
def test_every_way_to_square_is_known(square: str) -> None:
    net = written_out(square)
    fuses(net, "out")
    assert net.types == ["layer_norm"]
    op = net.block.ops[0]
    assert op.input("Scale") == ["gain"] and op.input("Bias") == ["offset"] and op.attr("begin_norm_axis") == 2


def test_the_reciprocal_root_is_known() -> None:
    net = written_out(inverse=True)
    fuses(net, "out")
    assert "layer_norm" in net.types and "rsqrt" not in net.types


def test_without_scale_and_bias_and_over_several_dimensions() -> None:
    net = written_out(dims=(1, 2), affine=False)
    fuses(net, "n")
    assert net.types == ["layer_norm"] and net.block.ops[0].attr("begin_norm_axis") == 1


def test_float64_stays_float64() -> None:
    net = written_out(dtype="float64")
    fuses(net, "out")
    assert net.run("out")[0].dtype == np.float64


def test_a_fetched_normalized_value_leaves_scale_and_bias_outside() -> None:
    net = written_out()
    fuses(net, "n", "out")
    assert net.types == ["layer_norm", "elementwise_mul", "elementwise_add"]


def test_a_scale_that_is_computed_stays_outside() -> None:
    net = written_out()
    net.op("scale", {"X": ["gain"]}, {"Out": ["gain"]}, scale=1.0)
    fuses(net, "out")
    assert net.types[:3] == ["layer_norm", "elementwise_mul", "elementwise_add"]


def test_a_bias_along_another_dimension_stays_outside() -> None:
    net = written_out()
    net.block.remove_var("offset")
    net.parameter("offset", net.numbers(3))
    net.block.ops[-1].set_attr("axis", 1)
    fuses(net, "out")
    assert net.types == ["layer_norm", "elementwise_add"]


def test_a_fetched_mean_stays() -> None:
    net = written_out()
    assert reasons(fuse_layer_norm(net.program, net.scope, ["mean"])) == ["mean is fetched or must be kept"]


def test_a_variance_with_another_reader_stays() -> None:
    net = written_out()
    net.op("relu", {"X": ["variance"]}, {"Out": ["other"]})
    assert reasons(fuse_layer_norm(net.program, net.scope)) == ["variance is also read by relu"]


def test_an_input_that_is_overwritten_before_the_end_stays() -> None:
    net = written_out()
    net.block.insert_op(4, type="relu", inputs={"X": ["x"]}, outputs={"Out": ["x"]})
    wanted = ["x is written again before the last operator of the group"]
    assert reasons(fuse_layer_norm(net.program, net.scope)) == wanted


def test_an_epsilon_that_paddle_refuses_stays() -> None:
    net = written_out(epsilon=0.01)
    assert reasons(fuse_layer_norm(net.program, net.scope)) == ["epsilon is 0.01; layer_norm takes 0 to 0.001"]


def test_float16_stays() -> None:
    net = written_out()
    net.block.var("x").dtype = VarType.FP16
    assert reasons(fuse_layer_norm(net.program, net.scope)) == ["x is not declared float32 or float64"]


def change(index: int, **attrs: Any) -> Net:
    net = written_out()
    for name, value in attrs.items():
        net.block.ops[index].set_attr(name, value)
    return net


def test_other_arithmetic_is_no_candidate() -> None:
    others = [
        change(2, factor=3.0),
        change(4, scale=2.0),
        change(0, dim=[1]),
        change(3, dim=[1]),
        written_out(dims=(0,)),
    ]
    mixed = written_out()
    mixed.block.ops[1].set_input("X", ["shifted"])
    for net in (*others, mixed):
        assert fuse_layer_norm(net.program, net.scope).decisions == ()
