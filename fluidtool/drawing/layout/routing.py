"""Long edges lead through waypoints, one in each rank on their way; the targets of one bundle share them."""

from __future__ import annotations

from collections.abc import Sequence

from fluidtool.records import dataclass

Size = tuple[float, float]  # width, height
WAYPOINT: Size = (1.0, 0.0)
MOST_WAYPOINTS = 8  # for each node, on average
ALWAYS = 800  # waypoints that a graph of any size may have


@dataclass(frozen=True, slots=True)
class Bundle:
    """Edges from one node that carry the same values to all their targets."""

    source: int
    targets: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Route:
    """The waypoints of a bundle, and how many of them the way to each target takes; None for a target that is too far."""

    trunk: tuple[int, ...]
    lengths: tuple[int | None, ...]

    def last(self, at: int, source: int) -> int:
        """The item before a target."""
        length = self.lengths[at]
        return self.trunk[length - 1] if length else source

    def longest(self) -> int | None:
        """The target whose way takes the whole trunk."""
        drawn = [(length, -at) for at, length in enumerate(self.lengths) if length is not None]
        return -max(drawn)[1] if drawn else None


@dataclass(frozen=True, slots=True)
class Web:
    """Nodes and waypoints with the connections between neighboring ranks: `above` and `below` each item.

    Items up to `nodes` are nodes. routes: as of `Layout`.
    """

    nodes: int
    sizes: tuple[Size, ...]
    rank: tuple[int, ...]
    above: tuple[list[int], ...]
    below: tuple[list[int], ...]
    routes: tuple[Route, ...]

    def is_waypoint(self, item: int) -> bool:
        """Whether this is a bend of a long edge."""
        return item >= self.nodes


def route(sizes: Sequence[Size], bundles: Sequence[Bundle], rank: Sequence[int]) -> Web:
    """Add the waypoints. Where there would be too many, the longest connections are left out."""
    reach = [_reach(bundle, rank) for bundle in bundles]
    longest = _longest_drawn(reach, len(sizes))
    ranks = list(rank)
    above: list[list[int]] = [[] for _ in rank]
    below: list[list[int]] = [[] for _ in rank]
    builder = _Builder(ranks, above, below)
    routes = tuple(builder.add(bundle, longest) for bundle in bundles)
    added = len(ranks) - len(sizes)
    return Web(len(sizes), (*sizes, *[WAYPOINT] * added), tuple(ranks), tuple(above), tuple(below), routes)


def _reach(bundle: Bundle, rank: Sequence[int]) -> int:
    """The ranks between a bundle's source and its last target."""
    return max((rank[target] for target in bundle.targets), default=rank[bundle.source]) - rank[bundle.source] - 1


def _longest_drawn(reach: Sequence[int], nodes: int) -> int:
    """The reach up to which all connections together have no more waypoints than a graph of this size may have."""
    left = max(ALWAYS, MOST_WAYPOINTS * nodes)
    longest = 0
    for each in sorted(reach):
        left -= max(each, 0)
        if left < 0:
            break
        longest = each
    return longest


@dataclass(frozen=True, slots=True)
class _Builder:
    """The items so far."""

    rank: list[int]
    above: list[list[int]]
    below: list[list[int]]

    def add(self, bundle: Bundle, longest: int) -> Route:
        """Lead a bundle to its targets, except those beyond `longest` ranks between."""
        start = self.rank[bundle.source]
        between = [self.rank[target] - start - 1 for target in bundle.targets]
        lengths = tuple(each if each <= longest else None for each in between)
        trunk = [self._waypoint(start + 1 + at) for at in range(max((each for each in lengths if each), default=0))]
        for upper, lower in zip([bundle.source, *trunk], trunk, strict=False):
            self._connect(upper, lower)
        route = Route(tuple(trunk), lengths)
        for at, target in enumerate(bundle.targets):
            if lengths[at] is not None:
                self._connect(route.last(at, bundle.source), target)
        return route

    def _waypoint(self, rank: int) -> int:
        self.rank.append(rank)
        self.above.append([])
        self.below.append([])
        return len(self.rank) - 1

    def _connect(self, upper: int, lower: int) -> None:
        self.below[upper].append(lower)
        self.above[lower].append(upper)
