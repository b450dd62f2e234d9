"""Elementwise operators that came with Paddle 2.x: atan2, lerp, logit, nextafter, grad_add."""

from __future__ import annotations

from typing import Any

from fluidtool.ops.activation.unary import FROM_X, activation
from fluidtool.ops.context import InferContext, OpContext
from fluidtool.ops.math.elementwise_common import GRAD_LOD, aligned, broadcast_meta, grad_lod, summed_to
from fluidtool.ops.math.matrix_common import summed_batches
from fluidtool.ops.registry import op
from fluidtool.ops.schema import TensorMeta
from fluidtool.proto.enums import VarType

_WHOLE = frozenset({VarType.INT32, VarType.INT64})


@op("atan2", inputs="X1 X2", outputs="Out")
def atan2(ctx: OpContext, X1: Any, X2: Any) -> Any:
    """The angle of the point (X2, X1), in -π … π; float64 for integers."""
    y, x = aligned(ctx, X1, X2, -1)
    return ctx.xp.arctan2(y.astype("float64"), x.astype("float64")) if y.dtype.kind in "iu" else ctx.xp.arctan2(y, x)


@atan2.infer
def _(ctx: InferContext, X1: TensorMeta, X2: TensorMeta) -> TensorMeta:
    out = broadcast_meta(ctx, X1, X2, axis=-1)
    return out.with_dtype(VarType.FP64) if X1.dtype in _WHOLE else out


@atan2.grad(inputs="X1 X2 Out@GRAD", outputs="X1@GRAD X2@GRAD")
def atan2_grad(ctx: OpContext, X1: Any, X2: Any, Out_grad: Any) -> dict[str, Any]:
    """dX1 = dOut * X2 / (X1² + X2²), dX2 = -dOut * X1 / (X1² + X2²)."""
    y, x = aligned(ctx, X1, X2, -1)
    scaled = Out_grad / (x * x + y * y)
    return {"X1@GRAD": summed_to(ctx, scaled * x, X1, X2, -1), "X2@GRAD": summed_to(ctx, -scaled * y, X2, X1, -1)}


@op("lerp", inputs="X Y Weight", outputs="Out")
def lerp(ctx: OpContext, X: Any, Y: Any, Weight: Any) -> Any:
    """X + Weight * (Y - X), all three broadcast."""
    x, y = aligned(ctx, X, Y, -1)
    return x + Weight * (y - x)


@lerp.infer
def _(ctx: InferContext, X: TensorMeta, Y: TensorMeta, Weight: TensorMeta) -> TensorMeta:
    return broadcast_meta(ctx, broadcast_meta(ctx, X, Y, axis=-1), Weight, axis=-1)


@lerp.grad(inputs="X Y Weight Out Out@GRAD", outputs="X@GRAD Y@GRAD")
def lerp_grad(ctx: OpContext, X: Any, Y: Any, Weight: Any, Out: Any, Out_grad: Any) -> dict[str, Any]:
    """dX = dOut * (1 - Weight), dY = dOut * Weight; Weight gets no gradient in Paddle."""
    return {
        "X@GRAD": summed_batches(Out_grad * (1 - Weight), X.shape),
        "Y@GRAD": summed_batches(Out_grad * Weight, Y.shape),
    }


@activation("logit", {"eps": 1e-6})
def logit(ctx: OpContext, X: Any, *, eps: float) -> Any:
    """log(X / (1 - X)), X cut to eps … 1 - eps first; NaN outside 0 … 1 when eps is 0."""
    low = X.dtype.type(eps)
    x = ctx.xp.minimum(ctx.xp.maximum(X, low), 1 - low) if eps else X
    return ctx.xp.log(x / (1 - x))


@logit.grad(**FROM_X)
def logit_grad(ctx: OpContext, X: Any, Out_grad: Any, *, eps: float) -> Any:
    """dX = dOut / (X * (1 - X)) between eps and 1 - eps, 0 outside (NaN when eps is 0)."""
    inside = (eps <= X) & (1 - eps >= X)
    slope = Out_grad / (X * (1 - X))
    return ctx.xp.where(inside, slope, X.dtype.type(0 if eps else "nan"))


@op("grad_add", inputs="X Y", outputs="Out", attrs={"axis": -1}, lod="X")
def grad_add(ctx: OpContext, X: Any, Y: Any, *, axis: int) -> Any:
    """X + Y, as programs of Paddle 2.x add up gradients."""
    x, y = aligned(ctx, X, Y, axis)
    return x + y


grad_add.infer(broadcast_meta)


@grad_add.grad(inputs="X Y Out@GRAD", outputs="X@GRAD Y@GRAD", lod=GRAD_LOD)
def grad_add_grad(ctx: OpContext, X: Any, Y: Any, Out_grad: Any, *, axis: int) -> dict[str, Any]:
    """dX = dOut, dY = dOut, each summed over the dimensions along which it was repeated."""
    grad_lod(ctx)
    return {"X@GRAD": summed_to(ctx, Out_grad, X, Y, axis), "Y@GRAD": summed_to(ctx, Out_grad, Y, X, axis)}


@op("nextafter", inputs="x y", outputs="out")
def nextafter(ctx: OpContext, x: Any, y: Any) -> Any:
    """The number next to x on the way to y; float64 for integers (Paddle 2.6.2 nextafter_kernel_impl.h)."""
    left, right = aligned(ctx, x, y, -1)
    wide = "float64" if left.dtype.kind in "iu" else left.dtype
    return ctx.xp.nextafter(left.astype(wide, copy=False), right.astype(wide, copy=False))


@nextafter.infer
def _(ctx: InferContext, x: TensorMeta, y: TensorMeta) -> TensorMeta:
    out = broadcast_meta(ctx, x, y, axis=-1)
    return out.with_dtype(VarType.FP64) if x.dtype in _WHOLE else out
