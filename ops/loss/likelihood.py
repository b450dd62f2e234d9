"""Losses of log-probabilities: kldiv_loss and nll_loss."""

from __future__ import annotations

from typing import Any

from fluidtool.ops.context import InferContext, OpContext
from fluidtool.ops.loss.checks import same_shape
from fluidtool.ops.loss.labels import check_classes, one_hot, pick
from fluidtool.ops.math.versions import scalar_shape
from fluidtool.ops.registry import op
from fluidtool.ops.schema import TensorMeta, long
from fluidtool.shapes import shape_text


def _check_reduction(ctx: OpContext | InferContext, reduction: str, *known: str) -> None:
    if reduction not in known:
        raise ctx.error(f"attribute reduction must be one of {', '.join(known)}, found {reduction!r}")


@op("kldiv_loss", inputs="X Target", outputs="Loss", attrs={"reduction": "mean"})
def kldiv_loss(ctx: OpContext, X: Any, Target: Any, *, reduction: str) -> Any:
    """target * (log(target) - x), 0 where target <= 0; whole, or its sum, mean or sum per batch item as [1].

    X are log-probabilities, any shape (Paddle 1.8.5 kldiv_loss_op.h).
    """
    same_shape(ctx, X=X, Target=Target)
    _check_reduction(ctx, reduction, "none", "batchmean", "sum", "mean")
    positive = Target > 0
    logs = ctx.xp.log(ctx.xp.where(positive, Target, Target.dtype.type(1)))
    losses = ctx.xp.where(positive, Target * (logs - X), X.dtype.type(0))
    if reduction == "none":
        return losses
    return (losses.sum() / _divisor(X, reduction)).astype(X.dtype).reshape(1)


def _divisor(X: Any, reduction: str) -> int:
    sizes: dict[str, int] = {"sum": 1, "mean": max(X.size, 1), "batchmean": X.shape[0]}
    return sizes[reduction]


@kldiv_loss.infer
def _(ctx: InferContext, X: TensorMeta, Target: TensorMeta, *, reduction: str) -> TensorMeta:
    same_shape(ctx, X=X, Target=Target)
    _check_reduction(ctx, reduction, "none", "batchmean", "sum", "mean")
    return X.with_shape(X.shape if reduction == "none" else (1,)).with_lod_level(0)


@kldiv_loss.grad(inputs="X Target Loss@GRAD", outputs="X@GRAD")
def kldiv_loss_grad(ctx: OpContext, X: Any, Target: Any, Loss_grad: Any, *, reduction: str) -> Any:
    """dX = -target * dLoss, divided like the loss; 0 where target <= 0."""
    gradient = ctx.xp.where(Target > 0, -Target, Target.dtype.type(0)) * Loss_grad.reshape(
        Target.shape if reduction == "none" else (1,) * Target.ndim
    )
    return gradient if reduction in ("none", "sum") else gradient / _divisor(X, reduction)


@op(
    "nll_loss",
    inputs="X Label Weight?",
    outputs="Out Total_weight",
    attrs={"ignore_index": long(-100), "reduction": "mean"},
)
def nll_loss(ctx: OpContext, X: Any, Label: Any, Weight: Any, *, ignore_index: int, reduction: str) -> Any:
    """Minus the log-probability of each label times its class's weight: whole, summed, or divided by the total weight.

    X [N, classes] or [N, classes, H, W] of log-probabilities, Label [N] or [N, H, W], Weight [classes]
    (Paddle 1.8.5 nll_loss_op.h).
    """
    _check_nll(ctx, X, Label, Weight, reduction)
    labels, counted, weights = _weights(ctx, X, Label, Weight, ignore_index)
    losses = -pick(ctx, X, labels, counted, 1) * weights
    one = scalar_shape(ctx)
    if reduction == "none":
        return {"Out": losses.reshape(Label.shape), "Total_weight": ctx.xp.zeros(one, X.dtype)}
    total, out = weights.sum(dtype=X.dtype).reshape(one), losses.sum(dtype=X.dtype).reshape(one)
    if reduction == "mean":
        out = ctx.xp.where(total != 0, out / total, out)
    return {"Out": out, "Total_weight": total}


def _weights(ctx: OpContext, X: Any, Label: Any, Weight: Any, ignore_index: int) -> tuple[Any, Any, Any]:
    labels = ctx.xp.expand_dims(Label, 1)
    counted = check_classes(ctx, labels, X.shape[1], ignore_index)
    weights = counted.astype(X.dtype)
    if Weight is not None:
        weights = weights * Weight[ctx.xp.where(counted, labels, 0)]
    return labels, counted, weights


def _check_nll(ctx: OpContext | InferContext, X: Any, Label: Any, Weight: Any, reduction: str) -> None:
    _check_reduction(ctx, reduction, "none", "sum", "mean")
    shape = tuple(X.shape)
    if len(shape) not in (2, 4):
        raise ctx.error(f"input X must be (N, classes) or (N, classes, H, W), found shape {shape_text(shape)}")
    expected = shape[:1] + shape[2:]
    if tuple(Label.shape) != expected and -1 not in (*shape, *Label.shape):
        raise ctx.error(
            f"input Label must have shape {expected} for X of shape {shape_text(shape)}, found {shape_text(Label.shape)}"
        )
    if Weight is not None and tuple(Weight.shape) != shape[1:2] and -1 not in (*shape, *Weight.shape):
        raise ctx.error(f"input Weight must hold one number per class ({shape[1]}), found shape {Weight.shape}")


@nll_loss.infer
def _(
    ctx: InferContext, X: TensorMeta, Label: TensorMeta, Weight: TensorMeta | None, *, reduction: str
) -> dict[str, TensorMeta]:
    _check_nll(ctx, X, Label, Weight, reduction)
    one = X.with_shape(scalar_shape(ctx)).with_lod_level(0)
    whole = X.with_shape(Label.shape).with_lod_level(0)
    return {"Out": whole if reduction == "none" else one, "Total_weight": one}


@nll_loss.grad(inputs="X Label Weight? Total_weight Out@GRAD", outputs="X@GRAD")
def nll_loss_grad(
    ctx: OpContext,
    X: Any,
    Label: Any,
    Weight: Any,
    Total_weight: Any,
    Out_grad: Any,
    *,
    ignore_index: int,
    reduction: str,
) -> Any:
    """dX = -dOut * weight at the labels, divided by the total weight for the mean."""
    labels, counted, weights = _weights(ctx, X, Label, Weight, ignore_index)
    if reduction == "none":
        slope = -weights * Out_grad.reshape(weights.shape)
    else:
        slope = -weights * Out_grad.reshape((1,) * X.ndim)
        if reduction == "mean":
            slope = slope / Total_weight.reshape((1,) * X.ndim)
    return ctx.xp.where(one_hot(ctx, labels, counted, X.shape[1], 1), slope, X.dtype.type(0))
