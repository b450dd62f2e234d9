"""Checks that a graph is valid: invariants that importers and rewrites must preserve."""

from __future__ import annotations

import os
from math import prod

from fluidtool.runtime.graph.ir import EngineFaultError, Graph, Node, Value, operands
from fluidtool.shapes import shape_text

SWITCH = "FLUIDTOOL_VERIFY"


def is_wanted() -> bool:
    """Whether FLUIDTOOL_VERIFY asks for a check after each rewrite."""
    return os.environ.get(SWITCH, "") not in ("", "0")


def verify(graph: Graph, after: str) -> None:
    """Raise EngineFaultError if a graph cannot be computed in this order; `after` names the pass."""
    fault = fault_of(graph)
    if fault:
        raise EngineFaultError(f"after {after} the graph of a region is broken: {fault}")


def fault_of(graph: Graph) -> str:
    """The fault of a graph; '' if it is valid."""
    there = set(graph.inputs)
    for node in graph.nodes:
        fault = _fault_of(node, there)
        if fault:
            return f"{node.kind} that computes {node.output.name} {fault}"
        there.add(node.output)
    missing = [value.name for value in graph.outputs if value.array is None and value not in there]
    return f"nothing computes its output {missing[0]}" if missing else ""


def _fault_of(node: Node, there: set[Value]) -> str:
    missing = [value.name for value in operands(node) if value.array is None and value not in there]
    if missing:
        return f"reads {missing[0]} before anything has computed it"
    if node.output in there:
        return "computes a value that already exists"
    if node.output.array is not None:
        return "writes to a constant"
    if prod(node.output.shape) <= 0:
        return f"has a result of shape {shape_text(node.output.shape)}"
    residual = node.residual
    if residual is not None and prod(residual.shape) != prod(node.output.shape):
        return f"adds a value of shape {shape_text(residual.shape)} to one of {shape_text(node.output.shape)}"
    return ""
