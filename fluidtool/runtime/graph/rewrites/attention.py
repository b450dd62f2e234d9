"""Attention: the scores of queries and keys, their softmax and the weighted sum of values become one node."""

from __future__ import annotations

from dataclasses import replace

from fluidtool.runtime.graph.ir import NONE, Node, Value
from fluidtool.runtime.graph.rewrites.rewriting import ELSEWHERE, NoMatch, Producer, Rewrite

MOST_KEYS = 2048  # scores of a few rows of these fit a cache (SCORES of src/attention.c, at most eight rows)


def join_attention(node: Node, alone: Producer) -> Rewrite | NoMatch:
    """Scores without other readers are weighted as they are computed: only a few rows of them are in memory."""

    def producer(value: Value, kind: str) -> Node | None:
        found = alone(value)
        return found if found is not None and found.kind == kind and found.activation == NONE else None

    softmax = producer(node.inputs[0], "softmax") if node.kind == "matmul" else None
    scores = None if softmax is None else producer(softmax.inputs[0], "matmul")
    if softmax is None or scores is None:
        return ELSEWHERE
    if scores.attrs.get("heads_last"):
        return NoMatch("the scores are stored with their heads last")
    if scores.output.shape[-1] > MOST_KEYS:
        return NoMatch(
            f"there are {scores.output.shape[-1]} keys, but rows of more than {MOST_KEYS} scores do not fit a cache"
        )
    attrs = {**node.attrs, **softmax.attrs, "swap_k": scores.attrs["swap_y"]}
    inputs = (*scores.inputs, node.inputs[1], *softmax.inputs[1:])
    multiply_adds = node.multiply_adds + softmax.multiply_adds + scores.multiply_adds
    joined = replace(node, kind="attention", inputs=inputs, attrs=attrs, multiply_adds=multiply_adds)
    return Rewrite({softmax: (), scores: (), node: (joined,)})
