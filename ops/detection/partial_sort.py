"""The order in which the C++ library's partial_sort leaves scores, equal ones included (libstdc++, GCC 4.8 to 14)."""

from __future__ import annotations

from typing import Any


def best_first(np: Any, scores: Any, count: int) -> Any:
    """Positions of the `count` highest of the scores [N] (-1: of all), from high to low; equal ones in the order that
    std::partial_sort leaves, to which no other score is higher or lower than NaN.
    """
    count = len(scores) if count < 0 else min(count, len(scores))
    order = np.arange(len(scores))
    if 0 < count < len(scores) // 2:  # what scores less than the one at `count` need not be sorted
        last = len(scores) - count
        order = np.flatnonzero(scores >= np.partition(scores, last)[last])
    order = order[np.argsort(-scores[order], kind="stable")]
    reached = scores[order[: count + 1]]  # one more: it may equal the last
    if (reached[1:] < reached[:-1]).all() and not np.isnan(scores).any():
        return order[:count]
    return np.asarray(_partial_sort(scores.tolist(), count), "int64")


def _partial_sort(scores: list[float], count: int) -> list[int]:
    """A heap of the best `count` so far, with the worst of them at its root; then taken apart from the worst on."""
    heap = list(range(count))
    for hole in range(count // 2 - 1, -1, -1):
        _sift(scores, heap, hole, count, heap[hole])
    for other in range(count, len(scores)):
        if count and scores[other] > scores[heap[0]]:
            _sift(scores, heap, 0, count, other)
    for end in range(count - 1, 0, -1):
        last, heap[end] = heap[end], heap[0]
        _sift(scores, heap, 0, end, last)
    return heap


def _sift(scores: list[float], heap: list[int], hole: int, size: int, item: int) -> None:
    """Move the hole down to a leaf, along the lower child, and the item up from there to its place."""
    top = hole
    while 2 * hole + 2 < size:
        right, left = 2 * hole + 2, 2 * hole + 1
        child = left if scores[heap[right]] > scores[heap[left]] else right
        heap[hole], hole = heap[child], child
    if 2 * hole + 2 == size:
        heap[hole], hole = heap[size - 1], size - 1
    while hole > top and scores[heap[(hole - 1) // 2]] > scores[item]:
        heap[hole], hole = heap[(hole - 1) // 2], (hole - 1) // 2
    heap[hole] = item
