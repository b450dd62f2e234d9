"""layer_norm: normalization of everything from one axis on."""

from __future__ import annotations

from math import prod
from typing import Any

from fluidtool.ops.context import InferContext, OpContext
from fluidtool.ops.math.repeated import repeated
from fluidtool.ops.nn.normalization import center, input_grad
from fluidtool.ops.nn.precision import require_floating, widened
from fluidtool.ops.nn.windows import UNKNOWN
from fluidtool.ops.registry import op
from fluidtool.ops.schema import TensorMeta, limited
from fluidtool.shapes import shape_text


def _rows(ctx: OpContext, X: Any, begin_norm_axis: int) -> tuple[int, int]:
    """(rows, elements of a row): what is before and from begin_norm_axis on."""
    require_floating(ctx, "X", X)
    _require_axis(ctx, X.shape, begin_norm_axis)
    return prod(X.shape[:begin_norm_axis]), prod(X.shape[begin_norm_axis:])


def _require_axis(ctx: OpContext | InferContext, shape: tuple[int, ...], begin_norm_axis: int) -> None:
    if not 0 < begin_norm_axis < len(shape):
        raise ctx.error(
            f"attribute begin_norm_axis must be between 1 and {len(shape) - 1} for X of shape {shape_text(shape)}, "
            f"found {begin_norm_axis}"
        )


def _require_factors(ctx: OpContext | InferContext, row: tuple[int, ...], scale: Any, bias: Any) -> None:
    """Refuse factors that are not as long as a row, where both are known."""
    for slot, value in (("Scale", scale), ("Bias", bias)):
        if value is not None and UNKNOWN not in (*row, *value.shape) and prod(value.shape) != prod(row):
            raise ctx.error(f"input {slot} must hold {prod(row)} numbers, found shape {shape_text(value.shape)}")


@op(
    "layer_norm",
    inputs="X Scale? Bias?",
    outputs="Y Mean~ Variance~",
    attrs={"epsilon": limited(1e-05, 0.0, 0.001), "begin_norm_axis": limited(1, 0, beyond=True)},
    lod="X->Y",
)
def layer_norm(
    ctx: OpContext, X: Any, Scale: Any, Bias: Any, *, epsilon: float, begin_norm_axis: int
) -> dict[str, Any]:
    """Y = Scale * (X - mean) / sqrt(variance + epsilon) + Bias over the axes from begin_norm_axis on.

    Mean and Variance are [rows]; Scale and Bias are as long as a row, or absent (Paddle 1.8.5 layer_norm_op.h).
    """
    rows, length = _rows(ctx, X, begin_norm_axis)
    _require_factors(ctx, X.shape[begin_norm_axis:], Scale, Bias)
    xp = ctx.xp
    out, mean, variance = center(xp, widened(X).reshape(rows, length), (1,))
    repeated(xp, xp.multiply, out, 1 / xp.sqrt(variance + epsilon), out=out)
    if Scale is not None:
        repeated(xp, xp.multiply, out, widened(Scale).reshape(1, -1), out=out)
    if Bias is not None:
        repeated(xp, xp.add, out, widened(Bias).reshape(1, -1), out=out)
    return {
        "Y": out.reshape(X.shape).astype(X.dtype, copy=False),
        "Mean": mean.reshape(-1),
        "Variance": variance.reshape(-1),
    }


@layer_norm.infer
def _(
    ctx: InferContext, X: TensorMeta, Scale: TensorMeta | None, Bias: TensorMeta | None, *, begin_norm_axis: int
) -> dict[str, TensorMeta]:
    _require_axis(ctx, X.shape, begin_norm_axis)
    _require_factors(ctx, X.shape[begin_norm_axis:], Scale, Bias)
    left = X.shape[:begin_norm_axis]
    row = (Scale or X).with_shape([UNKNOWN if UNKNOWN in left else prod(left)]).with_lod_level(0)
    return {"Y": X, "Mean": row, "Variance": row}


@layer_norm.grad(inputs="X Scale? Bias? Mean Variance Y@GRAD", outputs="X@GRAD Scale@GRAD? Bias@GRAD?")
def layer_norm_grad(
    ctx: OpContext,
    X: Any,
    Scale: Any,
    Bias: Any,
    Mean: Any,
    Variance: Any,
    Y_grad: Any,
    *,
    epsilon: float,
    begin_norm_axis: int,
) -> dict[str, Any]:
    """Gradients by X, Scale and Bias."""
    rows, length = _rows(ctx, X, begin_norm_axis)
    inverse_std = 1 / ctx.xp.sqrt(widened(Variance).reshape(rows, 1) + epsilon)
    normalized = (widened(X).reshape(rows, length) - widened(Mean).reshape(rows, 1)) * inverse_std
    grad = widened(Y_grad).reshape(rows, length)
    grads: dict[str, Any] = {}
    if Scale is not None:
        grads["Scale@GRAD"] = (grad * normalized).sum(axis=0).reshape(Scale.shape).astype(Scale.dtype, copy=False)
    if Bias is not None:
        grads["Bias@GRAD"] = grad.sum(axis=0).reshape(Bias.shape).astype(Bias.dtype, copy=False)
    if ctx.wants("X@GRAD"):
        by_normalized = grad if Scale is None else grad * widened(Scale).reshape(-1)
        x_grad = input_grad(by_normalized, normalized, inverse_std, (1,))
        grads["X@GRAD"] = x_grad.reshape(X.shape).astype(X.dtype, copy=False)
    return grads
