"""Convolutions by Winograd's method with halves (src/winograd_pairs.c): what is transformed is rounded, sums are not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from fluidtool.runtime.engines.native import abi
from fluidtool.runtime.engines.native.bfloat16 import rounded
from fluidtool.runtime.engines.native.library import library
from fluidtool.runtime.engines.native.lowering import winograd_pairs
from tests.runtime.native.checking import RTOL, Array, Net
from tests.runtime.native.test_bfloat16 import compiled_of, convolved, relu, run

pytestmark = [pytest.mark.usefixtures("native"), pytest.mark.usefixtures("pairs")]
WINDOW = np.array([[1, 0, -1, 0], [0, 1, 1, 0], [0, -1, 1, 0], [0, 1, 0, -1]], np.float64)
FILTER = np.array([[1, 0, 0], [0.5, 0.5, 0.5], [0.5, -0.5, 0.5], [0, 0, 1]])
BACK = np.array([[1, 1, 1, 0], [0, 1, -1, -1]], np.float64)
ONE = (1, 1, 1, 1)  # padding
HALF = 2.0**-8  # neighbors of a tie may be rounded otherwise than numpy's


@pytest.fixture
def always(monkeypatch: pytest.MonkeyPatch) -> None:
    """However few channels and windows there are."""
    monkeypatch.setattr(winograd_pairs, "TRANSFORM", 0)
    monkeypatch.setattr(winograd_pairs, "WEIGHT", 0)


def by_winograd(image: Array, filters: Array, pads: tuple[int, int, int, int]) -> Array:
    """The same method by numpy, in double precision. Rounds windows and filters once they are transformed."""
    top, bottom, left, right = pads
    rows, columns = image.shape[2] + top + bottom - 2, image.shape[3] + left + right - 2
    padded = np.pad(
        rounded(image).astype(np.float64), ((0, 0), (0, 0), (top, bottom + rows % 2), (left, right + columns % 2))
    )
    windows = np.lib.stride_tricks.sliding_window_view(padded, (4, 4), axis=(2, 3))[:, :, ::2, ::2]
    seen = rounded(np.einsum("ai,nchwij,bj->nchwab", WINDOW, windows, WINDOW)).astype(np.float64)
    weights = rounded(np.einsum("ai,ocij,bj->ocab", FILTER, filters.astype(np.float64), FILTER)).astype(np.float64)
    back = np.einsum("ia,nohwab,jb->nohiwj", BACK, np.einsum("nchwab,ocab->nohwab", seen, weights), BACK)
    images, count, high, _, wide, _ = back.shape
    return np.asarray(back.reshape(images, count, 2 * high, 2 * wide)[:, :, :rows, :columns], np.float32)


def calls(net: Net) -> list[abi.WinogradPairs[Any]]:
    return [call.arguments for call in compiled_of(net).kernel_calls if isinstance(call.arguments, abi.WinogradPairs)]


def filters_of(net: Net, name: str) -> Array:
    variable = net.scope.find_var(name)
    assert variable is not None
    found: Array = variable.value.numpy()
    return found


def assert_near(got: Array, want: Array, tolerance: float = RTOL) -> None:
    np.testing.assert_allclose(got, want, rtol=0, atol=tolerance * float(np.abs(want).max()))


# ---------------------------------------------------------------- the numbers
SHAPES = {
    "one window": (1, 16, 2, 2, 16),
    "odd sides": (1, 16, 5, 7, 16),
    "a single last block": (1, 32, 6, 8, 33),
    "several images": (3, 48, 7, 7, 40),
    "more windows than at once": (1, 16, 26, 34, 17),
    "one window more than at once": (1, 16, 6, 38, 32),
    "many channels": (2, 272, 9, 14, 64),
}


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_a_convolution(always: None, shape: tuple[int, int, int, int, int]) -> None:
    images, channels, rows, columns, count = shape
    net = Net()
    x, w = net.data(images, channels, rows, columns), net.parameter(count, channels, 3, 3)
    (got,) = run(net, net.conv(x, w, paddings=[1, 1]))
    assert len(calls(net)) == 1 and net.why_not() == []
    assert_near(got, by_winograd(net.feeds[x], filters_of(net, w), ONE))


@pytest.mark.parametrize("pads", [(0, 0, 0, 0), (2, 2, 2, 2), (0, 1, 2, 0)])
def test_padding(always: None, pads: tuple[int, int, int, int]) -> None:
    net = Net()
    x, w = net.data(1, 16, 9, 8), net.parameter(20, 16, 3, 3)
    (got,) = run(net, net.conv(x, w, paddings=list(pads)))
    assert len(calls(net)) == 1
    assert_near(got, by_winograd(net.feeds[x], filters_of(net, w), pads))


@pytest.mark.parametrize("activation", ["relu", "relu6", "leaky_relu", "hard_swish", "swish", "sigmoid"])
def test_a_scale_a_shift_and_an_activation_follow(always: None, activation: str) -> None:
    net = Net()
    x, w = net.data(1, 32, 9, 9), net.parameter(20, 32, 3, 3)
    scale, shift = 2.0 ** (np.arange(20, dtype=np.float32) % 3 - 3), np.linspace(-1, 1, 20, dtype=np.float32)
    given = {"Scale": scale, "Bias": shift, "Mean": np.zeros(20, np.float32), "Variance": np.ones(20, np.float32)}
    inputs = {"X": net.conv(x, w, paddings=[1, 1])} | {name: net.parameter(of=array) for name, array in given.items()}
    y = net.op("batch_norm", "Y", inputs,
               "MeanOut", "VarianceOut", "SavedMean", "SavedVariance", is_test=True, epsilon=0.0, data_layout="NCHW")  # fmt: skip
    (got,) = run(net, net.op(activation, "Out", {"X": y}))
    assert len(calls(net)) == 1
    sums = by_winograd(net.feeds[x], filters_of(net, w) * scale.reshape(-1, 1, 1, 1), ONE)
    alone = Net()
    z = alone.op(activation, "Out", {"X": alone.data(of=sums + shift.reshape(-1, 1, 1))})
    (want,) = run(alone, z, engine="numpy", precision="float32")
    assert_near(got, want)


@pytest.mark.parametrize("columns", [4, 5, 12])
def test_what_is_added_as_halves_and_as_floats(always: None, columns: int) -> None:
    """As in a row of blocks of two convolutions: the first shortcut is rounded, the second is read by the caller, too."""
    net = Net()
    x = net.data(2, 32, 6, columns)
    first, wide = net.parameter(48, 32, 1, 1), net.parameter(48, 48, 3, 3)
    middle = [net.parameter(48, 48, 1, 1) for _ in range(2)]
    y = net.op("relu", "Out", {"X": net.conv(x, first)})
    branch = net.conv(net.op("relu", "Out", {"X": net.conv(y, middle[0])}), wide, paddings=[1, 1])
    z = net.op("relu", "Out", {"X": net.op("elementwise_add", "Out", {"X": y, "Y": branch})})
    other = net.conv(net.op("relu", "Out", {"X": net.conv(z, middle[1])}), wide, paddings=[1, 1])
    seen, got = run(net, z, net.op("elementwise_add", "Out", {"X": z, "Y": other}))
    assert [(call.residual is None, call.residual_halves is None) for call in calls(net)] == [
        (True, False),
        (False, True),
    ]
    weights = [rounded(filters_of(net, name)) for name in (first, *middle)]
    added = rounded(relu(convolve_each(rounded(net.feeds[x]), weights[0])))
    inner = rounded(relu(convolve_each(added, weights[1])))
    assert_near(seen, relu(by_winograd(inner, filters_of(net, wide), ONE) + added), HALF)
    inner = rounded(relu(convolve_each(rounded(seen), weights[2])))
    assert_near(got, by_winograd(inner, filters_of(net, wide), ONE) + seen, HALF)


def convolve_each(image: Array, filters: Array) -> Array:
    """A convolution of one tap by numpy."""
    found = np.einsum("nchw,oc->nohw", image.astype(np.float64), filters[:, :, 0, 0].astype(np.float64))
    return np.asarray(found, np.float32)


def test_halves_for_the_next_convolution_are_the_floats_rounded(always: None) -> None:
    net = Net()
    x, w, pixels = net.data(1, 32, 7, 10), net.parameter(48, 32, 3, 3), net.parameter(8, 48, 1, 1)
    y = net.conv(x, w, paddings=[1, 1])
    (alone,) = run(net, net.conv(y, pixels))
    assert [(call.out is None, call.out_halves is None) for call in calls(net)] == [(True, False)]
    (seen,) = run(net, y)
    assert_near(alone, convolve_each(rounded(seen), rounded(filters_of(net, pixels))))


def test_results_do_not_depend_on_the_number_of_threads(always: None) -> None:
    net, found = Net(), library()
    assert found is not None
    x, w = net.data(1, 32, 17, 19), net.parameter(80, 32, 3, 3)
    y, threads, results = net.conv(x, w, paddings=[1, 1]), found.threads, []
    try:
        for count in (1, 2, 9):
            found.use_threads(count)
            results.append(run(net, y)[0])
            assert len(calls(net)) == 1
    finally:
        found.use_threads(threads)
    for other in results[1:]:
        np.testing.assert_array_equal(other, results[0])


def test_the_error_is_less_than_twice_that_of_multiplying() -> None:
    """Of images behind a ReLU, as in a network: a rounded window adds to what rounded filters do."""
    net = Net()
    image, filters = relu(net.random.normal(size=(1, 64, 32, 32))), net.random.normal(size=(64, 64, 3, 3))
    x, w = net.data(of=rounded(image.astype(np.float32))), net.parameter(of=filters.astype(np.float32))
    (got,) = run(net, net.conv(x, w, paddings=[1, 1]))
    assert len(calls(net)) == 1
    exact = convolved(net, net.feeds[x], w, pad=1)
    net.scope.find_var(w).value = type(net.scope.find_var(w).value)(rounded(filters_of(net, w)))  # type: ignore[union-attr]
    multiplied = convolved(net, net.feeds[x], w, pad=1)
    norm = float(np.linalg.norm(exact))
    assert np.linalg.norm(got - exact) / norm < 2 * np.linalg.norm(multiplied - exact) / norm < 2 * 2.0**-9


# ---------------------------------------------------------------- where
def large(net: Net) -> str:
    return net.conv(net.data(1, 64, 56, 56), net.parameter(64, 64, 3, 3), paddings=[1, 1])


def few_channels(net: Net) -> str:
    return net.conv(net.data(1, 16, 56, 56), net.parameter(8, 16, 3, 3), paddings=[1, 1])


def part_of_a_block(net: Net) -> str:
    return net.conv(net.data(1, 40, 56, 56), net.parameter(64, 40, 3, 3), paddings=[1, 1])


def every_other(net: Net) -> str:
    return net.conv(net.data(1, 64, 56, 56), net.parameter(64, 64, 3, 3), paddings=[1, 1], strides=[2, 2])


def dilated(net: Net) -> str:
    return net.conv(net.data(1, 64, 56, 56), net.parameter(64, 64, 3, 3), paddings=[2, 2], dilations=[2, 2])


def in_groups(net: Net) -> str:
    return net.conv(net.data(1, 64, 56, 56), net.parameter(64, 32, 3, 3), paddings=[1, 1], groups=2)


def few_pixels(net: Net) -> str:
    return net.conv(net.data(1, 512, 3, 3), net.parameter(512, 512, 3, 3), paddings=[1, 1])


OTHERS = [few_channels, part_of_a_block, every_other, dilated, in_groups, few_pixels]


@pytest.mark.parametrize(("built", "count"), [(large, 1), *((built, 0) for built in OTHERS)])
def test_where_it_pays(built: Callable[[Net], str], count: int) -> None:
    net = Net()
    run(net, built(net))
    assert len(calls(net)) == count and net.why_not() == []
