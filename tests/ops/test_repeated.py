"""One operand repeated along another: the usual bits, and numpy's buffer as it was."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fluidtool.ops.math.repeated import LARGE, SMALLEST_BUFFER, repeated, row_length

RNG = np.random.default_rng(0)
WHOLE = RNG.standard_normal((2, 96, 20, 20)).astype(np.float32)


@pytest.mark.parametrize("shape", [(1, 96, 1, 1), (2, 1, 20, 20), (20, 20), (96, 1, 1), (2, 96, 20, 1), (1, 1, 1, 1)])
@pytest.mark.parametrize("function", [np.add, np.subtract, np.multiply, np.divide])
def test_the_bits_are_those_of_the_function(function: Any, shape: tuple[int, ...]) -> None:
    other = RNG.standard_normal(shape).astype(np.float32)
    assert WHOLE.size >= LARGE
    np.testing.assert_array_equal(repeated(np, function, WHOLE, other), function(WHOLE, other))
    np.testing.assert_array_equal(repeated(np, function, other, WHOLE), function(other, WHOLE))
    out = WHOLE.copy()
    assert repeated(np, function, out, other, out=out) is out
    np.testing.assert_array_equal(out, function(WHOLE, other))


def test_both_may_be_repeated() -> None:
    x, y = np.repeat(WHOLE[:, :, :1], 40, axis=0), WHOLE[:1, :1]
    assert x.size >= LARGE
    np.testing.assert_array_equal(repeated(np, np.add, x, y), x + y)


def test_the_buffer_is_small_meanwhile_and_then_as_before() -> None:
    sizes = []

    def look(x: Any, y: Any, out: Any = None) -> Any:
        sizes.append(np.getbufsize())
        raise ValueError("no")

    before = np.getbufsize()
    with pytest.raises(ValueError, match="no"):
        repeated(np, look, WHOLE, WHOLE[:1, :, :1, :1])
    with pytest.raises(ValueError, match="no"):
        repeated(np, look, WHOLE[:1], WHOLE[:1, :, :1, :1])
    assert sizes == [SMALLEST_BUFFER, before] and np.getbufsize() == before


@pytest.mark.parametrize(
    ("whole", "other", "length"),
    [
        (WHOLE, WHOLE[:1, :, :1, :1], 400),
        (WHOLE, WHOLE[:1], 96 * 400),
        (WHOLE, WHOLE[:, :, :, :1], 20),
        (WHOLE[..., :19], WHOLE[:1, :1, :1, :1], 19),  # rows that do not touch
        (WHOLE.transpose(0, 2, 3, 1), WHOLE[:1, :1, :1, :1], 1),
        (WHOLE[:, :, :1, :1], WHOLE[:1, :1, :1, :1], 1),
    ],
)
def test_rows_end_where_memory_or_repetition_changes(whole: Any, other: Any, length: int) -> None:
    assert row_length(whole, other) == length
