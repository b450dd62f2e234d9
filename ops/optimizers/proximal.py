"""Proximal optimizers, which pull parameters towards 0: proximal_gd, proximal_adagrad."""

from __future__ import annotations

from typing import Any

from fluidtool.ops.context import OpContext
from fluidtool.ops.optimizers.common import check_shapes, like_inputs, number
from fluidtool.ops.registry import op


def _pulled(ctx: OpContext, stepped: Any, rate: Any, l1: float, l2: float) -> Any:
    """sign(x) * max(|x| - lr * l1, 0) / (1 + lr * l2)."""
    if l1 > 0:
        stepped = ctx.xp.sign(stepped) * ctx.xp.maximum(abs(stepped) - rate * l1, 0)
    return stepped / (1 + rate * l2)


@op("proximal_gd", inputs="Param Grad LearningRate", outputs="ParamOut", attrs={"l1": 0.0, "l2": 0.0})
def proximal_gd(ctx: OpContext, Param: Any, Grad: Any, LearningRate: Any, *, l1: float, l2: float) -> Any:
    """Gradient descent followed by the pull of l1 and l2 (Paddle 1.8.5 proximal_gd_op.h)."""
    check_shapes(ctx, Param=Param, Grad=Grad)
    rate = number(ctx, LearningRate, Param)
    return _pulled(ctx, Param - rate * Grad, rate, l1, l2)


like_inputs(proximal_gd, ParamOut="Param")


@op(
    "proximal_adagrad",
    inputs="Param Moment Grad LearningRate",
    outputs="ParamOut MomentOut",
    attrs={"l1": 0.0, "l2": 0.0},
)
def proximal_adagrad(
    ctx: OpContext, Param: Any, Moment: Any, Grad: Any, LearningRate: Any, *, l1: float, l2: float
) -> Any:
    """m += g²; p - lr * g / sqrt(m), followed by the pull of l1 and l2 (Paddle 1.8.5 proximal_adagrad_op.h)."""
    check_shapes(ctx, Param=Param, Moment=Moment, Grad=Grad)
    rate = number(ctx, LearningRate, Param)
    moment = Moment + Grad * Grad
    stepped = Param - rate * Grad / ctx.xp.sqrt(moment)
    return {"ParamOut": _pulled(ctx, stepped, rate, l1, l2), "MomentOut": moment}


like_inputs(proximal_adagrad, ParamOut="Param", MomentOut="Moment")
