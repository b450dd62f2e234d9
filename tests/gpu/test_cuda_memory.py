"""Generated kernels stay within their arrays, and read pieces where they are aligned, for shapes and places of any kind.

The stand-in raises an error that names the kernel for any that does not.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fluidtool.runtime.engines.cuda.calls import Buffer, Place, row_major
from fluidtool.runtime.engines.cuda.training import sequences  # noqa: F401  (what lowers rows that are taken)
from fluidtool.runtime.graph.importers.registry import ADD
from fluidtool.runtime.graph.ir import Node, UnsupportedError, Value
from tests.gpu.test_cuda_lanes import binary, computed, exp, rounded, some

LIMITS = settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
HALVES = st.sampled_from(["", "bf16", "fp16"])
SIZES = st.sampled_from([1, 2, 3, 4, 5, 7, 8, 12, 16, 17, 24, 33])
SHAPES = st.lists(SIZES, min_size=1, max_size=3).map(tuple)


@pytest.fixture(autouse=True)
def _standin(cupy: Any) -> None:
    """On the stand-in."""


@LIMITS
@given(
    shape=SHAPES, offset=st.integers(0, 9), gap=st.integers(0, 5), half=HALVES, role=st.sampled_from(["input", "state"])
)
def test_arrays_that_begin_anywhere(shape: tuple[int, ...], offset: int, gap: int, half: str, role: str) -> None:
    wide = (*shape[:-1], shape[-1] + gap)
    last = sum((size - 1) * step for size, step in zip(shape, row_major(wide), strict=True))
    place = Place(Buffer(offset + last + 1, role), row_major(wide), offset)
    x, array = Value("x", shape), some(*shape)
    kept = exp(x)
    found, _ = computed({x: array}, [kept, binary(kept.output, kept.output)], half, places={x: place}, role=role)
    np.testing.assert_allclose(found, 2 * rounded(np.exp(array), half), rtol=1e-6)


@LIMITS
@given(rows=SIZES, widths=st.lists(SIZES, min_size=2, max_size=4), start=st.integers(0, 8), half=HALVES)
def test_parts_of_what_was_put_together(rows: int, widths: list[int], start: int, half: str) -> None:
    parts = [Value(f"x{number}", (rows, width)) for number, width in enumerate(widths)]
    arrays = {part: some(*part.shape) for part in parts}
    start = min(start, sum(widths) - 1)
    whole = Node("concat", parts, Value("whole", (rows, sum(widths))), {"axis": 1})
    size = sum(widths) - start
    part = Node("slice", [whole.output], Value("part", (rows, size)), {"starts": [0, start], "sizes": [rows, size]})
    found, _ = computed(arrays, [whole, part, exp(part.output)], half)
    want = rounded(np.concatenate(list(arrays.values()), 1), half)[:, start:]
    np.testing.assert_allclose(found, np.exp(want), rtol=2e-2 if half else 1e-6)


@LIMITS
@given(shape=st.tuples(SIZES, SIZES, SIZES), axis=st.integers(0, 2), half=HALVES)
def test_broadcast_along_any_axis(shape: tuple[int, ...], axis: int, half: str) -> None:
    wide = tuple(size if at == axis else 1 for at, size in enumerate(shape))
    x, y, of_x, of_y = Value("x", shape), Value("y", (shape[axis],)), some(*shape), some(shape[axis])
    attrs = {"operation": ADD, "y_shape": wide}
    found, _ = computed({x: of_x, y: of_y}, [Node("binary", [x, y], Value("sum", shape), attrs)], half)
    np.testing.assert_allclose(found, of_x + of_y.reshape(wide), rtol=1e-6)


@LIMITS
@given(rows=SIZES, count=st.integers(1, 300), half=HALVES, kind=st.sampled_from(["softmax", "layer_norm", "reduce"]))
def test_rows_of_any_length(rows: int, count: int, half: str, kind: str) -> None:
    attrs = {
        "softmax": {"factor": 1.0, "mask_shape": None},
        "layer_norm": {"matrix": (rows, count), "scale": some(count), "shift": some(count), "epsilon": 1e-5},
        "reduce": {"sizes": (rows, count, 1), "how": 2},
    }[kind]
    x, array = Value("x", (rows, count)), some(rows, count)
    kept = exp(x)
    node = Node(kind, [kept.output], Value("y", (rows, 1 if kind == "reduce" else count)), attrs)
    found, _ = computed({x: array}, [kept, node], half)
    assert np.isfinite(found).all()
    if kind == "reduce":
        np.testing.assert_allclose(found[:, 0], np.exp(array).max(1), rtol=1e-2 if half else 1e-6)


@pytest.mark.parametrize(("count", "fits"), [(511, True), (512, False)])
def test_kernels_take_as_many_arrays_as_cuda_allows(count: int, fits: bool) -> None:
    parts = [Value(f"x{number}", (1, 1)) for number in range(count)]
    whole = Node("concat", parts, Value("whole", (1, count)), {"axis": 1})
    arrays = {part: np.full((1, 1), number, np.float32) for number, part in enumerate(parts)}
    if fits:
        assert computed(arrays, [whole])[0].tolist() == [list(range(count))]
    else:
        with pytest.raises(UnsupportedError, match="more than 511 arrays in one kernel"):
            computed(arrays, [whole])


def test_rows_that_are_not_there_are_not_read() -> None:
    x, array = Value("x", (3, 8)), some(3, 8)
    attrs = {"rows": np.array([-1, 2, -1, 0]), "divisors": None}
    found, (kernel,) = computed({x: array}, [Node("taken", [x], Value("y", (4, 8)), attrs)])
    np.testing.assert_array_equal(found, np.stack([np.zeros(8), array[2], np.zeros(8), array[0]]))
    assert ">= 0) ft_get_float<4>" in kernel.source
