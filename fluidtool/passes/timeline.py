"""Which of many buffers are in use when: a segment tree over positions, with the buffers of each part as bits of a number."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable

from fluidtool.passes.liveness import Span

Mask = int  # buffers, as the bits of a number


def lowest(mask: Mask) -> int:
    """The number of the first buffer of a mask that is not 0."""
    return (mask & -mask).bit_length() - 1


class Timeline:
    """Takes buffers for spans of positions, and finds who has taken which; spans begin and end as those given at first.

    A node of the tree has two masks: of the buffers that are in use all over its part, and of those in use anywhere in it.
    """

    def __init__(self, spans: Iterable[Span]) -> None:
        self._positions = sorted({position for span in spans for position in span})
        self._leaves = len(self._positions) and 1 << (len(self._positions) - 1).bit_length()
        self._throughout = [0] * (2 * self._leaves)
        self._somewhere = [0] * (2 * self._leaves)

    def take(self, first: int, last: int, mask: Mask) -> None:
        """Have buffers in use from one position to another, both included."""
        low, high = self._leaf(first), self._leaf(last)
        for node in _cover(low, high):
            self._throughout[node] |= mask
            self._somewhere[node] |= mask
        for leaf in (low, high):
            for node in _above(leaf):
                self._somewhere[node] |= mask

    def taken(self, first: int, last: int) -> Mask:
        """The buffers in use anywhere between two positions, both included."""
        low, high, found = self._leaf(first), self._leaf(last), 0
        for node in _cover(low, high):
            found |= self._somewhere[node]
        for leaf in (low, high):
            for node in _above(leaf):
                found |= self._throughout[node]
        return found

    def last_before(self, position: int, mask: Mask) -> int | None:
        """The last position before this one where any of these buffers, all free at this one, is in use."""
        return self._nearest(self._leaf(position), mask, 1)

    def first_after(self, position: int, mask: Mask) -> int | None:
        """The first position after this one where any of these buffers, all free at this one, is in use."""
        return self._nearest(self._leaf(position), mask, 0)

    def _nearest(self, node: int, mask: Mask, side: int) -> int | None:
        """Up to the first part on the other side with one of the buffers, and down in it to the `side` (1: the right)."""
        while node > 1 and not (node & 1 == side and self._somewhere[node ^ 1] & mask):
            node >>= 1
        if node <= 1:
            return None
        node ^= 1
        throughout = 0
        while node < self._leaves:
            throughout |= self._throughout[node] & mask
            near = 2 * node + side
            node = near if throughout or self._somewhere[near] & mask else near ^ 1
        return self._positions[node - self._leaves]

    def _leaf(self, position: int) -> int:
        return self._leaves + bisect_left(self._positions, position)


def _cover(low: int, high: int) -> Iterable[int]:
    """The nodes that together are the leaves from one to another, both included."""
    high += 1
    while low < high:
        if low & 1:
            yield low
            low += 1
        if high & 1:
            high -= 1
            yield high
        low >>= 1
        high >>= 1


def _above(node: int) -> Iterable[int]:
    while node > 1:
        node >>= 1
        yield node
