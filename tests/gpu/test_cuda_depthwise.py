"""Convolutions of each channel by itself on a GPU: one generated kernel each, with what follows it. The numbers are numpy's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fluidtool.runtime.engines.cuda.calls import Launch
from fluidtool.runtime.engines.cuda.lowering import lower
from fluidtool.runtime.engines.cuda.region import source_of
from fluidtool.runtime.graph.ir import Graph, Node, Value
from tests.gpu.nvrtc import ABSENT, faults, nvrtc
from tests.gpu.test_cuda_fused import ACTIVATIONS, half, near  # noqa: F401  (half is a fixture)
from tests.gpu.test_cuda_regions import check, compiled, on_gpu
from tests.runtime.native.checking import Net

pytestmark = pytest.mark.usefixtures("cupy")


def depthwise(net: Net, x: str, channels: int, window: tuple[int, int] = (3, 3), **attrs: Any) -> str:
    """A convolution with a filter for each channel."""
    given = {"groups": channels, "type": "depthwise_conv2d", "paddings": [1, 1]} | attrs
    return net.conv(x, net.parameter(channels, 1, *window), **given)


def between(net: Net, channels: int, window: tuple[int, int] = (3, 3), **attrs: Any) -> str:
    """One whose image is the result of a convolution and channels last, as a convolution reads it."""
    x = net.conv(net.data(2, 8, 7, 6), net.parameter(channels, 8, 1, 1))
    return net.conv(depthwise(net, x, channels, window, **attrs), net.parameter(8, channels, 1, 1))


def kernel(net: Net) -> str:
    """The source of the only kernel of this kind."""
    (found,) = [call for call in compiled(net).calls if isinstance(call, Launch) and "depthwise_" in call.name]
    return found.source


WINDOWS: list[tuple[tuple[int, int], dict[str, Any]]] = [
    ((3, 3), {}),
    ((3, 3), {"paddings": [0, 0]}),
    ((3, 3), {"strides": [2, 2]}),
    ((5, 2), {"strides": [1, 3], "paddings": [2, 1, 0, 3]}),
    ((3, 2), {"dilations": [2, 3], "paddings": [2, 2]}),
    ((1, 1), {"strides": [3, 2], "paddings": [0, 0]}),
    ((2, 2), {"paddings": [5, 6]}),
    ((7, 6), {"paddings": [0, 0]}),
    ((9, 8), {"paddings": [4, 4]}),
]


@pytest.mark.parametrize("channels", [1, 5, 6, 8, 12])
@pytest.mark.parametrize(("window", "attrs"), WINDOWS)
def test_windows(window: tuple[int, int], attrs: dict[str, Any], channels: int) -> None:
    net = Net()
    found = check(net, between(net, channels, window, **attrs))
    assert [each for each in found if each != "each"] == ["Convolution", "depthwise", "Convolution"]


@pytest.mark.parametrize("channels", [6, 16])
@pytest.mark.parametrize(("window", "attrs"), WINDOWS)
def test_windows_in_halves(window: tuple[int, int], attrs: dict[str, Any], channels: int, half: str) -> None:  # noqa: F811
    net = Net()
    assert "depthwise" in near(net, half, between(net, channels, window, **attrs))
    assert "sum0 += " in kernel(net) and f"ft_to_{half}(found0)" in kernel(net)


def test_an_image_of_eights_stays_in_halves_from_convolution_to_convolution(half: str) -> None:  # noqa: F811
    net = Net()
    assert near(net, half, between(net, 16)) == ["each", "Convolution", "depthwise", "Convolution", "each"]
    assert kernel(net).count("float4") == 0 < kernel(net).count("*(const ushort4*)")


@pytest.mark.parametrize(("channels", "vectors"), [(8, True), (12, True), (6, False), (1, False)])
def test_four_channels_are_read_and_written_at_once(channels: int, vectors: bool) -> None:
    net = Net()
    check(net, between(net, channels))
    assert ("*(const float4*)" in kernel(net)) == ("*(float4*)(out" in kernel(net)) == vectors


def test_only_small_windows_are_unrolled() -> None:
    small, large = Net(), Net()
    check(small, between(small, 4, (7, 7), paddings=[3, 3]))
    check(large, between(large, 4, (8, 7), paddings=[4, 4]))
    assert "#pragma unroll" in kernel(small) and "#pragma unroll" not in kernel(large)


@pytest.mark.parametrize(("type", "attrs"), [*ACTIVATIONS, ("softsign", {})])
@pytest.mark.parametrize("channels", [4, 5])
def test_bias_sum_and_activation_are_part_of_it(type: str, attrs: dict[str, Any], channels: int) -> None:
    net = Net()
    before = net.conv(net.data(2, 8, 7, 6), net.parameter(channels, 8, 1, 1))
    x = net.conv(before, net.parameter(channels, channels, 1, 1))
    y = net.op("elementwise_add", "Out", {"X": depthwise(net, x, channels), "Y": net.parameter(channels)}, axis=1)
    y = net.op("elementwise_add", "Out", {"X": y, "Y": before}, axis=-1)
    y = net.op(type, "Out", {"X": y}, **attrs)
    found = check(net, net.conv(y, net.parameter(8, channels, 1, 1)), rtol=2e-5)
    assert found == ["each", "Convolution", "Convolution", "depthwise", "Convolution", "each"]


def test_the_sum_may_be_with_an_image_in_another_layout() -> None:
    net = Net()
    y = net.op("elementwise_add", "Out", {"X": depthwise(net, net.data(2, 4, 7, 6), 4), "Y": net.data(2, 4, 7, 6)})
    assert check(net, y) == ["each", "depthwise"]


def test_a_normalization_after_it_is_part_of_it() -> None:
    net = Net()
    inputs = {"X": depthwise(net, net.data(2, 8, 7, 6), 8)} | {
        slot: net.parameter(8) for slot in ("Scale", "Bias", "Mean")
    }
    inputs["Variance"] = net.parameter(of=np.linspace(0.5, 2, 8, dtype=np.float32))
    more = ("MeanOut", "VarianceOut", "SavedMean", "SavedVariance")
    y = net.op("batch_norm", "Y", inputs, *more, is_test=True, epsilon=1e-5, momentum=0.9)
    assert check(net, net.op("relu6", "Out", {"X": y}, threshold=6.0)) == ["each", "depthwise"]


def test_an_output_is_row_by_row() -> None:
    net = Net()
    x = net.conv(net.data(2, 8, 7, 6), net.parameter(8, 8, 1, 1))
    assert check(net, depthwise(net, x, 8)) == ["each", "Convolution", "depthwise"]
    assert "*(float4*)(out" not in kernel(net) and "*(const float4*)" in kernel(net)


def test_an_input_that_is_given_may_begin_anywhere() -> None:
    """An image of one pixel is channels last as it is; four channels of it may not be aligned."""
    net = Net()
    assert check(net, depthwise(net, net.data(3, 8, 1, 1), 8)) == ["depthwise"]
    assert "float4" not in kernel(net)


def test_a_part_of_an_image_may_begin_anywhere() -> None:
    net = Net()
    x = net.op("softmax", "Out", {"X": net.data(1, 10, 1, 1)}, axis=1)
    part = net.op("slice", "Out", {"Input": x}, axes=[1], starts=[1], ends=[9], decrease_axis=[])
    check(net, x, depthwise(net, part, 8))
    assert "float4" not in kernel(net)


def test_what_is_not_a_number_stays_within_its_windows() -> None:
    net = Net()
    values = net.random.standard_normal((1, 4, 6, 6)).astype(np.float32)
    values[0, 1, 0, 0], values[0, 2, 5, 5] = np.nan, np.inf
    y = depthwise(net, net.data(of=values), 4, paddings=[2, 2])
    found, want = on_gpu(net, y)[0], net.run("numpy", y)[0]
    assert 0 < np.isfinite(want).sum() < want.size
    np.testing.assert_array_equal(np.isfinite(found), np.isfinite(want))


def test_two_filters_for_each_channel_are_cudnns() -> None:
    net = Net()
    found = check(net, net.conv(net.data(2, 6, 7, 7), net.parameter(12, 1, 3, 3), groups=6))
    assert "Convolution" in found and "depthwise" not in found


def test_it_needs_no_cudnn() -> None:
    x = Value("x", (1, 4, 6, 6))
    attrs = {"weights": np.ones((4, 1, 3, 3), np.float32), "scale": None, "shift": None, "strides": (1, 1)}
    node = Node("conv", [x], Value("y", (1, 4, 4, 4)), {**attrs, "dilations": (1, 1), "pads": (0,) * 4, "groups": 4})
    found = lower(Graph([x], [node.output], [node]), frozenset()).calls
    assert [call.name.partition("_")[0] for call in found if isinstance(call, Launch)] == ["each", "depthwise"]


@pytest.mark.skipif(nvrtc() is None, reason=ABSENT)
@pytest.mark.parametrize("architecture", ["sm_80", "sm_90"])
@pytest.mark.parametrize("channels", [5, 8])
def test_kernels_compile_for_gpus(channels: int, architecture: str) -> None:
    net = Net()
    check(net, between(net, channels))
    assert faults(source_of(compiled(net).calls), architecture) == ""
