"""Convolutions by Winograd's method give numpy's numbers, and are chosen only where they win."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fluidtool.runtime.engines.native.lowering.winograd import outputs_by_side
from fluidtool.runtime.graph.ir import Node, Value
from tests.runtime.native.checking import Net, check

pytestmark = pytest.mark.usefixtures("native")
few = settings(max_examples=40, deadline=None)
sizes = st.integers(1, 20)


def node(channels: int, filters: int, size: int, images: int = 1, **attrs: Any) -> Node:
    x, y = Value("x", (images, channels, size, size)), Value("y", (images, filters, size, size))
    window = attrs.pop("window", (3, 3))
    weights = np.broadcast_to(np.float32(0), (filters, channels // attrs.get("groups", 1), *window))
    usual = {"weights": weights, "strides": (1, 1), "dilations": (1, 1), "pads": (1, 1, 1, 1), "groups": 1}
    return Node("conv", [x], y, usual | attrs)


@pytest.mark.parametrize(
    ("outputs", "channels", "filters", "size"), [(4, 64, 64, 56), (4, 128, 128, 28), (2, 256, 256, 14), (0, 3, 64, 56)]
)
def test_the_square_is_chosen_by_the_work_and_the_filters_to_read(
    outputs: int, channels: int, filters: int, size: int
) -> None:
    assert outputs_by_side(node(channels, filters, size), 8) == outputs


@pytest.mark.parametrize(
    "attrs", [{"strides": (2, 1)}, {"dilations": (1, 2)}, {"groups": 2}, {"window": (3, 1)}, {"window": (5, 5)}]
)
def test_other_convolutions_are_computed_as_they_are(attrs: dict[str, Any]) -> None:
    assert outputs_by_side(node(64, 64, 56, **attrs), 8) == 0


def test_channels_that_fill_no_vector_are_computed_as_they_are() -> None:
    assert outputs_by_side(node(72, 64, 56), 8) == 4
    assert outputs_by_side(node(72, 64, 56), 16) == 0


def test_few_windows_do_not_pay_for_many_filters() -> None:
    assert outputs_by_side(node(512, 512, 2), 8) == 0


@few
@given(st.data())
def test_odd_shapes(data: st.DataObject) -> None:
    draw = data.draw
    net = Net()
    channels, filters = 16 * draw(st.integers(1, 3)), draw(st.integers(16, 40))
    pads = draw(st.lists(st.integers(0, 2), min_size=4, max_size=4))
    rows, columns = max(draw(sizes), 3 - pads[0] - pads[1]), max(draw(sizes), 3 - pads[2] - pads[3])
    x = net.data(draw(st.integers(1, 3)), channels, rows, columns)
    y = net.conv(x, net.parameter(filters, channels, 3, 3), paddings=pads)
    if draw(st.booleans()):
        y = net.op("elementwise_add", "Out", {"X": y, "Y": net.parameter(filters)}, axis=1)
    if draw(st.booleans()):
        y = net.op(draw(st.sampled_from(["relu", "sigmoid", "hard_swish"])), "Out", {"X": y})
    check(net, y, scale=(9 * channels) ** 0.5)


@pytest.mark.parametrize("size", [7, 14, 30])
def test_residual_is_added_where_it_lies(size: int) -> None:
    net = Net()
    x = net.data(2, 32, size, size)
    start = net.conv(x, net.parameter(32, 32, 1, 1))
    y = net.conv(start, net.parameter(32, 32, 3, 3), paddings=[1, 1])
    total = net.op("elementwise_add", "Out", {"X": y, "Y": start})
    check(net, net.op("relu", "Out", {"X": total}))


def test_many_windows_pass_through_the_arena_in_strips() -> None:
    net = Net()
    x, weights = net.data(1, 64, 56, 56), net.parameter(64, 64, 3, 3)
    y = net.conv(x, weights, paddings=[1, 1])
    check(net, net.op("relu", "Out", {"X": y}))


@pytest.mark.parametrize("channels", [256, 336])
def test_sums_over_many_channels_are_no_less_accurate_than_numpys(channels: int) -> None:
    net = Net()
    image, weights = net.data(1, channels, 14, 14), net.parameter(48, channels, 3, 3)
    y = net.conv(image, weights, paddings=[1, 1])
    wide = np.pad(net.feeds[image].astype(np.float64), ((0, 0), (0, 0), (1, 1), (1, 1)))
    filters = net.scope.var(weights).value.numpy().astype(np.float64)
    exact = np.einsum("nchwij,kcij->nkhw", np.lib.stride_tricks.sliding_window_view(wide, (3, 3), (2, 3)), filters)
    errors = [float(np.square(net.run(engine, y)[0] - exact).mean() ** 0.5) for engine in ("native", "numpy")]
    assert errors[0] <= errors[1]


def test_what_is_no_number_spreads_no_further_than_its_windows() -> None:
    net = Net()
    image = np.ones((1, 16, 24, 24), np.float32)
    image[0, 0, 0, 0] = np.nan
    y = net.conv(net.data(of=image), net.parameter(16, 16, 3, 3), paddings=[1, 1])
    (got,) = net.run("native", y)
    assert np.isnan(got[0, :, 0, 0]).all()
    assert np.isfinite(got[0, :, 4:, :]).all() and np.isfinite(got[0, :, :, 4:]).all()
