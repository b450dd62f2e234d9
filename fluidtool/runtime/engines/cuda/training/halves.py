"""What a training step keeps in halves: activations and their gradients; parameters, their gradients and sums stay float32."""

from __future__ import annotations

from collections.abc import Collection

from fluidtool.runtime.engines.cuda.lowering import MOVES, is_loss
from fluidtool.runtime.engines.cuda.sources import EXPRESSIONS
from fluidtool.runtime.graph.ir import Graph, Value, operands

FACTORS = frozenset({"matmul", "biased", "convolution", "attention_step", "attention_gradient", "attention_part"})
"""Nodes that read halves, whatever their inputs are kept in."""
EACH = (frozenset(EXPRESSIONS) | MOVES) - {"label"}
FOLLOWING = EACH | {
    "softmax", "softmax_dropped", "softmax_part", "softmax_gradient", "pool", "pool_gradient", "interpolate",
    "interpolate_gradient", "pixel_shuffle", "pixel_shuffle_gradient", "local_response", "local_response_gradient",
    "group_norm_step", "group_norm_gradient", "put_back",
}  # fmt: skip
"""Nodes whose results are halves where one of their inputs is."""
BEGINNING = FACTORS | {"rows", "draw"}
"""Nodes whose results are halves even if all their inputs are float32."""


def narrow_values(graph: Graph, ends: Collection[Value]) -> frozenset[Value]:
    """The values of a step that are kept in halves.

    ends: what updates read, and what replaces states. They stay float32, back to the products and sums that they are made of;
    so do the probabilities of losses, whose logarithm would be coarse.
    """
    wide, narrow = _wide_values(graph, ends), set()
    for node in graph.nodes:
        value = node.output
        if value in wide or value.integer:
            continue
        if node.kind in BEGINNING or (node.kind in FOLLOWING and any(each in narrow for each in operands(node))):
            narrow.add(value)
    return frozenset(narrow)


def _wide_values(graph: Graph, ends: Collection[Value]) -> set[Value]:
    """Values that must not lose digits."""
    made = {node.output: node for node in graph.nodes}
    waiting = [*ends, *(node.inputs[0] for node in graph.nodes if is_loss(node))]
    found: set[Value] = set()
    while waiting:
        value = waiting.pop()
        if value in found:
            continue
        found.add(value)
        node = made.get(value)
        if node is not None and node.kind in EACH:
            waiting += operands(node)
    return found
