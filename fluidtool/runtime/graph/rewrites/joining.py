"""Products of the same rows are joined, such as those for queries, keys and values of attention."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from fluidtool.runtime.graph.ir import Graph, Node, Value, operands
from fluidtool.runtime.graph.rewrites.rewriting import Outcome
from fluidtool.runtime.graph.weights import SideBySide

WHOLE = 16  # columns: weights whose number of columns is a multiple of this are packed together, block by block


def merge_products(graph: Graph) -> Outcome:
    """Compute products of the same rows by equal weights once, even if the weights are different parameters.

    Startup programs with a seed give parameters of one shape equal values: queries, keys and values are then the same.
    """
    first: dict[Any, list[Node]] = {}
    stands_for: dict[Value, Value] = {}
    outputs, kept = set(graph.outputs), []
    for old in graph.nodes:
        node = reading(old, stands_for)
        if node.kind == "product" and node.output not in outputs:
            row = (node.attrs["weights"][:1] + 0.0).tobytes()  # most already differ here; -0.0 equals 0.0
            key = node.inputs[0], node.residual, node.attrs["matrix"], node.activation, node.output.shape, row
            twin = next((other for other in first.setdefault(key, []) if have_same_numbers(other, node)), None)
            if twin is not None:
                stands_for[node.output] = twin.output
                continue
            first[key].append(node)
        kept.append(node)
    return Outcome(graph.with_nodes(kept), len(stands_for)) if stands_for else Outcome(graph)


def reading(node: Node, stands_for: Mapping[Value, Value]) -> Node:
    """The node with some of its operands replaced."""
    if not stands_for.keys() & operands(node):
        return node
    inputs = [stands_for.get(value, value) for value in node.inputs]
    residual = node.residual and stands_for.get(node.residual, node.residual)
    return replace(node, inputs=inputs, residual=residual)


def have_same_numbers(one: Node, other: Node) -> bool:
    """Whether two products have equal weights and add the same shift."""
    weights, others = one.attrs["weights"], other.attrs["weights"]
    shift, other_shift = one.attrs["shift"], other.attrs["shift"]
    if shift is None or other_shift is None:
        if shift is not other_shift:
            return False
    elif not np.array_equal(shift, other_shift):
        return False
    return weights is others or np.array_equal(weights, others)


def join_products(graph: Graph) -> Outcome:
    """Join such products: each result is a slice of the joint result."""
    groups: dict[Any, list[Node]] = {}
    outputs = set(graph.outputs)
    for node in graph.nodes:
        if node.kind == "product" and joins(node) and node.output not in outputs:
            groups.setdefault((node.inputs[0], node.attrs["matrix"], node.activation), []).append(node)
    replaced: dict[Node, list[Node]] = {}
    joint = [group for group in groups.values() if len(group) > 1]
    for group in joint:
        product = group_product(group)
        replaced |= {node: [] for node in group}
        replaced[group[0]] = [product, *slices(group, product.output)]
    if not joint:
        return Outcome(graph)
    return Outcome(graph.with_nodes(new for node in graph.nodes for new in replaced.get(node, (node,))), len(joint))


def joins(node: Node) -> bool:
    """Whether a product may be joined: its columns are the last dimension of its result, not several (a `mul` by 3-D weights)."""
    columns, shape = node.attrs["weights"].shape[1], node.output.shape
    return node.residual is None and columns % WHOLE == 0 and len(shape) > 1 and shape[-1] == columns


def group_product(group: list[Node]) -> Node:
    """The joint product."""
    first = group[0]
    weights = SideBySide(tuple(node.attrs["weights"] for node in group))
    shift = None
    if any(node.attrs["shift"] is not None for node in group):
        shift = np.concatenate(
            [
                np.zeros(node.attrs["weights"].shape[1], np.float32)
                if node.attrs["shift"] is None
                else node.attrs["shift"]
                for node in group
            ]
        )
    out = Value(f"{first.output.name} and {len(group) - 1} more", (*first.output.shape[:-1], weights.shape[1]))
    attrs = {**first.attrs, "weights": weights, "shift": shift}
    multiply_adds = sum(node.multiply_adds for node in group)
    return Node("product", first.inputs, out, attrs, first.activation, multiply_adds=multiply_adds)


def slices(group: list[Node], joint: Value) -> list[Node]:
    """The columns of the joint result for each product of a group."""
    found, start = [], 0
    for node in group:
        shape = node.output.shape
        attrs = {"starts": [0] * (len(shape) - 1) + [start], "sizes": list(shape)}
        found.append(Node("slice", [joint], node.output, attrs))
        start += shape[-1]
    return found
