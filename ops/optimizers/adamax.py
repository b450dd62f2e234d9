"""Relatives of Adam: adamax, lamb."""

from __future__ import annotations

from typing import Any

from fluidtool.ops.context import OpContext
from fluidtool.ops.math.versions import saved_since
from fluidtool.ops.optimizers.common import (
    check_shapes,
    dense_gradient,
    is_empty,
    like_inputs,
    number,
    option,
    skips_update,
)
from fluidtool.ops.registry import op
from fluidtool.ops.schema import FLOAT, required
from fluidtool.ops.traits import Traits


@op(
    "adamax",
    inputs="Param Grad LearningRate Moment InfNorm Beta1Pow",
    outputs="ParamOut MomentOut InfNormOut",
    attrs={"beta1": 0.9, "beta2": 0.999, "epsilon": 1e-08},
    traits=Traits(sharded=("Moment", "InfNorm")),
)
def adamax(
    ctx: OpContext,
    Param: Any,
    Grad: Any,
    LearningRate: Any,
    Moment: Any,
    InfNorm: Any,
    Beta1Pow: Any,
    *,
    beta1: float,
    beta2: float,
    epsilon: float,
) -> Any:
    """m = beta1 m + (1 - beta1) g; n = max(|g|, beta2 n + epsilon); p -= lr / (1 - beta1ᵗ) * m / n (adamax_op.h)."""
    check_shapes(ctx, Param=Param, Grad=Grad, Moment=Moment, InfNorm=InfNorm)
    moment = beta1 * Moment + (1 - beta1) * Grad
    norm = ctx.xp.maximum(abs(Grad), beta2 * InfNorm + epsilon)
    rate = number(ctx, LearningRate, Param) / (1 - number(ctx, Beta1Pow, Param, "Beta1Pow"))
    return {"ParamOut": Param - rate * (moment / norm), "MomentOut": moment, "InfNormOut": norm}


like_inputs(adamax, ParamOut="Param", MomentOut="Moment", InfNormOut="InfNorm")


@op(
    "lamb",
    inputs="Param Grad LearningRate Moment1 Moment2 Beta1Pow Beta2Pow",
    outputs="ParamOut Moment1Out Moment2Out Beta1PowOut/+ Beta2PowOut/+",
    attrs={"weight_decay": required(FLOAT), "beta1": 0.9, "beta2": 0.999, "epsilon": 1e-06},
)
def lamb(
    ctx: OpContext,
    Param: Any,
    Grad: Any,
    LearningRate: Any,
    Moment1: Any,
    Moment2: Any,
    Beta1Pow: Any,
    Beta2Pow: Any,
    *,
    weight_decay: float,
    beta1: float,
    beta2: float,
    epsilon: float,
) -> Any:
    """Adam's direction plus weight decay, scaled by |p| / |direction|; without bias correction (lamb_op.h).

    Grad may be SelectedRows: rows without a gradient have gradient 0. Paddle 2.x corrects the bias, moves the powers of beta
    on, and does not scale without weight decay unless always_adapt is set (Paddle 2.6.2).
    """
    check_shapes(ctx, Param=Param, Moment1=Moment1, Moment2=Moment2)
    powers = {"Beta1PowOut": Beta1Pow, "Beta2PowOut": Beta2Pow}
    if is_empty(Grad) or skips_update(ctx):
        return {"ParamOut": Param, "Moment1Out": Moment1, "Moment2Out": Moment2, **powers}
    xp, grad = ctx.xp, dense_gradient(ctx, Param, Grad)
    first = beta1 * Moment1 + (1 - beta1) * grad
    second = beta2 * Moment2 + (1 - beta2) * grad * grad
    later = ctx.wants("Beta1PowOut") or saved_since(ctx, 2, 0)
    unbiased = (first / (1 - Beta1Pow), second / (1 - Beta2Pow)) if later else (first, second)
    direction = unbiased[0] / (xp.sqrt(unbiased[1]) + epsilon) + weight_decay * Param
    param_norm, norm = xp.sqrt((Param * Param).sum()), xp.sqrt((direction * direction).sum())
    ratio = xp.where((param_norm > 0) & (norm > 0), param_norm / norm, param_norm.dtype.type(1))
    adapts = not later or weight_decay > 0 or option(ctx, "always_adapt", False)
    step = number(ctx, LearningRate, Param) * (ratio if adapts else 1) * direction
    powers = {"Beta1PowOut": Beta1Pow * beta1, "Beta2PowOut": Beta2Pow * beta2}
    return {"ParamOut": Param - step, "Moment1Out": first, "Moment2Out": second, **powers}


like_inputs(
    lamb,
    ParamOut="Param",
    Moment1Out="Moment1",
    Moment2Out="Moment2",
    Beta1PowOut="Beta1Pow",
    Beta2PowOut="Beta2Pow",
)
