"""The largest value of an activation to keep when it is rounded to 255 steps, by Kullback-Leibler divergence.

Paddle 1.8.5 contrib/slim/quantization/post_training_quantization.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

BINS, STEPS, FIRST = 2048, 255, int(2047 * 0.7)


def threshold(values: Any) -> float:
    """The end of the histogram of the absolute values that loses least when what is beyond it is cut off."""
    size = np.abs(np.asarray(values)).ravel()
    counts, edges = np.histogram(size, bins=BINS, range=(size.min(), size.max()))
    return (end_of_counts(counts) + 0.5) * float(edges[1] - edges[0])


def end_of_counts(counts: Any) -> int:
    """The bin, of BINS from 0 on, at which to cut off."""
    losses = dict(_losses(counts, int(counts.sum())))
    if losses:
        return min(losses, key=lambda end: losses[end])
    return max((number for number in range(FIRST + 1) if counts[number]), default=0)


def _losses(counts: Any, total: int) -> Iterator[tuple[int, float]]:
    """The divergence for every end of the histogram at which there are values."""
    for end in range(FIRST, BINS):
        if counts[end - 1]:
            yield end, _loss(counts[:end], int(counts[end:].sum()), total)


def _loss(counts: Any, beyond: int, total: int) -> float:
    """How far the counts are from what they are after rounding; what lies beyond counts for the last of them."""
    kept = counts.astype(np.float64)
    kept[-1] += beyond
    starts = np.arange(STEPS) * (len(counts) // STEPS)
    used = kept != 0
    filled = np.add.reduceat(used.astype(np.float64), starts)
    mean = np.add.reduceat(counts.astype(np.float64), starts) / np.maximum(filled, 1)
    spread = np.repeat(mean, np.diff([*starts, len(counts)]))[used]
    kept = kept[used]
    with np.errstate(divide="ignore"):
        return float((np.sum(kept * np.log(spread.sum() * kept)) - np.sum(kept * np.log(total * spread))) / total)
