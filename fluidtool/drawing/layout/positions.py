"""Coordinates by Brandes and Köpf (Fast and Simple Horizontal Coordinate Assignment, 2001): linear in the size of the graph.

Items are aligned with the median of their neighbors in four ways: with the rank above or below, from the left or from the right.
Each way places blocks of aligned items as close as they may be; an item gets the average of the two middle results. Each result
keeps the distances within a rank, and so does that average.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from fluidtool.drawing.layout.routing import Web

NODE_GAP, LINE_GAP = 28.0, 16.0

Ranks = Sequence[Sequence[int]]
Conflicts = set[tuple[int, int]]


def place(web: Web, ranks: Ranks) -> list[float]:
    """The center of each item; the leftmost edge is at 0."""
    conflicts = _conflicts(web, ranks)
    results = []
    for neighbors, order in ((web.above, ranks), (web.below, ranks[::-1])):
        for mirrored in (False, True):
            rows = [list(items)[::-1] for items in order] if mirrored else order
            found = _compacted(web, rows, _aligned(web, rows, neighbors, conflicts))
            results.append([-x for x in found] if mirrored else found)
    return _balanced(web, results)


def _conflicts(web: Web, ranks: Ranks) -> Conflicts:
    """Connections, as (lower, upper), that cross a part of a long edge between two waypoints: long edges stay straight."""
    found: Conflicts = set()
    for upper, lower in pairwise(ranks):
        place = {item: position for position, item in enumerate(upper)}
        left, begun = 0, 0
        for position, item in enumerate(lower):
            inner = next((a for a in web.above[item] if web.is_waypoint(item) and web.is_waypoint(a)), None)
            if inner is None and position + 1 < len(lower):
                continue
            right = len(upper) if inner is None else place[inner]
            for other in lower[begun : position + 1]:
                found.update(
                    (other, near)
                    for near in web.above[other]
                    if not left <= place[near] <= right and not (web.is_waypoint(other) and web.is_waypoint(near))
                )
            left, begun = right, position + 1
    return found


def _aligned(web: Web, ranks: Ranks, neighbors: Sequence[Sequence[int]], conflicts: Conflicts) -> list[int]:
    """For each item the first item of its block."""
    place = [0] * len(web.rank)
    root, taken = list(range(len(web.rank))), [False] * len(web.rank)
    for items in ranks:
        last = -1
        for item in items:
            near = sorted(neighbors[item], key=place.__getitem__)
            for other in near[(len(near) - 1) // 2 : len(near) // 2 + 1]:
                free = not taken[other] and place[other] > last
                if free and (item, other) not in conflicts and (other, item) not in conflicts:
                    root[item], taken[other], last = root[other], True, place[other]
                    break
        for position, item in enumerate(items):
            place[item] = position
    return root


def _compacted(web: Web, ranks: Ranks, root: Sequence[int]) -> list[float]:
    """Blocks as far to the left as they may be, then to the right as far as that does not push others."""
    right: dict[int, dict[int, float]] = {block: {} for block in dict.fromkeys(root)}
    waits = dict.fromkeys(right, 0)
    for items in ranks:
        for one, other in pairwise(items):
            apart, pair = _distance(web, one, other), right[root[one]]
            waits[root[other]] += root[other] not in pair
            pair[root[other]] = max(pair.get(root[other], 0.0), apart)
    x = dict.fromkeys(right, 0.0)
    ready = [block for block, count in waits.items() if not count]
    for block in ready:  # grows meanwhile
        for other, apart in right[block].items():
            x[other] = max(x[other], x[block] + apart)
            waits[other] -= 1
            if not waits[other]:
                ready.append(other)
    for block in reversed(ready):
        if right[block]:
            x[block] = max(x[block], min(x[other] - apart for other, apart in right[block].items()))
    return [x[block] for block in root]


def _distance(web: Web, one: int, other: int) -> float:
    """Between the centers of two neighbors in a rank."""
    gap = LINE_GAP if web.is_waypoint(one) or web.is_waypoint(other) else NODE_GAP
    return (web.sizes[one][0] + web.sizes[other][0]) / 2 + gap


def _balanced(web: Web, results: Sequence[list[float]]) -> list[float]:
    half = [width / 2 for width, _ in web.sizes]
    spans = [
        (
            min((x - h for x, h in zip(xs, half, strict=True)), default=0.0),
            max((x + h for x, h in zip(xs, half, strict=True)), default=0.0),
        )
        for xs in results
    ]
    least, most = min(spans, key=lambda span: span[1] - span[0])
    moved = [
        [x + (most - span[1] if number % 2 else least - span[0]) for x in xs]
        for number, (xs, span) in enumerate(zip(results, spans, strict=True))
    ]
    middle = [sum(sorted(four)[1:3]) / 2 for four in zip(*moved, strict=True)]
    edge = min((x - h for x, h in zip(middle, half, strict=True)), default=0.0)
    return [round(x - edge, 2) for x in middle]
