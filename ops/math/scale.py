"""scale, minus and sign: operators whose gradient is a scale."""

from __future__ import annotations

from typing import Any

from fluidtool.ops.context import InferContext, OpContext
from fluidtool.ops.gradient import GradMakerContext, OpDescription
from fluidtool.ops.math.values import require_tensor
from fluidtool.ops.registry import op
from fluidtool.ops.schema import TensorMeta
from fluidtool.ops.traits import Traits
from fluidtool.shapes import shape_text
from fluidtool.tensor import SelectedRows


@op(
    "scale",
    inputs="X ScaleTensor?",
    outputs="Out",
    attrs={"scale": 1.0, "bias": 0.0, "bias_after_scale": True},
    lod="X",
    traits=Traits(gradient_scope=False),
)
def scale(ctx: OpContext, X: Any, ScaleTensor: Any, *, scale: float, bias: float, bias_after_scale: bool) -> Any:
    """scale * X + bias, or scale * (X + bias); X is a tensor of any number type or SelectedRows (scale_op.h).

    scale (a number, or the one in ScaleTensor) and bias are taken in the data type of X: integers cut them.
    """
    if ScaleTensor is not None:
        if ScaleTensor.size != 1:
            raise ctx.error(f"ScaleTensor must hold one number, found shape {shape_text(ScaleTensor.shape)}")
        scale = float(ctx.host(ScaleTensor).reshape(()))
    if isinstance(X, SelectedRows):
        return SelectedRows(X.row_ids, X.table_height, _scaled(X.value, scale, bias, bias_after_scale))
    return _scaled(X, scale, bias, bias_after_scale)


def _scaled(x: Any, scale: float, bias: float, bias_after_scale: bool) -> Any:
    factor, shift = x.dtype.type(scale), x.dtype.type(bias)
    if bias and not bias_after_scale:
        return (x + shift) * factor
    out = x if scale == 1 else x * factor
    return out + shift if bias else out


@scale.infer
def _(ctx: InferContext, X: TensorMeta, ScaleTensor: TensorMeta | None) -> TensorMeta:
    return X


@scale.grad_maker
def _(context: GradMakerContext) -> list[OpDescription]:
    """The same scale of the gradient, without the bias."""
    inputs = {"X": context.output_grad("Out")}
    if context.input("ScaleTensor"):
        inputs["ScaleTensor"] = context.input("ScaleTensor")
    return [context.describe("scale", inputs, {"Out": context.input_grad("X")}, bias=0.0)]


@op("minus", inputs="X Y", outputs="Out", lod="X", traits=Traits(gradient_scope=False))
def minus(ctx: OpContext, X: Any, Y: Any) -> Any:
    """X - Y of one shape and data type (minus_op.h)."""
    if X.size != Y.size:
        raise ctx.error(f"X of shape {shape_text(X.shape)} and Y of shape {shape_text(Y.shape)} must have one shape")
    if X.dtype != Y.dtype:
        raise ctx.error(f"X is {X.dtype} and Y is {Y.dtype}; both must be of one data type")
    return X - Y.reshape(X.shape)


@minus.infer
def _(ctx: InferContext, X: TensorMeta, Y: TensorMeta) -> TensorMeta:
    return X


@minus.grad_maker
def _(context: GradMakerContext) -> list[OpDescription]:
    """A scale by 1 for X and by -1 for Y."""
    wanted = ((context.input_grad("X"), 1.0), (context.input_grad("Y"), -1.0))
    given = {"X": context.output_grad("Out")}
    return [context.describe("scale", dict(given), {"Out": names}, scale=factor) for names, factor in wanted if names]


@op("sign", inputs="X", outputs="Out", lod="X", traits=Traits(gradient_scope=False))
def sign(ctx: OpContext, X: Any) -> Any:
    """-1, 0 or 1 by the sign of each element, in the data type of X (sign_op.h)."""
    require_tensor(ctx, "X", X)
    return ctx.xp.sign(X)


@sign.infer
def _(ctx: InferContext, X: TensorMeta) -> TensorMeta:
    return X


@sign.grad_maker
def _(context: GradMakerContext) -> list[OpDescription]:
    """The gradient is zero: a scale by 0."""
    return [context.describe("scale", {"X": context.output_grad("Out")}, {"Out": context.input_grad("X")}, scale=0.0)]
