"""Clipping: clip to a range, clip_by_norm to a norm."""

from __future__ import annotations

from typing import Any

from fluidtool.ops.activation.unary import clipped
from fluidtool.ops.context import InferContext, OpContext
from fluidtool.ops.math.sum import merged_rows
from fluidtool.ops.registry import op
from fluidtool.ops.schema import FLOAT, TensorMeta, required
from fluidtool.shapes import shape_text
from fluidtool.tensor import SelectedRows

CLIP_ATTRS: dict[str, Any] = {"min": required(FLOAT), "max": required(FLOAT)}


@op("clip", inputs="X Min? Max?", outputs="Out", attrs=CLIP_ATTRS, lod="X")
def clip(ctx: OpContext, X: Any, Min: Any, Max: Any, *, min: float, max: float) -> Any:
    """X clipped to min … max, or to the numbers in Min and Max; rows of SelectedRows are merged first (clip_op.h)."""
    low, high = _bounds(ctx, Min, Max, min, max)
    if isinstance(X, SelectedRows):
        merged = merged_rows(ctx, [X])
        return SelectedRows(merged.row_ids, merged.table_height, clipped(ctx, merged.value, low, high))
    return clipped(ctx, X, low, high)


@clip.infer
def _(ctx: InferContext, X: TensorMeta, Min: TensorMeta | None, Max: TensorMeta | None) -> TensorMeta:
    return X


@clip.grad(inputs="X Min? Max? Out@GRAD", outputs="X@GRAD")
def clip_grad(ctx: OpContext, X: Any, Min: Any, Max: Any, Out_grad: Any, *, min: float, max: float) -> Any:
    """dX = dOut where min < X < max."""
    low, high = _bounds(ctx, Min, Max, min, max)
    return Out_grad * ((low < X) & (high > X))


def _bounds(ctx: OpContext, Min: Any, Max: Any, low: float, high: float) -> tuple[float, float]:
    for slot, tensor in (("Min", Min), ("Max", Max)):
        if tensor is not None and tensor.size != 1:
            raise ctx.error(f"{slot} must hold one number, found shape {shape_text(tensor.shape)}")
    low = low if Min is None else float(ctx.host(Min).reshape(()))
    high = high if Max is None else float(ctx.host(Max).reshape(()))
    if not low <= high:
        raise ctx.error(f"min {low} must not be above max {high}")
    return low, high


@op("clip_by_norm", inputs="X", outputs="Out", attrs={"max_norm": required(FLOAT)}, lod="X")
def clip_by_norm(ctx: OpContext, X: Any, *, max_norm: float) -> Any:
    """X scaled down to the length max_norm when it is longer; rows of SelectedRows are merged first (clip_by_norm_op.h)."""
    _check_norm(ctx, max_norm)
    if isinstance(X, SelectedRows):
        merged = merged_rows(ctx, [X])
        return SelectedRows(merged.row_ids, merged.table_height, _shortened(ctx, merged.value, max_norm))
    return _shortened(ctx, X, max_norm)


@clip_by_norm.infer
def _(ctx: InferContext, X: TensorMeta, *, max_norm: float) -> TensorMeta:
    _check_norm(ctx, max_norm)
    return X


def _check_norm(ctx: OpContext | InferContext, max_norm: float) -> None:
    if not max_norm > 0:
        raise ctx.error(f"max_norm must be greater than 0, found {max_norm}")


def _shortened(ctx: OpContext, x: Any, max_norm: float) -> Any:
    length = ctx.xp.sqrt((x * x).sum(dtype=x.dtype))
    longest = x.dtype.type(max_norm)
    return x * (longest / ctx.xp.maximum(length, longest))
