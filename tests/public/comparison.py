"""How far what one engine fetched is from what the other did."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import accumulate, islice, zip_longest
from typing import Any

FIRST = 5  # runs with fetched values that count
FIRST_ROUNDED = 1e-3  # a hundred layers lose three digits
SLACK = 10.0  # two ways of rounding are not the same draw of luck


def differences(ours: list[list[Any]], theirs: list[list[Any]]) -> list[float]:
    """The largest difference in each of the first runs with fetched values, of the value's largest number."""
    return [_apart(a, b) for a, b in islice(zip(filter(None, ours), filter(None, theirs), strict=False), FIRST)]


def same(ours: list[list[Any]], theirs: list[list[Any]]) -> bool:
    """Whether the first runs fetch the very same values."""
    apart = differences(ours, theirs)
    return bool(apart) and not any(apart)


def within(apart: list[float], sensitivity: Sequence[float], tolerance: float, repeats: bool = False) -> bool:
    """Whether no run differs by more than the tolerance, or by more than rounding makes of parameters an ulp apart up to there.

    What is far apart in its first run already is rounded otherwise only if it repeats itself without a move: else it draws
    numbers, or takes its data in another order.
    """
    grown = accumulate(sensitivity if repeats or is_rounding(sensitivity) else [], max)
    return all(a <= max(tolerance, SLACK * b) for a, b in zip_longest(apart, grown, fillvalue=0.0))


def is_rounding(sensitivity: Sequence[float]) -> bool:
    """Whether an ulp in the parameters is still small in the first run."""
    return bool(sensitivity) and sensitivity[0] <= FIRST_ROUNDED


def _apart(ours: Any, theirs: Any) -> float:
    if isinstance(ours, list) and isinstance(theirs, list):
        if len(ours) != len(theirs):
            return math.inf
        return max((_apart(a, b) for a, b in zip(ours, theirs, strict=True)), default=0.0)
    if isinstance(ours, tuple) and isinstance(theirs, tuple):
        return _numbers_apart(ours[2], theirs[2]) if ours[0] == theirs[0] else math.inf
    return 0.0 if ours == theirs else math.inf


def _numbers_apart(ours: list[float], theirs: list[float]) -> float:
    scale = max((abs(number) for number in theirs if math.isfinite(number)), default=0.0) or 1.0
    return max((_number_apart(a, b) for a, b in zip(ours, theirs, strict=True)), default=0.0) / scale


def _number_apart(a: float, b: float) -> float:
    if a == b or (math.isnan(a) and math.isnan(b)):
        return 0.0
    return abs(a - b) if math.isfinite(a) and math.isfinite(b) else math.inf
