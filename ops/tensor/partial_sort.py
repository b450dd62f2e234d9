"""The order in which C++'s partial_sort leaves equal numbers.

Real Paddle selects the largest k numbers with std::partial_sort, which is not stable: which of several equal numbers it
takes, and in what order, follows from how its heap moves. Rows with such numbers repeat these moves here, on the host.
"""

from __future__ import annotations

from typing import Any


def partial_sort(row: Any, k: int) -> list[int]:
    """The places of the k largest numbers of a host array of one dimension, largest first."""
    heap = list(range(k))
    for top in range((k - 2) // 2, -1, -1):
        _sink(row, heap, top, k, heap[top])
    place = k
    while True:
        larger = (row[place:] > row[heap[0]]).nonzero()[0]
        if not len(larger):
            break
        place += int(larger[0])
        _sink(row, heap, 0, k, place)
        place += 1
    for last in range(k - 1, 0, -1):
        value, heap[last] = heap[last], heap[0]
        _sink(row, heap, 0, last, value)
    return heap


def _sink(row: Any, heap: list[int], top: int, size: int, value: int) -> None:
    """Put `value` in at `top`: smaller children move up along the way to the bottom, then it rises again."""
    hole = child = top
    while child < (size - 1) // 2:
        child = 2 * (child + 1)
        if row[heap[child]] > row[heap[child - 1]]:
            child -= 1
        heap[hole] = heap[child]
        hole = child
    if size % 2 == 0 and child == (size - 2) // 2:
        child = 2 * child + 1
        heap[hole] = heap[child]
        hole = child
    parent = (hole - 1) // 2
    while hole > top and row[heap[parent]] > row[value]:
        heap[hole] = heap[parent]
        hole, parent = parent, (parent - 1) // 2
    heap[hole] = value
