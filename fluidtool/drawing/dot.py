"""A graph in the language of Graphviz: blocks within as clusters, whose first node is the operator that runs them."""

from __future__ import annotations

from collections.abc import Iterator

from fluidtool.drawing.coloring import Coloring, Mark
from fluidtool.drawing.graph import Graph, Node
from fluidtool.drawing.palette import FIGURE_COLORS, KIND_COLORS, Color
from fluidtool.drawing.text import shortened, visible

PLAIN = Color("#ffffff", "#77808c", "", "")
VALUE = Color("#1d2433", "#1d2433", "", "")


def graph_dot(graph: Graph, title: str, coloring: Coloring | None = None) -> str:
    """The text; names are quoted, and written out where they cannot be seen."""
    lines = [
        f"digraph {_quoted(shortened(title, 200))} {{",
        '  graph [rankdir=TB, nodesep=0.3, ranksep=0.45, fontname="Helvetica"];',
        '  node [shape=box, style="rounded,filled", fontname="Helvetica", fontsize=11, margin="0.15,0.07"];',
        '  edge [color="#9aa5b4", fontname="Helvetica", fontsize=9, fontcolor="#5d687a", arrowsize=0.6];',
        *_graph(graph, coloring, "n", "  "),
        "}",
    ]
    return "\n".join(lines) + "\n"


def _graph(graph: Graph, coloring: Coloring | None, prefix: str, indent: str) -> Iterator[str]:
    for number, node in enumerate(graph.nodes):
        name = f"{prefix}{number}"
        if node.inner is not None and node.folded == "block":
            yield f"{indent}subgraph cluster_{name} {{"
            yield f'{indent}  label={_quoted(node.title)}; color="#aab3c0"; style=rounded;'
            yield _node(node, name, coloring, f"{indent}  ")
            yield from _graph(node.inner, coloring, f"{name}_", f"{indent}  ")
            yield f"{indent}}}"
        else:
            yield _node(node, name, coloring, indent)
    for link in graph.links:
        for at, target in enumerate(link.targets):
            shown = link.label and at == 0 and not graph.nodes[link.source].is_value  # an input says its shape itself
            label = f" [label={_quoted(link.label)}]" if shown else ""
            yield f"{indent}{prefix}{link.source} -> {prefix}{target}{label};"


def _node(node: Node, name: str, coloring: Coloring | None, indent: str) -> str:
    mark = coloring.of(node) if coloring else None
    color = _color(node, mark, coloring)
    lines = [node.title, *node.lines, *([mark.text] if mark else [])]
    ink = "#ffffff" if color is VALUE else "#1d2433"
    dashed = ', style="rounded,filled,dashed"' if node.kind in ("unknown", "outer") else ""
    label = "\\n".join(_escaped(line) for line in lines)
    return f'{indent}{name} [label="{label}", fillcolor="{color.fill}", color="{color.strong}", fontcolor="{ink}"{dashed}];'


def _color(node: Node, mark: Mark | None, coloring: Coloring | None) -> Color:
    if node.kind in ("input", "output"):
        return VALUE
    if mark is not None:
        return FIGURE_COLORS[mark.css]
    return PLAIN if coloring else KIND_COLORS.get(node.kind, PLAIN)


def _quoted(text: str) -> str:
    return f'"{_escaped(text)}"'


def _escaped(text: str) -> str:
    return visible(text).replace("\\", "\\\\").replace('"', '\\"')
