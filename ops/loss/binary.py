"""Losses of yes/no labels, one value per element."""

from __future__ import annotations

from typing import Any

from fluidtool.ops.context import InferContext, OpContext
from fluidtool.ops.loss.checks import same_shape
from fluidtool.ops.registry import op
from fluidtool.ops.schema import FLOAT, TensorMeta, required
from fluidtool.ops.traits import Traits
from fluidtool.shapes import shape_text


def sigmoid(ctx: OpContext, x: Any) -> Any:
    """1 / (1 + exp(-x)), in the data type of x."""
    one = x.dtype.type(1)
    return one / (one + ctx.xp.exp(-x))


def softplus(ctx: OpContext, x: Any) -> Any:
    """log(1 + exp(x)) without overflow."""
    return ctx.xp.maximum(x, 0) + ctx.xp.log1p(ctx.xp.exp(-abs(x)))


@op(
    "sigmoid_cross_entropy_with_logits",
    inputs="X Label",
    outputs="Out",
    attrs={"normalize": False, "ignore_index": -100},
    lod="X",
)
def sigmoid_cross_entropy_with_logits(ctx: OpContext, X: Any, Label: Any, *, normalize: bool, ignore_index: int) -> Any:
    """Out = max(x, 0) - x * label + log(1 + exp(-|x|)), 0 where label, cut to an integer, is ignore_index.

    pos_weight, of the same shape, multiplies the logarithm (Paddle 2.6.2). normalize divides by the number of labels that
    are not ignored; without any, the result is NaN (Paddle 1.8.5 sigmoid_cross_entropy_with_logits_op.h).
    """
    same_shape(ctx, X=X, Label=Label)
    if not ctx.has("pos_weight"):
        values = softplus(ctx, X) - X * Label
    else:
        pos_weight = ctx.value("pos_weight").array
        same_shape(ctx, X=X, pos_weight=pos_weight)
        values = ctx.xp.maximum(X, 0) - X * Label + pos_weight * ctx.xp.log1p(ctx.xp.exp(-abs(X)))
    return _counted(ctx, values, Label, normalize, ignore_index)


def _counted(ctx: OpContext, values: Any, Label: Any, normalize: bool, ignore_index: int) -> Any:
    out = ctx.xp.where(ctx.xp.trunc(Label) == ignore_index, values.dtype.type(0), values)
    if normalize:
        out /= (abs(Label - ignore_index) > 1e-6).sum().astype(out.dtype)
    return out


@sigmoid_cross_entropy_with_logits.infer
def _(ctx: InferContext, X: TensorMeta, Label: TensorMeta) -> TensorMeta:
    same_shape(ctx, X=X, Label=Label)
    return X


@sigmoid_cross_entropy_with_logits.grad(inputs="X Label pos_weight? Out@GRAD", outputs="X@GRAD")
def sigmoid_cross_entropy_with_logits_grad(
    ctx: OpContext, X: Any, Label: Any, pos_weight: Any, Out_grad: Any, *, normalize: bool, ignore_index: int
) -> Any:
    """dX = dOut * (sigmoid(X) - Label), ignored and normalized like the loss; pos_weight multiplies what the logarithm adds."""
    slope = sigmoid(ctx, X)
    if pos_weight is not None:
        positive = (X > 0).astype(X.dtype)
        slope = positive + pos_weight * (slope - positive)
    return _counted(ctx, Out_grad * (slope - Label), Label, normalize, ignore_index)


@op("bce_loss", inputs="X Label", outputs="Out", lod="X", traits=Traits(gradient_scope=False))
def bce_loss(ctx: OpContext, X: Any, Label: Any) -> Any:
    """Out = -label * log(x) - (1 - label) * log(1 - x), logarithms not below -100; X in [0, 1] (bce_loss_op.h)."""
    same_shape(ctx, X=X, Label=Label)
    outside = (X < 0) | (X > 1)
    if outside.any():
        raise ctx.error(f"input X must lie in [0, 1], found {X[outside][0]}; feed it through a sigmoid")
    xp = ctx.xp
    return (Label - 1) * xp.maximum(xp.log(1 - X), -100) - Label * xp.maximum(xp.log(X), -100)


@bce_loss.infer
def _(ctx: InferContext, X: TensorMeta, Label: TensorMeta) -> TensorMeta:
    same_shape(ctx, X=X, Label=Label)
    return X


@bce_loss.grad(inputs="X Label Out@GRAD", outputs="X@GRAD", lod="X")
def bce_loss_grad(ctx: OpContext, X: Any, Label: Any, Out_grad: Any) -> Any:
    """dX = dOut * (x - label) / max(x * (1 - x), 1e-12)."""
    return Out_grad * ((X - Label) / ctx.xp.maximum((1 - X) * X, X.dtype.type(1e-12)))


@op("log_loss", inputs="Predicted Labels", outputs="Loss", attrs={"epsilon": required(FLOAT)}, lod="Predicted")
def log_loss(ctx: OpContext, Predicted: Any, Labels: Any, *, epsilon: float) -> Any:
    """Loss = -label * log(p + epsilon) - (1 - label) * log(1 - p + epsilon) for columns [N, 1] (log_loss_op.h)."""
    one_column(ctx, Predicted=Predicted, Labels=Labels)
    xp = ctx.xp
    return -Labels * xp.log(Predicted + epsilon) - (1 - Labels) * xp.log(1 - Predicted + epsilon)


def one_column(ctx: OpContext | InferContext, **inputs: Any) -> None:
    """Fail unless all inputs have the same shape [N, 1]."""
    same_shape(ctx, **inputs)
    for slot, value in inputs.items():
        shape = tuple(value.shape)
        if len(shape) != 2 or shape[1] not in (1, -1):
            raise ctx.error(f"input {slot} must have shape (N, 1), found {shape_text(shape)}")


@log_loss.infer
def _(ctx: InferContext, Predicted: TensorMeta, Labels: TensorMeta) -> TensorMeta:
    one_column(ctx, Predicted=Predicted, Labels=Labels)
    return Predicted.with_shape((Predicted.shape[0], 1))


@log_loss.grad(inputs="Predicted Labels Loss@GRAD", outputs="Predicted@GRAD")
def log_loss_grad(ctx: OpContext, Predicted: Any, Labels: Any, Loss_grad: Any, *, epsilon: float) -> Any:
    """dPredicted = dLoss * ((1 - label) / (1 - p + epsilon) - label / (p + epsilon))."""
    return Loss_grad * (-Labels / (Predicted + epsilon) + (1 - Labels) / (1 - Predicted + epsilon))


@op("hinge_loss", inputs="Logits Labels", outputs="Loss", lod="Logits")
def hinge_loss(ctx: OpContext, Logits: Any, Labels: Any) -> Any:
    """Loss = max(1 - x * (2 * label - 1), 0) for columns [N, 1] (hinge_loss_op.h)."""
    one_column(ctx, Logits=Logits, Labels=Labels)
    return ctx.xp.maximum(1 - Logits * (2 * Labels - 1), 0)


@hinge_loss.infer
def _(ctx: InferContext, Logits: TensorMeta, Labels: TensorMeta) -> TensorMeta:
    one_column(ctx, Logits=Logits, Labels=Labels)
    return Logits.with_shape((Logits.shape[0], 1))


@hinge_loss.grad(inputs="Logits Labels Loss@GRAD", outputs="Logits@GRAD")
def hinge_loss_grad(ctx: OpContext, Logits: Any, Labels: Any, Loss_grad: Any) -> Any:
    """dLogits = -dLoss * (2 * label - 1) where the loss is positive."""
    signs = 2 * Labels - 1
    return Loss_grad * ((Logits * signs < 1) * -signs)


@op("modified_huber_loss", inputs="X Y", outputs="IntermediateVal~ Out")
def modified_huber_loss(ctx: OpContext, X: Any, Y: Any) -> Any:
    """v = x * (2y - 1); Out = -4v below -1, (1 - v)² below 1, else 0; Y holds 0 or 1 (modified_huber_loss_op.h)."""
    one_column(ctx, X=X, Y=Y)
    value = X * (2 * Y - 1)
    loss = ctx.xp.where(value < -1, -4 * value, ctx.xp.where(value < 1, (1 - value) ** 2, value.dtype.type(0)))
    return {"IntermediateVal": value, "Out": loss}


@modified_huber_loss.infer
def _(ctx: InferContext, X: TensorMeta, Y: TensorMeta) -> dict[str, TensorMeta]:
    one_column(ctx, X=X, Y=Y)
    column = X.with_shape((X.shape[0], 1)).with_lod_level(0)
    return {"IntermediateVal": column, "Out": column}


@modified_huber_loss.grad(inputs="Y IntermediateVal Out@GRAD", outputs="X@GRAD")
def modified_huber_loss_grad(ctx: OpContext, Y: Any, IntermediateVal: Any, Out_grad: Any) -> Any:
    """dX = (2y - 1) * dOut * (-4 below -1, -2(1 - v) below 1, else 0)."""
    value, xp = IntermediateVal, ctx.xp
    four, zero = value.dtype.type(-4), value.dtype.type(0)
    slope = xp.where(value < -1, four, xp.where(value < 1, -2 * (1 - value), zero))
    return slope * (2 * Y - 1) * Out_grad


@op(
    "teacher_student_sigmoid_loss",
    inputs="X Label",
    outputs="Y",
    attrs={"soft_max_up_bound": 15.0, "soft_max_lower_bound": -15.0},
    lod="X",
)
def teacher_student_sigmoid_loss(ctx: OpContext, X: Any, Label: Any) -> Any:
    """The sigmoid cross entropies of a click and of a teacher's score, both told by one label, for columns [N, 1].

    Label -2: no click, -1: click; [0, 1): no click and teacher's score; [1, 2]: click and 1 + teacher's score
    (Paddle 1.8.5 teacher_student_sigmoid_loss_op.h).
    """
    one_column(ctx, X=X, Label=Label)
    xp = ctx.xp
    base = softplus(ctx, X)
    with_teacher = xp.where(Label < 1, 2 * base - X * Label, 2 * base - X - X * (Label - 1))
    return xp.where(Label < -1, base, xp.where(Label < 0, base - X, with_teacher))


@teacher_student_sigmoid_loss.infer
def _(ctx: InferContext, X: TensorMeta, Label: TensorMeta) -> TensorMeta:
    one_column(ctx, X=X, Label=Label)
    return X.with_shape((X.shape[0], 1))


@teacher_student_sigmoid_loss.grad(inputs="X Label Y@GRAD", outputs="X@GRAD", lod="X")
def teacher_student_sigmoid_loss_grad(
    ctx: OpContext, X: Any, Label: Any, Y_grad: Any, *, soft_max_up_bound: float, soft_max_lower_bound: float
) -> Any:
    """dX = -dY * (target - sigmoids), 0 where X reaches a bound."""
    xp = ctx.xp
    clipped = xp.clip(X, soft_max_lower_bound, soft_max_up_bound)
    p = sigmoid(ctx, clipped)
    slope = xp.where(Label < -1, -p, xp.where(Label < 0, 1 - p, Label - 2 * p))
    inside = (clipped < soft_max_up_bound) & (clipped > soft_max_lower_bound)
    return xp.where(inside, slope, slope.dtype.type(0)) * -Y_grad
