"""Quantization after training: the program computes what its rounded numbers say, and what cannot be quantized stays as it is."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fluidtool.passes.quantize import STEPS, candidates, quantize, whole_weights
from fluidtool.passes.result import Decision
from fluidtool.runtime import Executor
from fluidtool.tensor import LoDTensor
from tests.passes.inference.net import Net

RTOL = 1e-5  # of the largest value: float32 in another order


def values_of(net: Net) -> dict[str, Any]:
    names = [name for name, var in net.block.vars.items() if var.persistable]
    return {name: net.scope.find_var(name).value.numpy() for name in names}  # type: ignore[union-attr]


def run(net: Net, feed: dict[str, Any], fetch: str, made: dict[str, Any] | None = None) -> Any:
    for name, value in (made or {}).items():
        net.scope.var(name).value = LoDTensor(value)
    return Executor(engine="numpy").run(net.program, feed, [fetch], net.scope)[0].numpy()


def reasons(net: Net, *skip: str) -> list[str]:
    return [each.reason for each in candidates(net.program, values_of(net), skip) if isinstance(each, Decision)]


def image_net() -> Net:
    net = Net()
    net.data("x", np.zeros((2, 3, 6, 6), np.float32), fixed=True)
    net.parameter("w", np.random.default_rng(0).standard_normal((4, 3, 3, 3)).astype(np.float32))
    inputs = {"Input": ["x"], "Filter": ["w"]}
    net.op("conv2d", inputs, {"Output": ["y"]}, strides=[1, 1], paddings=[1, 1], dilations=[1, 1], groups=1)
    return net


def matrix_net(*shape: int) -> Net:
    net = Net()
    net.data("x", np.zeros(shape, np.float32), fixed=True)
    net.parameter("w", np.random.default_rng(0).standard_normal((shape[-1], 5)).astype(np.float32))
    net.op("mul", {"X": ["x"], "Y": ["w"]}, {"Out": ["y"]}, x_num_col_dims=len(shape) - 1, y_num_col_dims=1)
    return net


def rounded(x: Any, scale: float) -> Any:
    return np.rint(np.clip(x, -scale, scale) / np.float32(scale) * STEPS) * scale / STEPS


def rounded_weights(weights: Any, axis: int) -> Any:
    numbers, by_output = whole_weights(weights, axis)
    shape = [1] * weights.ndim
    shape[axis] = -1
    return numbers * by_output.reshape(shape) / STEPS


# ---------------------------------------------------------------- what it computes
def test_a_convolution_computes_with_rounded_numbers() -> None:
    net, x = image_net(), np.random.default_rng(1).standard_normal((2, 3, 6, 6)).astype(np.float32)
    weights = values_of(net)["w"]
    result, made = quantize(net.program, values_of(net), {"x": 2.0})
    assert [op.type for op in net.block.ops] == [
        "fake_quantize_moving_average_abs_max", "conv2d", "fake_channel_wise_dequantize_max_abs",
    ]  # fmt: skip
    assert result.changed and set(made) == {"w", "x.scale", "y.channel_scale"}
    plain = image_net()
    want = run(plain, {"x": rounded(x, 2.0).astype(np.float32)}, "y", {"w": rounded_weights(weights, 0).astype("f")})
    got = run(net, {"x": x}, "y", made)
    np.testing.assert_allclose(got, want, rtol=0, atol=RTOL * float(np.abs(want).max()))


@pytest.mark.parametrize("shape", [(7, 8), (2, 3, 8)])
def test_a_product_computes_with_rounded_numbers(shape: tuple[int, ...]) -> None:
    net, x = matrix_net(*shape), np.random.default_rng(1).standard_normal(shape).astype(np.float32)
    weights = values_of(net)["w"]
    _, made = quantize(net.program, values_of(net), {"x": 2.0})
    want = rounded(x, 2.0).astype(float) @ rounded_weights(weights, 1)
    got = run(net, {"x": x}, "y", made)
    np.testing.assert_allclose(got, want, rtol=0, atol=RTOL * float(np.abs(want).max()))


def test_weights_are_whole_numbers_of_the_outputs_scale() -> None:
    weights = np.array([[0.5, -2.0], [1.0, 0.0], [0.0, 0.0]], np.float32)
    numbers, by_output = whole_weights(weights, 0)
    assert numbers.tolist() == [[32, -127], [127, 0], [0, 0]] and by_output.tolist() == [2, 1, 0]
    assert numbers.dtype == by_output.dtype == np.float32


def test_one_input_is_quantized_once() -> None:
    net = image_net()
    net.parameter("v", np.ones((4, 3, 1, 1), np.float32))
    attrs: dict[str, Any] = {"strides": [1, 1], "paddings": [0, 0], "dilations": [1, 1], "groups": 1}
    net.op("conv2d", {"Input": ["x"], "Filter": ["v"]}, {"Output": ["z"]}, **attrs)
    quantize(net.program, values_of(net), {"x": 2.0})
    assert [op.type for op in net.block.ops].count("fake_quantize_moving_average_abs_max") == 1


def test_weights_that_others_read_keep_their_numbers() -> None:
    net = image_net()
    net.op("scale", {"X": ["w"]}, {"Out": ["s"]}, scale=2.0)
    _, made = quantize(net.program, values_of(net), {"x": 2.0})
    assert "w" not in made and "w.quantized" in made
    assert net.block.ops[1].input("Filter") == ["w.quantized"] and net.block.ops[-1].input("X") == ["w"]


def test_names_that_are_taken_are_left() -> None:
    net = image_net()
    for name in ("x.quantized", "x.scale", "y.sums"):
        net.block.create_var(name=name, shape=[1], dtype="float32")
    _, made = quantize(net.program, values_of(net), {"x": 2.0})
    assert "x.scale_1" in made and net.block.ops[1].output("Output") == ["y.sums_1"]


# ---------------------------------------------------------------- what stays
def test_what_is_to_be_skipped() -> None:
    assert reasons(image_net(), "y") == reasons(image_net(), "[xy]") == ["it is to be skipped"]
    assert reasons(image_net(), "z*") == []


@pytest.mark.parametrize("scale", [0.0, float("inf"), float("nan")])
def test_an_input_of_no_size(scale: float) -> None:
    net = image_net()
    result, made = quantize(net.program, values_of(net), {"x": scale})
    assert not result.changed and not made and [op.type for op in net.block.ops] == ["conv2d"]
    assert [each.reason for each in result.left] == ["its input was 0, or not finite, in the data"]


def test_weights_that_are_computed() -> None:
    net = image_net()
    net.block.ops[0].set_input("Filter", ["x"])
    assert reasons(net) == ["its weights are not a float32 parameter"]


def test_a_bias_within_the_operator() -> None:
    net = image_net()
    net.parameter("b", np.ones(4, np.float32))
    net.block.ops[0].set_input("Bias", ["b"])
    assert reasons(net) == ["it computes more than sums of products"]


def test_an_input_that_is_written_again() -> None:
    net = image_net()
    net.op("scale", {"X": ["x"]}, {"Out": ["x"]}, scale=2.0)
    net.op("scale", {"X": ["x"]}, {"Out": ["x"]}, scale=2.0)
    assert reasons(net) == ["its input or result is written several times, or is a parameter"]


def test_weights_that_are_no_matrix() -> None:
    net = matrix_net(7, 8)
    net.block.ops[0].set_attr("y_num_col_dims", 2)
    assert reasons(net) == ["its weights are not a matrix"]


def test_operators_without_weights_are_no_candidates() -> None:
    net = image_net()
    net.op("relu", {"X": ["y"]}, {"Out": ["z"]})
    assert len(list(candidates(net.program, values_of(net), ()))) == 1
