"""Where the cards of a graph and its lines are: each graph is laid out on its own, and an open group is a frame around one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from fluidtool.drawing.graph import Graph, Link, Node
from fluidtool.drawing.layout import Bundle, Layout, lay_out
from fluidtool.drawing.text import width_of
from fluidtool.records import dataclass

TITLE_SIZE, LINE_SIZE = 13.0, 11.0
PAD, HEAD, ROW, PILL, LEAST = 14.0, 30.0, 15.0, 28.0, 92.0
FRAME, FRAME_HEAD = 18.0, 52.0  # around an open group
PORT = 14.0  # between lines that end at one card, at most
FAN = 76.0  # between lines that begin at one card, at most: their labels stand between them

Point = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Box:
    """A node and its rectangle; `inner` is what an open group shows."""

    node: Node
    x: float
    y: float
    width: float
    height: float
    inner: Scene | None = None


@dataclass(frozen=True, slots=True)
class Line:
    """The way of a link to one target: points, from one rank to the next a curve; what it shares with a longer one is left out.

    label: the side of its start on which the link's label stands, for one line of each link; '' for the others. A line
    without points is too long to be drawn: `start` and `end` are where it would leave and arrive.
    """

    link: Link
    target: int
    points: tuple[Point, ...]
    start: Point
    end: Point
    label: str


@dataclass(frozen=True, slots=True)
class Scene:
    """A graph laid out, with its upper left corner at 0, 0."""

    graph: Graph
    layout: Layout
    boxes: tuple[Box, ...]
    lines: tuple[Line, ...]
    width: float
    height: float


def card_size(node: Node, extra: str = "") -> tuple[float, float]:
    """The width and height of a node that is not open; extra: one more line."""
    lines = [*node.lines, *([extra] if extra else [])]
    if node.is_value:
        text = sum(width_of(line, LINE_SIZE) + 8 for line in lines)
        return round(width_of(node.title, LINE_SIZE + 1, bold=True) + text + 2 * PAD, 1), PILL
    mark = (18 if node.inner else 0) + (10 + width_of(node.number, LINE_SIZE) if node.number else 0)
    wide = max([width_of(node.title, TITLE_SIZE, bold=True) + mark, *(width_of(line, LINE_SIZE) for line in lines)])
    return round(max(wide + 2 * PAD, LEAST), 1), HEAD + ROW * len(lines) + (4 if lines else 0)


def bundles(graph: Graph) -> list[Bundle]:
    """The links as the layout takes them."""
    return [Bundle(link.source, link.targets) for link in graph.links]


def scene_of(graph: Graph, *, opened: bool, extra: Sequence[str] = ()) -> Scene:
    """Lay out a graph. opened: blocks within are shown, not folded. extra: one more line for each node ('' for none)."""
    inner = [
        scene_of(node.inner, opened=True) if opened and node.inner and node.folded == "block" else None
        for node in graph.nodes
    ]
    lines = extra or [""] * len(graph.nodes)
    sizes = [_size(node, within, line) for node, within, line in zip(graph.nodes, inner, lines, strict=True)]
    layout = lay_out(sizes, bundles(graph))
    boxes = tuple(
        Box(node, round(layout.x[at] - width / 2, 2), round(layout.y[at] - height / 2, 2), width, height, within)
        for at, (node, (width, height), within) in enumerate(zip(graph.nodes, sizes, inner, strict=True))
    )
    width = max((box.x + box.width for box in boxes), default=0.0)
    waypoints = layout.x[len(boxes) :]
    height = layout.bottoms[-1] if layout.bottoms else 0.0
    return Scene(graph, layout, boxes, tuple(_lines(graph, layout, boxes)), max(width, *waypoints, 0.0), height)


def _size(node: Node, inner: Scene | None, extra: str) -> tuple[float, float]:
    if inner is None:
        return card_size(node, extra)
    head = width_of(node.title, TITLE_SIZE, bold=True) + max(
        (width_of(line, LINE_SIZE) for line in node.lines), default=0.0
    )
    return round(max(inner.width, head) + 2 * FRAME, 2), round(inner.height + FRAME_HEAD + FRAME, 2)


# ---------------------------------------------------------------- lines
def _lines(graph: Graph, layout: Layout, boxes: Sequence[Box]) -> Iterator[Line]:
    longest = [route.longest() for route in layout.routes]
    sources = [None if most is None else link.source for link, most in zip(graph.links, longest, strict=True)]
    leaving = _ports(boxes, sources, [_heads_for(link, layout, at) for at, link in enumerate(graph.links)], FAN)
    ends = [(number, at) for number, link in enumerate(graph.links) for at in range(len(link.targets))]
    before = [layout.routes[number].last(at, graph.links[number].source) for number, at in ends]
    arriving = _ports(
        boxes, [graph.links[number].targets[at] for number, at in ends], [layout.x[item] for item in before], PORT
    )
    rank = {item: number for number, items in enumerate(layout.ranks) for item in items}
    sides = _sides(graph, layout, sources, leaving)
    for (number, at), x in zip(ends, arriving, strict=True):
        link = graph.links[number]
        source, target, route = boxes[link.source], boxes[link.targets[at]], layout.routes[number]
        start, end = (leaving[number], source.y + source.height), (x, target.y)
        points: list[Point] = []
        length = route.lengths[at]
        if length is not None:
            # The longest line has all of the trunk; others begin where they leave it.
            shared = 0 if at == longest[number] else length
            points = [] if shared else [start, (start[0], layout.bottoms[rank[link.source]])]
            for item in route.trunk[max(shared - 1, 0) : length]:
                points += [(layout.x[item], layout.tops[rank[item]]), (layout.x[item], layout.bottoms[rank[item]])]
            points += [(end[0], layout.tops[rank[link.targets[at]]]), end]
        yield Line(link, link.targets[at], tuple(points), start, end, sides[number] if at == 0 else "")


def _heads_for(link: Link, layout: Layout, number: int) -> float:
    """The place of the nearest rank's items that a link leads to, on average."""
    route = layout.routes[number]
    first = {
        route.trunk[0] if length else target
        for length, target in zip(route.lengths, link.targets, strict=True)
        if length is not None
    }
    return sum(layout.x[item] for item in first) / len(first) if first else layout.x[link.source]


def _sides(graph: Graph, layout: Layout, sources: Sequence[int | None], leaving: Sequence[float]) -> list[str]:
    """Where the label of each link stands: of several from one node, the outermost have one, on the outer side."""
    beside: dict[int, list[int]] = {}
    for number, source in enumerate(sources):
        if source is not None and not graph.nodes[source].is_value:
            beside.setdefault(source, []).append(number)
    sides = [""] * len(sources)  # an input says its shape itself
    for numbers in beside.values():
        first, last = min(numbers, key=leaving.__getitem__), max(numbers, key=leaving.__getitem__)
        alone_and_right = first == last and _heads_for(graph.links[first], layout, first) <= leaving[first] + 1
        sides[first], sides[last] = "left", "right" if alone_and_right or first != last else "left"
    return sides


def _ports(boxes: Sequence[Box], owners: Sequence[int | None], toward: Sequence[float], most: float) -> list[float]:
    """Where lines end at the nodes that they belong to: beside each other, in the order of where they lead."""
    ends: dict[int, list[int]] = {}
    for line, owner in enumerate(owners):
        if owner is not None:
            ends.setdefault(owner, []).append(line)
    x = [0.0] * len(owners)
    for owner, lines in ends.items():
        box = boxes[owner]
        apart = min(most, (box.width - 2 * PAD) / len(lines))
        for position, line in enumerate(sorted(lines, key=lambda each: toward[each])):
            x[line] = round(box.x + box.width / 2 + (position - (len(lines) - 1) / 2) * apart, 2)
    return x
