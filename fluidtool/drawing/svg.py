"""A graph as one SVG file, laid out by us: blocks within are open, everything else that is folded stays folded."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

from fluidtool.drawing.assets import asset
from fluidtool.drawing.coloring import Coloring, Mark
from fluidtool.drawing.graph import Graph, Node
from fluidtool.drawing.palette import style
from fluidtool.drawing.scene import FRAME, FRAME_HEAD, LINE_SIZE, PAD, Box, Line, Scene, scene_of
from fluidtool.drawing.text import shortened, width_of, xml

MARGIN = 24.0
STUB = 12.0  # of a line that is too long to be drawn


def graph_svg(graph: Graph, title: str, coloring: Coloring | None = None) -> str:
    """The drawing; all names are escaped."""
    marks = [coloring.of(node) if coloring else None for node in graph.nodes]
    scene = scene_of(graph, opened=True, extra=[mark.text if mark else "" for mark in marks])
    width, height = scene.width + 2 * MARGIN, scene.height + 2 * MARGIN
    body = "\n".join(_scene(scene, coloring, MARGIN, MARGIN))
    classes = "ft colored" if coloring else "ft"
    size = f'viewBox="0 0 {_n(width)} {_n(height)}" width="{_n(width)}" height="{_n(height)}"'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" class="{classes}">\n'
        f"<title>{xml(shortened(title, 200))}</title>\n<style>\n{style()}{asset('graph.css')}</style>\n"
        f'<rect class="ground" width="100%" height="100%"/>\n{body}\n</svg>\n'
    )


def _scene(scene: Scene, coloring: Coloring | None, x: float, y: float) -> Iterator[str]:
    yield f'<g transform="translate({_n(x)} {_n(y)})">'
    for line in scene.lines:
        yield from _line(line)
    for box in scene.boxes:
        mark = coloring.of(box.node) if coloring else None
        yield from _frame(box, coloring, mark) if box.inner else _card(box, mark)
    yield "</g>"


def _line(line: Line) -> Iterator[str]:
    """The curve, and its label once; or stubs with the name where it is too long."""
    if line.points:
        yield f'<path class="line" d="{path(line.points)}"/>'
    else:
        (x, y), name = line.end, shortened(line.link.names[0], 18)
        yield f'<path class="line far" d="M{_n(x)} {_n(y - STUB)}V{_n(y)}"/>'
        yield f'<text class="label" x="{_n(x)}" y="{_n(y - STUB - 3)}" text-anchor="middle">{xml(name)}</text>'
    if line.label and line.link.label:
        x, y = line.start
        bottom = line.points[1][1] if line.points else y
        side = f'x="{_n(x - 6)}" text-anchor="end"' if line.label == "left" else f'x="{_n(x + 6)}"'
        yield f'<text class="label" {side} y="{_n(bottom + 13)}">{xml(line.link.label)}</text>'


def path(points: Sequence[tuple[float, float]]) -> str:
    """Straight down across a rank, a curve to the next."""
    parts = [f"M{_n(points[0][0])} {_n(points[0][1])}"]
    for number, ((x0, y0), (x1, y1)) in enumerate(pairwise(points)):
        if number % 2 == 0 or x0 == x1:
            parts.append(f"L{_n(x1)} {_n(y1)}")
        else:
            middle = (y0 + y1) / 2
            parts.append(f"C{_n(x0)} {_n(middle)} {_n(x1)} {_n(middle)} {_n(x1)} {_n(y1)}")
    return "".join(parts)


def _card(box: Box, mark: Mark | None) -> Iterator[str]:
    node, colored = box.node, f" {mark.css}" if mark else ""
    yield f'<g class="node {node_class(node)}{colored}" transform="translate({_n(box.x)} {_n(box.y)})">'
    yield f"<title>{xml(shortened(tooltip(node), 300))}</title>"
    if node.inner:
        yield f'<rect class="behind" x="4" y="4" width="{_n(box.width)}" height="{_n(box.height)}" rx="7"/>'
    round_by = box.height / 2 if node.is_value else 7
    yield f'<rect class="card" width="{_n(box.width)}" height="{_n(box.height)}" rx="{_n(round_by)}"/>'
    lines = [*node.lines, *([mark.text] if mark else [])]
    if node.is_value:
        yield f'<text class="title" x="{_n(PAD)}" y="18.5">{xml(node.title)}</text>'
        x = PAD + width_of(node.title, LINE_SIZE + 1, bold=True) + 8
        for line in lines:
            yield f'<text class="more" x="{_n(x)}" y="18.5">{xml(line)}</text>'
    else:
        yield f'<rect class="stripe" width="5" height="{_n(box.height - 12)}" x="0" y="6" rx="2.5"/>'
        yield f'<text class="title" x="{_n(PAD)}" y="20">{xml(node.title)}</text>'
        if node.number:
            yield f'<text class="number" x="{_n(box.width - PAD + 4)}" y="20" text-anchor="end">{node.number}</text>'
        for number, line in enumerate(lines):
            yield f'<text class="more" x="{_n(PAD)}" y="{_n(36 + 15 * number)}">{xml(line)}</text>'
    yield "</g>"


def _frame(box: Box, coloring: Coloring | None, mark: Mark | None) -> Iterator[str]:
    """An open group."""
    assert box.inner is not None
    node, colored = box.node, f" {mark.css}" if mark else ""
    yield f'<g class="node open {node_class(node)}{colored}" transform="translate({_n(box.x)} {_n(box.y)})">'
    yield f'<rect class="card" width="{_n(box.width)}" height="{_n(box.height)}" rx="10"/>'
    yield f'<text class="title" x="{_n(FRAME)}" y="23">{xml(node.title)}</text>'
    said = " · ".join([*node.lines, *([mark.text] if mark else [])])
    yield f'<text class="more" x="{_n(FRAME)}" y="39">{xml(said)}</text>'
    yield from _scene(box.inner, coloring, (box.width - box.inner.width) / 2, FRAME_HEAD)
    yield "</g>"


def node_class(node: Node) -> str:
    """The class that colors a node: its kind."""
    return f"k-{node.kind}"


def tooltip(node: Node) -> str:
    """What the pointer shows: the position and the name."""
    if node.is_value:
        return node.name
    return (
        node.title if node.place is None else f"block {node.place.block}, operator {node.place.operator}: {node.title}"
    )


def _n(value: float) -> str:
    """A coordinate, to a tenth."""
    return f"{value:.1f}".removesuffix(".0")
