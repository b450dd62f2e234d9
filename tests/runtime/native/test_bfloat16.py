"""With the precision bf16 weights are rounded to bfloat16, and nothing else changes."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fluidtool.runtime import Executor
from fluidtool.runtime.engines.native.bfloat16 import rounded
from fluidtool.runtime.engines.native.library import library
from fluidtool.runtime.engines.native.stretches import Stretch
from fluidtool.tensor import LoDTensor
from tests.runtime.native.checking import RTOL, Array, Net

pytestmark = pytest.mark.usefixtures("native")
few = settings(max_examples=60, deadline=None)
ONE = 2.0**-7  # between 1 and the next bfloat16


def run(net: Net, *fetches: str, engine: str = "native", precision: str = "bf16") -> list[Array]:
    executor = Executor(engine=engine, precision=precision)
    values = executor.run(net.program, net.feeds, list(fetches), net.scope)
    net.plan = executor.plan(net.program, list(fetches)).block(0)
    return [value.numpy() for value in values]


def check(net: Net, weights: list[str], *fetches: str, scale: float = 1e-30) -> None:
    """What the native engine gives by bf16 is what numpy gives by weights that were rounded before."""
    for _ in range(2):  # the second run finds the arena used
        got = run(net, *fetches)
    assert net.why_not() == [] and net.stretches() == len(net.plan.work) == 1
    for name in weights:
        variable = net.scope.find_var(name)
        assert variable is not None
        variable.value = LoDTensor(rounded(variable.value.numpy()))
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


def stored(numbers: Array) -> Array:
    """What the library keeps of weights, made wide again: products of the unit matrix."""
    found = library()
    assert found is not None
    net, width = Net(), found.width
    x, w = net.data(len(numbers), len(numbers), of=np.eye(len(numbers), dtype=np.float32)), net.parameter(of=numbers)
    y = net.op("mul", "Out", {"X": x, "Y": w})
    run(net, y)
    (stretch,) = (step for step in net.plan.work if isinstance(step, Stretch))
    (form,) = stretch.forms.values()
    compiled: Any = form.compiled
    (draft,) = (draft for draft in compiled.drafts if draft.kind.name == "PRODUCT")
    bits = draft.pointers[1][0].array.view(np.uint16)
    assert numbers.shape[1] < width  # one block, row by row
    wide: Array = (bits.astype(np.uint32) << 16).view(np.float32)[: len(numbers) * width]
    return wide.reshape(len(numbers), width)[:, : numbers.shape[1]]


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
    w = net.parameter(depth, columns)
    y = net.op("mul", "Out", {"X": net.data(rows, depth), "Y": w})
    if bias:
        y = net.op("elementwise_add", "Out", {"X": y, "Y": net.parameter(columns)}, axis=1)
    check(net, [w], y, scale=depth**0.5)


@pytest.mark.parametrize(("rows", "depth", "columns"), [(1, 3000, 33), (5, 769, 130), (150, 1000, 17), (300, 385, 96)])
def test_product_of_several_panels(rows: int, depth: int, columns: int) -> None:
    net = Net()
    w = net.parameter(depth, columns)
    y = net.op("mul", "Out", {"X": net.data(rows, depth), "Y": w})
    check(net, [w], net.op("relu", "Out", {"X": y}), scale=depth**0.5)


@pytest.mark.parametrize("swap", [False, True])
def test_matmul_by_a_parameter(swap: bool) -> None:
    net = Net()
    w = net.parameter(*((21, 35) if swap else (35, 21)))
    y = net.op("matmul", "Out", {"X": net.data(2, 9, 35), "Y": w}, transpose_Y=swap)
    check(net, [w], y, scale=6)


def test_fc_with_a_residual() -> None:
    net = Net()
    w, shortcut = net.parameter(50, 50), net.data(7, 50)
    y = net.op("fc", "Out", {"Input": net.data(7, 50), "W": w, "Bias": net.parameter(1, 50)}, in_num_col_dims=1)
    check(net, [w], net.op("elementwise_add", "Out", {"X": y, "Y": shortcut}))


def test_products_of_the_same_rows() -> None:
    net = Net()
    x, weights = net.data(2, 5, 40), [net.parameter(40, columns) for columns in (32, 64, 32)]
    check(net, weights, *(net.op("relu", "Out", {"X": net.op("mul", "Out", {"X": x, "Y": w}, x_num_col_dims=2)})
                          for w in weights))  # fmt: skip


def test_computed_matrices_stay_float32() -> None:
    net = Net()
    check(net, [], net.op("matmul", "Out", {"X": net.data(2, 9, 35), "Y": net.data(2, 35, 21)}), scale=6)


def test_weights_of_products_take_half_the_memory() -> None:
    sizes = []
    for precision in ("float32", "bf16"):
        net = Net()
        y = net.op("mul", "Out", {"X": net.data(3, 64), "Y": net.parameter(64, 96)})
        run(net, y, precision=precision)
        (stretch,) = (step for step in net.plan.work if isinstance(step, Stretch))
        (form,) = stretch.forms.values()
        compiled: Any = form.compiled
        sizes.append(sum(array.nbytes for array in compiled.keep))
    assert sizes == [4 * 64 * 96, 2 * 64 * 96]


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
    check(net, [w], y, scale=(channels * prod(window)) ** 0.5)


KINDS: dict[str, tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = {
    "by Winograd's method": ((1, 32, 14, 14), (32, 32, 3, 3), {"paddings": [1, 1]}),
    "one filter a channel": ((2, 19, 9, 9), (19, 1, 3, 3), {"groups": 19, "paddings": [1, 1]}),
    "groups": ((1, 32, 7, 7), (48, 16, 3, 3), {"groups": 2, "dilations": [2, 2]}),
    "groups put together": ((1, 32, 7, 7), (32, 4, 3, 3), {"groups": 8}),
}


@pytest.mark.parametrize(("image", "filters", "attrs"), KINDS.values(), ids=KINDS)
def test_convolutions(image: tuple[int, ...], filters: tuple[int, ...], attrs: dict[str, Any]) -> None:
    net = Net()
    w = net.parameter(*filters)
    check(net, [w], net.conv(net.data(*image), w, **attrs))


def test_transposed_convolution() -> None:
    net = Net()
    w = net.parameter(10, 12, 3, 3)
    attrs = {"strides": [2, 2], "paddings": [1, 1], "dilations": [1, 1], "groups": 1}
    check(net, [w], net.op("conv2d_transpose", "Output", {"Input": net.data(1, 10, 6, 6), "Filter": w}, **attrs))


@pytest.mark.parametrize("groups", [1, 16])
def test_weights_are_rounded_after_normalisation_is_folded_in(groups: int) -> None:
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
    z = alone.conv(alone.data(of=net.feeds[x]), alone.parameter(of=rounded(filters * np.float32(3))), groups=groups)
    (want,) = run(alone, z, engine="numpy", precision="float32")
    np.testing.assert_allclose(got, want + 0.5, rtol=0, atol=RTOL * float(np.abs(want).max()))
