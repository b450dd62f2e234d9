"""log_softmax: the logarithm of softmax along one axis (Paddle 2.x)."""

from __future__ import annotations

from typing import Any

from fluidtool.ops.activation.softmax import shifted
from fluidtool.ops.context import InferContext, OpContext
from fluidtool.ops.registry import op
from fluidtool.ops.schema import USE_MKLDNN, TensorMeta
from fluidtool.shapes import shape_text


@op("log_softmax", inputs="X", outputs="Out", attrs={"axis": -1, **USE_MKLDNN}, lod="X")
def log_softmax(ctx: OpContext, X: Any, *, axis: int) -> Any:
    """X - max - log(sum(exp(X - max))) along `axis`, floating point; X - max is at least -64."""
    if not -max(X.ndim, 1) <= axis < max(X.ndim, 1):
        raise ctx.error(f"axis {axis} is out of range for X of shape {shape_text(X.shape)}")
    if X.size == 0 or X.ndim == 0:
        return ctx.xp.zeros_like(X)
    moved = shifted(ctx, X, axis)
    return moved - ctx.xp.log(ctx.xp.exp(moved).sum(axis=axis, keepdims=True, dtype=X.dtype))


@log_softmax.infer
def _(ctx: InferContext, X: TensorMeta) -> TensorMeta:
    return X


@log_softmax.grad(inputs="Out Out@GRAD", outputs="X@GRAD", lod="Out")
def log_softmax_grad(ctx: OpContext, Out: Any, Out_grad: Any, *, axis: int) -> Any:
    """dX = dOut - exp(Out) * sum(dOut)."""
    if Out.ndim == 0:
        return ctx.xp.zeros_like(Out)
    return Out_grad - ctx.xp.exp(Out) * Out_grad.sum(axis=axis, keepdims=True, dtype=Out.dtype)
