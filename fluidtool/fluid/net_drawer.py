"""`fluid.net_drawer`: block 0 of a program as a graph in DOT (Paddle 1.8.5 net_drawer.py, whose `draw_graph` always fails)."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fluidtool.fluid.graphviz import Graph, Node
from fluidtool.fluid.log_helper import get_logger
from fluidtool.ir import Program

__all__ = ["draw_graph", "parse_graph"]

logger = get_logger(__name__, logging.INFO)

OP_STYLE = {"shape": "oval", "color": "#0F9D58", "style": "filled", "fontcolor": "#FFFFFF"}
VAR_STYLE: dict[str, Any] = {}
GRAPH_STYLE = {"rankdir": "TB"}


def parse_graph(program: Program, graph: Graph, var_dict: dict[str, Node], **kwargs: Any) -> None:
    """Add the operators of block 0; a line for each value leads from the operator that wrote it last.

    var_dict: by variable, that operator; it is continued. kwargs: node_attr and edge_attr, settings of nodes and lines.
    """
    node_style, edge_style = {**OP_STYLE, **kwargs.get("node_attr", {})}, {**VAR_STYLE, **kwargs.get("edge_attr", {})}
    for op in program.global_block().ops:
        node = graph.node(f'"{op.type}"', "op", op.type, **node_style)
        for slot, names in op.inputs.items():
            for name in names:
                if name in var_dict:
                    graph.edge(var_dict[name], node, label=f"{slot}({name})", **edge_style)
        var_dict.update(dict.fromkeys(op.output_arg_names, node))


def draw_graph(
    startup_program: Program,
    main_program: Program,
    filename: str | None = None,
    graph_attr: Mapping[str, Any] | None = None,
    **kwargs: Any,
) -> Graph:
    """The two programs as one graph, which is written to the file if it is named; kwargs: see `parse_graph`."""
    graph = Graph("network", **{**GRAPH_STYLE, **(graph_attr or {})})
    written: dict[str, Node] = {}
    parse_graph(startup_program, graph, written, **kwargs)
    parse_graph(main_program, graph, written, **kwargs)
    if filename is not None:
        Path(filename).write_text(graph.code(), encoding="utf-8")
    return graph
