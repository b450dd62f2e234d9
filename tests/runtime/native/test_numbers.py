"""Numbers that are none, endless or huge come through as they do on numpy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.runtime.native.checking import Net, check

pytestmark = pytest.mark.usefixtures("native")
NAN, INF = float("nan"), float("inf")


@pytest.mark.parametrize("x", [-1e30, -1e4, -40.0, -5.7, -0.0, 0.0, 5.7, 1e30, INF, NAN])
def test_gelu_of_large_numbers(x: float) -> None:
    net = Net()
    numbers = np.full((2, 20), x, np.float32)
    y = net.op(
        "gelu",
        "Out",
        {
            "X": net.op(
                "matmul", "Out", {"X": net.data(of=numbers), "Y": net.parameter(of=np.eye(20, dtype=np.float32))}
            )
        },
    )
    (got,), (want,) = net.run("native", y), net.run("numpy", y)
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("type", ["swish", "sigmoid", "tanh", "hard_swish"])
def test_activations_of_large_numbers(type: str) -> None:
    net = Net()
    numbers = np.array(
        [-INF, -3e38, -1e30, -1e4, -100, -88, -87, -40, -0.0, 0, 40, 88, 100, 1e30, 3e38, INF, NAN], np.float32
    )
    y = net.op(type, "Out", {"X": net.op("scale", "Out", {"X": net.data(of=numbers)}, scale=1.0)})
    with np.errstate(all="ignore"):
        (got,), (want,) = net.run("native", y), net.run("numpy", y)
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-35)


def pooled(numbers: Any, **attrs: Any) -> tuple[Any, Any]:
    net = Net()
    settled = {"pooling_type": "max", "ksize": [2, 2], "strides": [2, 2], "paddings": [0, 0]} | attrs
    y = net.op("pool2d", "Out", {"X": net.data(of=np.asarray(numbers, np.float32))}, **settled)
    check(net, y)
    return net.run("native", y)[0], net.run("numpy", y)[0]


@pytest.mark.parametrize("place", range(4))
@pytest.mark.parametrize("number", [NAN, INF, -INF])
def test_a_maximum_keeps_what_is_no_number(place: int, number: float) -> None:
    numbers = np.arange(4, dtype=np.float32).reshape(1, 1, 2, 2)
    numbers.reshape(-1)[place] = number
    got, want = pooled(np.repeat(numbers, 3, axis=1))
    np.testing.assert_array_equal(got, want)
    assert np.isnan(got).all() == np.isnan(number)


@pytest.mark.parametrize("paddings", [[0, 0], [1, 1]])
def test_a_maximum_of_nothing_but_minus_infinity(paddings: list[int]) -> None:
    got, want = pooled(np.full((1, 5, 4, 4), -INF), paddings=paddings)
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("kind", ["max", "avg"])
def test_adaptive_pooling_of_everything_gives_every_cell(kind: str) -> None:
    net = Net()
    attrs = {"pooling_type": kind, "ksize": [1, 1], "strides": [1, 1], "global_pooling": True, "adaptive": True}
    y = net.op("pool2d", "Out", {"X": net.data(2, 9, 5, 6)}, **attrs)
    got, want = net.run("native", y)[0], net.run("numpy", y)[0]
    assert got.shape == (2, 9, 5, 6)
    np.testing.assert_allclose(got, want, rtol=1e-6)


SUBNORMAL = np.float32(1e-40)


@pytest.mark.parametrize("groups", [1, 20])
def test_convolutions_take_subnormal_numbers_for_zero(groups: int) -> None:
    """As NaiveExecutor of Paddle does: processors compute with these up to a hundred times more slowly."""
    net = Net()
    x = net.data(of=np.full((1, 20, 3, 3), SUBNORMAL))
    weights = net.parameter(of=np.ones((20, 20 // groups, 1, 1), np.float32))
    y = net.conv(x, weights, groups=groups, type="conv2d" if groups == 1 else "depthwise_conv2d")
    np.testing.assert_array_equal(net.run("native", y)[0], np.zeros((1, 20, 3, 3)))
    assert net.why_not() == []


def test_what_is_no_convolution_keeps_subnormal_numbers() -> None:
    net = Net()
    x = net.data(of=np.full((2, 20), SUBNORMAL))
    y = net.conv(net.data(1, 20, 3, 3), net.parameter(4, 20, 1, 1))
    doubled = net.op("elementwise_add", "Out", {"X": x, "Y": x})
    np.testing.assert_array_equal(net.run("native", y, doubled)[1], np.full((2, 20), SUBNORMAL + SUBNORMAL))
    assert SUBNORMAL * np.float32(1) != 0  # on this thread, afterwards
