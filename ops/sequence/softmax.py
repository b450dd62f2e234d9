"""sequence_softmax: softmax over the rows of every sequence."""

from __future__ import annotations

from typing import Any

from fluidtool.ops.context import InferContext, OpContext
from fluidtool.ops.registry import op
from fluidtool.ops.schema import USE_CUDNN, TensorMeta
from fluidtool.ops.sequence.picking import row_sequences, sequence_offsets
from fluidtool.ops.sequence.segments import segment_max, segment_sum


@op("sequence_softmax", inputs="X", outputs="Out", attrs={"data_format": "AnyLayout", **USE_CUDNN}, lod="X")
def sequence_softmax(ctx: OpContext, X: Any) -> Any:
    """Softmax of X ([T] or [T, 1]) within every sequence of the last LoD level (Paddle 1.8.5 sequence_softmax_op.cc)."""
    if X.ndim < 1 or X.size != X.shape[0]:
        raise ctx.error(f"X must have one value a row, found shape {X.shape}")
    offsets = sequence_offsets(ctx, "X", X.shape[0])
    owner = ctx.array(row_sequences(ctx, offsets))
    peaks, _ = segment_max(ctx, X, offsets, 0)
    powers = ctx.xp.exp(X - peaks[owner])
    return powers / segment_sum(ctx, powers, offsets)[owner]


@sequence_softmax.infer
def _(ctx: InferContext, X: TensorMeta) -> TensorMeta:
    return X


@sequence_softmax.grad(inputs="X Out Out@GRAD", outputs="X@GRAD")
def sequence_softmax_grad(ctx: OpContext, X: Any, Out: Any, Out_grad: Any) -> Any:
    """dX = Out * (dOut - sum over the sequence of Out * dOut)."""
    ctx.set_lod("X@GRAD", ctx.lod("X"))
    offsets = sequence_offsets(ctx, "X", X.shape[0])
    weighted = Out * Out_grad
    return weighted - Out * segment_sum(ctx, weighted, offsets)[ctx.array(row_sequences(ctx, offsets))]
