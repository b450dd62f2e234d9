"""batch_norm_grad_grad: the second gradients of batch_norm, an operator of Paddle 2.x programs."""

from __future__ import annotations

from typing import Any

from fluidtool.ops.context import InferContext, OpContext
from fluidtool.ops.nn.batch_norm import BATCH_NORM, channels_of, uses_running_statistics
from fluidtool.ops.nn.normalization import second_gradients
from fluidtool.ops.nn.precision import widened
from fluidtool.ops.registry import op
from fluidtool.ops.schema import TensorMeta


@op(
    "batch_norm_grad_grad",
    inputs="X Scale SavedMean SavedVariance Mean? Variance? DDX? DDScale? DDBias? DY",
    outputs="DX DScale DDY",
    attrs=BATCH_NORM,
)
def batch_norm_grad_grad(
    ctx: OpContext,
    X: Any,
    Scale: Any,
    SavedMean: Any,
    SavedVariance: Any,
    Mean: Any,
    Variance: Any,
    DDX: Any,
    DDScale: Any,
    DDBias: Any,
    DY: Any,
) -> dict[str, Any]:
    """Gradients of batch_norm_grad by X, Scale and DY (formulas: `second_gradients`; Paddle 2.6 batch_norm_grad_grad).

    With running statistics mean and variance are constants, and the formulas lose what went through them.
    """
    channels, xp = channels_of(ctx, X), ctx.xp
    scale = channels.spread(Scale)
    ddx, dy = None if DDX is None else widened(DDX), widened(DY)
    ddscale, ddbias = (None if value is None else channels.spread(value) for value in (DDScale, DDBias))
    if uses_running_statistics(ctx):
        if Mean is None or Variance is None:
            raise ctx.error("with running statistics it needs Mean and Variance")
        inverse_std = 1 / xp.sqrt(channels.spread(Variance) + ctx.attr("epsilon"))
        normalized = (widened(X) - channels.spread(Mean)) * inverse_std
        ddy = 0.0 if ddx is None else ddx * (scale * inverse_std)
        ddy = ddy + (0.0 if ddscale is None else ddscale * normalized) + (0.0 if ddbias is None else ddbias)
        dscale = None if ddx is None else (ddx * dy * inverse_std).sum(axis=channels.axes)
        dx = 0.0 if ddscale is None else ddscale * dy * inverse_std
    else:
        inverse_std = channels.spread(SavedVariance)
        normalized = (widened(X) - channels.spread(SavedMean)) * inverse_std
        ddy, dx, dscale = second_gradients(
            dy, normalized, inverse_std, scale, channels.axes, channels.axes, ddx, ddscale, ddbias
        )
    zeros = xp.zeros(X.shape, dtype=normalized.dtype)
    return {
        "DX": (zeros + dx).astype(X.dtype, copy=False),
        "DDY": (zeros + ddy).astype(X.dtype, copy=False),
        "DScale": xp.zeros_like(Scale) if dscale is None else dscale.astype(Scale.dtype, copy=False),
    }


@batch_norm_grad_grad.infer
def _(
    ctx: InferContext,
    X: TensorMeta,
    Scale: TensorMeta,
    SavedMean: TensorMeta,
    SavedVariance: TensorMeta,
    Mean: TensorMeta | None,
    Variance: TensorMeta | None,
    DDX: TensorMeta | None,
    DDScale: TensorMeta | None,
    DDBias: TensorMeta | None,
    DY: TensorMeta,
) -> dict[str, TensorMeta]:
    return {"DX": X, "DDY": DY, "DScale": Scale}
