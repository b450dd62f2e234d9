"""softmax_with_cross_entropy: softmax along an axis and the cross entropy of its result, in one."""

from __future__ import annotations

from typing import Any

from fluidtool.ops.activation.softmax import shifted
from fluidtool.ops.context import InferContext, OpContext
from fluidtool.ops.loss.labels import check_classes, finite, one_hot, pick
from fluidtool.ops.registry import op
from fluidtool.ops.schema import TensorMeta
from fluidtool.ops.tensor.arguments import may_be_same
from fluidtool.shapes import shape_text


def _takes_probabilities(ctx: OpContext) -> bool:
    """Paddle 2.x: use_softmax=False says that Logits are probabilities already."""
    return ctx.op.has_attr("use_softmax") and not ctx.op.attr("use_softmax")


def _softmax(ctx: OpContext, logits: Any, axis: int) -> Any:
    out = shifted(ctx, logits, axis)
    ctx.xp.exp(out, out=out)
    out /= out.sum(axis=axis, keepdims=True)
    return out


def _expected(logits: Any, axis: int, soft_label: bool) -> tuple[int, ...]:
    if soft_label:
        return tuple(logits.shape)
    shape = list(logits.shape)
    shape[axis] = 1
    return tuple(shape)


def _check(ctx: OpContext | InferContext, logits: Any, label: Any, axis: int, soft_label: bool) -> None:
    rank = len(logits.shape)
    if not -rank <= axis < rank:
        raise ctx.error(f"axis {axis} is out of range for Logits of shape {shape_text(logits.shape)}")
    expected = _expected(logits, axis, soft_label)
    if not may_be_same(label.shape, expected):
        raise ctx.error(
            f"input Label must have shape {expected} for Logits of shape {shape_text(logits.shape)} "
            f"({'soft' if soft_label else 'hard'} labels, axis {axis}), found {shape_text(label.shape)}"
        )


@op(
    "softmax_with_cross_entropy",
    inputs="Logits Label",
    outputs="Softmax~ Loss",
    attrs={"soft_label": False, "numeric_stable_mode": True, "ignore_index": -100, "axis": -1},
    lod="Logits",
)
def softmax_with_cross_entropy(
    ctx: OpContext, Logits: Any, Label: Any, *, soft_label: bool, ignore_index: int, axis: int
) -> Any:
    """Loss = -log(softmax(Logits)[label]), or -sum(Label * log(softmax)) for soft labels.

    Logits: any shape, floating point. Label: integers with size 1 along `axis`, or like Logits when soft. Hard labels
    equal to ignore_index give 0 (Paddle 1.8.5 softmax_with_cross_entropy_op.h; `use_softmax` of 2.x is honored).
    """
    _check(ctx, Logits, Label, axis, soft_label)
    xp = ctx.xp
    if Logits.size == 0:
        return {"Softmax": Logits, "Loss": xp.zeros(_expected(Logits, axis, False), Logits.dtype)}
    softmax = Logits if _takes_probabilities(ctx) else _softmax(ctx, Logits, axis)
    if soft_label:
        return {"Softmax": softmax, "Loss": -(Label * finite(ctx, xp.log(softmax))).sum(axis=axis, keepdims=True)}
    counted = check_classes(ctx, Label, Logits.shape[axis], ignore_index)
    loss = -finite(ctx, xp.log(pick(ctx, softmax, Label, counted, axis)))
    return {"Softmax": softmax, "Loss": xp.where(counted, loss, loss.dtype.type(0))}


@softmax_with_cross_entropy.infer
def _(
    ctx: InferContext, Logits: TensorMeta, Label: TensorMeta, *, soft_label: bool, axis: int
) -> dict[str, TensorMeta]:
    _check(ctx, Logits, Label, axis, soft_label)
    return {"Softmax": Logits, "Loss": Logits.with_shape(_expected(Logits, axis, False))}


@softmax_with_cross_entropy.grad(inputs="Label Softmax Loss@GRAD", outputs="Logits@GRAD")
def softmax_with_cross_entropy_grad(
    ctx: OpContext, Label: Any, Softmax: Any, Loss_grad: Any, *, soft_label: bool, ignore_index: int, axis: int
) -> Any:
    """dLogits = dLoss * (softmax - label), or -dLoss * label / p where the forward took probabilities.

    Ignored labels that are classes get a gradient like any other, as from the CPU kernel of Paddle 1.8.5; those that are
    not, and all ignored labels in programs of Paddle 2.x, get 0.
    """
    if soft_label:
        return Loss_grad * _gradient(ctx, Softmax, Label)
    classes = Softmax.shape[axis]
    counted = check_classes(ctx, Label, classes, ignore_index)
    if not ctx.op.has_attr("use_softmax"):
        counted = (Label >= 0) & (Label < classes)
    target = one_hot(ctx, Label, counted, classes, axis).astype(Softmax.dtype)
    return ctx.xp.where(counted, Loss_grad * _gradient(ctx, Softmax, target), Softmax.dtype.type(0))


def _gradient(ctx: OpContext, softmax: Any, target: Any) -> Any:
    return -target / softmax if _takes_probabilities(ctx) else softmax - target
