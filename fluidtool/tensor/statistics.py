"""Statistics of arrays, in float64 and by chunks, so that large weights need no copy of themselves."""

from __future__ import annotations

from collections.abc import Iterator
from math import sqrt
from typing import Any

import numpy as np

from fluidtool.records import dataclass

CHUNK = 1 << 20


@dataclass(frozen=True, slots=True)
class Statistics:
    """Of the finite elements: least, greatest, mean, standard deviation (None when there are none), and zeros; and
    how many elements are NaN or infinite.
    """

    elements: int
    minimum: float | int | None
    maximum: float | int | None
    mean: float | None
    deviation: float | None
    zeros: int
    nans: int
    infinities: int


def statistics(array: Any) -> Statistics:
    """The statistics of an array of any shape and data type; complex numbers count by their absolute value."""
    flat = np.asarray(array).reshape(-1)
    zeros = nans = infinities = finite = 0
    total = 0.0
    low: Any = None
    high: Any = None
    for chunk in _chunks(flat):
        numbers = _numbers(chunk)
        if numbers.dtype.kind == "f":
            usable = np.isfinite(numbers)
            nans += int(np.isnan(numbers).sum())
            infinities += int(np.isinf(numbers).sum())
            numbers = numbers if usable.all() else numbers[usable]
        zeros += int(numbers.size - np.count_nonzero(numbers))
        if numbers.size:
            finite += numbers.size
            total += float(numbers.sum(dtype=np.float64))
            least, most = numbers.min().item(), numbers.max().item()
            low = least if low is None else min(low, least)
            high = most if high is None else max(high, most)
    if not finite:
        return Statistics(flat.size, None, None, None, None, zeros, nans, infinities)
    mean = total / finite
    return Statistics(flat.size, low, high, mean, sqrt(_squares(flat, mean) / finite), zeros, nans, infinities)


def not_finite(array: Any) -> tuple[int, int]:
    """How many elements of an array of any data type are NaN, and how many infinite."""
    flat = np.asarray(array).reshape(-1)
    if flat.dtype.kind in "iub":
        return 0, 0
    nans = infinities = 0
    for chunk in _chunks(flat):
        strange = chunk[~np.isfinite(chunk)]
        found = int(np.count_nonzero(np.isnan(strange)))
        nans, infinities = nans + found, infinities + strange.size - found
    return nans, infinities


def _chunks(flat: np.ndarray[Any, Any]) -> Iterator[np.ndarray[Any, Any]]:
    for begin in range(0, flat.size, CHUNK):
        yield flat[begin : begin + CHUNK]


def _numbers(chunk: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Integers as they are, everything else in float64."""
    if chunk.dtype.kind == "b":
        return chunk.astype(np.int8)
    if chunk.dtype.kind in "iu":
        return chunk
    return np.abs(chunk) if chunk.dtype.kind == "c" else chunk.astype(np.float64)


def _squares(flat: np.ndarray[Any, Any], mean: float) -> float:
    total = 0.0
    for chunk in _chunks(flat):
        numbers = _numbers(chunk).astype(np.float64)
        numbers = numbers[np.isfinite(numbers)] - mean
        total += float(numbers @ numbers)
    return total
