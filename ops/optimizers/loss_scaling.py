"""What mixed precision of Paddle 2.x does between gradients and updates: undo the loss's scale, and adapt it."""

from __future__ import annotations

from typing import Any

from fluidtool.ops.context import InferContext, OpContext
from fluidtool.ops.registry import op
from fluidtool.ops.schema import FLOAT, INT, TensorMeta, required
from fluidtool.proto.enums import VarType
from fluidtool.shapes import shape_text


@op("check_finite_and_unscale", inputs="X* Scale", outputs="Out* FoundInfinite")
def check_finite_and_unscale(ctx: OpContext, X: list[Any], Scale: Any) -> dict[str, Any]:
    """Every X divided by Scale, and whether any number of them is infinite or NaN, bool [1].

    Paddle 2.6.2 check_finite_and_unscale_kernel.cc: the first such X and what follows it are multiplied with 0.
    """
    if Scale.size != 1:
        raise ctx.error(f"Scale must hold one number, found shape {shape_text(Scale.shape)}")
    out, found = [], False
    for x in X:
        found = found or not bool(ctx.xp.isfinite(x).all())
        out.append((x * 0 if found else x / Scale.reshape(())).astype(x.dtype, copy=False))
    return {"Out": out, "FoundInfinite": ctx.array([found])}


@check_finite_and_unscale.infer
def _(ctx: InferContext, X: list[TensorMeta], Scale: TensorMeta) -> dict[str, Any]:
    return {"Out": X, "FoundInfinite": Scale.with_shape((1,)).with_dtype(VarType.BOOL)}


@op(
    "update_loss_scaling",
    inputs="X* FoundInfinite PrevLossScaling InGoodSteps InBadSteps StopUpdate?",
    outputs="Out* LossScaling OutGoodSteps OutBadSteps",
    attrs={
        "incr_every_n_steps": required(INT),
        "decr_every_n_nan_or_inf": required(INT),
        "incr_ratio": required(FLOAT),
        "decr_ratio": required(FLOAT),
        "stop_update": False,
    },
)
def update_loss_scaling(
    ctx: OpContext,
    X: list[Any],
    FoundInfinite: Any,
    PrevLossScaling: Any,
    InGoodSteps: Any,
    InBadSteps: Any,
    StopUpdate: Any,
    *,
    incr_every_n_steps: int,
    decr_every_n_nan_or_inf: int,
    incr_ratio: float,
    decr_ratio: float,
    stop_update: bool,
) -> dict[str, Any]:
    """Zero gradients after an infinite one; a smaller scale after some of these, a larger one after enough good steps.

    The scale never falls below 1 (Paddle 2.6.2 update_loss_scaling_kernel.cc).
    """
    found = bool(ctx.host(FoundInfinite).reshape(-1)[0])
    out: dict[str, Any] = {"Out": [ctx.xp.zeros_like(x) if found else x for x in X]}
    if stop_update or (StopUpdate is not None and bool(ctx.host(StopUpdate).reshape(-1)[0])):
        return out
    good, bad = (int(ctx.host(steps).reshape(-1)[0]) for steps in (InGoodSteps, InBadSteps))
    scale = PrevLossScaling
    if found:
        good, bad = 0, bad + 1
        if bad == decr_every_n_nan_or_inf:
            scale, bad = ctx.xp.maximum(scale * scale.dtype.type(decr_ratio), scale.dtype.type(1)), 0
    else:
        good, bad = good + 1, 0
        if good == incr_every_n_steps:
            larger = scale * scale.dtype.type(incr_ratio)
            scale, good = ctx.xp.where(ctx.xp.isfinite(larger), larger, scale), 0
    return {
        **out,
        "LossScaling": scale,
        "OutGoodSteps": ctx.array([good], InGoodSteps.dtype),
        "OutBadSteps": ctx.array([bad], InBadSteps.dtype),
    }


@update_loss_scaling.infer
def _(
    ctx: InferContext,
    X: list[TensorMeta],
    FoundInfinite: TensorMeta,
    PrevLossScaling: TensorMeta,
    InGoodSteps: TensorMeta,
    InBadSteps: TensorMeta,
    StopUpdate: TensorMeta | None,
) -> dict[str, Any]:
    return {"Out": X, "LossScaling": PrevLossScaling, "OutGoodSteps": InGoodSteps, "OutBadSteps": InBadSteps}
