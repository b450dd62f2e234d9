"""Losses of orderings: margin_rank_loss, rank_loss, bpr_loss."""

from __future__ import annotations

from typing import Any

from fluidtool.ops.context import InferContext, OpContext
from fluidtool.ops.loss.binary import one_column, sigmoid
from fluidtool.ops.loss.labels import check_classes, finite, one_hot, pick
from fluidtool.ops.registry import op
from fluidtool.ops.schema import TensorMeta
from fluidtool.ops.tensor.arguments import may_be_same
from fluidtool.shapes import shape_text


@op("margin_rank_loss", inputs="X1 X2 Label", outputs="Activated~ Out", attrs={"margin": 0.0})
def margin_rank_loss(ctx: OpContext, X1: Any, X2: Any, Label: Any, *, margin: float) -> Any:
    """Out = max(margin - label * (x1 - x2), 0) for columns [N, 1]; Activated is 1 where it is positive.

    Label 1: x1 should rank above x2, -1: below (Paddle 1.8.5 margin_rank_loss_op.h).
    """
    one_column(ctx, Label=Label, X1=X1, X2=X2)
    out = ctx.xp.maximum(-Label * (X1 - X2) + margin, 0)
    return {"Activated": (out > 0).astype(out.dtype), "Out": out}


@margin_rank_loss.infer
def _(ctx: InferContext, X1: TensorMeta, X2: TensorMeta, Label: TensorMeta) -> dict[str, TensorMeta]:
    one_column(ctx, Label=Label, X1=X1, X2=X2)
    out = X1.with_shape(Label.shape).with_lod_level(0)
    return {"Activated": out, "Out": out}


@margin_rank_loss.grad(inputs="Label Activated Out@GRAD", outputs="X1@GRAD X2@GRAD")
def margin_rank_loss_grad(ctx: OpContext, Label: Any, Activated: Any, Out_grad: Any) -> Any:
    """dX1 = -dOut * activated * label, dX2 = -dX1."""
    gradient = Out_grad * Activated * Label
    return {"X1@GRAD": -gradient, "X2@GRAD": gradient}


@op("rank_loss", inputs="Label Left Right", outputs="Out")
def rank_loss(ctx: OpContext, Label: Any, Left: Any, Right: Any) -> Any:
    """Out = log(1 + exp(left - right)) - label * (left - right), each [N] or [N, 1] (Paddle 1.8.5 rank_loss_op.h).

    A difference too large for exp gives infinity.
    """
    _check_rank_loss(ctx, Label, Left, Right)
    difference = (Left.reshape(-1) - Right.reshape(-1)).reshape(Label.shape)
    return ctx.xp.log(1 + ctx.xp.exp(difference)) - Label * difference


def _check_rank_loss(ctx: OpContext | InferContext, Label: Any, Left: Any, Right: Any) -> None:
    for slot, value in (("Label", Label), ("Left", Left), ("Right", Right)):
        shape = tuple(value.shape)
        fits = len(shape) in (1, 2) and (shape[0] == Label.shape[0] or -1 in (shape[0], Label.shape[0]))
        if not (fits and shape[1:] in ((), (1,), (-1,))):
            raise ctx.error(
                f"inputs Label, Left and Right must have shape (N,) or (N, 1) with one N ({Label.shape[0]}), "
                f"found {slot} of shape {shape_text(shape)}"
            )


@rank_loss.infer
def _(ctx: InferContext, Label: TensorMeta, Left: TensorMeta, Right: TensorMeta) -> TensorMeta:
    _check_rank_loss(ctx, Label, Left, Right)
    return Left.with_shape(Label.shape).with_lod_level(0)


@rank_loss.grad(inputs="Label Left Right Out@GRAD", outputs="Left@GRAD Right@GRAD")
def rank_loss_grad(ctx: OpContext, Label: Any, Left: Any, Right: Any, Out_grad: Any) -> Any:
    """dLeft = dOut * (sigmoid(left - right) - label), dRight = -dLeft."""
    probability = sigmoid(ctx, Left.reshape(-1) - Right.reshape(-1))
    gradient = Out_grad.reshape(-1) * (probability - Label.reshape(-1))
    return {"Left@GRAD": gradient.reshape(Left.shape), "Right@GRAD": -gradient.reshape(Right.shape)}


@op("bpr_loss", inputs="X Label", outputs="Y", lod="X")
def bpr_loss(ctx: OpContext, X: Any, Label: Any) -> Any:
    """Bayesian personalized ranking: Y = mean over the other classes j of log(1 + exp(x[j] - x[label])).

    X [..., classes], Label integers [..., 1], Y [..., 1] (Paddle 1.8.5 bpr_loss_op.h).
    """
    _check_bpr(ctx, X, Label)
    classes = X.shape[-1]
    counted = check_classes(ctx, Label, classes)
    difference = finite(ctx, X - pick(ctx, X, Label, counted, -1))
    losses = ctx.xp.log(finite(ctx, 1 + ctx.xp.exp(difference)))
    others = ~one_hot(ctx, Label, counted, classes, -1)
    return (losses * others).sum(axis=-1, keepdims=True) / (classes - 1)


def _check_bpr(ctx: OpContext | InferContext, X: Any, Label: Any) -> None:
    expected = (*X.shape[:-1], 1)
    if not may_be_same(Label.shape, expected):
        raise ctx.error(
            f"input Label must have shape {expected} for X of shape {shape_text(X.shape)}, found {shape_text(Label.shape)}"
        )
    if X.shape[-1] == 1:
        raise ctx.error(f"input X of shape {shape_text(X.shape)} needs at least two classes to rank, found 1")


@bpr_loss.infer
def _(ctx: InferContext, X: TensorMeta, Label: TensorMeta) -> TensorMeta:
    _check_bpr(ctx, X, Label)
    return X.with_shape((*X.shape[:-1], 1))


@bpr_loss.grad(inputs="X Label Y@GRAD", outputs="X@GRAD", lod="X")
def bpr_loss_grad(ctx: OpContext, X: Any, Label: Any, Y_grad: Any) -> Any:
    """dx[j] = dY / (classes - 1) / (1 + exp(x[label] - x[j])); the labeled class gets minus their sum."""
    classes = X.shape[-1]
    counted = check_classes(ctx, Label, classes)
    chosen = one_hot(ctx, Label, counted, classes, -1)
    slope = Y_grad / ((classes - 1) * (1 + finite(ctx, ctx.xp.exp(pick(ctx, X, Label, counted, -1) - X))))
    slope = ctx.xp.where(chosen, slope.dtype.type(0), slope)
    return ctx.xp.where(chosen, -slope.sum(axis=-1, keepdims=True), slope)
