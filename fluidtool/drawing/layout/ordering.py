"""The order within each rank: sweeps that put every item at the average place of its neighbors, down and up in turn."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Sequence

from fluidtool.drawing.layout.routing import Web

SWEEPS, FEW = 12, 2
LARGE = 20_000  # items, from which on there are few sweeps


def order_ranks(web: Web) -> list[list[int]]:
    """The items of each rank from left to right, with few crossings."""
    ranks: list[list[int]] = [[] for _ in range(max(web.rank, default=-1) + 1)]
    for item in _as_discovered(web):
        ranks[web.rank[item]].append(item)
    best, least = ranks, crossings(web, ranks)
    idle = 0
    for sweep in range(SWEEPS if len(web.rank) < LARGE else FEW):
        if not least or idle == 4:
            break
        ranks = _swept(web, ranks, down=sweep % 2 == 0)
        found = crossings(web, ranks)
        idle = 0 if found < least else idle + 1
        if found < least:
            best, least = ranks, found
    return best


def _as_discovered(web: Web) -> list[int]:
    """Depth first from the first nodes: what belongs together starts side by side."""
    seen, order = [False] * len(web.rank), []
    for start in range(web.nodes):
        stack = [start]
        while stack:
            item = stack.pop()
            if not seen[item]:
                seen[item] = True
                order.append(item)
                stack.extend(reversed(web.below[item]))
    return order


def _swept(web: Web, ranks: Sequence[Sequence[int]], *, down: bool) -> list[list[int]]:
    neighbors = web.above if down else web.below
    place = [0.0] * len(web.rank)
    result: list[list[int]] = [list(items) for items in ranks]
    for number in range(len(ranks)) if down else reversed(range(len(ranks))):
        items = result[number]
        if len(items) > 1:
            items.sort(key=_averages(items, neighbors, place).__getitem__)
        for position, item in enumerate(items):
            place[item] = position
    return result


def _averages(items: Sequence[int], neighbors: Sequence[Sequence[int]], place: Sequence[float]) -> dict[int, float]:
    """The average place of each item's neighbors; an item without any stays beside the one before it."""
    averages, before = {}, 0.0
    for item in items:
        near = neighbors[item]
        before = averages[item] = sum([place[each] for each in near]) / len(near) if near else before
    return averages


def crossings(web: Web, ranks: Sequence[Sequence[int]]) -> int:
    """How many pairs of connections between neighboring ranks cross."""
    place = [0] * len(web.rank)
    for items in ranks:
        for position, item in enumerate(items):
            place[item] = position
    return sum(
        _inversions([lower for item in items for lower in sorted([place[b] for b in web.below[item]])])
        for items in ranks
    )


def _inversions(places: Sequence[int]) -> int:
    passed: list[int] = []
    count = 0
    for position, place in enumerate(places):
        count += position - _not_after(passed, place)
        insort(passed, place)
    return count


def _not_after(passed: Sequence[int], place: int) -> int:
    return bisect_left(passed, place + 1)
