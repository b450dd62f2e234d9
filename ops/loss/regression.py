"""Losses of differences: huber_loss and smooth_l1_loss."""

from __future__ import annotations

from typing import Any

from fluidtool.ops.context import InferContext, OpContext
from fluidtool.ops.loss.checks import same_shape
from fluidtool.ops.registry import op
from fluidtool.ops.schema import FLOAT, TensorMeta, required
from fluidtool.shapes import shape_text


@op("huber_loss", inputs="X Y", outputs="Residual~ Out", attrs={"delta": required(FLOAT)}, lod="X->Out")
def huber_loss(ctx: OpContext, X: Any, Y: Any, *, delta: float) -> Any:
    """r = Y - X; Out = r² / 2 where |r| <= delta, else delta * (|r| - delta / 2) (Paddle 1.8.5 huber_loss_op.h)."""
    same_shape(ctx, X=X, Y=Y)
    residual = Y - X
    size = abs(residual)
    out = ctx.xp.where(size <= delta, residual * residual * 0.5, delta * (size - 0.5 * delta))
    return {"Residual": residual, "Out": out}


@huber_loss.infer
def _(ctx: InferContext, X: TensorMeta, Y: TensorMeta) -> dict[str, TensorMeta]:
    same_shape(ctx, X=X, Y=Y)
    return {"Residual": X.with_shape(Y.shape).with_lod_level(0), "Out": X}


@huber_loss.grad(inputs="Residual Out@GRAD", outputs="X@GRAD Y@GRAD")
def huber_loss_grad(ctx: OpContext, Residual: Any, Out_grad: Any, *, delta: float) -> Any:
    """dY = dOut * clip(r, -delta, delta), dX = -dY."""
    gradient = ctx.xp.clip(Residual, -delta, delta) * Out_grad
    return {"X@GRAD": -gradient, "Y@GRAD": gradient}


@op(
    "smooth_l1_loss",
    inputs="X Y InsideWeight? OutsideWeight?",
    outputs="Diff~ Out",
    attrs={"sigma": 1.0},
)
def smooth_l1_loss(ctx: OpContext, X: Any, Y: Any, InsideWeight: Any, OutsideWeight: Any, *, sigma: float) -> Any:
    """d = (X - Y) * inside; Out [N, 1] = the sums of outside * (d² sigma² / 2 where |d| < 1 / sigma², else |d| - 1 / (2 sigma²)).

    X, Y [N, …]; the weights come together or not at all (Paddle 1.8.5 smooth_l1_loss_op.h).
    """
    _check(ctx, X, Y, InsideWeight, OutsideWeight)
    square = sigma * sigma
    diff = X - Y if InsideWeight is None else (X - Y) * InsideWeight
    size = abs(diff)
    losses = ctx.xp.where(size < 1 / square, diff * diff * (0.5 * square), size - 0.5 / square)
    if OutsideWeight is not None:
        losses = losses * OutsideWeight
    return {"Diff": diff, "Out": losses.sum(axis=tuple(range(1, X.ndim))).reshape(-1, 1)}


def _check(ctx: OpContext | InferContext, X: Any, Y: Any, inside: Any, outside: Any) -> None:
    same_shape(ctx, X=X, Y=Y)
    if len(X.shape) < 2:
        raise ctx.error(f"input X must have at least two dimensions, found shape {shape_text(X.shape)}")
    if (inside is None) != (outside is None):
        raise ctx.error("inputs InsideWeight and OutsideWeight must be given together, found only one of them")
    if inside is not None:
        same_shape(ctx, X=X, InsideWeight=inside, OutsideWeight=outside)


@smooth_l1_loss.infer
def _(
    ctx: InferContext,
    X: TensorMeta,
    Y: TensorMeta,
    InsideWeight: TensorMeta | None,
    OutsideWeight: TensorMeta | None,
) -> dict[str, TensorMeta]:
    _check(ctx, X, Y, InsideWeight, OutsideWeight)
    dense = X.with_lod_level(0)
    return {"Diff": dense, "Out": dense.with_shape((X.shape[0], 1))}


@smooth_l1_loss.grad(inputs="InsideWeight? OutsideWeight? Diff Out@GRAD", outputs="X@GRAD Y@GRAD")
def smooth_l1_loss_grad(
    ctx: OpContext, InsideWeight: Any, OutsideWeight: Any, Diff: Any, Out_grad: Any, *, sigma: float
) -> Any:
    """dX = dOut * inside * outside * (sigma² d where |d| < 1 / sigma², else sign(d)), dY = -dX."""
    xp, square = ctx.xp, sigma * sigma
    gradient = xp.where(abs(Diff) < 1 / square, square * Diff, xp.sign(Diff))
    if InsideWeight is not None:
        gradient = gradient * (InsideWeight * OutsideWeight)
    gradient = gradient * Out_grad.reshape(len(Diff), *(1,) * (Diff.ndim - 1))
    return {"X@GRAD": gradient, "Y@GRAD": -gradient}
