"""`fluid.graphviz`: graphs in the DOT language, and the picture of a block (Paddle 1.8.5 graphviz.py).

Nodes are written in the order in which they were made; Paddle shuffles them. Without the command `dot` there is no picture.
"""

from __future__ import annotations

import logging
import shutil
import subprocess
from pathlib import Path
from typing import Any, ClassVar

__all__ = ["Edge", "Graph", "GraphPreviewGenerator", "Node", "Rank", "crepr"]

HIGHLIGHTED = "orange"


def crepr(v: Any) -> str:
    """A value as DOT has it: text in quotes."""
    return f'"{v}"' if isinstance(v, str) else str(v)


def _settings(attrs: dict[str, Any]) -> str:
    return ",".join(f"{name}={crepr(value)}" for name, value in attrs.items())


class Rank:
    """Nodes that are drawn at one height; kind: 'same', 'min', …"""

    def __init__(self, kind: str, name: str, priority: int) -> None:
        self.kind, self.name, self.priority = kind, name, priority
        self.nodes: list[Node] = []

    def __str__(self) -> str:
        names = ",".join(node.name for node in self.nodes)
        return f"{{rank={self.kind};{names}}}" if self.nodes else ""


class Node:
    """A node; label: DOT source, name: unique, from the prefix. attrs: settings."""

    counter: ClassVar[int] = 1

    def __init__(self, label: str, prefix: str, description: str = "", **attrs: Any) -> None:
        self.label, self.description, self.attrs = label, description, attrs
        self.name = f"{prefix}_{Node.counter}"
        Node.counter += 1

    def __str__(self) -> str:
        settings = f",{_settings(self.attrs)}" if self.attrs else ""
        return f"{self.name} [label={self.label} {settings} ];"


class Edge:
    """A line from a node to another; attrs: settings."""

    def __init__(self, source: Node, target: Node, **attrs: Any) -> None:
        self.source, self.target, self.attrs = source, target, attrs

    def __str__(self) -> str:
        settings = f"[{_settings(self.attrs)}]" if self.attrs else ""
        return f"{self.source.name} -> {self.target.name} {settings}"


class Graph:
    """A graph with a title; attrs: its settings."""

    rank_counter: ClassVar[int] = 0

    def __init__(self, title: str, **attrs: Any) -> None:
        self.title, self.attrs = title, attrs
        self.nodes: list[Node] = []
        self.edges: list[Edge] = []
        self.rank_groups: dict[str, Rank] = {}

    def code(self) -> str:
        """The graph in DOT."""
        return str(self)

    def rank_group(self, kind: str, priority: int) -> str:
        """Make a group of nodes at one height; the name that `node` takes as `rank`."""
        name = f"rankgroup-{Graph.rank_counter}"
        Graph.rank_counter += 1
        self.rank_groups[name] = Rank(kind, name, priority)
        return name

    def node(self, label: str, prefix: str, description: str = "", **attrs: Any) -> Node:
        """Add a node."""
        rank = attrs.pop("rank", None)
        node = Node(label, prefix, description, **attrs)
        if rank is not None:
            self.rank_groups[rank].nodes.append(node)
        self.nodes.append(node)
        return node

    def edge(self, source: Node, target: Node, **attrs: Any) -> Edge:
        """Add a line."""
        self.edges.append(Edge(source, target, **attrs))
        return self.edges[-1]

    def compile(self, dot_path: str) -> str:
        """Write the graph to a file, and a PDF file beside it if the command `dot` is installed; the path of that."""
        path = Path(dot_path)
        path.write_text(str(self), encoding="utf-8")
        picture = f"{dot_path[:-3]}pdf"
        if shutil.which("dot"):
            subprocess.run(["dot", "-Tpdf", dot_path, "-o", picture], capture_output=True, check=False)
            logging.getLogger(__name__).warning("write block debug graph to %s", picture)
        else:
            note = "the graph is in %s; the command `dot` (Graphviz), which would draw it, is not installed"
            logging.getLogger(__name__).warning(note, dot_path)
        return picture

    def show(self, dot_path: str) -> None:
        """Write the graph and its picture, and open that with the system's viewer, if there is one."""
        picture = self.compile(dot_path)
        viewer = next(filter(shutil.which, ("open", "xdg-open")), None)
        if viewer is not None and Path(picture).is_file():
            subprocess.run([viewer, picture], capture_output=True, check=False)

    def __str__(self) -> str:
        settings = [f"{name}={crepr(value)};" for name, value in self.attrs.items()]
        ranks = [str(rank) for rank in sorted(self.rank_groups.values(), key=lambda rank: rank.priority)]
        parts = [*settings, *ranks, "", *map(str, self.nodes), *map(str, self.edges)]
        return "\n".join(["digraph G {", f"title = {crepr(self.title)}", *parts, "}"])


class GraphPreviewGenerator:
    """Draws operators, parameters and other values; called with a path, writes the graph."""

    def __init__(self, title: str) -> None:
        self.graph = Graph(title, layout="dot", concentrate="true", rankdir="TB")
        self.op_rank = self.graph.rank_group("same", 2)
        self.param_rank = self.graph.rank_group("same", 1)
        self.arg_rank = self.graph.rank_group("same", 0)

    def __call__(self, path: str = "temp.dot", show: bool = False) -> None:
        if show:
            self.graph.show(path)
        else:
            self.graph.compile(path)

    def add_param(self, name: str, data_type: Any, highlight: bool = False) -> Node:
        """Add a parameter: a table with its name and what is said of it."""
        rows = [
            '<<table cellpadding="5">',
            "  <tr>",
            '    <td bgcolor="#2b787e">',
            "    <b>",
            name,
            "    </b>",
            "    </td>",
            "  </tr>",
            "  <tr>",
            "    <td>",
            str(data_type),
            "    </td>  </tr>",
            "</table>>",
        ]
        color = HIGHLIGHTED if highlight else "#148b97"
        style = {"shape": "none", "style": "rounded,filled,bold", "width": "1.3", "color": color}
        return self.graph.node("\n".join(rows), "param", name, **style, fontcolor="#ffffff", fontname="Arial")

    def add_op(self, opType: str, highlight: bool = False, **kwargs: Any) -> Node:
        """Add an operator."""
        color = HIGHLIGHTED if highlight else "#303A3A"
        style = {"shape": "box", "style": "rounded, filled, bold", "color": color, "fontname": "Arial"}
        label = f"<<B>{opType}</B>>"
        return self.graph.node(label, "op", opType, **style, fontcolor="#ffffff", width="1.3", height="0.84")

    def add_arg(self, name: str, highlight: bool = False) -> Node:
        """Add a value that is not a parameter."""
        color = HIGHLIGHTED if highlight else "#dddddd"
        style = {"shape": "box", "style": "rounded,filled,bold", "fontname": "Arial", "fontcolor": "#999999"}
        return self.graph.node(crepr(name), "arg", name, **style, color=color)

    def add_edge(self, source: Node, target: Node, highlight: bool = False, **kwargs: Any) -> Edge:
        """Add a line."""
        return self.graph.edge(source, target, color=HIGHLIGHTED if highlight else "#00000", **kwargs)
