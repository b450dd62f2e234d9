"""mean: the average of all elements."""

from __future__ import annotations

from typing import Any

from fluidtool.ops.context import InferContext, OpContext
from fluidtool.ops.math.values import require_tensor
from fluidtool.ops.math.versions import scalar_shape
from fluidtool.ops.registry import op
from fluidtool.ops.schema import TensorMeta
from fluidtool.ops.traits import Traits
from fluidtool.shapes import shape_text


@op("mean", inputs="X", outputs="Out", traits=Traits(gradient_scope=False))
def mean(ctx: OpContext, X: Any) -> Any:
    """The average of all elements of X (floating point, any shape), shape [1]; from Paddle 2.5 on []."""
    require_tensor(ctx, "X", X)
    if not X.size:
        raise ctx.error(f"X of shape {shape_text(X.shape)} has no elements")
    return X.mean(dtype=None if X.dtype.itemsize == 2 else X.dtype).astype(X.dtype).reshape(scalar_shape(ctx))


@mean.infer
def _(ctx: InferContext, X: TensorMeta) -> TensorMeta:
    return TensorMeta(scalar_shape(ctx), X.dtype)


@mean.grad(inputs="X Out@GRAD", outputs="X@GRAD", lod="X", traits=Traits(shapes=("X",)))
def mean_grad(ctx: OpContext, X: Any, Out_grad: Any) -> Any:
    """dX = dOut / size, everywhere."""
    if Out_grad.size != 1:
        raise ctx.error(f"Out@GRAD must hold one number, found shape {shape_text(Out_grad.shape)}")
    return ctx.xp.broadcast_to(Out_grad.reshape(()) / X.dtype.type(max(X.size, 1)), X.shape).copy()
