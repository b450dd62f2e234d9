"""Matrix products."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from fluidtool.ir import Operator
from fluidtool.runtime.graph.importers.batches import as_one_matrix, batch_of, repeated, turned
from fluidtool.runtime.graph.importers.quantization import use_8_bits
from fluidtool.runtime.graph.importers.registry import AFFINE, GraphBuilder, imports, need
from fluidtool.runtime.graph.ir import NONE, Activation, Node, Value


@imports("mul")
def _mul(r: GraphBuilder, op: Operator, attrs: dict[str, Any]) -> None:
    x, y = r.get(op, "X"), r.get(op, "Y")
    left, right = int(attrs["x_num_col_dims"]), int(attrs["y_num_col_dims"])
    rows, depth, columns = prod(x.shape[:left]), prod(x.shape[left:]), prod(y.shape[right:])
    need(y.array is not None and y.array.dtype == np.float32, "mul by a computed value")
    shape = (*x.shape[:left], *y.shape[right:])
    r.add("product", [x], op, "Out", shape, matrix=(rows, depth), weights=y.array.reshape(depth, columns), shift=None)
    if right == len(y.shape) - 1:
        use_8_bits(r, op, "Y", right)


@imports("fc")
def _fc(r: GraphBuilder, op: Operator, attrs: dict[str, Any]) -> None:
    x, weights = r.get(op, "Input"), r.constant(op, "W")
    need(not attrs.get("padding_weights") and weights.dtype == np.float32, "fc with padded weights")
    left = int(attrs["in_num_col_dims"])
    bias = r.constant(op, "Bias") if op.inputs.get("Bias") else None
    act = attrs.get("activation_type", "")
    need(act in ("", "relu"), f"fc with {act}")
    shape = (*x.shape[:left], weights.shape[1])
    matrix = (prod(x.shape[:left]), prod(x.shape[left:]))
    shift = None if bias is None else bias.reshape(-1)
    r.add("product", [x], op, "Out", shape, Activation(1 if act else 0), matrix=matrix, weights=weights, shift=shift)
    use_8_bits(r, op, "W", 1)


@imports("matmul", "matmul_v2")
def _matmul(r: GraphBuilder, op: Operator, attrs: dict[str, Any]) -> None:
    x, y = r.get(op, "X"), r.get(op, "Y")
    swap_x, swap_y = (
        bool(attrs.get(a, attrs.get(b))) for a, b in (("transpose_X", "trans_x"), ("transpose_Y", "trans_y"))
    )
    alpha = float(attrs.get("alpha", 1.0))
    more = attrs.get("head_number", 1) > 1 or attrs.get("fused_transpose_Out") or attrs.get("fused_reshape_Out")
    need(not more, "matmul by heads, or one that a pass fused")
    is_plain = len(x.shape) >= 2 and len(y.shape) >= 2 and (r.for_gpus or not swap_x)
    need(is_plain, "matmul of a vector or of a transposed X")
    depth, columns = (y.shape[-1], y.shape[-2]) if swap_y else (y.shape[-2], y.shape[-1])
    need(x.shape[-2 if swap_x else -1] == depth, "matmul of sizes that do not match")
    if not swap_x and y.array is not None and len(y.shape) == 2:
        weights = y.array.T if swap_y else y.array
        need(weights.dtype == np.float32, "matmul of a type other than float32")
        weights = weights if alpha == 1.0 else weights * np.float32(alpha)
        shape = (*x.shape[:-1], columns)
        r.add("product", [x], op, "Out", shape, matrix=(prod(x.shape[:-1]), depth), weights=weights, shift=None)
        use_8_bits(r, op, "Y", 0 if swap_y else 1, float(np.float32(alpha)), swap_y)
        return
    factor = NONE if alpha == 1.0 else Activation(AFFINE, (alpha, 0.0))
    if x.shape[:-2] == y.shape[:-2] and 2 < len(x.shape) <= 4 and not swap_x:
        r.add("matmul", [x, y], op, "Out", (*x.shape[:-1], columns), factor, swap_y=swap_y)
        return
    need(r.for_gpus, "matmul with broadcasting")
    _add_broadcast(r, op, (x, y), (swap_x, swap_y), factor)


def _add_broadcast(
    r: GraphBuilder, op: Operator, factors: tuple[Value, Value], swaps: tuple[bool, bool], factor: Activation
) -> None:
    """A product of batches that are broadcast, or of single matrices."""
    (x, y), (swap_x, swap_y) = factors, swaps
    whole = batch_of(op.type, x.shape, y.shape)
    x = as_one_matrix(r, x, y, swap_x)
    batch = batch_of(op.type, x.shape, y.shape)
    x, y = repeated(r, x, batch), repeated(r, y, batch)
    x = turned(r, x) if swap_x else x
    shape = (*x.shape[:-1], y.shape[-2 if swap_y else -1])
    rows = prod(shape[:-1]) // prod(whole)
    out = Value(op.outputs["Out"][0], shape)
    r.nodes.append(Node("matmul", [x, y], out, {"swap_y": swap_y}, factor))
    r.add("view", [out], op, "Out", (*whole, rows, shape[-1]))
