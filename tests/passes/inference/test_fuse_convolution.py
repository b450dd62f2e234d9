"""`fuse-conv-bias`, `fuse-conv-residual`, `fuse-conv-activation`."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import pytest

from fluidtool.ir import Program
from fluidtool.passes.inference.fuse_convolution import fuse_activation, fuse_bias, fuse_residual
from fluidtool.passes.result import PassResult
from fluidtool.runtime import Scope
from fluidtool.tensor import CPUPlace, create_lod_tensor
from tests.passes.inference.checking import CheckedNet as Net

ROUNDING = 1e-12
ACTIVATIONS: dict[str, dict[str, float]] = {
    "relu": {},
    "sigmoid": {},
    "tanh": {},
    "relu6": {"threshold": 6.0},
    "swish": {"beta": 1.0},
    "hard_swish": {"threshold": 6.0, "scale": 6.0, "offset": 3.0},
    "hard_sigmoid": {"slope": 0.2, "offset": 0.5},
}


def fuse_all(program: Program, scope: Scope, keep: Collection[str] = ()) -> PassResult:
    """The three, one after another."""
    results = [rewrite(program, scope, keep) for rewrite in (fuse_bias, fuse_residual, fuse_activation)]
    return PassResult(tuple(decision for result in results for decision in result.decisions))


def convolution(type: str = "conv2d", bias: tuple[int, ...] = (4,), axis: int = 1, **attrs: Any) -> tuple[Net, str]:
    net = Net()
    x = net.input("x", 2, 4, 6, 6)
    groups = 4 if type == "depthwise_conv2d" else 1
    out = net.conv(x, net.parameter("w", 4, 4 // groups, 3, 3), type, groups=groups, **attrs)
    out = net.add(out, net.parameter("b", *bias), axis)
    net.block.vars[out].shape = (-1, 4, 6, 6)
    return net, out


@pytest.mark.parametrize("bias, axis", [((4,), 1), ((1, 4, 1, 1), -1), ((4, 1, 1), -1)])
@pytest.mark.parametrize("type", ["conv2d", "depthwise_conv2d"])
def test_a_bias(type: str, bias: tuple[int, ...], axis: int) -> None:
    net, out = convolution(type, bias, axis)
    net.check(fuse_bias, out, rtol=ROUNDING)
    assert net.types == ["conv2d_fusion"] and net.block.ops[0].attr("activation") == "identity"


def test_a_lod_stays() -> None:
    net, out = convolution()
    net.feed["x"] = create_lod_tensor(net.feed["x"], [[1, 1]], CPUPlace())
    net.check(fuse_all, net.op("relu", {"X": net.add(out, "x", -1)}), rtol=ROUNDING)
    assert net.types == ["conv2d_fusion"]


def test_strides_paddings_and_dilations_stay() -> None:
    net, out = convolution(strides=[2, 1], paddings=[2, 1], dilations=[1, 2])
    net.check(fuse_bias, out, rtol=ROUNDING)


@pytest.mark.parametrize("activation", list(ACTIVATIONS))
def test_an_activation(activation: str) -> None:
    net, out = convolution()
    out = net.op(activation, {"X": out}, **ACTIVATIONS[activation])
    net.check(fuse_all, out, rtol=ROUNDING)
    assert net.types == ["conv2d_fusion"] and net.block.ops[0].attr("activation") == activation


@pytest.mark.parametrize("activation, attrs", [("relu6", {"threshold": 4.0}), ("swish", {"beta": 2.0})])
def test_an_activation_with_another_number_stays(activation: str, attrs: dict[str, float]) -> None:
    net, out = convolution()
    out = net.op(activation, {"X": out}, **attrs)
    fuse_bias(net.program, net.scope, [out])
    net.check_left(fuse_activation, out, reason=f"attribute {next(iter(attrs))} of {activation} is")


def test_an_activation_that_the_operator_does_not_know_stays() -> None:
    net, out = convolution()
    net.check(fuse_all, net.op("exp", {"X": out}), rtol=ROUNDING)
    assert net.types == ["conv2d_fusion", "exp"]


@pytest.mark.parametrize("first", [True, False])
def test_a_residual_and_an_activation(first: bool) -> None:
    net, out = convolution()
    out = net.add(out, "x", -1) if first else net.add("x", out, -1)
    net.check(fuse_all, net.op("relu", {"X": out}), rtol=ROUNDING)
    assert net.types == ["conv2d_fusion"] and net.block.ops[0].input("ResidualData") == ["x"]


def test_two_convolutions_that_are_added() -> None:
    net, out = convolution()
    other = net.add(net.conv("x", net.parameter("v", 4, 4, 3, 3)), net.parameter("c", 4))
    net.block.vars[other].shape = (-1, 4, 6, 6)
    net.check(fuse_all, net.op("relu", {"X": net.add(out, other, -1)}), rtol=ROUNDING)
    assert net.types == ["conv2d_fusion", "conv2d_fusion"]


def test_only_one_residual() -> None:
    net, out = convolution()
    out = net.add(out, "x", -1)
    net.block.vars[out].shape = (-1, 4, 6, 6)
    net.check(fuse_all, net.add(out, "x", -1), rtol=ROUNDING)
    assert net.types == ["conv2d_fusion", "elementwise_add"]


def test_a_residual_of_another_shape_stays() -> None:
    net, out = convolution()
    out = net.add(out, net.op("reduce_mean", {"X": "x"}, dim=[2, 3]), 0)
    fuse_bias(net.program, net.scope, [out])
    net.check_left(fuse_residual, out, reason="is not declared in the shape of")


def test_the_result_added_to_itself_stays() -> None:
    net, out = convolution()
    out = net.add(out, out, -1)
    fuse_bias(net.program, net.scope, [out])
    net.check_left(fuse_residual, out, reason="is not declared in the shape of")


@pytest.mark.parametrize("bias, axis", [((6,), -1), ((4, 6, 6), -1)])
def test_what_is_no_bias_stays(bias: tuple[int, ...], axis: int) -> None:
    net, out = convolution(bias=bias, axis=axis)
    net.check_left(fuse_bias, out, reason="is not one number per channel")


def test_a_fetched_inner_result_stays() -> None:
    net, out = convolution()
    inner = net.block.ops[0].output("Output")[0]
    net.check_left(fuse_bias, out, inner, reason=f"{inner} is fetched or must be kept")


def test_a_second_reader_stays() -> None:
    net, out = convolution()
    other = net.op("tanh", {"X": net.block.ops[0].output("Output")[0]})
    net.check_left(fuse_bias, out, other, reason="is also read by tanh")


def test_channels_last_stay() -> None:
    net = Net()
    out = net.conv(net.input("x", 2, 6, 6, 4), net.parameter("w", 4, 4, 3, 3), data_format="NHWC")
    net.check_left(fuse_bias, net.add(out, net.parameter("b", 4), -1), reason="NCHW only")


def test_a_bare_convolution_is_no_candidate() -> None:
    net = Net()
    out = net.op("relu", {"X": net.conv(net.input("x", 2, 4, 6, 6), net.parameter("w", 4, 4, 3, 3))})
    assert fuse_all(net.program, net.scope, [out]).decisions == ()
