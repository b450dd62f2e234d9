"""Convolutions and pooling of volumes, and what works on them number by number: numpy's numbers."""

from __future__ import annotations

from math import prod
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tests.runtime.native.checking import Net, agree, check

pytestmark = pytest.mark.usefixtures("native")
few = settings(max_examples=40, deadline=None)
STEPS: dict[str, Any] = {"strides": [1, 1, 1], "paddings": [1, 1, 1], "dilations": [1, 1, 1], "groups": 1}


def conv3d(net: Net, x: str, weights: str, **attrs: Any) -> str:
    return net.op("conv3d", "Output", {"Input": x, "Filter": weights}, **STEPS | attrs)


def normalized(net: Net, x: str, channels: int) -> str:
    numbers = {slot: net.parameter(channels) for slot in ("Scale", "Bias", "Mean")}
    variance = net.parameter(channels, of=net.random.uniform(0.5, 2, channels).astype("float32"))
    further = ("MeanOut", "VarianceOut", "SavedMean", "SavedVariance")
    return net.op("batch_norm", "Y", {"X": x, **numbers, "Variance": variance}, *further, is_test=True)


@few
@given(st.data())
def test_convolution(data: st.DataObject) -> None:
    draw = data.draw
    net = Net()
    channels, filters = draw(st.integers(1, 20)), draw(st.integers(1, 20))
    window, size = (draw(st.tuples(*[st.integers(1, most)] * 3)) for most in (3, 7))
    strides, dilations = draw(st.tuples(*[st.integers(1, 3)] * 3)), draw(st.tuples(*[st.integers(1, 2)] * 3))
    pads = draw(st.lists(st.integers(0, 2), min_size=6, max_size=6))
    reach = [d * (w - 1) + 1 for d, w in zip(dilations, window, strict=True)]
    assume(all(n + sum(pads[2 * i : 2 * i + 2]) >= reach[i] for i, n in enumerate(size)))
    x, weights = net.data(draw(st.integers(1, 2)), channels, *size), net.parameter(filters, channels, *window)
    y = conv3d(net, x, weights, strides=list(strides), dilations=list(dilations), paddings=pads)
    check(net, y, scale=(channels * prod(window)) ** 0.5 * 3)


@pytest.mark.parametrize("images", [1, 2])
@pytest.mark.parametrize("stride", [1, 2])
def test_a_block_of_a_residual_network(images: int, stride: int) -> None:
    net = Net()
    x = conv3d(net, net.data(images, 3, 5, 9, 7), net.parameter(20, 3, 3, 3, 3))
    y = net.op(
        "relu", "Out", {"X": normalized(net, conv3d(net, x, net.parameter(20, 20, 3, 3, 3), strides=[stride] * 3), 20)}
    )
    y = normalized(net, conv3d(net, y, net.parameter(20, 20, 3, 3, 3)), 20)
    short = conv3d(net, x, net.parameter(20, 20, 1, 1, 1), strides=[stride] * 3, paddings=[0, 0, 0])
    y = net.op("relu", "Out", {"X": net.op("elementwise_add", "Out", {"X": short, "Y": y})})
    y = net.op("elementwise_add", "Out", {"X": y, "Y": net.parameter(20)}, axis=1)
    pooled = net.op(
        "pool3d", "Out", {"X": y}, pooling_type="avg", ksize=[1, 1, 1], paddings=[0] * 3, global_pooling=True
    )
    check(net, net.op("mul", "Out", {"X": pooled, "Y": net.parameter(20, 7)}), rtol=2e-5)


def test_convolution_in_groups() -> None:
    net = Net()
    x = net.data(2, 32, 3, 5, 4)
    check(net, conv3d(net, x, net.parameter(32, 8, 3, 3, 3), groups=4), scale=40)


@few
@given(st.data())
def test_pooling(data: st.DataObject) -> None:
    draw = data.draw
    net = Net()
    window = [draw(st.integers(1, 3)) for _ in range(3)]
    pads = [draw(st.integers(0, size // 2)) for size in window]
    size = [least + draw(st.integers(0, 5)) for least in window]
    exclusive = draw(st.booleans())
    attrs = {
        "pooling_type": draw(st.sampled_from(["max", "avg"])),
        "ksize": window,
        "strides": [draw(st.integers(1, 3)) for _ in range(3)],
        "paddings": pads,
        "exclusive": exclusive,
        "ceil_mode": draw(st.booleans()) and exclusive,
    }
    if attrs["ceil_mode"]:
        counts = [(n + 2 * p - w + s - 1) // s for n, p, w, s in zip(size, pads, window, attrs["strides"], strict=True)]
        assume(all(c * s - p < n for c, s, p, n in zip(counts, attrs["strides"], pads, size, strict=True)))
    x = net.data(draw(st.integers(1, 2)), draw(st.integers(1, 20)), *size)
    y = net.op("pool3d", "Out", {"X": x}, **attrs)
    check(net, y)


@pytest.mark.parametrize("window", [[2, 2, 2], [1, 2, 2], [2, 1, 1], [3, 3, 3]])
@pytest.mark.parametrize("kind", ["max", "avg"])
def test_pooling_between_convolutions(window: list[int], kind: str) -> None:
    net = Net()
    x = conv3d(net, net.data(2, 3, 6, 7, 5), net.parameter(20, 3, 3, 3, 3))
    pads = [size // 2 for size in window]
    y = net.op("pool3d", "Out", {"X": x}, pooling_type=kind, ksize=window, strides=window, paddings=pads)
    check(net, y, conv3d(net, y, net.parameter(5, 20, 3, 3, 3)), scale=100)


@pytest.mark.parametrize("kind", ["max", "avg"])
def test_pooling_of_everything(kind: str) -> None:
    net = Net()
    attrs: dict[str, Any] = {"ksize": [1, 1, 1], "strides": [1, 1, 1], "paddings": [0, 0, 0], "global_pooling": True}
    check(net, net.op("pool3d", "Out", {"X": net.data(2, 18, 3, 5, 4)}, pooling_type=kind, **attrs))


@pytest.mark.parametrize(
    ("attrs", "why"),
    [
        ({"data_format": "NDHWC"}, "convolution in NDHWC"),
        ({"padding_algorithm": "SAME", "dilations": [2, 2, 2]}, "SAME padding of a dilated window"),
    ],
)
def test_convolutions_that_are_left_to_numpy(attrs: dict[str, Any], why: str) -> None:
    net = Net()
    shape = (1, 4, 5, 6, 3) if "data_format" in attrs else (1, 3, 4, 5, 6)
    agree(net, [conv3d(net, net.data(*shape), net.parameter(4, 3, 3, 3, 3), **attrs)], scale=30)
    assert any(why in reason for reason in net.why_not())


@pytest.mark.parametrize(
    ("attrs", "why"),
    [
        ({"adaptive": True, "ksize": [2, 2, 2]}, "adaptive windows of volumes"),
        ({"ceil_mode": True, "strides": [1, 3, 4]}, "windows that contain only padding"),
        ({"exclusive": False, "ceil_mode": True, "pooling_type": "avg"}, "inclusive mean of a partial window"),
    ],
)
def test_pooling_that_is_left_to_numpy(attrs: dict[str, Any], why: str) -> None:
    net = Net()
    settled: dict[str, Any] = {"pooling_type": "avg", "ksize": [2, 2, 2], "strides": [2, 2, 2], "paddings": [0, 0, 0]}
    agree(net, [net.op("pool3d", "Out", {"X": net.data(1, 3, 5, 6, 7)}, **settled | attrs)])
    assert any(why in reason for reason in net.why_not())
