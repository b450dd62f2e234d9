"""Depthwise convolutions that read halves (src/depthwise_pairs.c): of rounded numbers, the sums of numpy; and which read floats."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from fluidtool.runtime.engines.native import abi
from tests.runtime.native.checking import RTOL, Array, Net
from tests.runtime.native.test_bfloat16 import Whole, between, compiled_of, convolved, relu, run

pytestmark = pytest.mark.usefixtures("native")


def depthwise(net: Net, image: str, weights: str, **attrs: Any) -> str:
    variable = net.scope.find_var(weights)
    assert variable is not None
    return net.conv(image, weights, groups=variable.value.numpy().shape[0], **attrs)


def by_channel(net: Net, image: Array, weights: str, pad: int = 0, step: int = 1) -> Array:
    """A depthwise convolution by numpy, in double precision."""
    variable = net.scope.find_var(weights)
    assert variable is not None
    filters = variable.value.numpy().astype(np.float64)[:, 0]
    padded = np.pad(image.astype(np.float64), ((0, 0), (0, 0), (pad, pad), (pad, pad)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, filters.shape[1:], axis=(2, 3))[:, :, ::step, ::step]
    return np.asarray(np.einsum("nchwij,cij->nchw", windows, filters), np.float32)


def calls(net: Net) -> list[abi.Depthwise[Any]]:
    return [call.arguments for call in compiled_of(net).kernel_calls if isinstance(call.arguments, abi.Depthwise)]


def signs(net: Net, *shape: int) -> str:
    """Filters of -1, 0 and 1: sums of rounded numbers stay exact."""
    return net.parameter(of=net.random.integers(-1, 2, shape).astype(np.float32))


# ---------------------------------------------------------------- the numbers
@pytest.mark.parametrize("step", [1, 2])
@pytest.mark.parametrize("size", [3, 5])
@pytest.mark.parametrize("columns", [1, 2, 5, 7, 8, 9, 14, 16, 23, 24, 33])
@pytest.mark.parametrize("channels", [16, 40])
def test_between_two_convolutions(pairs: None, channels: int, columns: int, size: int, step: int) -> None:
    net, rows, pad = Whole(), 6 if columns % 2 else 7, size // 2
    x = net.data(2, 8, rows, columns)
    first, filters, last = (
        net.parameter(channels, 8, 1, 1),
        signs(net, channels, 1, size, size),
        signs(net, 8, channels, 1, 1),
    )
    y = net.op("relu", "Out", {"X": net.conv(x, first)})
    z = net.op("relu", "Out", {"X": depthwise(net, y, filters, paddings=[pad, pad], strides=[step, step])})
    (got,) = run(net, net.conv(z, last))
    hidden = between(relu(convolved(net, net.feeds[x], first)))
    filtered = between(relu(by_channel(net, hidden, filters, pad, step)))
    np.testing.assert_array_equal(got, convolved(net, filtered, last))
    assert [(call.source is None, call.out is None) for call in calls(net)] == [(True, True)]


@pytest.mark.parametrize("pad", [0, 1])
@pytest.mark.parametrize("columns", [9, 14, 24])
def test_floats_are_written_where_they_are_fetched(pairs: None, columns: int, pad: int) -> None:
    net = Whole()
    x = net.data(1, 8, 5, columns)
    first, filters = net.parameter(40, 8, 1, 1), net.parameter(40, 1, 3, 3)
    (got,) = run(net, depthwise(net, net.conv(x, first), filters, paddings=[pad, pad]))
    hidden = between(convolved(net, net.feeds[x], first))
    np.testing.assert_array_equal(got, by_channel(net, hidden, filters, pad))
    assert [call.source_halves is None for call in calls(net)] == [False]


@pytest.mark.parametrize("activation", ["relu6", "hard_swish", "swish", "sigmoid", "leaky_relu"])
def test_a_scale_a_shift_and_an_activation_follow(pairs: None, activation: str) -> None:
    def built(net: Net, y: str, filters: Array) -> str:
        z = depthwise(net, y, net.parameter(of=filters), paddings=[1, 1])
        means = np.linspace(-40, 40, 20, dtype=np.float32)
        statistics = {"Scale": 2.0 ** (np.arange(20) % 3), "Bias": means[::-1], "Mean": means, "Variance": np.ones(20)}
        given = {name: net.parameter(of=numbers.astype(np.float32)) for name, numbers in statistics.items()}
        z = net.op("batch_norm", "Y", {"X": z} | given, "MeanOut", "VarianceOut", "SavedMean", "SavedVariance",
                   is_test=True, epsilon=0.0, data_layout="NCHW")  # fmt: skip
        return net.op(activation, "Out", {"X": z})

    net, alone = Whole(), Net()
    x, first = net.data(1, 8, 9, 14), net.parameter(20, 8, 1, 1)
    filters = net.random.integers(-3, 4, (20, 1, 3, 3)).astype(np.float32)
    (got,) = run(net, built(net, net.conv(x, first), filters))
    hidden = between(convolved(net, net.feeds[x], first))
    (want,) = run(alone, built(alone, alone.data(of=hidden), filters), engine="numpy", precision="float32")
    assert [call.source_halves is None for call in calls(net)] == [False]
    np.testing.assert_allclose(got, want, rtol=0, atol=RTOL * float(np.abs(want).max()))


@pytest.mark.parametrize("special", [np.nan, np.inf])
@pytest.mark.parametrize("step", [1, 2])
@pytest.mark.parametrize("size", [3, 5])
def test_what_is_no_number_stays_within_the_windows_over_it(pairs: None, size: int, step: int, special: float) -> None:
    net, pad = Net(), size // 2
    image = np.ones((1, 1, 11, 11), np.float32)
    image[:, :, 5, 5] = special
    y = net.conv(net.data(of=image), net.parameter(of=np.ones((16, 1, 1, 1), np.float32)))
    filters = net.parameter(of=np.ones((16, 1, size, size), np.float32))
    (got,) = run(net, depthwise(net, y, filters, paddings=[pad, pad], strides=[step, step]))
    at = np.arange(0, 11, step)
    over = np.abs(at - 5) <= pad
    np.testing.assert_array_equal(np.isfinite(got[0, 3]), ~(over[:, np.newaxis] & over))
    assert [call.source_halves is None for call in calls(net)] == [False]


# ---------------------------------------------------------------- who reads floats
def dilated(net: Net, y: str) -> list[str]:
    return [depthwise(net, y, signs(net, 32, 1, 3, 3), dilations=[2, 2], paddings=[2, 2])]


def oblong(net: Net, y: str) -> list[str]:
    return [depthwise(net, y, signs(net, 32, 1, 3, 5), paddings=[1, 2])]


def by_three(net: Net, y: str) -> list[str]:
    return [depthwise(net, y, signs(net, 32, 1, 3, 3), strides=[3, 3], paddings=[1, 1])]


def far_outside(net: Net, y: str) -> list[str]:
    return [depthwise(net, y, signs(net, 32, 1, 3, 3), paddings=[2, 2])]


def with_an_addition(net: Net, y: str) -> list[str]:
    z = depthwise(net, y, signs(net, 32, 1, 3, 3), paddings=[1, 1])
    return [net.op("elementwise_add", "Out", {"X": z, "Y": y})]


def with_a_caller(net: Net, y: str) -> list[str]:
    return [y, depthwise(net, y, signs(net, 32, 1, 3, 3), paddings=[1, 1])]


@pytest.mark.parametrize("others", [dilated, oblong, by_three, far_outside, with_an_addition, with_a_caller])
def test_floats_are_read(others: Callable[[Net, str], list[str]]) -> None:
    net = Whole()
    x = net.data(1, 8, 9, 9)
    fetches = others(net, net.conv(x, net.parameter(32, 8, 1, 1)))
    got = run(net, *fetches)
    assert net.why_not() == [] and [call.source_halves for call in calls(net)] == [None]
    for found, want in zip(got, run(net, *fetches, engine="numpy", precision="float32"), strict=True):
        np.testing.assert_allclose(found, want, rtol=0, atol=RTOL * float(np.abs(want).max()))
