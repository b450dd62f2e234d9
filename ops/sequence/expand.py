"""sequence_expand and sequence_expand_as: sequences repeated as often as another tensor's LoD says."""

from __future__ import annotations

from typing import Any

from fluidtool.ops.context import InferContext, OpContext
from fluidtool.ops.registry import op
from fluidtool.ops.schema import TensorMeta
from fluidtool.ops.sequence.picking import check_rows, offsets_of, row_sequences, take_sequences
from fluidtool.ops.sequence.segments import scatter_sum, segment_sum
from fluidtool.ops.traits import Traits
from fluidtool.tensor.lod import LoD


@op("sequence_expand", inputs="X Y", outputs="Out", attrs={"ref_level": -1}, traits=Traits(lod_branch="X"))
def sequence_expand(ctx: OpContext, X: Any, Y: Any, *, ref_level: int) -> Any:
    """Repeat the i-th sequence (or row) of X as often as the i-th sequence of Y has items at LoD level `ref_level`.

    X [T, …] with at most one LoD level (Paddle 1.8.5 sequence_expand_op.cc).
    """
    lod, rows = _expanded(ctx, X, ref_level)
    ctx.set_lod("Out", lod)
    return X[ctx.array(rows)]


@sequence_expand.infer
def _(ctx: InferContext, X: TensorMeta, Y: TensorMeta) -> TensorMeta:
    if X.rank < 2:
        raise ctx.error(f"X must have at least 2 dimensions, found shape {X.shape}")
    return X.with_shape((-1, *X.shape[1:]))


@sequence_expand.grad(inputs="X Y Out@GRAD", outputs="X@GRAD")
def sequence_expand_grad(ctx: OpContext, X: Any, Y: Any, Out_grad: Any, *, ref_level: int) -> Any:
    """Every row of X gets the sum of the gradients of its copies."""
    ctx.set_lod("X@GRAD", ctx.lod("X"))
    _, rows = _expanded(ctx, X, ref_level)
    return scatter_sum(ctx, Out_grad, rows, X.shape[0])


def _expanded(ctx: OpContext, X: Any, ref_level: int) -> tuple[LoD, Any]:
    """LoD of the output and the row of X behind every row of the output."""
    x_lod, y_lod = ctx.lod("X"), ctx.lod("Y")
    if X.ndim < 2:
        raise ctx.error(f"X must have at least 2 dimensions, found shape {X.shape}")
    if len(x_lod) > 1:
        raise ctx.error(f"X must have at most one LoD level, found {len(x_lod)}")
    if not y_lod:
        raise ctx.error("input Y needs a LoD, found none; feed it with sequence lengths")
    if not -1 <= ref_level < len(y_lod):
        raise ctx.error(f"ref_level must be -1 or in [0, {len(y_lod)}), found {ref_level}")
    repeats = ctx.np.diff(y_lod[ref_level])
    count = len(x_lod[0]) - 1 if x_lod else X.shape[0]
    if count != len(repeats):
        raise ctx.error(
            f"X has {count} {'sequences' if x_lod else 'rows'}, but level {ref_level} of Y's LoD has {len(repeats)} sequences"
        )
    if x_lod:
        check_rows(ctx, "X", x_lod[0], X.shape[0])
    return take_sequences(ctx, x_lod, ctx.np.repeat(ctx.np.arange(count), repeats))


@op("sequence_expand_as", inputs="X Y", outputs="Out")
def sequence_expand_as(ctx: OpContext, X: Any, Y: Any) -> Any:
    """Repeat the i-th row of X over the rows of the i-th sequence of Y (Paddle 1.8.5 sequence_expand_as_op.cc)."""
    offsets = _row_offsets(ctx, X)
    ctx.set_lod("Out", ctx.lod("Y"))
    return X[ctx.array(row_sequences(ctx, offsets))]


@sequence_expand_as.infer
def _(ctx: InferContext, X: TensorMeta, Y: TensorMeta) -> TensorMeta:
    return TensorMeta((-1, *X.shape[1:]), X.dtype, Y.lod_level)


@sequence_expand_as.grad(inputs="X Y Out@GRAD", outputs="X@GRAD", lod="X")
def sequence_expand_as_grad(ctx: OpContext, X: Any, Y: Any, Out_grad: Any) -> Any:
    """Every row of X gets the sum of the gradients of its copies."""
    return segment_sum(ctx, Out_grad, _row_offsets(ctx, X))


def _row_offsets(ctx: OpContext, X: Any) -> list[int]:
    y_lod = ctx.lod("Y")
    if X.ndim < 2:
        raise ctx.error(f"X must have at least 2 dimensions, found shape {X.shape}")
    if len(y_lod) != 1:
        raise ctx.error(f"input Y needs a LoD of one level, found {len(y_lod)}; feed it with sequence lengths")
    offsets = offsets_of(ctx.np.diff(y_lod[0]))
    if len(offsets) - 1 != X.shape[0]:
        raise ctx.error(f"X has {X.shape[0]} rows, but Y has {len(offsets) - 1} sequences; the numbers must be equal")
    return offsets
