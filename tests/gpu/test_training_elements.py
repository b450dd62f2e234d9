"""Activations and moves in training steps whose gradients are formulas, sums or other moves: the numbers of the CPU."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fluidtool.fluid import layers
from fluidtool.runtime import Executor
from fluidtool.runtime.engines.cuda.training.compiled import CudaStep
from fluidtool.runtime.training_regions import TrainingRegion
from fluidtool.tensor import CUDAPlace, LoDTensor
from tests.gpu.test_training_images import both_ways, numbered
from tests.gpu.test_training_reductions import in_a_step, kernels
from tests.gpu.test_training_softmax import feeds, jobs
from tests.runtime.native.checking import Array, Net

pytestmark = pytest.mark.usefixtures("cupy")


def bends(*points: float) -> Array:
    """Numbers around zero, and points at which a slope changes, with their neighbors."""
    around = [np.nextafter(np.float32(point), np.float32(to)) for point in points for to in (-np.inf, np.inf)]
    numbers = [*np.linspace(-5, 5, 40 - len(around) - len(points)), *points, *around]
    return np.array(numbers, np.float32).reshape(2, 4, 5)


# ---------------------------------------------------------------- activations
ACTIVATIONS: list[tuple[str, dict[str, Any], str, Array]] = [
    ("hard_swish", {}, "X", bends(-3, 3)),
    ("hard_swish", {"threshold": 4.0, "scale": 5.0, "offset": 1.5}, "X", bends(-1.5, 2.5)),
    ("softsign", {}, "X", bends(0)),
    ("sin", {}, "X", bends()),
    ("cos", {}, "X", bends()),
    ("reciprocal", {}, "Out", bends() + 9),
    ("rsqrt", {}, "Out", bends() + 9),
    ("brelu", {"t_min": -1.0, "t_max": 2.5}, "X", bends(-1, 2.5)),
]


@pytest.mark.parametrize(("type", "attrs", "reads", "x"), ACTIVATIONS)
def test_activations(type: str, attrs: dict[str, Any], reads: str, x: Array, compiled: list[CudaStep]) -> None:
    net = Net()
    in_a_step(net, *both_ways(net, type, x, reads=(reads,) if reads == "Out" else (), **attrs), rtol=2e-6)
    assert kernels(compiled[-1]) == ["each", "each"]


@pytest.mark.parametrize(("mode", "slopes"), [("all", (1,)), ("channel", (4,)), ("element", (4, 5))])
def test_learned_slopes(mode: str, slopes: tuple[int, ...], compiled: list[CudaStep]) -> None:
    net = Net()
    inputs = {"X": net.data(of=bends(0)), "Alpha": net.data(*slopes)}
    y = net.op("prelu", "Out", inputs, mode=mode)
    wanted = dict.fromkeys(("X@GRAD", "Alpha@GRAD"), 1)
    grads = net.several("prelu_grad", wanted, {**inputs, "Out@GRAD": numbered(net, y)}, mode=mode)
    in_a_step(net, y, *grads, rtol=2e-6)
    assert len(compiled) == 1 and kernels(compiled[-1])[:1] == ["each"]


@pytest.mark.parametrize("rows", [5, 1])
@pytest.mark.parametrize("shape", [(5, 7), (5, 3, 4), (1, 6)])
def test_cosines(shape: tuple[int, ...], rows: int, compiled: list[CudaStep]) -> None:
    """Of rows with rows, or of all rows with one."""
    net = Net()
    inputs = {"X": net.data(*shape), "Y": net.data(min(rows, shape[0]), *shape[1:])}
    results = net.several("cos_sim", dict.fromkeys(("Out", "XNorm", "YNorm"), 1), inputs)
    inputs |= dict(zip(("Out", "XNorm", "YNorm"), results, strict=True)) | {"Out@GRAD": numbered(net, results[0])}
    grads = net.several("cos_sim_grad", dict.fromkeys(("X@GRAD", "Y@GRAD"), 1), inputs)
    in_a_step(net, *results, *grads, rtol=5e-6)
    assert len(compiled) == 1 and kernels(compiled[-1])


# ---------------------------------------------------------------- moves
@pytest.mark.parametrize(
    "attrs", [{"num": 3, "axis": 1}, {"sections": [1, -1, 3], "axis": -1}, {"sections": [2, 1], "axis": 0}]
)
def test_parts_of_an_axis(attrs: dict[str, Any], compiled: list[CudaStep]) -> None:
    net = Net()
    count = attrs.get("num") or len(attrs["sections"])
    parts = net.several("split", {"Out": count}, {"X": net.data(3, 6, 7)}, **attrs)
    in_a_step(net, *(net.op("relu_grad", "X@GRAD", {"Out": part, "Out@GRAD": part}) for part in parts))
    assert kernels(compiled[-1]) == ["each"] * count


def test_the_gradient_of_parts_is_one_of_the_whole(compiled: list[CudaStep]) -> None:
    def build() -> Any:
        first, second = layers.split(layers.fc(layers.data("x", [12]), 8), 2, dim=1)
        return layers.mean(layers.square(layers.fc(layers.tanh(first) * second, 3) - 0.7))

    both = jobs(build, feeds())
    assert len(compiled) == 3 and both[1].region().region.parts is None


@pytest.mark.parametrize("axis", [0, 1])
def test_parts_of_sequences_keep_their_lengths(axis: int, compiled: list[CudaStep]) -> None:
    """Those along the first axis are sequences no more."""
    net = Net()
    x = net.data(4, 6)
    net.feeds[x] = LoDTensor(net.feeds[x], [[0, 1, 4]])
    parts = net.several("split", {"Out": 2}, {"X": x}, num=2, axis=axis)
    name = net.op("relu_grad", "X@GRAD", {"Out": parts[1], "Out@GRAD": parts[1]})
    (want,) = Executor(engine="numpy").run(net.program, net.feeds, [name], net.scope)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TrainingRegion, "is_worthwhile", True)
        (found,) = Executor(CUDAPlace(0)).run(net.program, net.feeds, [name], net.scope)
    assert found.lod() == want.lod() == ([[0, 1, 4]] if axis else [])
    np.testing.assert_array_equal(found.numpy(), want.numpy())
    assert compiled


PADS: list[tuple[str, dict[str, Any]]] = [
    ("pad", {"paddings": [0, 0, 1, 2, 0, 0, 3, 0], "pad_value": 1.5}),
    ("pad", {"paddings": [1, 0, 0, 0, 0, 0, 0, 2]}),
    ("pad2d", {"paddings": [1, 2, 0, 3], "pad_value": 1.5}),
    ("pad2d", {"paddings": [0, 0, 0, 0]}),
    ("pad2d", {"paddings": [1, -2, -1, 3]}),
    ("pad2d", {"paddings": [1, 2, 0, 3], "data_format": "NHWC"}),
    ("pad2d", {"paddings": [1, 2, 0, 3], "mode": "reflect"}),
    ("pad2d", {"paddings": [4, 4, 6, 6], "mode": "reflect"}),
    ("pad2d", {"paddings": [3, 9, 0, 3], "mode": "edge"}),
    ("pad2d", {"paddings": [3, -2, -1, 0], "mode": "edge"}),
]


@pytest.mark.parametrize(("type", "attrs"), PADS)
def test_borders(type: str, attrs: dict[str, Any], compiled: list[CudaStep]) -> None:
    net = Net()
    x = net.random.standard_normal((2, 3, 5, 7)).astype(np.float32)
    in_a_step(net, *both_ways(net, type, x, **attrs), rtol=1e-6)
    assert len(compiled) == 1


@pytest.mark.parametrize(
    "attrs",
    [
        {"paddings": [1, 2, 0, 3, 2, 0], "value": 1.5},
        {"paddings": [1, 2, 0, 3, 2, 0], "data_format": "NDHWC"},
        {"paddings": [0, 0, 0, 0, 0, 0]},
        {"paddings": [1, 2, 0, 3, 2, 0], "mode": "reflect"},
        {"paddings": [1, 9, 0, 3, 2, 7], "mode": "replicate"},
        {"paddings": [1, 2, 9, 3, 2, 0], "mode": "circular"},
    ],
)
def test_borders_of_volumes(attrs: dict[str, Any], compiled: list[CudaStep]) -> None:
    net = Net()
    x = net.random.standard_normal((2, 3, 4, 5, 6)).astype(np.float32)
    in_a_step(net, *both_ways(net, "pad3d", x, **attrs), rtol=1e-6)
    assert len(compiled) == 1


@pytest.mark.parametrize("shape", [(2, 3, 4), (1, 3, 2), (2, 1, 4)])
def test_borders_up_to_another_shape(shape: tuple[int, ...], compiled: list[CudaStep]) -> None:
    net = Net()
    inputs = {"X": net.data(2, 3, 4), "Y": net.data(*shape)}
    out = net.op("pad_constant_like", "Out", inputs, pad_value=1.5)
    inputs = {"Y": inputs["Y"], "Out@GRAD": numbered(net, out)}
    in_a_step(net, out, net.op("pad_constant_like_grad", "Y@GRAD", inputs, pad_value=1.5))
    assert len(compiled) == 1


def test_copied_borders_of_channels_last_are_left_to_cupy(compiled: list[CudaStep]) -> None:
    net = Net()
    x = net.random.standard_normal((2, 3, 5, 7)).astype(np.float32)
    y, back = both_ways(net, "pad2d", x, paddings=[1, 1, 2, 2], mode="edge", data_format="NHWC")
    in_a_step(net, y, back, rtol=1e-6)
    assert [kernels(step) for step in compiled if step.calls] == [["each"]]


def test_computed_borders_are_left_to_cupy(compiled: list[CudaStep]) -> None:
    net = Net()
    inputs = {"X": net.data(2, 3, 5, 7), "Paddings": net.data(of=np.array([1, 0, 2, 1], np.int32))}
    y = net.op("pad2d", "Out", inputs, paddings=[0, 0, 0, 0])
    in_a_step(net, y, net.op("pad2d_grad", "X@GRAD", {**inputs, "Out@GRAD": numbered(net, y)}, paddings=[0, 0, 0, 0]))
    assert [step.calls for step in compiled if step.calls] == []


@pytest.mark.parametrize("groups", [1, 2, 3, 6])
def test_shuffled_channels(groups: int, compiled: list[CudaStep]) -> None:
    net = Net()
    in_a_step(
        net, *both_ways(net, "shuffle_channel", net.random.standard_normal((2, 6, 3, 4)).astype("f4"), group=groups)
    )
    assert kernels(compiled[-1]) == ["each", "each"]


@pytest.mark.parametrize(("segments", "ratio"), [(3, 0.25), (2, 0.4), (1, 0.2)])
def test_channels_of_other_times(segments: int, ratio: float, compiled: list[CudaStep]) -> None:
    net = Net()
    x = net.random.standard_normal((6, 8, 3, 4)).astype(np.float32)
    in_a_step(net, *both_ways(net, "temporal_shift", x, seg_num=segments, shift_ratio=ratio))
    assert len(compiled) == 1


@pytest.mark.parametrize("shape", [(2, 6, 3, 4), (5, 6)])
def test_channels_times_a_factor(shape: tuple[int, ...], compiled: list[CudaStep]) -> None:
    net = Net()
    inputs = {"X": net.data(*shape), "Scale": net.data(6), "Bias": net.data(6)}
    y = net.op("affine_channel", "Out", inputs)
    inputs.pop("Bias")
    wanted = dict.fromkeys(("X@GRAD", "Scale@GRAD", "Bias@GRAD"), 1)
    grads = net.several("affine_channel_grad", wanted, {**inputs, "Out@GRAD": numbered(net, y)})
    in_a_step(net, y, *grads, rtol=2e-6)
    assert len(compiled) == 1
