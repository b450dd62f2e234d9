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
