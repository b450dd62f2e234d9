"""Ranks: the longest way from the top, then nodes with more targets than sources move down towards their targets."""

from __future__ import annotations

from collections.abc import Sequence

from fluidtool.drawing.layout.routing import Bundle


def rank_nodes(count: int, bundles: Sequence[Bundle]) -> list[int]:
    """The rank of each node; every target is at least one rank below its source."""
    sources: list[set[int]] = [set() for _ in range(count)]
    targets: list[set[int]] = [set() for _ in range(count)]
    for bundle in bundles:
        targets[bundle.source].update(bundle.targets)
        for target in bundle.targets:
            sources[target].add(bundle.source)
    rank = [0] * count
    for node in range(count):
        rank[node] = max((rank[source] + 1 for source in sources[node]), default=0)
    for node in reversed(range(count)):
        if len(targets[node]) > len(sources[node]):
            rank[node] = min(rank[target] for target in targets[node]) - 1
    return _without_gaps(rank)


def _without_gaps(rank: Sequence[int]) -> list[int]:
    numbers = {used: number for number, used in enumerate(sorted(set(rank)))}
    return [numbers[each] for each in rank]
