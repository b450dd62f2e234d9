"""Images and volumes in training steps: forward and gradient are part of the graph; the numbers of the CPU."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fluidtool.fluid import layers
from fluidtool.runtime.engines.cuda.calls import Choice, Convolution, Launch
from fluidtool.runtime.engines.cuda.training.compiled import CudaStep
from tests.gpu.standin.devices import MACHINE
from tests.gpu.test_training_halves import near
from tests.gpu.test_training_reductions import in_a_step, kernels, whole_numbers
from tests.gpu.test_training_softmax import jobs, sgd
from tests.gpu.test_training_steps import Job
from tests.runtime.native.checking import Array, Net

pytestmark = pytest.mark.usefixtures("cupy")


def numbered(net: Net, name: str) -> str:
    """A gradient of whole numbers, one for each element of a result."""
    (made,) = net.run("numpy", name)
    return net.data(of=np.arange(1, 1 + made.size, dtype=np.float32).reshape(made.shape) % 97)


def both_ways(net: Net, type: str, x: Array, *more: str, reads: tuple[str, ...] = (), **attrs: Any) -> list[str]:
    """The results of an operator of X, and its gradient, which reads X and these results, too. more: its other results."""
    given = net.data(of=x)
    results = net.several(type, dict.fromkeys(("Out", *more), 1), {"X": given}, **attrs)
    named = {"X": given, **dict(zip(("Out", *more), results, strict=True))}
    inputs = {slot: named[slot] for slot in ("X", *reads)} | {"Out@GRAD": numbered(net, results[0])}
    return [*results, net.op(f"{type}_grad", "X@GRAD", inputs, **attrs)]


# ---------------------------------------------------------------- volumes
POOLS: list[dict[str, Any]] = [
    {"ksize": [2, 2, 2], "strides": [2, 2, 2]},
    {"ksize": [3, 2, 3], "strides": [1, 2, 2], "paddings": [1, 0, 1]},
    {"ksize": [2, 3, 2], "strides": [3, 2, 1], "paddings": [1, 0, 0, 1, 1, 0]},
    {"ksize": [1, 3, 3], "strides": [1, 2, 2], "paddings": [0, 1, 1]},
    {"ksize": [3, 1, 1], "strides": [2, 1, 1]},
    {"ksize": [2, 2, 2], "strides": [2, 2, 2], "ceil_mode": True},
    {"ksize": [3, 3, 3], "strides": [2, 2, 2], "padding_algorithm": "SAME"},
    {"ksize": [2, 2, 2], "global_pooling": True},
]


@pytest.mark.parametrize("kind", ["max", "avg", "avg with pads"])
@pytest.mark.parametrize("attrs", POOLS)
def test_pooling_of_volumes(attrs: dict[str, Any], kind: str, compiled: list[CudaStep]) -> None:
    """Of equal numbers the first is the maximum."""
    uneven = len(attrs.get("paddings", [])) == 6 or {"ceil_mode", "padding_algorithm"} & attrs.keys()
    exclusive = kind != "avg with pads" or bool(uneven)
    settled = {"strides": [1, 1, 1], "paddings": [0, 0, 0], "exclusive": exclusive} | attrs
    net = Net()
    names = both_ways(net, "pool3d", whole_numbers(2, 3, 5, 6, 7), reads=("Out",), pooling_type=kind[:3], **settled)
    in_a_step(net, *names, rtol=1e-6)
    assert kernels(compiled[-1]) == ["pool", "unpool"]


def test_adaptive_windows_of_volumes_are_left_to_cupy(compiled: list[CudaStep]) -> None:
    net = Net()
    attrs = {"pooling_type": "avg", "ksize": [2, 3, 2], "adaptive": True}
    in_a_step(net, *both_ways(net, "pool3d", whole_numbers(2, 3, 5, 6, 7), reads=("Out",), **attrs), rtol=1e-6)
    assert [step.calls for step in compiled if step.calls] == []


@pytest.mark.parametrize(
    ("groups", "attrs"),
    [
        (1, {"strides": [2, 1, 2], "paddings": [1, 0, 1]}),
        (2, {"dilations": [1, 2, 1], "paddings": [1, 0, 2, 1, 0, 1]}),
        (4, {"padding_algorithm": "SAME", "strides": [1, 2, 1]}),
    ],
)
def test_convolutions_of_volumes(groups: int, attrs: dict[str, Any], compiled: list[CudaStep]) -> None:
    net = Net()
    settled = {"strides": [1, 1, 1], "paddings": [0, 0, 0], "dilations": [1, 1, 1], "groups": groups} | attrs
    inputs = {"Input": net.data(2, 4, 5, 6, 7), "Filter": net.data(8, 4 // groups, 3, 2, 3)}
    y = net.op("conv3d", "Output", inputs, **settled)
    wanted = dict.fromkeys(("Input@GRAD", "Filter@GRAD"), 1)
    grads = net.several("conv3d_grad", wanted, {**inputs, "Output@GRAD": numbered(net, y)}, **settled)
    in_a_step(net, y, *grads, rtol=1e-5)
    computed = [call.computes for call in compiled[-1].calls if isinstance(call, Convolution)]
    assert sorted(computed) == ["out", "weights", "x"]


@pytest.mark.parametrize(
    ("type", "filters", "attrs"),
    [
        ("conv3d_transpose", (4, 3, 2, 3, 2), {"strides": [2, 1, 3], "paddings": [0, 1, 0]}),
        ("conv3d_transpose", (4, 3, 2, 3, 2), {"groups": 2, "dilations": [1, 2, 1], "paddings": [0, 1, 1, 0, 0, 0]}),
        ("conv3d_transpose", (4, 3, 2, 3, 2), {"strides": [2, 2, 2], "output_size": [10, 14, 14]}),
        ("conv2d_transpose", (4, 3, 3, 2), {"strides": [2, 2], "output_size": [14, 14]}),
        ("depthwise_conv2d_transpose", (4, 1, 3, 2), {"strides": [2, 1], "paddings": [1, 0], "groups": 4}),
    ],
)
def test_transposed_convolutions(
    type: str, filters: tuple[int, ...], attrs: dict[str, Any], compiled: list[CudaStep]
) -> None:
    net, axes = Net(), len(filters) - 2
    settled = {"strides": [1] * axes, "paddings": [0] * axes, "dilations": [1] * axes, "groups": 1} | attrs
    inputs = {"Input": net.data(2, 4, *(5, 6, 7)[3 - axes :]), "Filter": net.data(*filters)}
    y = net.op(type, "Output", inputs, **settled)
    wanted = dict.fromkeys(("Input@GRAD", "Filter@GRAD"), 1)
    grads = net.several(f"{type}_grad", wanted, {**inputs, "Output@GRAD": numbered(net, y)}, **settled)
    in_a_step(net, y, *grads, rtol=1e-5)
    computed = [call.computes for call in compiled[-1].calls if isinstance(call, Convolution)]
    assert sorted(computed) == ["out", "weights", "x"]


# ---------------------------------------------------------------- resampling
SIZES: list[dict[str, Any]] = [
    {"out_h": 9, "out_w": 4},
    {"out_h": 12, "out_w": 14},
    {"out_h": 3, "out_w": 20},
    {"out_h": 1, "out_w": 1},
    {"scale": 2.0},
    {"scale": 0.5},
    {"scale": 1.7, "out_h": 3, "out_w": 3},
]


@pytest.mark.parametrize("method", ["nearest", "bilinear", "bicubic"])
@pytest.mark.parametrize("corners", [(True, 1), (False, 0), (False, 1)])
def test_resampling(corners: tuple[bool, int], method: str, compiled: list[CudaStep]) -> None:
    net, names = Net(), []
    for sizes in SIZES:
        x = net.random.standard_normal((2, 3, 6, 7)).astype(np.float32)
        attrs = {"interp_method": method, "align_corners": corners[0], "align_mode": corners[1], **sizes}
        names += both_ways(net, f"{method}_interp", x, **attrs)
    in_a_step(net, *names, rtol=2e-6)
    assert sorted(kernels(compiled[-1])) == ["each"] * len(SIZES) + ["resampled"] * len(SIZES)


@pytest.mark.parametrize("scale", [[2.0, 0.5], [3.0, 1.3]])
def test_resampling_by_a_factor_of_each_axis(scale: list[float], compiled: list[CudaStep]) -> None:
    net = Net()
    x = net.random.standard_normal((2, 3, 6, 7)).astype(np.float32)
    attrs = {"interp_method": "bilinear", "align_corners": False, "align_mode": 0, "scale": scale}
    in_a_step(net, *both_ways(net, "bilinear_interp_v2", x, **attrs), rtol=2e-6)
    assert kernels(compiled[-1]) == ["each", "resampled"]


def test_resampling_to_the_same_size_moves_nothing(compiled: list[CudaStep]) -> None:
    net = Net()
    x = net.op("relu", "Out", {"X": net.data(2, 3, 6, 7)})
    y = net.op("bilinear_interp", "Out", {"X": x}, out_h=6, out_w=7)
    found = net.op("relu", "Out", {"X": y})
    back = net.op("bilinear_interp_grad", "X@GRAD", {"X": x, "Out@GRAD": found}, out_h=6, out_w=7)
    in_a_step(net, net.op("scale", "Out", {"X": back}, scale=3.0))
    assert kernels(compiled[-1]) == ["each"]


def test_sizes_that_are_computed_are_left_to_cupy(compiled: list[CudaStep]) -> None:
    net = Net()
    size = net.data(of=np.array([9, 4], np.int32))
    x = net.data(2, 3, 6, 7)
    attrs: dict[str, Any] = {"interp_method": "nearest", "out_h": 3, "out_w": 3}
    y = net.op("nearest_interp", "Out", {"X": x, "OutSize": size}, **attrs)
    inputs = {"X": x, "OutSize": size, "Out@GRAD": numbered(net, y)}
    in_a_step(net, y, net.op("nearest_interp_grad", "X@GRAD", inputs, **attrs))
    assert [step.calls for step in compiled if step.calls] == []


# ---------------------------------------------------------------- channels
@pytest.mark.parametrize("factor", [1, 2, 3])
def test_channels_become_pixels(factor: int, compiled: list[CudaStep]) -> None:
    net = Net()
    x = net.random.standard_normal((2, 2 * factor**2, 3, 4)).astype(np.float32)
    in_a_step(net, *both_ways(net, "pixel_shuffle", x, upscale_factor=factor))
    assert len(compiled) == 1 and len(kernels(compiled[-1])) == 2


LRN: dict[str, Any] = {"n": 5, "k": 1.5, "alpha": 0.3, "beta": 0.75}


@pytest.mark.parametrize("attrs", [{}, {"n": 1}, {"n": 17}, {"beta": 0.6}, {"beta": 1.0}, {"k": 0.5, "n": 3}])
def test_normalization_by_channels_around(attrs: dict[str, Any], compiled: list[CudaStep]) -> None:
    net, names = Net(), []
    for channels in (1, 4, 9):
        x = net.random.standard_normal((2, channels, 3, 4)).astype(np.float32)
        names += both_ways(net, "lrn", x, "MidOut", reads=("Out", "MidOut"), **LRN | attrs)
    in_a_step(net, *names, rtol=5e-6)
    assert (
        sorted(kernels(compiled[-1])) == ["each"] * 3 + ["response"] * 3 + ["response_back"] * 3
    )  # each copies a middle


# ---------------------------------------------------------------- normalization
def norm(net: Net, type: str, shape: tuple[int, ...], factors: str, **attrs: Any) -> list[str]:
    """The results of a normalization, and its gradients. factors: which of Scale and Bias there are."""
    slots, saved = [slot for slot in ("Scale", "Bias") if slot in factors], ("Mean", "Variance")
    x = net.data(*shape)
    given = {slot: net.data(shape[1]) for slot in slots}
    stats = saved if type == "group_norm" else tuple(f"Saved{slot}" for slot in saved)
    y, mean, variance = net.several(type, dict.fromkeys(("Y", *stats), 1), {"X": x, **given}, **attrs)
    if type == "group_norm":
        inputs = {**given, "Y": y, "Variance": variance}
    else:
        inputs = {"X": x, **given, "SavedMean": mean, "SavedVariance": variance}
        inputs.pop("Bias", None)
    wanted = dict.fromkeys([f"{slot}@GRAD" for slot in ("X", *slots)], 1)
    grads = net.several(f"{type}_grad", wanted, {**inputs, "Y@GRAD": net.data(*shape)}, **attrs)
    return [y, mean, variance, *grads]


@pytest.mark.parametrize("factors", ["Scale Bias", "Scale", "Bias", ""])
@pytest.mark.parametrize("groups", [1, 2, 6])
def test_normalization_over_groups(groups: int, factors: str, compiled: list[CudaStep]) -> None:
    net, names = Net(), []
    shapes = [(2, 6, 5, 3), (3, 6, 7), (1, 6, 2, 3, 4), (2, 12)]
    for shape in shapes:
        names += norm(net, "group_norm", shape, factors, groups=groups, epsilon=1e-3, data_layout="NCHW")
    in_a_step(net, *names, rtol=1e-5)
    found = kernels(compiled[-1])
    assert len(compiled) == 1 and found.count("norm") == found.count("norm_back") == len(shapes)


def test_a_scale_of_zero_takes_its_numbers_with_it(compiled: list[CudaStep]) -> None:
    """As in Paddle, whose gradient finds them in the result: there is none by that scale."""
    net = Net()
    names = norm(net, "group_norm", (2, 4, 5, 3), "Scale Bias", groups=2, epsilon=1e-3)
    scale = next(name for name, value in net.feeds.items() if value.shape == (4,))
    net.feeds[scale][1] = 0.0
    *_, by_scale, _ = in_a_step(net, *names, rtol=1e-5)
    assert len(compiled) == 1 and abs(by_scale[1]) < 1e-6 < abs(by_scale[0])


@pytest.mark.parametrize("shape", [(2, 6, 5, 3), (3, 6, 7), (1, 6, 2, 3, 4)])
def test_normalization_of_each_channel(shape: tuple[int, ...], compiled: list[CudaStep]) -> None:
    net = Net()
    in_a_step(net, *norm(net, "instance_norm", shape, "Scale Bias", epsilon=1e-3), rtol=1e-5)
    assert len(compiled) == 1 and {"norm", "norm_back"} <= set(kernels(compiled[-1]))


def test_groups_of_different_sizes_are_left_to_cupy(compiled: list[CudaStep]) -> None:
    net = Net()
    in_a_step(net, *norm(net, "group_norm", (2, 5, 5, 6), "Scale Bias", epsilon=1e-3, groups=2), rtol=1e-5)
    assert [step.calls for step in compiled if step.calls] == []


# ---------------------------------------------------------------- networks
def between(operate: Any) -> Any:
    """A network with an operator between two convolutions, whose images have their channels last."""

    def build() -> Any:
        x = layers.data("x", [3, 8, 8])
        x = layers.conv2d(x, 8, 3, padding=1, act="tanh")
        x = layers.conv2d(operate(x), 4, 3, padding=1)
        return layers.mean(layers.square(x - 0.7))

    return build


def volumes(x: Any) -> Any:
    x = layers.reshape(x, [-1, 2, 4, 8, 8])
    x = layers.conv3d(layers.conv3d(x, 4, 3, padding=1, act="tanh"), 2, [1, 3, 3], padding=[0, 1, 1], act="tanh")
    x = layers.pool3d(x, 2, "max", 2) + layers.pool3d(x, [4, 3, 3], "avg", 2, pool_padding=[1, 1, 1])
    return layers.reshape(x, [-1, 4, 4, 4])


def wider_volumes(x: Any) -> Any:
    x = layers.reshape(x, [-1, 2, 4, 8, 8])
    x = layers.conv3d_transpose(x, 2, filter_size=2, stride=2, act="tanh")
    return layers.reshape(layers.pool3d(x, 2, "avg", 2), [-1, 8, 8, 8])


OPERATORS: dict[str, tuple[Any, int]] = {  # and what it needs of kernels between its neighbors, forward and backward
    "volumes": (volumes, 0),
    "wider_volumes": (wider_volumes, 0),
    "nearest": (lambda x: layers.resize_nearest(x, scale=2.0, align_corners=False), 2),
    "bilinear": (lambda x: layers.resize_bilinear(x, [5, 11]), 2),
    "bilinear_by_pixels": (lambda x: layers.resize_bilinear(x, scale=2.0, align_corners=False, align_mode=0), 2),
    "pixel_shuffle": (lambda x: layers.pixel_shuffle(x, 2), 2),
    "lrn": (lambda x: layers.lrn(x, n=5, k=1.0, alpha=0.1), 2),
    "group_norm": (lambda x: layers.group_norm(x, 2, param_attr="scale", bias_attr="bias"), 2),
    "instance_norm": (layers.instance_norm, 3),
}


def images(count: int = 3) -> list[dict[str, Any]]:
    random = np.random.default_rng(0)
    return [{"x": random.standard_normal((4, 3, 8, 8)).astype(np.float32)} for _ in range(count)]


@pytest.mark.parametrize("name", OPERATORS)
def test_a_step_is_one_graph(name: str, compiled: list[CudaStep]) -> None:
    both = jobs(between(OPERATORS[name][0]), images())
    assert len(compiled) == 3 and both[1].region().region.parts is None


@pytest.mark.parametrize("name", [name for name, (_, count) in OPERATORS.items() if count])
def test_images_keep_their_layout(name: str, compiled: list[CudaStep]) -> None:
    """Convolutions read and write images whose channels lie last, without copies."""
    operate, count = OPERATORS[name]
    found = []
    for each in (operate, lambda x: x):
        Job(between(each), sgd).step(images()[0])
        found.append(sum(kernel not in ("sums", "reduce") for kernel in kernels(compiled[-1])))
    assert found[0] == found[1] + count


def test_volumes_keep_their_layout(compiled: list[CudaStep]) -> None:
    def build() -> Any:
        x = layers.conv3d(layers.data("x", [3, 4, 8, 8]), 4, 3, act="tanh")
        return layers.mean(layers.square(layers.conv3d(x, 2, 2) - 0.7))

    Job(build, sgd).step({"x": np.ones((2, 3, 4, 8, 8), np.float32)})
    calls = compiled[-1].calls
    first, second = (at for at, call in enumerate(calls) if isinstance(call, Convolution) and call.computes == "out")
    assert second == first + 3  # bias and tanh, and the filters as cuDNN reads them


@pytest.mark.parametrize("half", ["fp16", "bf16"])
@pytest.mark.parametrize("is_refused", [False, True])
def test_convolutions_of_volumes_are_offered_to_cudnn_in_halves(
    is_refused: bool, half: str, compiled: list[CudaStep], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FLUIDTOOL_CUDA_PRECISION", half)
    if is_refused:
        MACHINE.refused = frozenset({"odd conv of halves"})
    near(between(volumes), images(), half, growth=4.0)
    choices = [call.first for call in compiled[-1].calls if isinstance(call, Choice)]
    assert [len(each.images) for each in choices if isinstance(each, Convolution)].count(5) == 2 + 2 + 2
    assert compiled[-1].work.refused == (len(choices) if is_refused else 0)


@pytest.mark.parametrize("half", ["fp16", "bf16"])
@pytest.mark.parametrize("name", OPERATORS)
def test_halves(name: str, half: str, compiled: list[CudaStep], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLUIDTOOL_CUDA_PRECISION", half)
    near(between(OPERATORS[name][0]), images(), half, growth=4.0)
    own = [call for call in compiled[-1].calls if isinstance(call, Launch) and "pool_" in call.name]
    assert len(compiled) == 3 and {call.pointers[-1].buffer.half for call in own} <= {half}
