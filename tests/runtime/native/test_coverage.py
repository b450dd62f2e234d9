"""Kernels of resampling, transposed convolutions, reductions and what else networks of images need: numpy's numbers."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tests.runtime.native.checking import Net, agree, check, kernels

pytestmark = pytest.mark.usefixtures("native")
sizes = st.integers(1, 20)
few = settings(max_examples=40, deadline=None)


@few
@given(st.data())
def test_transposed_convolution(data: st.DataObject) -> None:
    draw = data.draw
    net = Net()
    channels, filters = draw(sizes), draw(sizes)
    strides = draw(st.tuples(*[st.integers(1, 3)] * 2))
    window = [stride + draw(st.integers(0, 3)) for stride in strides]
    pads = draw(st.lists(st.integers(0, 2), min_size=4, max_size=4))
    image = draw(st.tuples(st.integers(1, 9), st.integers(1, 9)))
    least = [
        (size - 1) * stride - sum(pad) + taps
        for size, stride, pad, taps in zip(image, strides, (pads[:2], pads[2:]), window, strict=True)
    ]
    assume(min(least) > 0)
    attrs: dict[str, Any] = {"strides": list(strides), "paddings": pads, "dilations": [1, 1], "groups": 1}
    if draw(st.booleans()):
        attrs["output_size"] = [
            size + draw(st.integers(0, stride - 1)) for size, stride in zip(least, strides, strict=True)
        ]
    x, weights = net.data(draw(st.integers(1, 2)), channels, *image), net.parameter(channels, filters, *window)
    y = net.op("conv2d_transpose", "Output", {"Input": x, "Filter": weights}, **attrs)
    check(net, y, scale=(channels * prod(window)) ** 0.5)


@pytest.mark.parametrize(
    ("window", "stride", "pad"), [(4, 2, 1), (5, 2, 2), (2, 2, 0), (3, 2, 1), (6, 2, 2), (3, 3, 0), (7, 2, 3)]
)
@pytest.mark.parametrize(("channels", "filters"), [(20, 3), (3, 1), (16, 4)])
def test_a_transposed_convolution_to_few_channels(
    window: int, stride: int, pad: int, channels: int, filters: int
) -> None:
    net = Net()
    attrs: dict[str, Any] = {"strides": [stride] * 2, "paddings": [pad] * 2, "dilations": [1, 1], "groups": 1}
    attrs["output_size"] = [5 * stride, 6 * stride]
    x, weights = net.data(2, channels, 5, 6), net.parameter(channels, filters, window, window)
    y = net.op("conv2d_transpose", "Output", {"Input": x, "Filter": weights}, **attrs)
    y = net.op("elementwise_add", "Out", {"X": y, "Y": net.parameter(filters)}, axis=1)
    check(net, net.op("tanh", "Out", {"X": net.op("scale", "Out", {"X": y}, scale=0.1)}), scale=10)


def test_a_transposed_convolution_to_one_channel_lies_in_rows() -> None:
    net = Net()
    x, weights = net.data(1, 24, 9, 10), net.parameter(24, 1, 2, 2)
    y = net.op("conv2d_transpose", "Output", {"Input": x, "Filter": weights}, strides=[2, 2], groups=1)
    check(net, net.op("sigmoid", "Out", {"X": y}), scale=10)
    assert "UNBLOCK" not in kernels(net)


def test_a_transposed_convolution_to_few_channels_of_a_concatenation() -> None:
    net = Net()
    x, weights = net.data(2, 20, 5, 6), net.parameter(20, 3, 2, 2)
    y = net.op("conv2d_transpose", "Output", {"Input": x, "Filter": weights}, strides=[2, 2], groups=1)
    other = net.conv(net.data(2, 4, 10, 12), net.parameter(16, 4, 1, 1))
    both = net.op("concat", "Out", {"X": [other, net.op("tanh", "Out", {"X": y})]}, axis=1)
    check(net, net.conv(both, net.parameter(5, 19, 3, 3), paddings=[1, 1]), scale=100)


def test_a_transposed_convolution_that_leaves_the_last_column_out() -> None:
    net = Net()
    x, weights = net.data(1, 2, 3, 4), net.parameter(2, 3, 1, 1)
    attrs: dict[str, Any] = {"strides": [1, 1], "paddings": [0, 0, 0, 1], "dilations": [1, 1], "groups": 1}
    check(net, net.op("conv2d_transpose", "Output", {"Input": x, "Filter": weights}, **attrs), scale=1)


@pytest.mark.parametrize(
    ("attrs", "why"),
    [
        ({"groups": 2}, "a transposed convolution in groups"),
        ({"dilations": [2, 2]}, "a dilated transposed convolution"),
        ({"strides": [4, 1]}, "strides beyond the window"),
        ({"padding_algorithm": "SAME"}, "padding by an algorithm"),
    ],
)
def test_transposed_convolution_that_is_left_to_numpy(attrs: dict[str, Any], why: str) -> None:
    net = Net()
    x, weights = net.data(1, 4, 5, 5), net.parameter(4, 3, 3, 3)
    settled = {"strides": [1, 1], "paddings": [0, 0], "dilations": [1, 1], "groups": 1} | attrs
    agree(net, [net.op("conv2d_transpose", "Output", {"Input": x, "Filter": weights}, **settled)])
    assert net.why_not() == [why]


def test_transposed_convolution_takes_in_what_follows_and_serves_convolutions() -> None:
    net = Net()
    x, weights = net.data(2, 9, 5, 7), net.parameter(9, 11, 2, 2)
    y = net.op("conv2d_transpose", "Output", {"Input": x, "Filter": weights}, strides=[2, 2], groups=1)
    y = net.op("elementwise_add", "Out", {"X": y, "Y": net.parameter(11)}, axis=1)
    y = net.conv(net.op("relu", "Out", {"X": y}), net.parameter(5, 11, 3, 3), paddings=[1, 1], strides=[2, 1])
    check(net, y, scale=100)


@few
@given(st.data())
def test_interpolation(data: st.DataObject) -> None:
    draw = data.draw
    net = Net()
    method = draw(st.sampled_from(["nearest", "bilinear", "bicubic"]))
    second = draw(st.booleans()) or method == "bicubic"
    attrs: dict[str, Any] = {"interp_method": method, "align_corners": draw(st.booleans())}
    attrs |= {
        "align_mode": draw(st.integers(0, 1)),
        "out_h": draw(st.integers(1, 20)),
        "out_w": draw(st.integers(1, 20)),
    }
    if draw(st.booleans()):
        scales = [draw(st.sampled_from([0.5, 1.3, 2.0])) for _ in range(2)]
        attrs["scale"] = scales if second else scales[0]
    x = net.data(draw(st.integers(1, 2)), draw(sizes), draw(st.integers(2, 9)), draw(st.integers(2, 9)))
    y = net.op(f"{method}_interp{'_v2' if second else ''}", "Out", {"X": pooled(net, x)}, **attrs)
    check(net, y, scale=1)


def pooled(net: Net, x: str) -> str:
    """The same image behind an operator that makes a region."""
    return net.op("pool2d", "Out", {"X": x}, pooling_type="max", ksize=[1, 1], strides=[1, 1], paddings=[0, 0])


def test_interpolation_in_nhwc_is_left_to_numpy() -> None:
    net = Net()
    x = pooled(net, net.data(1, 4, 4, 3))
    y = net.op("nearest_interp", "Out", {"X": x}, interp_method="nearest", out_h=8, out_w=8, data_layout="NHWC")
    agree(net, [y])
    assert net.why_not() == ["not an NCHW image"]


@pytest.mark.parametrize("type", ["reduce_sum", "reduce_mean", "reduce_max", "reduce_min", "reduce_prod"])
@pytest.mark.parametrize(
    ("shape", "dims"),
    [
        ((2, 3, 5, 7), [2, 3]),
        ((2, 3, 5, 7), [1]),
        ((2, 3, 5, 7), [-1]),
        ((3, 700), [1]),
        ((2, 300, 33), [1]),
        ((300, 9), [0]),
        ((2, 3, 5), [0, 1]),
    ],
)
@pytest.mark.parametrize("keep", [False, True])
def test_reductions(type: str, shape: tuple[int, ...], dims: list[int], keep: bool) -> None:
    net = Net()
    numbers = np.random.default_rng(0).uniform(0.9, 1.1, shape)
    x = net.op("softmax", "Out", {"X": net.data(*shape)}, axis=-1)
    x = net.op("elementwise_add", "Out", {"X": x, "Y": net.data(of=numbers.astype(np.float32))}, axis=-1)
    check(net, net.op(type, "Out", {"X": x}, dim=dims, keep_dim=keep, reduce_all=False), rtol=1e-5)


@pytest.mark.parametrize("type", ["reduce_max", "reduce_min"])
def test_extremes_keep_what_is_no_number(type: str) -> None:
    net = Net()
    numbers = np.zeros((2, 40), np.float32)
    numbers[1, 17] = np.nan
    x = net.op("softmax", "Out", {"X": net.data(of=numbers)}, axis=-1)
    y = net.op(type, "Out", {"X": x}, dim=[1], keep_dim=False, reduce_all=False)
    assert np.isnan(net.run("native", y)[0]).tolist() == [False, True]


@pytest.mark.parametrize(
    ("attrs", "why"),
    [
        ({"dim": [0, 2], "keep_dim": False}, "dimensions that are not adjacent"),
        ({"dim": [0], "keep_dim": False, "reduce_all": True}, "a result without dimensions"),
    ],
)
def test_reductions_that_are_left_to_numpy(attrs: dict[str, Any], why: str) -> None:
    net = Net()
    x = net.op("softmax", "Out", {"X": net.data(2, 3, 4)}, axis=-1)
    agree(net, [net.op("reduce_sum", "Out", {"X": x}, **attrs)])
    assert net.why_not() == [why]


@few
@given(st.lists(st.integers(1, 9), min_size=1, max_size=2), sizes, st.lists(st.integers(1, 9), min_size=1, max_size=2))
def test_softmax_along_an_inner_axis(outer: list[int], axis: int, inner: list[int]) -> None:
    net = Net()
    x = net.data(*outer, axis, *inner)
    check(net, net.op("softmax", "Out", {"X": x}, axis=len(outer)))


@few
@given(st.integers(1, 4), st.sampled_from([1, 2, 3, 4, 8]), st.sampled_from([1, 2, 4, 5, 8]), st.integers(3, 9))
def test_convolution_in_groups_of_few_channels(groups: int, inner: int, outer: int, size: int) -> None:
    net = Net()
    groups *= 8 * 2  # so that some of them make a vector together
    x, weights = net.data(2, groups * inner, size, size), net.parameter(groups * outer, inner, 3, 3)
    check(net, net.conv(x, weights, groups=groups, paddings=[1, 1]), scale=(9 * inner) ** 0.5)


@pytest.mark.parametrize("each", [2, 4])
@pytest.mark.parametrize(
    "attrs",
    [
        {"paddings": [1, 1]},
        {"paddings": [1, 1], "strides": [2, 2]},
        {"paddings": [2, 2], "dilations": [2, 2]},
        {"paddings": [0, 1, 2, 0]},
    ],
)
def test_groups_of_so_few_channels_are_summed_by_diagonals(each: int, attrs: dict[str, list[int]]) -> None:
    """Each row is cut into tiles of all sizes; a shift and a shortcut are added, and negative results become zeros."""
    for size in (3, 7, 12, 13):
        net = Net()
        x, weights = net.data(2, 64, size, size), net.parameter(64, each, 3, 3)
        y = net.conv(x, weights, groups=64 // each, **attrs)
        y = net.op("elementwise_add", "Out", {"X": y, "Y": net.parameter(64)}, axis=1)
        shortcut = net.conv(x, net.parameter(64, each, 3, 3), groups=64 // each, **attrs)
        check(net, net.op("relu", "Out", {"X": net.op("elementwise_add", "Out", {"X": y, "Y": shortcut})}), scale=8)


def test_convolution_of_one_pixel_in_groups_with_a_stride() -> None:
    net = Net()
    x, weights = net.data(2, 64, 9, 9), net.parameter(64, 4, 1, 1)
    check(net, net.conv(x, weights, groups=16, strides=[2, 2]), scale=2)


def test_convolution_in_groups_that_make_no_vector_is_left_to_numpy() -> None:
    net = Net()
    agree(net, [net.conv(net.data(1, 9, 5, 5), net.parameter(9, 3, 3, 3), groups=3)])
    assert net.why_not() == ["groups of few channels"]


@pytest.mark.parametrize("shape", [(5, 12), (4, 12, 7), (2, 12, 3, 2, 3)])
def test_batch_norm_of_other_than_images(shape: tuple[int, ...]) -> None:
    net = Net()
    statistics = {slot: net.parameter(12) for slot in ("Scale", "Bias", "Mean")}
    statistics["Variance"] = net.parameter(of=np.linspace(0.5, 2, 12, dtype=np.float32))
    y = net.op("batch_norm", "Y", {"X": net.data(*shape), **statistics}, is_test=True, epsilon=1e-5)
    check(net, y, scale=5)


@pytest.mark.parametrize("slots", [["Mean"], ["Mean", "Scale"], ["Mean", "Bias"]])
def test_batch_norm_without_scale_or_bias(slots: list[str]) -> None:
    net = Net()
    statistics = {slot: net.parameter(12) for slot in slots}
    statistics["Variance"] = net.parameter(of=np.linspace(0.5, 2, 12, dtype=np.float32))
    y = net.op("batch_norm", "Y", {"X": net.data(2, 12, 5, 5), **statistics}, is_test=True, epsilon=1e-5)
    check(net, y, scale=5)


def test_batch_norm_behind_a_product_goes_into_its_weights() -> None:
    net = Net()
    y = net.op("mul", "Out", {"X": net.data(5, 30), "Y": net.parameter(30, 12)}, x_num_col_dims=1, y_num_col_dims=1)
    y = net.op("elementwise_add", "Out", {"X": y, "Y": net.parameter(12)}, axis=1)
    statistics = {slot: net.parameter(12) for slot in ("Scale", "Bias", "Mean")}
    statistics["Variance"] = net.parameter(of=np.linspace(0.5, 2, 12, dtype=np.float32))
    y = net.op("batch_norm", "Y", {"X": y, **statistics}, is_test=True, epsilon=1e-5)
    check(net, net.op("relu", "Out", {"X": y}), scale=30)


@pytest.mark.parametrize(
    ("mode", "shape", "slopes"),
    [
        ("all", (2, 9, 4, 5), (1,)),
        ("channel", (2, 9, 4, 5), (9,)),
        ("channel", (3, 9), (9,)),
        ("element", (2, 9, 4, 5), (1, 9, 4, 5)),
    ],
)
@pytest.mark.parametrize("blocked", [False, True])
def test_prelu(mode: str, shape: tuple[int, ...], slopes: tuple[int, ...], blocked: bool) -> None:
    net = Net()
    x = net.data(*shape)
    x = pooled(net, x) if blocked and len(shape) == 4 else net.op("softmax", "Out", {"X": x}, axis=-1)
    x = net.op("scale", "Out", {"X": x}, scale=1.0, bias=-0.1)
    check(net, net.op("prelu", "Out", {"X": x, "Alpha": net.parameter(*slopes)}, mode=mode))


@pytest.mark.parametrize("type", ["elementwise_add", "elementwise_mul", "elementwise_max", "elementwise_min"])
def test_broadcasting_of_x(type: str) -> None:
    net = Net()
    gate = net.op("softmax", "Out", {"X": net.data(2, 9, 1, 1)}, axis=1)
    check(net, net.op(type, "Out", {"X": gate, "Y": net.data(2, 9, 4, 5)}, axis=-1))


@pytest.mark.parametrize(
    "attrs", [{"type": "clip", "min": -0.5, "max": 0.75}, {"type": "brelu", "t_min": 0.1, "t_max": 0.2}]
)
def test_bounds(attrs: dict[str, Any]) -> None:
    net = Net()
    x = net.op("softmax", "Out", {"X": net.data(3, 33)}, axis=-1)
    settled = {name: value for name, value in attrs.items() if name != "type"}
    check(net, net.op(attrs["type"], "Out", {"X": x}, **settled))


@pytest.mark.parametrize("count", [1, 2, 4])
def test_sum(count: int) -> None:
    net = Net()
    first = net.op("softmax", "Out", {"X": net.data(3, 33)}, axis=-1)
    check(
        net,
        net.op(
            "relu", "Out", {"X": net.op("sum", "Out", {"X": [first, *(net.data(3, 33) for _ in range(count - 1))]})}
        ),
    )
