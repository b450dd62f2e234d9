"""Gradient descent and momentum: sgd, momentum, lars_momentum, dgc_momentum, merged_momentum."""

from __future__ import annotations

from typing import Any

from fluidtool.ops.context import OpContext
from fluidtool.ops.embedding.rows import check_rows, find_rows
from fluidtool.ops.optimizers.common import (
    check_gradient,
    check_shapes,
    dense_gradient,
    is_empty,
    like_inputs,
    number,
    option,
)
from fluidtool.ops.registry import op
from fluidtool.ops.schema import FLOAT, FLOATS, AttrSpec, floats, required, strings
from fluidtool.ops.traits import Traits
from fluidtool.tensor import SelectedRows


@op("sgd", inputs="Param LearningRate Grad", outputs="ParamOut", traits=Traits(sharded=()))
def sgd(ctx: OpContext, Param: Any, LearningRate: Any, Grad: Any) -> Any:
    """ParamOut = Param - lr * Grad; Grad is dense or SelectedRows, Param may be SelectedRows too (sgd_op.h)."""
    if isinstance(Param, SelectedRows):
        return _sgd_on_rows(ctx, Param, LearningRate, Grad)
    return _sgd(ctx, Param, Grad, number(ctx, LearningRate, Param))


def _sgd(ctx: OpContext, param: Any, grad: Any, rate: Any) -> Any:
    check_gradient(ctx, param, grad)
    if not isinstance(grad, SelectedRows):
        return param - rate * grad
    out = param.copy()
    ctx.add_at(out, ctx.array(grad.row_ids), -rate * grad.value)
    return out


def _sgd_on_rows(ctx: OpContext, Param: SelectedRows, LearningRate: Any, Grad: Any) -> SelectedRows:
    if not isinstance(Grad, SelectedRows):
        raise ctx.error("input Param holds SelectedRows, so Grad must hold SelectedRows too, found a dense tensor")
    check_rows(ctx, Grad, "input Grad")
    places = find_rows(ctx, Param, Grad.row_ids)
    if (places < 0).any():
        raise ctx.error(
            f"input Grad names row {int(Grad.row_ids[places < 0][0])}, which Param (SelectedRows) does not hold"
        )
    values = Param.value.copy()
    ctx.add_at(values, ctx.array(places), -number(ctx, LearningRate, values) * Grad.value)
    return SelectedRows(Param.row_ids, Param.table_height, values)


like_inputs(sgd, ParamOut="Param")


def momentum_step(
    ctx: OpContext, param: Any, grad: Any, velocity: Any, rate: Any, mu: float, use_nesterov: bool
) -> tuple[Any, Any]:
    """v = mu * v + g; p -= lr * v, or lr * (g + mu * v) with Nesterov's correction."""
    velocity = mu * velocity + grad
    step = grad + mu * velocity if use_nesterov else velocity
    return param - rate * step, velocity


def _regularised(param: Any, grad: Any, method: str, coefficient: float, rescale: float) -> Any:
    grad = grad if rescale == 1.0 else grad * rescale
    return grad + coefficient * param if method == "l2_decay" else grad


@op(
    "momentum",
    inputs="Param Grad Velocity LearningRate",
    outputs="ParamOut VelocityOut",
    attrs={"mu": required(FLOAT), "use_nesterov": False},
    traits=Traits(sharded=("Velocity",)),
)
def momentum(
    ctx: OpContext, Param: Any, Grad: Any, Velocity: Any, LearningRate: Any, *, mu: float, use_nesterov: bool
) -> Any:
    """Momentum with a dense or SelectedRows gradient; rows without one have gradient 0 (momentum_op.h).

    The weight decay and the gradient's scale that Paddle 2.x may give as attributes are honored, the latter as by its
    GPU kernel.
    """
    check_shapes(ctx, Param=Param, Velocity=Velocity)
    if is_empty(Grad):
        return {"ParamOut": Param, "VelocityOut": Velocity}
    grad = _regularised(
        Param,
        dense_gradient(ctx, Param, Grad),
        option(ctx, "regularization_method", ""),
        option(ctx, "regularization_coeff", 0.0),
        option(ctx, "rescale_grad", 1.0),
    )
    rate = number(ctx, LearningRate, Param)
    param, velocity = momentum_step(ctx, Param, grad, Velocity, rate, mu, use_nesterov)
    return {"ParamOut": param, "VelocityOut": velocity}


like_inputs(momentum, ParamOut="Param", VelocityOut="Velocity")


@op(
    "merged_momentum",
    inputs="Param* Grad* Velocity* LearningRate* MasterParam*?",
    outputs="ParamOut* VelocityOut* MasterParamOut*?",
    attrs={
        "mu": required(FLOAT),
        "use_nesterov": False,
        "regularization_method": strings(),
        "regularization_coeff": floats(),
        "multi_precision": False,
        "rescale_grad": 1.0,
    },
)
def merged_momentum(
    ctx: OpContext,
    Param: list[Any],
    Grad: list[Any],
    Velocity: list[Any],
    LearningRate: list[Any],
    MasterParam: list[Any],
    *,
    mu: float,
    use_nesterov: bool,
    regularization_method: list[str],
    regularization_coeff: list[float],
    rescale_grad: float,
) -> Any:
    """momentum of many parameters at once; one learning rate serves all, or each has its own (Paddle 2.6.2)."""
    count = len(Param)
    if not (len(Grad) == len(Velocity) == count and len(LearningRate) in (1, count)):
        raise ctx.error(
            f"inputs must have as many variables as Param ({count}), found {len(Grad)} Grad, {len(Velocity)} Velocity, "
            f"{len(LearningRate)} LearningRate"
        )
    methods = list(regularization_method) or [""] * count
    coefficients = list(regularization_coeff) or [0.0] * count
    params, velocities = [], []
    for i, (param, grad, velocity) in enumerate(zip(Param, Grad, Velocity, strict=True)):
        check_shapes(ctx, Param=param, Grad=grad, Velocity=velocity)
        grad = _regularised(param, grad, methods[i], coefficients[i], rescale_grad)
        rate = number(ctx, LearningRate[i % len(LearningRate)], param)
        moved, kept = momentum_step(ctx, param, grad, velocity, rate, mu, use_nesterov)
        params.append(moved)
        velocities.append(kept)
    return {"ParamOut": params, "VelocityOut": velocities}


like_inputs(merged_momentum, ParamOut="Param", VelocityOut="Velocity")


@op(
    "lars_momentum",
    inputs="Param/* Grad/* Velocity/* LearningRate/*",
    outputs="ParamOut/* VelocityOut/*",
    attrs={"mu": required(FLOAT), "lars_coeff": 0.001, "lars_weight_decay": AttrSpec(FLOAT, 0.0005, also=FLOATS)},
    traits=Traits(sharded=("Velocity",)),
)
def lars_momentum(
    ctx: OpContext,
    Param: list[Any],
    Grad: list[Any],
    Velocity: list[Any],
    LearningRate: list[Any],
    *,
    mu: float,
    lars_coeff: float,
) -> Any:
    """Momentum whose learning rate follows the norms: lr * coeff * |p| / (|g| + decay * |p|) (lars_momentum_op.h).

    Paddle 2.x takes several parameters, with a list of one decay for each, and leaves the learning rate as it is where that
    is 0. It may give an epsilon to add to the divisor, and a number to multiply gradients with (Paddle 2.6.2).
    """
    count, decays = len(Param), ctx.attr("lars_weight_decay")
    later = isinstance(decays, list)
    decays = decays if later else [decays] * count
    sizes = {"Grad": Grad, "Velocity": Velocity, "LearningRate": LearningRate, "lars_weight_decay": decays}
    for name, values in sizes.items():
        if len(values) != count:
            raise ctx.error(f"input {name} must have {count} variables, as many as Param, found {len(values)}")
    rescale, epsilon = option(ctx, "rescale_grad", 1.0), option(ctx, "epsilon", 0.0)
    params, velocities = [], []
    for param, grad, velocity, rates, decay in zip(Param, Grad, Velocity, LearningRate, decays, strict=True):
        check_shapes(ctx, Param=param, Grad=grad, Velocity=velocity)
        grad = grad if rescale == 1.0 else grad * rescale
        rate = number(ctx, rates, param)
        if decay > 0 or not later:
            rate = _scaled_by_norms(ctx, param, grad, rate, lars_coeff, decay, epsilon)
        velocities.append(velocity * mu + rate * (grad + decay * param))
        params.append(param - velocities[-1])
    return {"ParamOut": params, "VelocityOut": velocities}


def _scaled_by_norms(
    ctx: OpContext, param: Any, grad: Any, rate: Any, coefficient: float, decay: float, epsilon: float
) -> Any:
    xp = ctx.xp
    param_norm, grad_norm = xp.sqrt((param * param).sum()), xp.sqrt((grad * grad).sum())
    scaled = rate * coefficient * param_norm / (grad_norm + decay * param_norm + epsilon)
    return xp.where((param_norm > 0) & (grad_norm > 0), scaled, rate)


like_inputs(lars_momentum, ParamOut="Param", VelocityOut="Velocity")


@op(
    "dgc_momentum",
    inputs="current_step nranks Param Grad Velocity LearningRate",
    outputs="Grad_out ParamOut VelocityOut",
    attrs={"rampup_begin_step": -1.0, "mu": required(FLOAT), "use_nesterov": False},
)
def dgc_momentum(
    ctx: OpContext,
    current_step: Any,
    nranks: Any,
    Param: Any,
    Grad: Any,
    Velocity: Any,
    LearningRate: Any,
    *,
    rampup_begin_step: float,
    mu: float,
    use_nesterov: bool,
) -> Any:
    """momentum before step rampup_begin_step, sgd from then on, nothing if that is negative (dgc_momentum_op.h).

    Grad_out is the gradient divided by the number of trainers, which must be at least 2.
    """
    if int(rampup_begin_step) < 0:
        return None
    ranks = int(ctx.host(nranks).reshape(-1)[0])
    if ranks <= 1:
        raise ctx.error(f"input nranks must be at least 2 (compression is for several trainers), found {ranks}")
    check_shapes(ctx, Param=Param, Velocity=Velocity)
    rate = number(ctx, LearningRate, Param)
    grad = dense_gradient(ctx, Param, Grad)
    divided = grad / ranks
    if ctx.op.output("Grad_out") == ctx.op.input("Grad"):
        grad = divided  # Paddle's kernel writes Grad_out first; in place, it continues with that
    if int(ctx.host(current_step).reshape(-1)[0]) < int(rampup_begin_step):
        param, velocity = momentum_step(ctx, Param, grad, Velocity, rate, mu, use_nesterov)
    else:
        param, velocity = Param - rate * grad, Velocity
    return {"Grad_out": divided, "ParamOut": param, "VelocityOut": velocity}


like_inputs(dgc_momentum, Grad_out="Grad", ParamOut="Param", VelocityOut="Velocity")


@op(
    "dgc_clip_by_norm",
    inputs="current_step X",
    outputs="Out",
    attrs={"rampup_begin_step": -1.0, "max_norm": required(FLOAT)},
)
def dgc_clip_by_norm(ctx: OpContext, current_step: Any, X: Any, *, rampup_begin_step: float, max_norm: float) -> Any:
    """Out = X scaled to a norm of at most max_norm from step rampup_begin_step on; before, nothing (dgc_clip_by_norm_op.h)."""
    if int(rampup_begin_step) < 0 or int(ctx.host(current_step).reshape(-1)[0]) < int(rampup_begin_step):
        return None
    if not max_norm > 0:
        raise ctx.error(f"attribute max_norm must be positive, found {max_norm}")
    selected = isinstance(X, SelectedRows)
    values = X.value if selected else X
    norm = ctx.xp.sqrt((values * values).sum())
    clipped = ctx.xp.where(norm <= max_norm, values, values * (max_norm / norm)).astype(values.dtype, copy=False)
    return SelectedRows(X.row_ids, X.table_height, clipped) if selected else clipped


like_inputs(dgc_clip_by_norm, Out="X")
