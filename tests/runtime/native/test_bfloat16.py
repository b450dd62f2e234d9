"""With the precision bf16 weights are rounded to bfloat16, and so are the inputs of products and convolutions where the
processor multiplies pairs of such numbers; everything else stays float32."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from math import prod
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fluidtool.runtime import Executor
from fluidtool.runtime.engines.native.bfloat16 import rounded
from fluidtool.runtime.engines.native.library import PAIRS, TILES, library
from fluidtool.runtime.engines.native.lowering import winograd_pairs
from fluidtool.runtime.partition import Region
from fluidtool.tensor import LoDTensor
from tests.runtime.native.checking import RTOL, Array, Net
from tests.support.checkout import child_environment

pytestmark = pytest.mark.usefixtures("native")
few = settings(max_examples=60, deadline=None)
ONE = 2.0**-7  # between 1 and the next bfloat16


@pytest.fixture(autouse=True, scope="module")
def multiplied() -> Iterator[None]:
    """Windows are multiplied as they are: Winograd's method rounds others (test_winograd_pairs.py)."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(winograd_pairs, "LEAST_CHANNELS", 1 << 30)
        yield


def run(net: Net, *fetches: str, engine: str = "native", precision: str = "bf16") -> list[Array]:
    executor = Executor(engine=engine, precision=precision)
    values = executor.run(net.program, net.feeds, list(fetches), net.scope)
    net.plan = executor.plan(net.program, list(fetches)).block(0)
    return [value.numpy() for value in values]


def by_pairs() -> bool:
    """Whether inputs are rounded too."""
    found = library()
    assert found is not None
    return found.instructions in (PAIRS, TILES)


def check(net: Net, weights: list[str], *fetches: str, inputs: list[str], scale: float = 1e-30) -> None:
    """What the native engine gives by bf16 is what numpy gives by weights, and inputs, that were rounded before."""
    for _ in range(2):  # the second run finds the arena used
        got = run(net, *fetches)
    assert net.why_not() == [] and net.regions() == len(net.plan.work) == 1
    for name in weights:
        variable = net.scope.find_var(name)
        assert variable is not None
        variable.value = LoDTensor(rounded(variable.value.numpy()))
    for name in inputs if by_pairs() else ():
        net.feeds[name] = rounded(net.feeds[name])
    want = run(net, *fetches, engine="numpy", precision="float32")
    for a, b in zip(got, want, strict=True):
        assert a.shape == b.shape and a.dtype == b.dtype == np.float32
        np.testing.assert_allclose(a, b, rtol=0, atol=RTOL * max(float(np.abs(b).max(initial=0)), scale))


# ---------------------------------------------------------------- rounding
CASES = {
    "exact": (1.5, 1.5),
    "to the nearer one below": (1 + 0.49 * ONE, 1.0),
    "to the nearer one above": (1 + 0.51 * ONE, 1 + ONE),
    "a tie to the even one below": (1 + 0.5 * ONE, 1.0),
    "a tie to the even one above": (1 + 1.5 * ONE, 1 + 2 * ONE),
    "a negative tie": (-1 - 1.5 * ONE, -1 - 2 * ONE),
    "into the next power of two": (2 - 0.25 * ONE, 2.0),
    "a negative zero": (-0.0, -0.0),
    "the largest bfloat16": (3.3895314e38, 3.3895314e38),
    "too large": (3.4028235e38, np.inf),
    "infinity": (-np.inf, -np.inf),
    "a denormal number": (2.0**-130, 2.0**-130),
    "a tie of denormal numbers to zero": (2.0**-134, 0.0),
    "a tie of denormal numbers upwards": (3 * 2.0**-134, 2 * 2.0**-133),
    "the least denormal number": (1e-45, 0.0),
}


def compiled_of(net: Net) -> Any:
    """What the only region of the last run became."""
    (region,) = (step for step in net.plan.work if isinstance(step, Region))
    (specialization,) = region.specializations.kept.values()
    return specialization


def stored(numbers: Array) -> Array:
    """What the library keeps of weights, made wide again: products of the unit matrix."""
    found = library()
    assert found is not None
    net, width, (depth, columns) = Net(), found.width, numbers.shape
    x, w = net.data(depth, depth, of=np.eye(depth, dtype=np.float32)), net.parameter(of=numbers)
    y = net.op("mul", "Out", {"X": x, "Y": w})
    run(net, y)
    (kernel_call,) = (
        kernel_call for kernel_call in compiled_of(net).kernel_calls if kernel_call.kind.name in ("PRODUCT", "PAIRS")
    )
    together = 2 if kernel_call.kind.name == "PAIRS" else 1  # rows of weights that lie as pairs
    groups = -(-depth // together)
    bits = kernel_call.arguments.weights[0].array.view(np.uint16)[: groups * width * together]
    assert columns < width  # one block
    wide: Array = (bits.astype(np.uint32) << 16).view(np.float32)
    rows = wide.reshape(groups, width, together).transpose(0, 2, 1).reshape(groups * together, width)
    return rows[:depth, :columns]


@pytest.mark.parametrize(("number", "nearest"), CASES.values(), ids=CASES)
def test_rounding(number: float, nearest: float) -> None:
    numbers = np.array([[number, 1.0], [0.0, number]], np.float32)
    want = np.array([[nearest, 1.0], [0.0, nearest]], np.float32)
    for found in (rounded(numbers), stored(numbers)):
        np.testing.assert_array_equal(found.view(np.uint32), want.view(np.uint32))


@pytest.mark.parametrize("bits", [0x7FC00000, 0x7F800001, 0x7FFFFFFF, 0xFFFFFFFF, 0xFF800001])
def test_what_is_no_number_stays_none(bits: int) -> None:
    numbers = np.array([[bits]], np.uint32).view(np.float32)
    assert np.isnan(rounded(numbers)).all() and np.isnan(stored(numbers)).all()


@few
@given(st.lists(st.integers(0, 2**32 - 1), min_size=1, max_size=40))
def test_the_library_rounds_as_numpy_does(bits: list[int]) -> None:
    numbers = np.array(bits, np.uint32).view(np.float32).reshape(-1, 1)
    np.testing.assert_array_equal(stored(numbers), rounded(numbers))


def test_rounding_keeps_the_shape() -> None:
    assert rounded(np.float32(1.1)).shape == () and rounded(np.ones((2, 0, 3))).shape == (2, 0, 3)
    assert rounded(np.arange(12, dtype=np.float32).reshape(3, 4).T).shape == (4, 3)


# ---------------------------------------------------------------- products
@few
@given(st.integers(1, 40), st.integers(1, 70), st.integers(1, 70), st.booleans())
def test_product(rows: int, depth: int, columns: int, bias: bool) -> None:
    net = Net()
    x, w = net.data(rows, depth), net.parameter(depth, columns)
    y = net.op("mul", "Out", {"X": x, "Y": w})
    if bias:
        y = net.op("elementwise_add", "Out", {"X": y, "Y": net.parameter(columns)}, axis=1)
    check(net, [w], y, inputs=[x], scale=depth**0.5)


@pytest.mark.parametrize(("rows", "depth", "columns"), [(1, 3000, 33), (5, 769, 130), (150, 1000, 17), (300, 385, 96)])
def test_product_of_several_panels(rows: int, depth: int, columns: int) -> None:
    net = Net()
    x, w = net.data(rows, depth), net.parameter(depth, columns)
    y = net.op("mul", "Out", {"X": x, "Y": w})
    check(net, [w], net.op("relu", "Out", {"X": y}), inputs=[x], scale=depth**0.5)


@pytest.mark.parametrize("swap", [False, True])
def test_matmul_by_a_parameter(swap: bool) -> None:
    net = Net()
    x, w = net.data(2, 9, 35), net.parameter(*((21, 35) if swap else (35, 21)))
    check(net, [w], net.op("matmul", "Out", {"X": x, "Y": w}, transpose_Y=swap), inputs=[x], scale=6)


def test_fc_with_a_residual() -> None:
    net = Net()
    x, w, shortcut = net.data(7, 50), net.parameter(50, 50), net.data(7, 50)
    y = net.op("fc", "Out", {"Input": x, "W": w, "Bias": net.parameter(1, 50)}, in_num_col_dims=1)
    check(net, [w], net.op("elementwise_add", "Out", {"X": y, "Y": shortcut}), inputs=[x])


@pytest.mark.parametrize("sizes", [(32, 64, 32), (16, 48, 16, 33)])
def test_products_of_the_same_rows(sizes: tuple[int, ...]) -> None:
    net = Net()
    x, weights = net.data(2, 5, 40), [net.parameter(40, columns) for columns in sizes]
    check(net, weights, *(net.op("relu", "Out", {"X": net.op("mul", "Out", {"X": x, "Y": w}, x_num_col_dims=2)})
                          for w in weights), inputs=[x])  # fmt: skip


def test_computed_matrices_stay_float32() -> None:
    net = Net()
    y = net.op("matmul", "Out", {"X": net.data(2, 9, 35), "Y": net.data(2, 35, 21)})
    check(net, [], y, inputs=[], scale=6)


def test_weights_of_products_take_half_the_memory() -> None:
    sizes = []
    for precision in ("float32", "bf16"):
        net = Net()
        y = net.op("mul", "Out", {"X": net.data(3, 64), "Y": net.parameter(64, 96)})
        run(net, y, precision=precision)
        sizes.append(sum(array.nbytes for array in compiled_of(net).keep if array.dtype == np.float32))
    assert sizes == [4 * 64 * 96, 2 * 64 * 96]


# ---------------------------------------------------------------- pictures of three channels
@few
@given(st.data())
def test_picture(data: st.DataObject) -> None:
    draw, net = data.draw, Net()
    window, strides = ([draw(st.integers(1, 7)), draw(st.integers(2, 7))], [draw(st.integers(1, 3)) for _ in range(2)])
    pads = [draw(st.integers(0, size // 2)) for size in window]
    x = net.data(draw(st.integers(1, 3)), 3, draw(st.integers(8, 20)), draw(st.integers(8, 40)))
    w = net.parameter(draw(st.integers(1, 40)), 3, *window)
    y = net.conv(x, w, strides=strides, paddings=pads, dilations=[draw(st.integers(1, 1 + 6 // window[0])), 1])
    check(net, [w], net.op("relu", "Out", {"X": y}), inputs=[x], scale=5)


def test_a_picture_that_is_read_twice() -> None:
    net = Net()
    x, wide, high = net.data(2, 3, 19, 23), net.parameter(8, 3, 3, 7), net.parameter(24, 3, 5, 2)
    a, b = net.conv(x, wide, paddings=[1, 3]), net.conv(x, high, paddings=[2, 1], strides=[2, 1])
    check(net, [wide, high], a, b, inputs=[x], scale=5)


def test_three_channels_that_are_computed_and_lie_both_ways() -> None:
    net = Net()
    x, first, second = net.data(2, 8, 12, 12), net.parameter(3, 8, 3, 3), net.parameter(20, 3, 3, 3)
    y = net.conv(x, first, paddings=[1, 1])
    flat = net.op("reshape2", "Out", {"X": y}, "XShape", shape=[2, 432])
    rows = net.op("softmax", "Out", {"X": flat}, axis=-1)
    z = net.conv(y, second, paddings=[1, 1])
    got = run(net, rows, z)
    assert net.why_not() == [] and net.regions() == len(net.plan.work) == 1
    want = run(net, rows, z, engine="numpy", precision="float32")
    for a, b in zip(got, want, strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=0.02 * np.abs(b).max())  # numbers are rounded in between


def test_what_is_no_number_stays_in_its_picture() -> None:
    net = Net()
    x = net.random.standard_normal((2, 3, 16, 16)).astype(np.float32)
    x[1] = np.nan
    w = net.parameter(16, 3, 3, 3)
    (y,) = run(net, net.conv(net.data(of=x), w, paddings=[1, 1]))
    assert np.isfinite(y[0]).all() and np.isnan(y[1]).all()


# ---------------------------------------------------------------- convolutions
@few
@given(st.data())
def test_convolution(data: st.DataObject) -> None:
    draw, net = data.draw, Net()
    channels, filters = draw(st.integers(1, 20)), draw(st.integers(1, 20))
    window = [draw(st.integers(1, 4)), draw(st.integers(1, 4))]
    x = net.data(draw(st.integers(1, 2)), channels, draw(st.integers(4, 12)), draw(st.integers(4, 12)))
    w = net.parameter(filters, channels, *window)
    y = net.conv(x, w, strides=[draw(st.integers(1, 3))] * 2, paddings=[draw(st.integers(0, 2))] * 2)
    lonely = channels == filters == 1  # a filter for each channel
    check(net, [w], y, inputs=[] if lonely else [x], scale=(channels * prod(window)) ** 0.5)


KINDS: dict[str, tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = {
    "by Winograd's method": ((1, 32, 14, 14), (32, 32, 3, 3), {"paddings": [1, 1]}),
    "groups": ((1, 32, 7, 7), (48, 16, 3, 3), {"groups": 2, "dilations": [2, 2]}),
    "groups put together": ((1, 32, 7, 7), (32, 4, 3, 3), {"groups": 8}),
    "two rows at a time": ((2, 40, 7, 7), (70, 40, 3, 3), {"paddings": [1, 1]}),
    "many pixels": ((3, 33, 19, 23), (33, 33, 1, 1), {}),
    "one pixel": ((2, 70, 1, 1), (35, 70, 1, 1), {}),
    "every other pixel": ((1, 32, 15, 15), (48, 32, 1, 1), {"strides": [2, 2]}),
    "every other window": ((1, 48, 15, 30), (32, 48, 3, 3), {"strides": [2, 2], "paddings": [1, 1]}),
    "the first of a network": ((1, 3, 37, 41), (24, 3, 7, 7), {"strides": [2, 2], "paddings": [3, 3]}),
    "the first of a network, of four channels": ((2, 4, 9, 37), (24, 4, 3, 3), {"paddings": [1, 1]}),
    "the first of a network, of few columns": ((2, 3, 9, 7), (24, 3, 3, 3), {"paddings": [1, 1]}),
    "images that go on in the next": ((8, 64, 7, 7), (48, 64, 1, 1), {}),
    "rows that go on behind the border": ((5, 64, 7, 7), (48, 64, 3, 3), {"paddings": [1, 1]}),
    "parts of an image": ((2, 64, 40, 9), (80, 64, 3, 3), {"paddings": [1, 1]}),
    "one column": ((4, 40, 6, 1), (33, 40, 3, 1), {"paddings": [1, 0]}),
    "every other pixel of several images": ((5, 70, 15, 13), (48, 70, 1, 1), {"strides": [2, 2]}),
    "every other window of small images": ((3, 70, 14, 14), (48, 70, 3, 3), {"strides": [2, 2], "paddings": [1, 1]}),
    "steps of several lengths": ((3, 40, 13, 20), (33, 40, 3, 2), {"strides": [3, 2], "paddings": [1, 0]}),
    "steps longer than the window": ((2, 40, 10, 11), (33, 40, 1, 2), {"strides": [2, 3]}),
    "dilated": ((1, 17, 12, 12), (16, 17, 3, 3), {"dilations": [2, 3], "paddings": [2, 1]}),
    "uneven padding": ((1, 20, 9, 8), (20, 20, 2, 3), {"paddings": [0, 1, 2, 0]}),
    "deep": ((1, 300, 7, 9), (40, 300, 3, 3), {"paddings": [1, 1]}),
}


@pytest.mark.parametrize(("image", "filters", "attrs"), KINDS.values(), ids=KINDS)
def test_convolutions(image: tuple[int, ...], filters: tuple[int, ...], attrs: dict[str, Any]) -> None:
    net = Net()
    x, w = net.data(*image), net.parameter(*filters)
    check(net, [w], net.conv(x, w, **attrs), inputs=[x])


def test_a_convolution_of_each_channel_rounds_its_filters_only() -> None:
    net = Net()
    w = net.parameter(19, 1, 3, 3)
    check(net, [w], net.conv(net.data(2, 19, 9, 9), w, groups=19, paddings=[1, 1]), inputs=[])


@pytest.mark.parametrize("activation", ["relu", "sigmoid"])
@pytest.mark.parametrize(("channels", "columns", "stride"), [(16, 9, 1), (40, 17, 1), (64, 14, 2), (80, 5, 1)])
def test_a_convolution_of_each_channel_writes_what_the_next_one_reads(
    channels: int, columns: int, stride: int, activation: str
) -> None:
    """No call converts it, and it is what the caller gets, rounded."""
    net = Net()
    x, w = net.data(2, channels, 8, columns), net.parameter(channels, 1, 3, 3)
    each = net.conv(x, w, groups=channels, strides=[stride] * 2, paddings=[1, 1])
    y = net.op(activation, "Out", {"X": each})
    pixels = net.parameter(24, channels, 1, 1)
    z = net.conv(y, pixels)
    (alone,) = run(net, z)
    if by_pairs():
        assert [each.kind.name for each in compiled_of(net).kernel_calls].count("NARROW") == 0
    got, seen = run(net, z, y)
    np.testing.assert_array_equal(got, alone)
    weights = net.scope.find_var(pixels)
    assert weights is not None
    want = np.einsum("nchw,oc->nohw", between(seen).astype(np.float64), rounded(weights.value.numpy())[:, :, 0, 0])
    np.testing.assert_allclose(got, want, rtol=0, atol=RTOL * float(np.abs(want).max()))


def test_transposed_convolution() -> None:
    net = Net()
    w = net.parameter(10, 12, 3, 3)
    attrs = {"strides": [2, 2], "paddings": [1, 1], "dilations": [1, 1], "groups": 1}
    check(
        net,
        [w],
        net.op("conv2d_transpose", "Output", {"Input": net.data(1, 10, 6, 6), "Filter": w}, **attrs),
        inputs=[],
    )


@pytest.mark.parametrize("groups", [1, 16])
def test_weights_are_rounded_after_normalization_is_folded_in(groups: int) -> None:
    """A factor of 3 for each channel: rounding first would give other weights."""
    net = Net()
    filters = net.random.standard_normal((16, 16 // groups, 3, 3)).astype(np.float32)
    x = net.data(1, 16, 8, 8)
    statistics = {name: np.full(16, number, np.float32) for name, number in
                  (("Scale", 3), ("Bias", 0.5), ("Mean", 0), ("Variance", 1))}  # fmt: skip
    inputs = {name: net.parameter(of=array) for name, array in statistics.items()}
    y = net.conv(x, net.parameter(of=filters), groups=groups)
    y = net.op("batch_norm", "Y", {"X": y} | inputs, "MeanOut", "VarianceOut", "SavedMean", "SavedVariance",
               is_test=True, epsilon=0.0, data_layout="NCHW")  # fmt: skip
    (got,) = run(net, y)
    assert net.why_not() == []
    alone = Net()
    image = rounded(net.feeds[x]) if by_pairs() and groups == 1 else net.feeds[x]
    z = alone.conv(alone.data(of=image), alone.parameter(of=rounded(filters * np.float32(3))), groups=groups)
    (want,) = run(alone, z, engine="numpy", precision="float32")
    np.testing.assert_allclose(got, want + 0.5, rtol=0, atol=RTOL * float(np.abs(want).max()))


# ---------------------------------------------------------------- one after the other
class Whole(Net):
    """Whole numbers so small that every sum is exact: what is rounded between must be equal to the bit."""

    def data(self, *shape: int, of: Array | None = None) -> str:
        return super().data(of=self.random.integers(-9, 10, shape).astype(np.float32) if of is None else of)

    def parameter(self, *shape: int, of: Array | None = None) -> str:
        return super().parameter(of=self.random.integers(-9, 10, shape).astype(np.float32) if of is None else of)


def between(numbers: Array) -> Array:
    """What the next product or convolution reads of numbers."""
    return rounded(numbers) if by_pairs() else numbers


def convolved(net: Net, image: Array, weights: str, **attrs: Any) -> Array:
    """A convolution by numpy, in double precision."""
    variable = net.scope.find_var(weights)
    assert variable is not None
    filters, (pad, step) = variable.value.numpy().astype(np.float64), (attrs.get("pad", 0), attrs.get("step", 1))
    padded = np.pad(image.astype(np.float64), ((0, 0), (0, 0), (pad, pad), (pad, pad)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, filters.shape[2:], axis=(2, 3))[:, :, ::step, ::step]
    return np.asarray(np.einsum("nchwij,ocij->nohw", windows, filters), np.float32)


def relu(numbers: Array) -> Array:
    return np.maximum(numbers, 0)


@pytest.mark.parametrize(("channels", "between_them", "size"), [(16, 32, 9), (3, 17, 14), (40, 33, 7)])
def test_what_lies_between_convolutions_is_rounded(channels: int, between_them: int, size: int) -> None:
    net = Whole()
    x = net.data(2, channels, size, size)
    first, second = net.parameter(between_them, channels, 3, 3), net.parameter(24, between_them, 3, 3)
    y = net.op("relu", "Out", {"X": net.conv(x, first, paddings=[1, 1])})
    (got,) = run(net, net.conv(y, second, paddings=[1, 1], strides=[2, 2]))
    hidden = between(relu(convolved(net, net.feeds[x], first, pad=1)))
    np.testing.assert_array_equal(got, convolved(net, hidden, second, pad=1, step=2))
    assert net.why_not() == []


def test_what_is_added_later_and_what_leaves_is_not_rounded() -> None:
    """As in a residual block: the next convolution reads rounded numbers, the addition and the caller float32."""
    net = Whole()
    x = net.data(1, 32, 8, 8)
    first, second = net.parameter(32, 32, 1, 1), net.parameter(32, 32, 3, 3)
    y = net.op("relu", "Out", {"X": net.conv(x, first)})
    z = net.op("elementwise_add", "Out", {"X": net.conv(y, second, paddings=[1, 1]), "Y": y})
    outs = run(net, y, net.op("relu", "Out", {"X": z}))
    hidden = relu(convolved(net, net.feeds[x], first))
    assert not np.array_equal(hidden, rounded(hidden))
    np.testing.assert_array_equal(outs[0], hidden)
    np.testing.assert_array_equal(outs[1], relu(convolved(net, between(hidden), second, pad=1) + hidden))


@pytest.mark.parametrize("columns", [5, 16, 17, 33])
@pytest.mark.parametrize("channels", [16, 24, 48, 80])
def test_what_only_convolutions_read_is_added_as_it_is_read(channels: int, columns: int) -> None:
    """As in a row of residual blocks: only rounded numbers are stored."""
    net = Whole()
    x = net.data(2, channels, 3, columns)
    drawn = (net.random.integers(-1, 2, (channels, channels, size, size)) for size in (1, 1, 3))
    first, second, third = (net.parameter(of=numbers.astype(np.float32)) for numbers in drawn)
    y = net.op("relu", "Out", {"X": net.conv(x, first)})
    branch = net.conv(net.op("relu", "Out", {"X": net.conv(y, second)}), third, paddings=[1, 1])
    z = net.op("relu", "Out", {"X": net.op("elementwise_add", "Out", {"X": y, "Y": branch})})
    (got,) = run(net, net.conv(z, second))
    hidden = between(relu(convolved(net, net.feeds[x], first)))
    inner = between(relu(convolved(net, hidden, second)))
    added = between(relu(convolved(net, inner, third, pad=1) + hidden))
    want = convolved(net, added, second)
    np.testing.assert_allclose(got, want, rtol=0, atol=RTOL * float(np.abs(want).max()))
    if by_pairs():
        steps = [each.arguments for each in compiled_of(net).kernel_calls if each.kind.name == "PAIRS"]
        assert [step.out is None for step in steps] == [True, True, True, False]
        assert [step.residual_halves is None for step in steps] == [True, True, False, True]


def test_groups_add_what_is_not_rounded() -> None:
    """Halves of groups lie otherwise."""
    net = Whole()
    x, other = net.data(1, 64, 6, 6), net.data(1, 64, 6, 6)
    first, second = net.parameter(64, 64, 1, 1), net.parameter(64, 32, 1, 1)
    y = net.op("relu", "Out", {"X": net.conv(x, first)})
    (got,) = run(net, net.op("elementwise_add", "Out", {"X": y, "Y": net.conv(other, second, groups=2)}))
    filters = net.scope.find_var(second)
    assert filters is not None
    halves = between(net.feeds[other]).reshape(1, 2, 32, 36).astype(np.float64)
    want = np.einsum("goc,bgcp->bgop", filters.value.numpy().reshape(2, 32, 32).astype(np.float64), halves)
    want = want.reshape(1, 64, 6, 6) + relu(convolved(net, net.feeds[x], first))
    np.testing.assert_array_equal(got, want.astype(np.float32))


def test_pooling_and_a_product_after_a_convolution() -> None:
    net = Whole()
    x, filters, w = net.data(2, 8, 6, 6), net.parameter(20, 8, 1, 1), net.parameter(20 * 9, 10)
    attrs = {"pooling_type": "max", "ksize": [2, 2], "strides": [2, 2], "paddings": [0, 0]}
    y = net.op("pool2d", "Out", {"X": net.conv(x, filters)}, **attrs)
    (got,) = run(net, net.op("mul", "Out", {"X": y, "Y": w}))
    pooled = convolved(net, net.feeds[x], filters).reshape(2, 20, 3, 2, 3, 2).max((3, 5)).reshape(2, -1)
    weights = net.scope.find_var(w)
    assert weights is not None and net.why_not() == []
    np.testing.assert_array_equal(got, between(pooled) @ weights.value.numpy())


POOLED = {"pooling_type": "max", "ksize": [3, 3], "strides": [2, 2], "paddings": [1, 1]}


@pytest.mark.parametrize(("channels", "size"), [(3, 7), (16, 2), (17, 12), (40, 7), (64, 12)])
@pytest.mark.parametrize("window", [{}, {"ksize": [2, 3], "strides": [1, 2], "paddings": [0, 1]}, {"ceil_mode": True}])
def test_maxima_between_convolutions_are_those_of_rounded_numbers(
    channels: int, size: int, window: dict[str, Any]
) -> None:
    net = Whole()
    x = net.data(2, 5, size, size)
    first, second = (
        net.parameter(channels, 5, 1, 1),
        net.parameter(of=net.random.integers(-1, 2, (9, channels, 3, 3)).astype(np.float32)),
    )
    y = net.op("pool2d", "Out", {"X": net.conv(x, first)}, **POOLED | window)
    (got,) = run(net, net.conv(y, second, paddings=[1, 1]))
    rounded_once = Net()
    z = rounded_once.op(
        "pool2d", "Out", {"X": rounded_once.data(of=between(convolved(net, net.feeds[x], first)))}, **POOLED | window
    )
    (pooled,) = run(rounded_once, z, engine="numpy", precision="float32")
    np.testing.assert_allclose(got, convolved(net, pooled, second, pad=1), rtol=0, atol=1e-2)
    if by_pairs():
        assert "POOL_HALVES" in [each.kind.name for each in compiled_of(net).kernel_calls]


@pytest.mark.parametrize("special", [np.nan, -np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("channels", [4, 40])
def test_maxima_keep_what_is_no_finite_number(special: float, channels: int) -> None:
    net = Net()
    image = -np.ones((1, 1, 9, 9), np.float32)
    image[:, :, 4, 4] = special
    y = net.op("pool2d", "Out", {"X": net.conv(net.data(of=image), net.parameter(of=ones(channels, 1)))}, **POOLED)
    (got,) = run(net, net.conv(y, net.parameter(of=ones(1, channels))))
    want = np.full((1, 1, 5, 5), -channels, np.float32)
    if not special < 0:
        want[:, :, 2, 2] = special
    np.testing.assert_array_equal(got, want)


def ones(count: int, channels: int) -> Array:
    return np.ones((count, channels, 1, 1), np.float32)


@pytest.mark.parametrize("other", [{"pooling_type": "avg"}, {"adaptive": True, "ksize": [2, 2], "pooling_type": "avg"}])
def test_means_are_of_numbers_that_are_not_rounded(other: dict[str, Any]) -> None:
    net = Whole()
    x, first, second = net.data(1, 8, 6, 6), net.parameter(20, 8, 1, 1), net.parameter(4, 20, 1, 1)
    run(net, net.conv(net.op("pool2d", "Out", {"X": net.conv(x, first)}, **POOLED | other), second))
    assert "POOL_HALVES" not in [each.kind.name for each in compiled_of(net).kernel_calls]


def test_maxima_that_are_fetched_are_of_numbers_that_are_not_rounded() -> None:
    net = Whole()
    x, first, second = net.data(1, 8, 6, 6), net.parameter(20, 8, 1, 1), net.parameter(4, 20, 1, 1)
    y = net.op("pool2d", "Out", {"X": net.conv(x, first)}, **POOLED)
    pooled, _ = run(net, y, net.conv(y, second))
    (want,) = run(net, y, engine="numpy", precision="float32")
    np.testing.assert_array_equal(pooled, want)


@pytest.mark.parametrize("read_later", [False, True])
def test_a_shortcut_is_added_in_its_own_place_if_nobody_reads_it_later(read_later: bool) -> None:
    net = Whole()
    drawn = [net.random.integers(-1, 2, (40, 40, 1, 1)).astype(np.float32) for _ in range(3)]
    x, (first, second, third) = net.data(2, 40, 5, 5), map(lambda numbers: net.parameter(of=numbers), drawn)
    y = net.op("relu", "Out", {"X": net.conv(x, first)})
    branch = net.conv(net.op("relu", "Out", {"X": net.conv(y, second)}), third)
    outs = [net.conv(net.op("elementwise_add", "Out", {"X": y, "Y": branch}), first)]
    outs += [net.conv(y, third)] if read_later else []
    got = run(net, *outs)
    hidden = between(relu(convolved(net, net.feeds[x], first)))
    added = between(convolved(net, between(relu(convolved(net, hidden, second))), third) + hidden)
    for found, wanted in zip(got, (convolved(net, added, first), convolved(net, hidden, third)), strict=False):
        np.testing.assert_allclose(found, wanted, rtol=0, atol=RTOL * float(np.abs(wanted).max()))
    if by_pairs():
        steps = [each.arguments for each in compiled_of(net).kernel_calls if each.kind.name == "PAIRS"]
        added_halves = [step for step in steps if step.residual_halves is not None]
        assert [step.residual_halves == step.out_halves for step in added_halves] == [not read_later]


def test_what_is_convolved_and_added_at_once_is_not_overwritten() -> None:
    net = Whole()
    first, second = (net.parameter(of=net.random.integers(-1, 2, (40, 40, 1, 1)).astype(np.float32)) for _ in range(2))
    x = net.data(2, 40, 5, 5)
    y = net.op("relu", "Out", {"X": net.conv(x, first)})
    (got,) = run(net, net.conv(net.op("elementwise_add", "Out", {"X": y, "Y": net.conv(y, second)}), first))
    hidden = relu(convolved(net, net.feeds[x], first))
    want = convolved(net, between(convolved(net, between(hidden), second) + hidden), first)
    np.testing.assert_allclose(got, want, rtol=0, atol=RTOL * float(np.abs(want).max()))


@pytest.mark.parametrize("form", [(4, 8, 4), (1, 8, 8)])
def test_a_product_that_reads_an_image_otherwise_than_a_convolution(form: tuple[int, int, int]) -> None:
    """The rows of its matrix are no channels, also where their counts agree."""
    net, (images, channels, columns) = Whole(), form
    x, filters = net.data(images, 8, 1, columns), net.parameter(channels, 8, 1, 1)
    others, w = net.parameter(16, channels, 1, 1), net.parameter(columns, 5)
    y = net.conv(x, filters)
    outs = run(net, net.conv(y, others), net.op("mul", "Out", {"X": y, "Y": w}, x_num_col_dims=3))
    hidden, weights = between(convolved(net, net.feeds[x], filters)), net.scope.find_var(w)
    assert weights is not None
    np.testing.assert_array_equal(outs[0], convolved(net, hidden, others))
    np.testing.assert_array_equal(outs[1].reshape(-1, 5), hidden.reshape(-1, columns) @ weights.value.numpy())


@pytest.mark.parametrize(("rows", "whole"), [(96, True), (512, False)])
def test_tiles_cut_the_rows_of_a_matrix_only_if_they_leave_the_second_cache(rows: int, whole: bool) -> None:
    """Every part reads all weights: one that is read whole takes them once."""
    net = Whole()
    x, w = net.data(rows, 2048), net.parameter(of=net.random.integers(-1, 2, (2048, 512)).astype(np.float32))
    (got,) = run(net, net.op("mul", "Out", {"X": x, "Y": w}))
    weights = net.scope.find_var(w)
    assert weights is not None
    np.testing.assert_array_equal(got, net.feeds[x] @ weights.value.numpy())
    found = library()
    assert found is not None
    if found.instructions == TILES:
        (step,) = (each.arguments for each in compiled_of(net).kernel_calls if each.kind.name == "PAIRS")
        assert (step.column_parts * step.row_parts == 1) is whole


@pytest.mark.parametrize(("rows", "depth", "hidden", "columns"), [(1, 9, 17, 3), (30, 64, 48, 40), (5, 33, 35, 2000)])
def test_what_lies_between_products_is_rounded(rows: int, depth: int, hidden: int, columns: int) -> None:
    net = Whole()
    x, first, second = net.data(rows, depth), net.parameter(depth, hidden), net.parameter(hidden, columns)
    y = net.op("relu", "Out", {"X": net.op("mul", "Out", {"X": x, "Y": first})})
    (got,) = run(net, net.op("mul", "Out", {"X": y, "Y": second}))
    a, b = (net.scope.find_var(name) for name in (first, second))
    assert a is not None and b is not None and net.why_not() == []
    np.testing.assert_array_equal(got, between(relu(net.feeds[x] @ a.value.numpy())) @ b.value.numpy())


@pytest.mark.parametrize("activation", ["gelu", "sigmoid", "leaky_relu", "hard_swish"])
def test_activations_between_products(activation: str) -> None:
    """Neighbors of a tie may be rounded otherwise than numpy's: by one part in 2^8 of one of 50 numbers."""
    net = Net()
    x, first, second = net.data(9, 20), net.parameter(20, 50), net.parameter(50, 24)
    middle = net.op(activation, "Out", {"X": net.op("mul", "Out", {"X": x, "Y": first})})
    (got,) = run(net, net.op("mul", "Out", {"X": middle, "Y": second}))
    for name in (first, second):
        variable = net.scope.find_var(name)
        assert variable is not None
        variable.value = LoDTensor(rounded(variable.value.numpy()))
    net.feeds[x] = between(net.feeds[x])
    (hidden,) = run(net, middle, engine="numpy", precision="float32")
    last = Net()
    z = last.op("mul", "Out", {"X": last.data(of=between(hidden)), "Y": last.parameter(of=variable.value.numpy())})
    (want,) = run(last, z, engine="numpy", precision="float32")
    np.testing.assert_allclose(got, want, rtol=0, atol=2.0**-8 * float(np.abs(hidden).max()))
    assert np.mean(np.abs(got - want) < RTOL * np.abs(want).max()) > 0.9


@pytest.mark.parametrize("special", [np.nan, np.inf, -np.inf])
def test_what_is_no_finite_number_stays_in_its_window(special: float) -> None:
    net = Net()
    image = np.ones((1, 3, 6, 6), np.float32)
    image[0, 1, 2, 3] = special
    y = net.conv(net.data(of=image), net.parameter(of=np.ones((4, 3, 2, 2), np.float32)), strides=[2, 2])
    (got,) = run(net, y)
    want = np.full((1, 4, 3, 3), 12, np.float32)
    want[:, :, 1, 1] = special
    np.testing.assert_array_equal(got, want)


def test_results_do_not_depend_on_the_number_of_threads() -> None:
    net, found = Net(), library()
    assert found is not None
    x, w = net.data(50, 300), net.parameter(300, 200)
    y = net.op("mul", "Out", {"X": x, "Y": w})
    threads, results = found.threads, []
    try:
        for count in (1, 3):
            found.use_threads(count)
            results.append(run(net, y)[0])
    finally:
        found.use_threads(threads)
    np.testing.assert_array_equal(*results)


def test_nothing_is_left_to_numpy_or_to_float32_where_pairs_are() -> None:
    if not by_pairs():
        pytest.skip("this processor has no AVX512-BF16")
    net = Net()
    x, filters = net.data(1, 4, 9, 9), net.parameter(20, 4, 3, 3)
    y = net.op("relu", "Out", {"X": net.conv(x, filters)})
    run(net, net.op("mul", "Out", {"X": y, "Y": net.parameter(20 * 49, 10)}))
    kinds = [kernel_call.kind.name for kernel_call in compiled_of(net).kernel_calls]
    assert kinds == ["NARROW", "PAIRS", "UNBLOCK", "NARROW", "PAIRS"]


@pytest.mark.parametrize("instructions", ["avx512_bf16", "avx512", "avx2", "portable"])
def test_other_instructions(instructions: str) -> None:
    """Another process, as instructions are chosen once: the tests of this file, on what every processor has."""
    environment = child_environment(FLUIDTOOL_INSTRUCTIONS=instructions)
    if os.environ.get("FLUIDTOOL_INSTRUCTIONS"):
        pytest.skip("run by itself")
    found = library()
    assert found is not None
    if not found.handle.ft_use_instructions(instructions.encode()):
        pytest.skip(f"this build of the engine has no {instructions} for this processor")
    found.handle.ft_use_instructions(found.instructions.encode())
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-x",
        "-p",
        "no:cacheprovider",
        __file__,
        "-k",
        "product or convolution or add",
    ]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
