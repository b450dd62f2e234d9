"""Sums, products and the like of two arrays of which one is repeated along the other."""

from __future__ import annotations

from itertools import zip_longest
from typing import Any

LONG_ROW, LARGE = 320, 1 << 16
"""Numbers in a row, and in all, from which reading the repeated operand where it lies pays; measured."""
SMALLEST_BUFFER = 16


def repeated(xp: Any, function: Any, x: Any, y: Any, out: Any = None) -> Any:
    """function(x, y) of arrays that broadcast, `function` a ufunc; into `out` where given. The same bits.

    If rows are shorter than its buffer, numpy repeatedly copies a repeated operand into it, which takes longer
    than the work. A small buffer prevents this.
    """
    set_buffer = getattr(xp, "setbufsize", None)
    whole, other = (x, y) if x.size >= y.size else (y, x)
    if set_buffer is None or whole.size < LARGE or x.shape == y.shape or row_length(whole, other) < LONG_ROW:
        return function(x, y, out=out)
    before = set_buffer(SMALLEST_BUFFER)
    try:
        return function(x, y, out=out)
    finally:
        set_buffer(before)


def row_length(whole: Any, other: Any) -> int:
    """How many numbers of `whole` lie side by side while `other` either goes along or is repeated."""
    length, along = 1, None
    shapes = zip_longest(reversed(whole.shape), reversed(other.shape), fillvalue=1)
    for (size, partner), stride in zip(shapes, reversed(whole.strides), strict=False):
        if size == partner == 1:
            continue
        if stride != length * whole.itemsize or size == 1 or along not in (None, partner == size):
            break
        length, along = length * size, partner == size
    return length
