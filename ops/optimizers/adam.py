"""Adam: adam, adamw, merged_adam."""

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
    option,
    skips_update,
    with_rows,
)
from fluidtool.ops.registry import op
from fluidtool.ops.schema import long, or_variable
from fluidtool.ops.traits import Traits
from fluidtool.records import dataclass
from fluidtool.tensor import SelectedRows

_ADAM_ATTRS: dict[str, Any] = {
    "beta1": 0.9,
    "beta2": 0.999,
    "epsilon": 1e-08,
    "lazy_mode": False,
    "min_row_size_to_use_multithread": long(1000),
}
_LATER_ATTRS: dict[str, Any] = {"multi_precision": False, "use_global_beta_pow": False}
_OUTPUTS = {
    "ParamOut": "Param",
    "Moment1Out": "Moment1",
    "Moment2Out": "Moment2",
    "Beta1PowOut": "Beta1Pow",
    "Beta2PowOut": "Beta2Pow",
}


@dataclass(frozen=True, slots=True)
class AdamStep:
    """One step's numbers: m = beta1 m + (1 - beta1) g, v = beta2 v + (1 - beta2) g², p -= rate * m / (sqrt(v) + epsilon)."""

    beta1: Any
    beta2: Any
    rate: Any
    epsilon: Any

    def __call__(self, ctx: OpContext, param: Any, grad: Any, moment1: Any, moment2: Any) -> tuple[Any, Any, Any]:
        """Parameter and both moments afterwards."""
        moment1 = self.beta1 * moment1 + (1 - self.beta1) * grad
        moment2 = self.beta2 * moment2 + (1 - self.beta2) * grad * grad
        return param - self.rate * (moment1 / (ctx.xp.sqrt(moment2) + self.epsilon)), moment1, moment2


def _step(
    ctx: OpContext, betas: tuple[Any, Any], powers: tuple[Any, Any], rate: Any, epsilon: Any, corrected_epsilon: bool
) -> AdamStep:
    """The step with bias correction: Paddle 2.x corrects epsilon too, 1.x does not."""
    correction = ctx.xp.sqrt(1 - powers[1])
    epsilon = epsilon * correction if corrected_epsilon else epsilon
    return AdamStep(*betas, rate * (correction / (1 - powers[0])), epsilon)


def _or_attribute(ctx: OpContext, tensor: Any, attribute: float, like: Any, slot: str) -> Any:
    return attribute if tensor is None else number(ctx, tensor, like, slot)


def _results(param: Any, moment1: Any, moment2: Any, power1: Any, power2: Any) -> dict[str, Any]:
    return dict(zip(_OUTPUTS, (param, moment1, moment2, power1, power2), strict=True))


@op(
    "adam",
    inputs="Param Grad LearningRate Moment1 Moment2 Beta1Pow Beta2Pow Beta1Tensor? Beta2Tensor?",
    outputs="ParamOut Moment1Out Moment2Out Beta1PowOut Beta2PowOut",
    attrs=_ADAM_ATTRS,
    traits=Traits(sharded=("Moment1", "Moment2")),
)
def adam(
    ctx: OpContext,
    Param: Any,
    Grad: Any,
    LearningRate: Any,
    Moment1: Any,
    Moment2: Any,
    Beta1Pow: Any,
    Beta2Pow: Any,
    Beta1Tensor: Any,
    Beta2Tensor: Any,
    *,
    beta1: float,
    beta2: float,
    epsilon: float,
    lazy_mode: bool,
) -> Any:
    """p -= lr * sqrt(1 - beta2ᵗ) / (1 - beta1ᵗ) * m / (sqrt(v) + epsilon); Beta*Pow hold betaᵗ (Paddle 1.8.5 adam_op.h).

    Grad may be SelectedRows: rows without a gradient have gradient 0, or with lazy_mode are unchanged. Beta1Tensor and
    Beta2Tensor [1], in Paddle 2.x EpsilonTensor too, stand for the attributes. Programs of Paddle 2.x get its formula, with
    epsilon * sqrt(1 - beta2ᵗ).
    """
    check_shapes(ctx, Param=Param, Moment1=Moment1, Moment2=Moment2)
    if is_empty(Grad) or skips_update(ctx):
        return _results(Param, Moment1, Moment2, Beta1Pow, Beta2Pow)
    betas = (
        _or_attribute(ctx, Beta1Tensor, beta1, Param, "Beta1Tensor"),
        _or_attribute(ctx, Beta2Tensor, beta2, Param, "Beta2Tensor"),
    )
    powers = number(ctx, Beta1Pow, Param, "Beta1Pow"), number(ctx, Beta2Pow, Param, "Beta2Pow")
    if isinstance(Grad, SelectedRows) and ctx.op.output("Beta1PowOut") == ctx.op.input("Beta1Pow"):
        # Paddle's kernel for SelectedRows moves the powers on before it uses them, when they are updated in place.
        powers = powers[0] * betas[0], powers[1] * betas[1]
    later = ctx.op.has_attr("use_global_beta_pow")
    smallest = later_number(ctx, "EpsilonTensor", epsilon, Param)
    step = _step(ctx, betas, powers, number(ctx, LearningRate, Param), smallest, later)
    olds = (Param, Moment1, Moment2)
    if isinstance(Grad, SelectedRows) and lazy_mode:
        rows, grad = merged_gradient(ctx, Param, Grad)
        news = step(ctx, Param[rows], grad, Moment1[rows], Moment2[rows])
        param, moment1, moment2 = (with_rows(old, rows, new) for old, new in zip(olds, news, strict=True))
    else:
        param, moment1, moment2 = step(ctx, Param, dense_gradient(ctx, Param, Grad), Moment1, Moment2)
    if option(ctx, "use_global_beta_pow", False):
        return _results(param, moment1, moment2, Beta1Pow, Beta2Pow)
    return _results(param, moment1, moment2, Beta1Pow * betas[0], Beta2Pow * betas[1])


like_inputs(adam, **_OUTPUTS)


@op(
    "adamw",
    inputs="Param Grad LearningRate Moment1 Moment2 Beta1Pow Beta2Pow MasterParam? SkipUpdate? Beta1Tensor? Beta2Tensor? "
    "EpsilonTensor?",
    outputs="ParamOut Moment1Out Moment2Out Beta1PowOut Beta2PowOut MasterParamOut?",
    attrs=_ADAM_ATTRS | _LATER_ATTRS | {"lr_ratio": 1.0, "coeff": 0.01, "with_decay": False},
)
def adamw(
    ctx: OpContext,
    Param: Any,
    Grad: Any,
    LearningRate: Any,
    Moment1: Any,
    Moment2: Any,
    Beta1Pow: Any,
    Beta2Pow: Any,
    MasterParam: Any,
    SkipUpdate: Any,
    Beta1Tensor: Any,
    Beta2Tensor: Any,
    EpsilonTensor: Any,
    *,
    beta1: float,
    beta2: float,
    epsilon: float,
    lr_ratio: float,
    coeff: float,
    with_decay: bool,
    use_global_beta_pow: bool,
) -> Any:
    """adam with lr * lr_ratio, after p *= 1 - lr * lr_ratio * coeff when with_decay (Paddle 2.6.2 adamw_kernel.cu).

    Its CPU kernel leaves lr_ratio out of the step, which we consider an oversight.
    """
    check_shapes(ctx, Param=Param, Moment1=Moment1, Moment2=Moment2)
    if is_empty(Grad) or skips_update(ctx):
        return _results(Param, Moment1, Moment2, Beta1Pow, Beta2Pow)
    betas = (
        _or_attribute(ctx, Beta1Tensor, beta1, Param, "Beta1Tensor"),
        _or_attribute(ctx, Beta2Tensor, beta2, Param, "Beta2Tensor"),
    )
    powers = number(ctx, Beta1Pow, Param, "Beta1Pow"), number(ctx, Beta2Pow, Param, "Beta2Pow")
    rate = number(ctx, LearningRate, Param) * lr_ratio
    smallest = _or_attribute(ctx, EpsilonTensor, epsilon, Param, "EpsilonTensor")
    decayed = Param * (1 - rate * coeff) if with_decay else Param
    grad = dense_gradient(ctx, Param, Grad)
    moved = _step(ctx, betas, powers, rate, smallest, True)(ctx, decayed, grad, Moment1, Moment2)
    if use_global_beta_pow:
        return _results(*moved, Beta1Pow, Beta2Pow)
    return _results(*moved, Beta1Pow * betas[0], Beta2Pow * betas[1])


like_inputs(adamw, **_OUTPUTS)


@op(
    "merged_adam",
    inputs="Param* Grad* LearningRate* Moment1* Moment2* Beta1Pow* Beta2Pow* MasterParam*?",
    outputs="ParamOut* Moment1Out* Moment2Out* Beta1PowOut* Beta2PowOut* MasterParamOut*?",
    attrs={"beta1": or_variable(0.9), "beta2": or_variable(0.999), "epsilon": or_variable(1e-08)} | _LATER_ATTRS,
)
def merged_adam(
    ctx: OpContext,
    Param: list[Any],
    Grad: list[Any],
    LearningRate: list[Any],
    Moment1: list[Any],
    Moment2: list[Any],
    Beta1Pow: list[Any],
    Beta2Pow: list[Any],
    MasterParam: list[Any],
    *,
    beta1: float,
    beta2: float,
    epsilon: float,
    use_global_beta_pow: bool,
) -> Any:
    """adam of many parameters at once; one learning rate serves all, or each has its own (Paddle 2.6.2)."""
    count = len(Param)
    sizes = {len(Grad), len(Moment1), len(Moment2), len(Beta1Pow), len(Beta2Pow), count}
    if len(sizes) != 1 or len(LearningRate) not in (1, count):
        raise ctx.error(
            f"every input must have as many variables as Param ({count}), or LearningRate one, found {sorted(sizes)}"
        )
    results = []
    for i, (param, power1, power2) in enumerate(zip(Param, Beta1Pow, Beta2Pow, strict=True)):
        check_shapes(ctx, Param=param, Grad=Grad[i], Moment1=Moment1[i], Moment2=Moment2[i])
        powers = number(ctx, power1, param, "Beta1Pow"), number(ctx, power2, param, "Beta2Pow")
        rate = number(ctx, LearningRate[i % len(LearningRate)], param)
        step = _step(ctx, (beta1, beta2), powers, rate, epsilon, True)
        moved = step(ctx, param, Grad[i], Moment1[i], Moment2[i])
        kept = (power1, power2) if use_global_beta_pow else (power1 * beta1, power2 * beta2)
        results.append((*moved, *kept))
    return {slot: list(values) for slot, values in zip(_OUTPUTS, zip(*results, strict=True), strict=True)}


like_inputs(merged_adam, **_OUTPUTS)
