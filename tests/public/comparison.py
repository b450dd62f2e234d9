"""How far what one engine fetched is from what the other did."""

from __future__ import annotations

import math
from typing import Any

FIRST = 5  # runs with fetched values that count


def difference(ours: list[list[Any]], theirs: list[list[Any]]) -> tuple[int, float]:
    """How many runs with fetched values were compared, and the largest difference in them, of the value's largest number."""
    pairs = list(zip(filter(None, ours), filter(None, theirs), strict=False))[:FIRST]
    return len(pairs), max((_apart(a, b) for a, b in pairs), default=0.0)


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
