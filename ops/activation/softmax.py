"""softmax: exp(x - max) / sum(exp(x - max)) along one axis."""

from __future__ import annotations

from typing import Any

from fluidtool.ops.context import InferContext, OpContext
from fluidtool.ops.registry import op
from fluidtool.ops.schema import USE_CUDNN, USE_MKLDNN, TensorMeta
from fluidtool.shapes import shape_text

# Paddle clips larger distances from the largest element to this one: no probability is 0.
LOWEST = -64.0


@op(
    "softmax",
    inputs="X",
    outputs="Out",
    attrs={"axis": -1, "data_format": "AnyLayout", "is_test": False, **USE_CUDNN, **USE_MKLDNN},
    lod="X",
)
def softmax(ctx: OpContext, X: Any, *, axis: int) -> Any:
    """Softmax of X along `axis`, any shape, floating point (Paddle 1.8.5 softmax_op.cc)."""
    if not -max(X.ndim, 1) <= axis < max(X.ndim, 1):
        raise ctx.error(f"axis {axis} is out of range for X of shape {X.shape}")
    if X.size == 0:
        return X
    if X.ndim == 0:
        return ctx.xp.ones_like(X)
    out = shifted(ctx, X, axis)
    ctx.xp.exp(out, out=out)
    out /= out.sum(axis=axis, keepdims=True)
    return out


def shifted(ctx: OpContext, x: Any, axis: int) -> Any:
    """x minus its largest element along `axis`, at least LOWEST."""
    moved = x - x.max(axis=axis, keepdims=True)
    return ctx.xp.maximum(moved, moved.dtype.type(LOWEST), out=moved)


@softmax.infer
def _(ctx: InferContext, X: TensorMeta, *, axis: int) -> TensorMeta:
    if X.rank and not -X.rank <= axis < X.rank:
        raise ctx.error(f"attribute axis {axis} is out of range for X of shape {shape_text(X.shape)}")
    return X


@softmax.grad(inputs="Out Out@GRAD", outputs="X@GRAD")
def softmax_grad(ctx: OpContext, Out: Any, Out_grad: Any, *, axis: int) -> Any:
    """dX = Out * (dOut - sum(Out * dOut))."""
    return Out * (Out_grad - (Out * Out_grad).sum(axis=axis, keepdims=True))
