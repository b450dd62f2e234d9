"""Layered layout of a graph without cycles: ranks from top to bottom, few crossings, straight long edges.

The steps are those of Sugiyama, Tagawa and Toda (1981): `ranking.py` gives every node its rank, `routing.py` leads long edges
through waypoints, `ordering.py` orders each rank, `positions.py` finds coordinates. Work is bounded by the size of the graph.
"""

from __future__ import annotations

from collections.abc import Sequence

from fluidtool.drawing.layout.ordering import order_ranks
from fluidtool.drawing.layout.positions import place
from fluidtool.drawing.layout.ranking import rank_nodes
from fluidtool.drawing.layout.routing import Bundle, Route, Size, Web, route
from fluidtool.records import dataclass

RANK_GAP = 40.0  # between the lower edge of a rank and the upper edge of the next


@dataclass(frozen=True, slots=True)
class Layout:
    """Where everything is. Items are the nodes, then the waypoints of long edges; x and y are their centers.

    ranks: the items of each rank from left to right. tops, bottoms: the edges of each rank. routes: of the bundles.
    """

    x: tuple[float, ...]
    y: tuple[float, ...]
    ranks: tuple[tuple[int, ...], ...]
    tops: tuple[float, ...]
    bottoms: tuple[float, ...]
    routes: tuple[Route, ...]


def lay_out(sizes: Sequence[Size], bundles: Sequence[Bundle]) -> Layout:
    """Place nodes of these (width, height) so that every bundle goes downward and nothing overlaps.

    Targets have higher numbers than their sources.
    """
    rank = rank_nodes(len(sizes), bundles)
    web = route(sizes, bundles, rank)
    ranks = order_ranks(web)
    x = place(web, ranks)
    tops, bottoms = _heights(ranks, web)
    y = [0.0] * len(web.sizes)
    for items, top, bottom in zip(ranks, tops, bottoms, strict=True):
        for item in items:
            y[item] = (top + bottom) / 2
    return Layout(tuple(x), tuple(y), tuple(map(tuple, ranks)), tops, bottoms, web.routes)


def _heights(ranks: Sequence[Sequence[int]], web: Web) -> tuple[tuple[float, ...], tuple[float, ...]]:
    tops, bottoms, y = [], [], 0.0
    for items in ranks:
        tops.append(y)
        y += max((web.sizes[item][1] for item in items), default=0.0)
        bottoms.append(y)
        y += RANK_GAP
    return tuple(tops), tuple(bottoms)


__all__ = ["RANK_GAP", "Bundle", "Layout", "Route", "Size", "lay_out"]
