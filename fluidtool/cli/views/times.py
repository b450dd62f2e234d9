"""The times of repeated runs in a few numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from fluidtool.cli.render import number

if TYPE_CHECKING:
    from fluidtool.report.common import Times


def statistics(seconds: Sequence[float]) -> Times:
    """How many runs; of their seconds the least, median, 90th percentile, most, mean and standard deviation."""
    from statistics import fmean, pstdev  # with decimal and fractions

    ordered = sorted(seconds)

    def quantile(part: float) -> float:
        place = part * (len(ordered) - 1)
        low = int(place)
        high = min(low + 1, len(ordered) - 1)
        return ordered[low] + (ordered[high] - ordered[low]) * (place - low)

    return {
        "runs": len(ordered),
        "min": ordered[0],
        "median": quantile(0.5),
        "p90": quantile(0.9),
        "max": ordered[-1],
        "mean": fmean(ordered),
        "std": pstdev(ordered),
    }


def shown(times: Times) -> list[tuple[str, str]]:
    """The statistics as names and texts, times in milliseconds."""
    return [(name, milliseconds(value) if isinstance(value, float) else str(value)) for name, value in times.items()]


def milliseconds(seconds: float) -> str:
    """'12.5 ms'."""
    return f"{number(seconds * 1000)} ms"
