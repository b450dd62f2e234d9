"""Normalization over groups of channels: numpy's numbers, in rows and in blocks of channels."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.runtime.native.checking import Net, agree, check

pytestmark = pytest.mark.usefixtures("native")
few = settings(max_examples=60, deadline=None)


def image(net: Net, shape: tuple[int, ...], blocked: bool) -> str:
    """An image within a region, away from zero, in blocks of channels or in rows."""
    x = net.data(of=(3 + net.random.standard_normal(shape)).astype(np.float32))
    if not blocked:
        return net.op("scale", "Out", {"X": x}, scale=2.0, bias=0.0)
    attrs = {"pooling_type": "max", "ksize": [1, 1], "strides": [1, 1], "paddings": [0, 0]}
    return net.op("pool2d", "Out", {"X": x}, **attrs)


def factors(net: Net, channels: int, scale: bool, bias: bool) -> dict[str, str]:
    found = {"Scale": net.parameter(channels)} if scale else {}
    return found | ({"Bias": net.parameter(channels)} if bias else {})


@few
@given(
    st.sampled_from(
        [(1, 1), (3, 3), (12, 4), (16, 8), (17, 17), (21, 3), (32, 2), (40, 5), (48, 3), (64, 32), (20, 1)]
    ),
    st.tuples(st.integers(1, 2), st.integers(1, 9), st.integers(1, 40)),
    st.booleans(),
    st.booleans(),
    st.booleans(),
    st.sampled_from([None, "relu", "tanh", "hard_swish"]),
)
def test_group_norm(
    channels: tuple[int, int], sizes: tuple[int, int, int], blocked: bool, scale: bool, bias: bool, then: str | None
) -> None:
    net, (count, groups), (images, rows, columns) = Net(), channels, sizes
    inputs = {"X": image(net, (images, count, rows, columns), blocked)} | factors(net, count, scale, bias)
    y = net.op("group_norm", "Y", inputs, "Mean", "Variance", groups=groups, epsilon=1e-3)
    check(net, net.op(then, "Out", {"X": y}) if then else y, rtol=1e-5, scale=1)


@few
@given(
    st.lists(st.sampled_from([1, 2, 5, 17, 40]), min_size=2, max_size=5).filter(lambda shape: prod(shape) <= 30_000),
    st.booleans(),
    st.booleans(),
    st.booleans(),
)
def test_instance_norm(shape: list[int], blocked: bool, scale: bool, bias: bool) -> None:
    net = Net()
    inputs = {"X": image(net, tuple(shape), blocked and len(shape) == 4)} | factors(net, shape[1], scale, bias)
    y = net.op("instance_norm", "Y", inputs, "SavedMean", "SavedVariance", epsilon=1e-2)
    check(net, y, rtol=1e-5, scale=1)


@pytest.mark.parametrize("blocked", [False, True])
def test_large_images_keep_their_precision(blocked: bool) -> None:
    net = Net()
    inputs = {"X": image(net, (1, 5, 300, 301), blocked)} | factors(net, 5, True, True)
    check(net, net.op("instance_norm", "Y", inputs, "SavedMean", "SavedVariance", epsilon=1e-5), rtol=1e-5)


def test_between_convolutions_it_stays_in_blocks() -> None:
    net = Net()
    x = net.conv(net.data(2, 3, 9, 9), net.parameter(36, 3, 3, 3), paddings=[1, 1])
    inputs = {"X": x} | factors(net, 36, True, True)
    x = net.op("relu", "Out", {"X": net.op("group_norm", "Y", inputs, groups=4, epsilon=1e-5)})
    check(net, net.conv(x, net.parameter(7, 36, 3, 3), paddings=[1, 1]), scale=50)
    (region,) = net.plan.work
    (specialization,) = region.specializations.kept.values()  # type: ignore[union-attr]
    names = [
        kernel_call.kind.name for kernel_call in specialization.kernel_calls if kernel_call.kind.name not in ("HALO",)
    ]
    assert names[0] == "BLOCK" and names[-1] == "UNBLOCK" and "BLOCK" not in names[1:]
    assert "GROUP_NORM_BLOCKED" in names and "ELEMENTWISE" not in names


def test_numbers_that_are_none_stay_within_their_group() -> None:
    net = Net()
    numbers = np.ones((1, 4, 2, 2), np.float32)
    numbers[0, 1] = np.nan
    x = net.op("softmax", "Out", {"X": net.data(of=numbers)}, axis=1)
    assert np.isnan(net.run("native", x)[0]).all()
    y = net.op("group_norm", "Y", {"X": net.data(of=numbers)}, groups=2, epsilon=1e-5)
    assert np.isnan(net.run("native", y)[0]).any(axis=(2, 3)).tolist() == [[True, True, False, False]]


@pytest.mark.parametrize(
    ("attrs", "shape", "why"),
    [
        ({"data_layout": "NHWC", "groups": 2}, (1, 5, 5, 4), "group_norm in NHWC"),
        ({"groups": 3}, (1, 5, 5, 5), "groups of different sizes"),
    ],
)
def test_group_norm_that_is_left_to_numpy(attrs: dict[str, Any], shape: tuple[int, ...], why: str) -> None:
    net = Net()
    y = net.op("group_norm", "Y", {"X": image(net, shape, False)}, epsilon=1e-5, **attrs)
    agree(net, [net.op("softmax", "Out", {"X": y}, axis=-1)], rtol=1e-5)
    assert net.why_not() == [why]


@few
@given(
    st.sampled_from([1, 5, 16, 17, 32, 40]),
    st.sampled_from([1, 3, 5, 15]),
    st.sampled_from([0.25, 0.5, 0.75, 1.0]),
    st.booleans(),
)
def test_normalization_by_the_channels_around(channels: int, around: int, power: float, blocked: bool) -> None:
    net = Net()
    x = image(net, (2, channels, 3, 5), blocked)
    y = net.op("lrn", "Out", {"X": x}, "MidOut", n=around, k=1.5, alpha=0.02, beta=power)
    check(net, net.op("pool2d", "Out", {"X": y}, pooling_type="max", ksize=[2, 2], strides=[1, 1], paddings=[0, 0]))


def test_the_channels_around_a_slice_are_its_own() -> None:
    net = Net()
    x = image(net, (2, 48, 3, 5), blocked=True)
    y = net.op("slice", "Out", {"Input": x}, axes=[1], starts=[16], ends=[36])
    z = net.op("lrn", "Out", {"X": y}, "MidOut", n=5, k=1.0, alpha=0.1, beta=0.75)
    check(net, net.op("pool2d", "Out", {"X": z}, pooling_type="max", ksize=[2, 2], strides=[1, 1], paddings=[0, 0]))


@pytest.mark.parametrize(
    ("attrs", "why"),
    [
        ({"beta": 0.6}, "a power that is not a multiple of 1/4"),
        ({"n": 17}, "an unexpected number of channels"),
        ({"data_format": "NHWC"}, "not an NCHW image"),
    ],
)
def test_channels_around_that_are_left_to_numpy(attrs: dict[str, Any], why: str) -> None:
    net = Net()
    y = net.op("lrn", "Out", {"X": image(net, (1, 20, 3, 5), blocked=True)}, "MidOut", **{"n": 5} | attrs)
    agree(net, [net.op("softmax", "Out", {"X": y})])
    assert any(why in reason for reason in net.why_not())
