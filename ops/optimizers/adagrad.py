"""Optimizers that divide by accumulated squares: adagrad, decayed_adagrad, adadelta, rmsprop, ftrl."""

from __future__ import annotations

from typing import Any

from fluidtool.ops.context import OpContext
from fluidtool.ops.optimizers.common import (
    check_shapes,
    dense_gradient,
    is_empty,
    later_number,
    like_inputs,
    merged_gradient,
    number,
    with_rows,
)
from fluidtool.ops.registry import op
from fluidtool.ops.traits import Traits
from fluidtool.tensor import SelectedRows


@op(
    "adagrad",
    inputs="Param Grad Moment LearningRate",
    outputs="ParamOut MomentOut",
    attrs={"epsilon": 1e-06},
    traits=Traits(sharded=("Moment",)),
)
def adagrad(ctx: OpContext, Param: Any, Grad: Any, Moment: Any, LearningRate: Any, *, epsilon: float) -> Any:
    """m += g²; p -= lr * g / (sqrt(m) + epsilon); only the named rows move for SelectedRows (adagrad_op.h)."""
    check_shapes(ctx, Param=Param, Moment=Moment)
    rate = number(ctx, LearningRate, Param)

    def step(param: Any, grad: Any, moment: Any) -> tuple[Any, Any]:
        moment = moment + grad * grad
        return param - rate * grad / (ctx.xp.sqrt(moment) + epsilon), moment

    if isinstance(Grad, SelectedRows):
        rows, grad = merged_gradient(ctx, Param, Grad)
        moved, kept = step(Param[rows], grad, Moment[rows])
        return {"ParamOut": with_rows(Param, rows, moved), "MomentOut": with_rows(Moment, rows, kept)}
    param, moment = step(Param, dense_gradient(ctx, Param, Grad), Moment)
    return {"ParamOut": param, "MomentOut": moment}


like_inputs(adagrad, ParamOut="Param", MomentOut="Moment")


@op(
    "decayed_adagrad",
    inputs="Param Grad Moment LearningRate",
    outputs="ParamOut MomentOut",
    attrs={"decay": 0.95, "epsilon": 1e-06},
    traits=Traits(sharded=("Moment",)),
)
def decayed_adagrad(
    ctx: OpContext, Param: Any, Grad: Any, Moment: Any, LearningRate: Any, *, decay: float, epsilon: float
) -> Any:
    """m = decay * m + (1 - decay) * g²; p -= lr * g / (sqrt(m) + epsilon) (Paddle 1.8.5 decayed_adagrad_op.h)."""
    check_shapes(ctx, Param=Param, Grad=Grad, Moment=Moment)
    moment = decay * Moment + (1 - decay) * Grad * Grad
    param = Param - number(ctx, LearningRate, Param) * Grad / (ctx.xp.sqrt(moment) + epsilon)
    return {"ParamOut": param, "MomentOut": moment}


like_inputs(decayed_adagrad, ParamOut="Param", MomentOut="Moment")


@op(
    "adadelta",
    inputs="Param Grad AvgSquaredGrad AvgSquaredUpdate",
    outputs="ParamOut AvgSquaredGradOut AvgSquaredUpdateOut",
    attrs={"rho": 0.95, "epsilon": 1e-06},
)
def adadelta(
    ctx: OpContext,
    Param: Any,
    Grad: Any,
    AvgSquaredGrad: Any,
    AvgSquaredUpdate: Any,
    *,
    rho: float,
    epsilon: float,
) -> Any:
    """a = rho a + (1 - rho) g²; d = -g sqrt((u + epsilon) / (a + epsilon)); u = rho u + (1 - rho) d²; p += d (adadelta_op.h).

    When u is updated in place, as optimizers build it, Paddle 1.8.5 adds d recomputed with the new u. Paddle 2.x does
    not, and gives a LearningRate, which d is multiplied with.
    """
    check_shapes(ctx, Param=Param, Grad=Grad, AvgSquaredGrad=AvgSquaredGrad, AvgSquaredUpdate=AvgSquaredUpdate)
    squares = rho * AvgSquaredGrad + (1 - rho) * Grad * Grad

    def update(squared_updates: Any) -> Any:
        return -ctx.xp.sqrt((squared_updates + epsilon) / (squares + epsilon)) * Grad

    step = update(AvgSquaredUpdate)
    updates = rho * AvgSquaredUpdate + (1 - rho) * step * step
    if ctx.has("LearningRate"):
        step = step * later_number(ctx, "LearningRate", 1, Param)
    elif ctx.op.output("AvgSquaredUpdateOut") == ctx.op.input("AvgSquaredUpdate"):
        step = update(updates)
    return {"ParamOut": Param + step, "AvgSquaredGradOut": squares, "AvgSquaredUpdateOut": updates}


like_inputs(adadelta, ParamOut="Param", AvgSquaredGradOut="AvgSquaredGrad", AvgSquaredUpdateOut="AvgSquaredUpdate")


@op(
    "rmsprop",
    inputs="Param MeanSquare MeanGrad? LearningRate Grad Moment",
    outputs="ParamOut MomentOut MeanSquareOut MeanGradOut",
    attrs={"epsilon": 1e-10, "decay": 0.9, "momentum": 0.0, "centered": False},
    traits=Traits(sharded=("Moment", "MeanSquare"), sharded_if=("centered", "MeanGrad")),
)
def rmsprop(
    ctx: OpContext,
    Param: Any,
    MeanSquare: Any,
    MeanGrad: Any,
    LearningRate: Any,
    Grad: Any,
    Moment: Any,
    *,
    epsilon: float,
    decay: float,
    momentum: float,
    centered: bool,
) -> Any:
    """s = decay s + (1 - decay) g²; m = momentum m + lr g / sqrt(s - mean² + epsilon); p -= m (rmsprop_op.h).

    mean is the decayed mean gradient when centered, else 0. Rows that SelectedRows do not name have gradient 0.
    """
    check_shapes(ctx, Param=Param, MeanSquare=MeanSquare, Moment=Moment)
    if centered and MeanGrad is None:
        raise ctx.error("centered=True needs the input MeanGrad; pass zeros like Param")
    unchanged = {"ParamOut": Param, "MomentOut": Moment, "MeanSquareOut": MeanSquare, "MeanGradOut": MeanGrad}
    if is_empty(Grad):
        return unchanged
    grad = dense_gradient(ctx, Param, Grad)
    squares = decay * MeanSquare + (1 - decay) * grad * grad
    spread = squares
    if centered:
        mean = decay * MeanGrad + (1 - decay) * grad
        unchanged["MeanGradOut"], spread = mean, squares - mean * mean
    step = number(ctx, LearningRate, Param) * grad / ctx.xp.sqrt(spread + epsilon)
    moment = momentum * Moment + step
    return unchanged | {"ParamOut": Param - moment, "MomentOut": moment, "MeanSquareOut": squares}


like_inputs(rmsprop, ParamOut="Param", MomentOut="Moment", MeanSquareOut="MeanSquare", MeanGradOut="MeanGrad")


@op(
    "ftrl",
    inputs="Param SquaredAccumulator LinearAccumulator Grad LearningRate",
    outputs="ParamOut SquaredAccumOut LinearAccumOut",
    attrs={"l1": 0.0, "l2": 0.0, "lr_power": -0.5},
    traits=Traits(sharded=("SquaredAccumulator", "LinearAccumulator")),
)
def ftrl(
    ctx: OpContext,
    Param: Any,
    SquaredAccumulator: Any,
    LinearAccumulator: Any,
    Grad: Any,
    LearningRate: Any,
    *,
    l1: float,
    l2: float,
    lr_power: float,
) -> Any:
    """Follow the regularized leader; only the named rows move for SelectedRows (Paddle 1.8.5 ftrl_op.h).

    n = s + g², z += g - (n^-power - s^-power) / lr * p, p = (l1 sign(z) - z) / (n^-power / lr + 2 l2) where |z| > l1, else 0.
    """
    check_shapes(ctx, Param=Param, SquaredAccumulator=SquaredAccumulator, LinearAccumulator=LinearAccumulator)
    xp, rate = ctx.xp, number(ctx, LearningRate, Param)

    def power(x: Any) -> Any:
        return xp.sqrt(x) if lr_power == -0.5 else x ** (-lr_power)

    def step(param: Any, squares: Any, linear: Any, grad: Any) -> tuple[Any, Any, Any]:
        total = squares + grad * grad
        linear = linear + grad - (power(total) - power(squares)) / rate * param
        shrunk = (l1 * xp.sign(linear) - linear) / (power(total) / rate + 2 * l2)
        return xp.where(abs(linear) > l1, shrunk, param.dtype.type(0)), total, linear

    olds = (Param, SquaredAccumulator, LinearAccumulator)
    if isinstance(Grad, SelectedRows):
        rows, grad = merged_gradient(ctx, Param, Grad)
        news = step(Param[rows], SquaredAccumulator[rows], LinearAccumulator[rows], grad)
        results = [with_rows(old, rows, new) for old, new in zip(olds, news, strict=True)]
    else:
        results = list(step(*olds, grad=dense_gradient(ctx, Param, Grad)))
    return dict(zip(("ParamOut", "SquaredAccumOut", "LinearAccumOut"), results, strict=True))


like_inputs(ftrl, ParamOut="Param", SquaredAccumOut="SquaredAccumulator", LinearAccumOut="LinearAccumulator")
