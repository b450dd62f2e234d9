"""identity_loss: what a program for IPUs is trained by, a sum or mean of its input."""

from __future__ import annotations

from typing import Any

from fluidtool.ops.context import InferContext, OpContext
from fluidtool.ops.math.versions import scalar_shape
from fluidtool.ops.registry import op
from fluidtool.ops.schema import TensorMeta

SUM, MEAN, NONE = 0, 1, 2


@op("identity_loss", inputs="X", outputs="Out", attrs={"reduction": MEAN})
def identity_loss(ctx: OpContext, X: Any, *, reduction: int) -> Any:
    """The sum (reduction 0), the mean (1) or X itself (2) (Paddle 2.6.2 identity_loss_kernel.cc)."""
    _check(ctx, reduction)
    if reduction == NONE:
        return X
    total = X.sum(dtype=X.dtype) if reduction == SUM else X.mean(dtype=X.dtype)
    return total.reshape(scalar_shape(ctx))


@identity_loss.infer
def _(ctx: InferContext, X: TensorMeta, *, reduction: int) -> TensorMeta:
    _check(ctx, reduction)
    return X if reduction == NONE else X.with_shape(scalar_shape(ctx)).with_lod_level(0)


@identity_loss.grad(inputs="X Out@GRAD", outputs="X@GRAD")
def identity_loss_grad(ctx: OpContext, X: Any, Out_grad: Any, *, reduction: int) -> Any:
    """dX = dOut, divided by the number of elements for the mean."""
    if reduction == NONE:
        return Out_grad
    share = Out_grad.reshape(()) if reduction == SUM else Out_grad.reshape(()) / X.dtype.type(max(X.size, 1))
    return ctx.xp.broadcast_to(share, X.shape).astype(X.dtype)


def _check(ctx: OpContext | InferContext, reduction: int) -> None:
    if reduction not in (SUM, MEAN, NONE):
        raise ctx.error(f"reduction must be 0 (sum), 1 (mean) or 2 (none), found {reduction}")
