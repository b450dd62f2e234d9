"""cross_entropy and cross_entropy2: -log(p) of the labeled class, p given as probabilities along the last axis."""

from __future__ import annotations

from typing import Any

from fluidtool.ops.context import InferContext, OpContext
from fluidtool.ops.loss.labels import check_classes, finite, pick, spread
from fluidtool.ops.registry import op
from fluidtool.ops.schema import TensorMeta
from fluidtool.ops.tensor.arguments import may_be_same
from fluidtool.shapes import shape_text


def column(ctx: OpContext | InferContext, X: Any, Label: Any) -> tuple[int, ...]:
    """The shape of hard labels with a last axis of size 1; fails when it does not fit X."""
    shape = (*X.shape[:-1], 1)
    if not (may_be_same(Label.shape, shape) or may_be_same(Label.shape, shape[:-1])):
        raise ctx.error(
            f"input Label must have shape {shape_text(shape)} or {shape_text(shape[:-1])} for X of shape {shape_text(X.shape)}, "
            f"found {shape_text(Label.shape)}"
        )
    return shape


@op(
    "cross_entropy",
    inputs="X Label",
    outputs="Y",
    attrs={"soft_label": False, "ignore_index": -100},
    lod="X",
)
def cross_entropy(ctx: OpContext, X: Any, Label: Any, *, soft_label: bool, ignore_index: int) -> Any:
    """Y = -log(X[label]), or -sum(Label * log(X)) for soft labels; infinite losses are 1e20.

    X: probabilities [..., classes], floating point. Label: integers [...] or [..., 1], or like X when soft.
    Labels equal to ignore_index give 0 (Paddle 1.8.5 cross_entropy_op.cc).
    """
    if soft_label:
        if X.shape != Label.shape:
            raise ctx.error(f"soft labels must have the shape of X {X.shape}, found Label of shape {Label.shape}")
        return -(Label * finite(ctx, ctx.xp.log(X))).sum(axis=-1, keepdims=True)
    labels = Label.reshape(column(ctx, X, Label))
    counted = check_classes(ctx, labels, X.shape[-1], ignore_index)
    loss = -finite(ctx, ctx.xp.log(pick(ctx, X, labels, counted, -1)))
    return ctx.xp.where(counted, loss, loss.dtype.type(0)).reshape(Label.shape)


@cross_entropy.infer
def _(ctx: InferContext, X: TensorMeta, Label: TensorMeta, *, soft_label: bool) -> TensorMeta:
    if soft_label:
        if not may_be_same(X.shape, Label.shape):
            raise ctx.error(
                f"soft labels must have the shape of X {shape_text(X.shape)}, found Label of shape {shape_text(Label.shape)}"
            )
        return X.with_shape((*Label.shape[:-1], 1))
    column(ctx, X, Label)
    if X.rank == Label.rank:
        return X.with_shape((*Label.shape[:-1], 1))
    return X.with_shape(Label.shape)


@cross_entropy.grad(inputs="X Label Y@GRAD", outputs="X@GRAD", lod="X")
def cross_entropy_grad(ctx: OpContext, X: Any, Label: Any, Y_grad: Any, *, soft_label: bool, ignore_index: int) -> Any:
    """dX = -dY * label / X."""
    if soft_label:
        return -Label * Y_grad / X
    shape = column(ctx, X, Label)
    return _hard_gradient(ctx, X, Label.reshape(shape), Y_grad.reshape(shape), ignore_index)


def _hard_gradient(ctx: OpContext, X: Any, labels: Any, Y_grad: Any, ignore_index: int) -> Any:
    counted = check_classes(ctx, labels, X.shape[-1], ignore_index)
    return spread(ctx, -Y_grad / pick(ctx, X, labels, counted, -1), labels, counted, X.shape[-1])


@op("cross_entropy2", inputs="X Label", outputs="Y XShape MatchX", attrs={"ignore_index": -100}, lod="X->Y")
def cross_entropy2(ctx: OpContext, X: Any, Label: Any, *, ignore_index: int) -> Any:
    """cross_entropy of hard labels which keeps the matched probabilities for its gradient (cross_entropy_op.cc)."""
    labels = Label.reshape(column(ctx, X, Label))
    counted = check_classes(ctx, labels, X.shape[-1], ignore_index)
    zero = X.dtype.type(0)
    match = ctx.xp.where(counted, pick(ctx, X, labels, counted, -1), zero)
    loss = ctx.xp.where(counted, -finite(ctx, ctx.xp.log(match)), zero)
    x_shape = ctx.dims_only((*X.shape, 0))
    x_shape.offsets = ctx.lod("X")
    return {"Y": loss.reshape(Label.shape), "XShape": x_shape, "MatchX": match}


@cross_entropy2.infer
def _(ctx: InferContext, X: TensorMeta, Label: TensorMeta) -> dict[str, TensorMeta]:
    shape = column(ctx, X, Label)
    loss = X.with_shape(shape if X.rank == Label.rank else Label.shape)
    return {"Y": loss, "XShape": X.with_shape((*X.shape, 0)), "MatchX": X.with_shape(shape).with_lod_level(0)}


@cross_entropy2.grad(inputs="Label XShape MatchX Y@GRAD", outputs="X@GRAD", type="cross_entropy_grad2", lod="XShape")
def cross_entropy_grad2(ctx: OpContext, Label: Any, XShape: Any, MatchX: Any, Y_grad: Any, *, ignore_index: int) -> Any:
    """dX = -dY / MatchX at the labeled class, 0 elsewhere."""
    classes = XShape.shape()[-2]
    labels = Label.reshape(MatchX.shape)
    counted = check_classes(ctx, labels, classes, ignore_index)
    return spread(ctx, -Y_grad.reshape(MatchX.shape) / MatchX, labels, counted, classes)
