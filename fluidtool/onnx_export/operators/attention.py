"""Attention that a pass has fused."""

from __future__ import annotations

from fluidtool.onnx_export.graph import Graph, Value
from fluidtool.onnx_export.operation import Operation
from fluidtool.onnx_export.registry import need, renders


@renders("multihead_matmul")
def multihead_matmul(g: Graph, op: Operation) -> Value:
    """Input [N, T, D] times W [D, 3, D] gives queries, keys and values; softmax(alpha q kᵀ + mask) v, head by head."""
    x, weights, bias, mask = op["Input"], op["W"], op["Bias"], op.get("BiasQK")
    need(not op.attr("transpose_Q") and op.attr("transpose_K") and not op.attr("transpose_V"), "other transpositions")
    heads = op.attr("head_number")
    width = x.size(-1)
    each = width // heads
    all_three = x @ weights.reshape([width, 3 * width]) + bias.reshape([3 * width])
    split = all_three.reshape([x.dim(0), x.dim(1), 3, heads, each]).transpose(2, 0, 3, 1, 4)
    query, key, value = (split.pick(0, i) for i in range(3))
    scores = (query * op.attr("alpha")) @ key.swap()
    scores = scores if mask is None else scores + mask
    mixed = scores.apply("Softmax", axis=-1) @ value
    return mixed.transpose(0, 2, 1, 3).reshape([x.dim(0), x.dim(1), width])
