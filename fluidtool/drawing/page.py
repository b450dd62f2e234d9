"""One HTML page: the pictures as data, the style and the script inline, allowed by their hashes, and nothing from elsewhere."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Any

from fluidtool.drawing.assets import asset
from fluidtool.drawing.coloring import Coloring
from fluidtool.drawing.details import Details
from fluidtool.drawing.graph import Graph, Link, Node
from fluidtool.drawing.layout import RANK_GAP, Route, lay_out
from fluidtool.drawing.layout.positions import NODE_GAP
from fluidtool.drawing.palette import KIND_COLORS, style
from fluidtool.drawing.scene import FAN, FRAME, FRAME_HEAD, PAD, PORT, bundles, card_size
from fluidtool.drawing.text import shortened, xml
from fluidtool.ir import Program
from fluidtool.tensor.statistics import Statistics

FAR = 18  # characters of a name beside a line that is too long to be drawn
SIZES = {
    "frame": FRAME,
    "frameHead": FRAME_HEAD,
    "pad": PAD,
    "port": PORT,
    "fan": FAN,
    "gap": NODE_GAP,
    "rankGap": RANK_GAP,
}


def page(
    graph: Graph,
    program: Program,
    title: str,
    caption: str,
    colorings: Sequence[Coloring] = (),
    color_by: str = "kind",
    statistics: Mapping[str, Statistics] | None = None,
) -> str:
    """The page of a graph with this heading; color_by: the coloring that it shows first."""
    styles = f"\n{style()}{asset('graph.css')}{asset('page.css')}"
    script = f"\n{asset('page.js')}"
    data = page_data(graph, Details(program, statistics or {}), colorings, color_by)
    parts = {
        "POLICY": policy(styles, script),
        "TITLE": xml(shortened(title, 200)),
        "CAPTION": xml(caption),
        "STYLE": styles,
        "DATA": embedded(data),
        "SCRIPT": script,
    }
    pieces = asset("page.html").split("@")
    return "".join(parts.get(piece, piece) if number % 2 else piece for number, piece in enumerate(pieces))


def policy(styles: str, script: str) -> str:
    """What the page may load: nothing; and run: what has these hashes."""
    return f"default-src 'none'; script-src '{_hash(script)}'; style-src '{_hash(styles)}'; base-uri 'none'; form-action 'none'"


def _hash(text: str) -> str:
    return f"sha256-{b64encode(sha256(text.encode()).digest()).decode()}"


def embedded(data: Any) -> str:
    """JSON that stands within HTML: no `<`, `>` or `&`, and no line ends that scripts know and JSON does not."""
    text = json.dumps(data, ensure_ascii=True, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def page_data(graph: Graph, details: Details, colorings: Sequence[Coloring], color_by: str) -> dict[str, Any]:
    """All that the script draws."""
    writer = _Pictures(details, colorings)
    writer.add(graph)
    used = {node["kind"] for picture in writer.pictures for node in picture["nodes"]}
    return {
        "pictures": writer.pictures,
        "operators": writer.operators,
        "variables": details.variables,
        "colorings": [{"by": each.by, "legend": [list(row) for row in each.legend]} for each in colorings],
        "by": color_by,
        "kinds": [kind for kind in KIND_COLORS if kind in used and kind != "group"],
        "sizes": SIZES,
    }


class _Pictures:
    """Graphs laid out one by one; what a group contains is a picture of its own."""

    def __init__(self, details: Details, colorings: Sequence[Coloring]) -> None:
        self.details, self.colorings = details, colorings
        self.pictures: list[dict[str, Any]] = []
        self.operators: list[dict[str, Any]] = []

    def add(self, graph: Graph) -> int:
        """Write a graph and what is within it; its number."""
        number = len(self.pictures)
        self.pictures.append({})
        marks = [[coloring.of(node) for coloring in self.colorings] for node in graph.nodes]
        sizes = [
            card_size(node, max((mark.text for mark in given if mark), key=len, default=""))
            for node, given in zip(graph.nodes, marks, strict=True)
        ]
        layout = lay_out(sizes, bundles(graph))
        rank_of = [0] * len(layout.x)
        for rank, items in enumerate(layout.ranks):
            for item in items:
                rank_of[item] = rank
        nodes = []
        for node, (width, height), given in zip(graph.nodes, sizes, marks, strict=True):
            nodes.append(
                {
                    **self._node(node),
                    "width": width,
                    "height": height,
                    "marks": [[mark.css, mark.text] if mark else None for mark in given],
                }
            )
        self.pictures[number] = {
            "nodes": nodes,
            "x": layout.x,
            "ranks": layout.ranks,
            "rankOf": rank_of,
            "links": [_link(link, route) for link, route in zip(graph.links, layout.routes, strict=True)],
        }
        return number

    def _node(self, node: Node) -> dict[str, Any]:
        found: dict[str, Any] = {"title": node.title, "kind": node.kind, "lines": node.lines}
        if node.number:
            found["number"] = node.number
        if node.place is not None and not node.is_value:
            found["operator"] = len(self.operators)
            self.operators.append(self.details.operator(node.place))
        if node.name:
            found["variable"] = self.details.variable(self.details.program.block(node.block), node.name)
        if node.inner is not None:
            found["inner"] = self.add(node.inner)
        return found


def _link(link: Link, route: Route) -> dict[str, Any]:
    found: dict[str, Any] = {"source": link.source, "targets": link.targets, "label": link.label}
    found |= {"trunk": route.trunk, "lengths": route.lengths}
    if None in route.lengths:
        found["far"] = shortened(link.names[0], FAR)
    return found
