"""Images and volumes whose channels lie last in the program (NHWC, NDHWC), in regions and training steps: numbers as on the CPU."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fluidtool.fluid import layers
from fluidtool.runtime.engines.cuda.calls import Convolution, flat
from fluidtool.runtime.engines.cuda.training.compiled import CudaStep
from tests.gpu.test_cuda_regions import check
from tests.gpu.test_training_images import both_ways, norm, numbered, whole_numbers
from tests.gpu.test_training_reductions import in_a_step, kernels
from tests.gpu.test_training_softmax import jobs
from tests.runtime.native.checking import Net

pytestmark = pytest.mark.usefixtures("cupy")
WINDOWS: dict[str, Any] = {"strides": [2, 1], "paddings": [1, 0], "dilations": [1, 1], "groups": 1}
CONVOLUTIONS: dict[str, tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = {
    "conv2d": ((2, 6, 7, 4), (5, 4, 3, 2), WINDOWS),
    "depthwise_conv2d": ((2, 6, 7, 4), (4, 1, 3, 3), WINDOWS | {"groups": 4}),
    "conv2d_transpose": ((2, 6, 7, 4), (4, 5, 3, 2), WINDOWS),
    "depthwise_conv2d_transpose": ((2, 6, 7, 4), (4, 1, 3, 2), WINDOWS | {"groups": 4}),
    "conv3d": ((2, 4, 6, 7, 4), (5, 4, 2, 3, 2), {name: [1, *WINDOWS[name]] for name in ("strides", "dilations")}),
    "conv3d_transpose": (
        (2, 3, 4, 5, 4),
        (4, 5, 2, 3, 2),
        {name: [1, *WINDOWS[name]] for name in ("strides", "dilations")},
    ),
}


def settled(type: str) -> dict[str, Any]:
    """The attributes of a convolution."""
    attrs = CONVOLUTIONS[type][2]
    return {"paddings": [0, 1, 0], "groups": 1, **attrs} | {"data_format": "NDHWC" if "3d" in type else "NHWC"}


POOLS: list[tuple[str, dict[str, Any]]] = [
    ("pool2d", {"ksize": [3, 2], "strides": [2, 1], "paddings": [1, 0], "data_format": "NHWC"}),
    ("pool2d", {"ksize": [1, 1], "strides": [1, 1], "paddings": [0, 0], "data_format": "NHWC", "global_pooling": True}),
    ("pool3d", {"ksize": [2, 3, 2], "strides": [2, 1, 1], "paddings": [1, 0, 0], "data_format": "NDHWC"}),
]
SIZES: dict[str, Any] = {"out_h": 9, "out_w": 4, "data_layout": "NHWC", "align_corners": False, "align_mode": 0}


# ---------------------------------------------------------------- regions
@pytest.mark.parametrize("type", CONVOLUTIONS)
def test_convolutions(type: str) -> None:
    net = Net()
    shape, filters, _ = CONVOLUTIONS[type]
    x = net.op(type, "Output", {"Input": net.data(*shape), "Filter": net.parameter(*filters)}, **settled(type))
    check(net, net.op("relu", "Out", {"X": x}), rtol=1e-5)


def test_neighbors_move_nothing_between_them() -> None:
    """A normalization becomes part of the convolution before it."""
    net = Net()
    x = net.data(2, 6, 7, 4)
    for _ in range(2):
        inputs = {"Input": x, "Filter": net.parameter(4, 4, 3, 3)}
        x = net.op(
            "conv2d", "Output", inputs, **WINDOWS | {"strides": [1, 1], "paddings": [1, 1], "data_format": "NHWC"}
        )
        given = {"X": x, **{slot: net.parameter(of=np.linspace(0.5, 2, 4, dtype=np.float32)) for slot in STATISTICS}}
        more = ("MeanOut", "VarianceOut", "SavedMean", "SavedVariance")
        x = net.op("batch_norm", "Y", given, *more, is_test=True, epsilon=1e-5, data_layout="NHWC")
    pool = {"pooling_type": "max", "ksize": [2, 2], "strides": [2, 2], "paddings": [0, 0], "data_format": "NHWC"}
    found = check(net, net.op("pool2d", "Out", {"X": x}, **pool), rtol=1e-5)
    assert [call for call in found if call in ("Choice", "Convolution")] and found.count("each") <= 2


STATISTICS = ("Scale", "Bias", "Mean", "Variance")


@pytest.mark.parametrize("shape", [(2, 5), (2, 3, 5), (2, 3, 4, 5)])
def test_normalization_by_channel(shape: tuple[int, ...]) -> None:
    net = Net()
    given = {slot: net.parameter(of=np.linspace(0.5, 2, 5, dtype=np.float32)) for slot in STATISTICS}
    given["X"] = net.op("softmax", "Out", {"X": net.data(*shape)}, axis=-1)
    more = ("MeanOut", "VarianceOut", "SavedMean", "SavedVariance")
    check(net, net.op("batch_norm", "Y", given, *more, is_test=True, epsilon=1e-5, data_layout="NHWC"))


@pytest.mark.parametrize("kind", ["max", "avg"])
@pytest.mark.parametrize(("type", "attrs"), POOLS)
def test_pooling(type: str, attrs: dict[str, Any], kind: str) -> None:
    net = Net()
    x = net.data(2, 6, 7, 5) if type == "pool2d" else net.data(2, 4, 6, 7, 5)
    check(net, net.op(type, "Out", {"X": x}, pooling_type=kind, **attrs))


@pytest.mark.parametrize("method", ["nearest", "bilinear", "bicubic"])
def test_resampling(method: str) -> None:
    net = Net()
    x = net.op("softmax", "Out", {"X": net.data(2, 6, 7, 3)}, axis=-1)
    check(net, net.op(f"{method}_interp", "Out", {"X": x}, interp_method=method, **SIZES), rtol=1e-5)


def test_other_operators_of_channels() -> None:
    net = Net()
    x = net.op("softmax", "Out", {"X": net.data(2, 4, 6, 8)}, axis=-1)
    factors = {slot: net.parameter(8) for slot in ("Scale", "Bias")}
    check(
        net,
        net.op("affine_channel", "Out", {"X": x, **factors}, data_layout="NHWC"),
        net.op("lrn", "Out", {"X": x}, "MidOut", n=3, k=1.5, alpha=0.3, beta=0.75, data_format="NHWC"),
        net.op("group_norm", "Y", {"X": x, **factors}, "Mean", "Variance", groups=2, epsilon=1e-3, data_layout="NHWC"),
        rtol=1e-5,
    )


# ---------------------------------------------------------------- training steps
@pytest.mark.parametrize("type", CONVOLUTIONS)
def test_convolutions_and_their_gradients(type: str, compiled: list[CudaStep]) -> None:
    net = Net()
    shape, filters, _ = CONVOLUTIONS[type]
    inputs = {"Input": net.data(*shape), "Filter": net.data(*filters)}
    y = net.op(type, "Output", inputs, **settled(type))
    wanted = dict.fromkeys(("Input@GRAD", "Filter@GRAD"), 1)
    grads = net.several(f"{type}_grad", wanted, {**inputs, "Output@GRAD": numbered(net, y)}, **settled(type))
    in_a_step(net, y, *grads, rtol=1e-5)
    computed = [call.computes for call in flat(compiled[-1].calls) if isinstance(call, Convolution)]
    assert sorted(computed) == ["out", "weights", "x"]


@pytest.mark.parametrize("kind", ["max", "avg"])
@pytest.mark.parametrize(("type", "attrs"), POOLS)
def test_pooling_and_its_gradient(type: str, attrs: dict[str, Any], kind: str, compiled: list[CudaStep]) -> None:
    net = Net()
    x = whole_numbers(2, 6, 7, 5) if type == "pool2d" else whole_numbers(2, 4, 6, 7, 5)
    in_a_step(net, *both_ways(net, type, x, reads=("Out",), pooling_type=kind, **attrs), rtol=1e-6)
    assert "unpool" in kernels(compiled[-1])


@pytest.mark.parametrize("method", ["nearest", "bilinear", "bicubic"])
def test_resampling_and_its_gradient(method: str, compiled: list[CudaStep]) -> None:
    net = Net()
    x = net.random.standard_normal((2, 6, 7, 3)).astype(np.float32)
    in_a_step(net, *both_ways(net, f"{method}_interp", x, interp_method=method, **SIZES), rtol=2e-6)
    assert "resampled" in kernels(compiled[-1])


def test_channels_around_and_their_gradient(compiled: list[CudaStep]) -> None:
    net = Net()
    x = net.random.standard_normal((2, 3, 4, 6)).astype(np.float32)
    attrs: dict[str, Any] = {"n": 5, "k": 1.5, "alpha": 0.3, "beta": 0.75, "data_format": "NHWC"}
    in_a_step(net, *both_ways(net, "lrn", x, "MidOut", reads=("Out", "MidOut"), **attrs), rtol=5e-6)
    assert "response_back" in kernels(compiled[-1])


def test_groups_of_channels_and_their_gradient(compiled: list[CudaStep]) -> None:
    net = Net()
    names = norm(net, "group_norm", (2, 6, 5, 6), "Scale Bias", groups=2, epsilon=1e-3, data_layout="NHWC")
    in_a_step(net, *names, rtol=1e-5)
    assert "norm_back" in kernels(compiled[-1])


def network() -> Any:
    """Convolutions, normalization and pooling of images whose channels lie last."""
    x = layers.data("x", [8, 8, 3])
    for _ in range(2):
        x = layers.conv2d(x, 8, 3, padding=1, bias_attr=False, data_format="NHWC")
        x = layers.batch_norm(x, act="relu", data_layout="NHWC")
    x = layers.pool2d(x, 2, "max", 2, data_format="NHWC")
    x = layers.resize_nearest(x, scale=2.0, data_format="NHWC", align_corners=False)
    return layers.mean(layers.square(layers.conv2d(x, 2, 3, data_format="NHWC") - 0.7))


def test_a_step_is_one_graph(compiled: list[CudaStep]) -> None:
    random = np.random.default_rng(0)
    both = jobs(network, [{"x": random.standard_normal((4, 8, 8, 3)).astype(np.float32)} for _ in range(3)])
    assert len(compiled) == 3 and both[1].region().region.parts is None
