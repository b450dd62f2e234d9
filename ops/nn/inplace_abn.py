"""inplace_abn: batch_norm and an activation, whose gradient works from the output alone."""

from __future__ import annotations

from typing import Any

from fluidtool.ops.context import InferContext, OpContext
from fluidtool.ops.gradient import GradMakerContext, OpDescription
from fluidtool.ops.nn.batch_norm import (
    BATCH_NORM,
    BATCH_NORM_INPUTS,
    BATCH_NORM_OUTPUTS,
    channels_of,
    infer_normalize,
    make_grad,
    normalize,
    normalize_grad,
    scale_and_bias,
    uses_running_statistics,
)
from fluidtool.ops.nn.precision import widened
from fluidtool.ops.registry import op
from fluidtool.ops.schema import TensorMeta

INPLACE_ABN: dict[str, Any] = {**BATCH_NORM, "activation": "", "alpha": 0.1, "use_sync_bn": False}
ACTIVATIONS = ("", "identity", "leaky_relu", "elu")


def _require_activation(ctx: OpContext, activation: str) -> None:
    if activation not in ACTIVATIONS:
        raise ctx.error(f"attribute activation must be 'identity', 'leaky_relu' or 'elu', found {activation!r}")


@op("inplace_abn", inputs=BATCH_NORM_INPUTS, outputs=BATCH_NORM_OUTPUTS, attrs=INPLACE_ABN, lod="X->Y")
def inplace_abn(
    ctx: OpContext,
    X: Any,
    Scale: Any,
    Bias: Any,
    Mean: Any,
    Variance: Any,
    MomentumTensor: Any,
    *,
    activation: str,
    alpha: float,
) -> dict[str, Any]:
    """Y = activation(batch_norm(X)); the activation is the identity, leaky_relu or elu (Paddle 1.8.5 inplace_abn_op.cc)."""
    _require_activation(ctx, activation)
    results = normalize(ctx, X, Scale, Bias, Mean, Variance, MomentumTensor)
    y = results["Y"]
    if activation == "leaky_relu":
        results["Y"] = ctx.xp.where(y > 0, y, y * y.dtype.type(alpha))
    elif activation == "elu":
        results["Y"] = ctx.xp.where(y > 0, y, ctx.xp.expm1(ctx.xp.minimum(y, 0)) * y.dtype.type(alpha))
    return results


@inplace_abn.infer
def _(
    ctx: InferContext,
    X: TensorMeta,
    Scale: TensorMeta | None,
    Bias: TensorMeta | None,
    Mean: TensorMeta,
    Variance: TensorMeta,
    MomentumTensor: TensorMeta | None,
) -> dict[str, TensorMeta]:
    return infer_normalize(ctx, X, Scale, Mean)


@inplace_abn.grad_maker
def _(context: GradMakerContext) -> list[OpDescription]:
    (description,) = make_grad(context)
    for slot in ("X", "ReserveSpace"):
        description.inputs.pop(slot, None)
    description.inputs["Y"] = context.output("Y")
    return [description]


@op(
    "inplace_abn_grad",
    inputs="Y Scale/? Bias/? SavedMean SavedVariance Y@GRAD Mean? Variance?",
    outputs="X@GRAD Scale@GRAD Bias@GRAD",
    attrs=INPLACE_ABN,
)
def inplace_abn_grad(
    ctx: OpContext,
    Y: Any,
    Scale: Any,
    Bias: Any,
    SavedMean: Any,
    SavedVariance: Any,
    Y_grad: Any,
    Mean: Any,
    Variance: Any,
    *,
    activation: str,
    alpha: float,
) -> dict[str, Any]:
    """Gradients by X, Scale and Bias: the activation and the normalization are undone to get X back from Y."""
    _require_activation(ctx, activation)
    xp, channels = ctx.xp, channels_of(ctx, Y)
    Scale, Bias = scale_and_bias(ctx, Y, Scale, Bias)
    before, grad = widened(Y), widened(Y_grad)
    if activation == "leaky_relu":
        grad = xp.where(before > 0, grad, grad * grad.dtype.type(alpha))
        before = xp.where(before > 0, before, before / before.dtype.type(alpha))
    elif activation == "elu":
        grad = xp.where(before > 0, grad, grad * (before + before.dtype.type(alpha)))
        before = xp.where(before > 0, before, xp.log1p(xp.minimum(before, 0) / before.dtype.type(alpha)))
    if Y.size == channels.count:
        x = before
    else:
        if uses_running_statistics(ctx) and Mean is not None and Variance is not None:
            mean, std = channels.spread(Mean), xp.sqrt(channels.spread(Variance) + ctx.attr("epsilon"))
        else:
            mean, std = channels.spread(SavedMean), 1 / channels.spread(SavedVariance)
        x = (before - channels.spread(Bias)) / channels.spread(Scale) * std + mean
    grads = normalize_grad(ctx, x, Scale, (SavedMean, SavedVariance), grad, Mean, Variance)
    return {**grads, "X@GRAD": grads["X@GRAD"].astype(Y.dtype, copy=False)}
