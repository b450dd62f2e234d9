"""Attention: the scores of queries and keys, their softmax, and the sum of the values that it weighs become one node."""

from __future__ import annotations

from fluidtool.runtime.graph.ir import NONE, Graph, Node, Value

MOST_KEYS = 2048  # whose scores of a few rows fit a cache (SCORES of src/attention.c, by at most eight rows)


def join_attention(graph: Graph) -> None:
    """Put them together, in place, wherever nobody else reads the scores: no more than a few rows of these are in memory."""
    uses = graph.uses()
    makers = {node.output: node for node in graph.nodes}

    def maker(value: Value, kind: str) -> Node | None:
        node = makers.get(value)
        return node if node is not None and node.kind == kind and node.activation == NONE and uses[value] == 1 else None

    for node in [node for node in graph.nodes if node.kind == "matmul"]:
        softmax = maker(node.inputs[0], "softmax")
        scores = None if softmax is None else maker(softmax.inputs[0], "matmul")
        if softmax is None or scores is None or scores.attrs.get("heads_last") or scores.output.shape[-1] > MOST_KEYS:
            continue
        node.kind, node.attrs = "attention", node.attrs | softmax.attrs | {"swap_k": scores.attrs["swap_y"]}
        node.inputs = [*scores.inputs, node.inputs[1], *softmax.inputs[1:]]
        graph.nodes.remove(softmax)
        graph.nodes.remove(scores)
