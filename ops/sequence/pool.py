"""sequence_pool: one row per sequence, from the sum, mean, maximum, first or last of its rows."""

from __future__ import annotations

from math import prod
from typing import Any

from fluidtool.ops.context import InferContext, OpContext
from fluidtool.ops.gradient import GradMakerContext, OpDescription
from fluidtool.ops.registry import op
from fluidtool.ops.schema import TensorMeta, one_of
from fluidtool.ops.sequence.picking import row_sequences, sequence_offsets
from fluidtool.ops.sequence.segments import segment_max, segment_sum
from fluidtool.proto.enums import VarType

POOL_TYPES = ("AVERAGE", "SUM", "SQRT", "LAST", "FIRST", "MAX")
ATTRS: dict[str, Any] = {"is_test": False, "pooltype": one_of("AVERAGE", *POOL_TYPES), "pad_value": 0.0}


@op("sequence_pool", inputs="X", outputs="Out MaxIndex~", attrs=ATTRS)
def sequence_pool(ctx: OpContext, X: Any, *, pooltype: str, pad_value: float, is_test: bool) -> Any:
    """Pool the rows of every sequence of the last LoD level: [T, …] -> [n, …] (Paddle 1.8.5 sequence_pool_op.cc).

    Empty sequences give `pad_value`. MaxIndex (int32, rows of X) is written for MAX in training only.
    """
    if pooltype not in POOL_TYPES:
        raise ctx.error(f"pooltype must be one of {', '.join(POOL_TYPES)}, found {pooltype!r}")
    offsets = sequence_offsets(ctx, "X", X.shape[0])
    ctx.set_lod("Out", ctx.lod("X")[:-1])
    if pooltype == "MAX":
        out, rows = segment_max(ctx, X, offsets, pad_value)
        return {"Out": out} if is_test else {"Out": out, "MaxIndex": rows}
    sizes = ctx.np.diff(offsets)
    filled = ctx.np.flatnonzero(sizes)
    if pooltype in ("FIRST", "LAST"):
        out = ctx.xp.full((len(sizes), *X.shape[1:]), pad_value, dtype=X.dtype)
        out[ctx.array(filled)] = X[ctx.array(_edge_rows(ctx, offsets, pooltype)[filled])]
        return out
    out = segment_sum(ctx, X, offsets) / _divisor(ctx, offsets, pooltype, X)
    if len(filled) < len(sizes):
        out[ctx.array(ctx.np.flatnonzero(sizes == 0))] = pad_value
    return out


@sequence_pool.infer
def _(ctx: InferContext, X: TensorMeta) -> dict[str, TensorMeta]:
    out = X.with_lod_level(max(X.lod_level - 1, 0))
    if ctx.attr("pooltype") == "MAX":
        return {"Out": out, "MaxIndex": TensorMeta(X.shape, ctx.declared_dtype("MaxIndex", VarType.INT32))}
    return {"Out": out}


@sequence_pool.grad_maker
def _(context: GradMakerContext) -> list[OpDescription]:
    inputs = {"Out@GRAD": context.output_grad("Out"), "X": context.input("X")}
    if context.op.get_attr("pooltype", ATTRS["pooltype"]) == "MAX":
        inputs["MaxIndex"] = context.output("MaxIndex")
    return [context.describe("sequence_pool_grad", inputs, {"X@GRAD": context.input_grad("X")})]


@op("sequence_pool_grad", inputs="X MaxIndex? Out@GRAD", outputs="X@GRAD", attrs=ATTRS, lod="X")
def sequence_pool_grad(ctx: OpContext, X: Any, MaxIndex: Any, Out_grad: Any, *, pooltype: str) -> Any:
    """Hand the gradient of every pooled row back to the rows that it came from."""
    xp = ctx.xp
    offsets = sequence_offsets(ctx, "X", X.shape[0])
    if pooltype in ("AVERAGE", "SUM", "SQRT"):
        share = Out_grad / _divisor(ctx, offsets, pooltype, Out_grad)
        return share[ctx.array(row_sequences(ctx, offsets))]
    grad = xp.zeros(X.shape, dtype=Out_grad.dtype)
    if pooltype == "MAX":
        if MaxIndex is None:
            raise ctx.error("input MaxIndex holds no value; run sequence_pool with is_test=False first")
        width = prod(X.shape[1:])
        columns = xp.broadcast_to(xp.arange(width), (Out_grad.shape[0], width))
        rows, flat = MaxIndex.reshape(columns.shape), grad.reshape(X.shape[0], width)
        taken = rows >= 0
        flat[rows[taken], columns[taken]] = Out_grad.reshape(columns.shape)[taken]
        return flat.reshape(X.shape)
    filled = ctx.np.flatnonzero(ctx.np.diff(offsets))
    grad[ctx.array(_edge_rows(ctx, offsets, pooltype)[filled])] = Out_grad[ctx.array(filled)]
    return grad


def _edge_rows(ctx: OpContext, offsets: list[int], pooltype: str) -> Any:
    rows = ctx.np.asarray(offsets)
    return rows[:-1] if pooltype == "FIRST" else rows[1:] - 1


def _divisor(ctx: OpContext, offsets: list[int], pooltype: str, like: Any) -> Any:
    """What the sums of the sequences are divided by, shaped to broadcast over `like`."""
    sizes = ctx.np.maximum(ctx.np.diff(offsets), 1).astype(ctx.np.float64)
    divisor = {"SUM": sizes**0, "SQRT": sizes**0.5, "AVERAGE": sizes}[pooltype]
    return ctx.array(divisor.reshape((-1,) + (1,) * (like.ndim - 1)), like.dtype)
