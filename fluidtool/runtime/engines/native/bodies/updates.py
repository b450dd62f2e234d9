"""adam and momentum: the parameter and its moments in one pass."""

from __future__ import annotations

from typing import Any

import numpy as np

from fluidtool.ops.context import OpContext
from fluidtool.runtime.engines.native.bodies.calls import are_floats, have_shape, in_rows, parts, run_step, table
from fluidtool.runtime.engines.native.bodies.rows import add_rows, moves_rows
from fluidtool.runtime.engines.native.library import Library
from fluidtool.runtime.engines.native.steps import Kind
from fluidtool.tensor import SelectedRows

LATER = ("use_global_beta_pow", "multi_precision", "regularization_method", "rescale_grad")  # of Paddle 2.x


def adam(
    library: Library,
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
    """What fluidtool.ops.optimizers.adam does in a program of Paddle 1.x, but for the lazy mode of sparse gradients."""
    numbers = (LearningRate, Beta1Pow, Beta2Pow)
    sparse = isinstance(Grad, SelectedRows)
    if sparse:
        if lazy_mode or not moves_rows(ctx, Grad, LearningRate, Param):
            return NotImplemented
        dense = np.zeros(Param.shape, np.float32)
        add_rows(library, dense, Grad.row_ids, Grad.value)
        Grad = dense
    if (
        not is_plain(ctx, Param, Grad, Moment1, Moment2)
        or not are_floats(*numbers)
        or any(n.size != 1 for n in numbers)
    ):
        return NotImplemented
    if Beta1Tensor is not None or Beta2Tensor is not None or ctx.has("SkipUpdate"):
        return NotImplemented
    rate, power1, power2 = (number.reshape(()) for number in numbers)
    if sparse and ctx.op.output("Beta1PowOut") == ctx.op.input("Beta1Pow"):
        power1, power2 = (
            power1 * np.float32(beta1),
            power2 * np.float32(beta2),
        )  # moved on first, as Paddle's kernel does
    rate = rate * (np.sqrt(1 - power2) / (1 - power1))
    news = [np.empty(Param.shape, np.float32) for _ in range(3)]
    arrays = [in_rows(array) for array in (Param, Grad, Moment1, Moment2)]
    constants = np.array([beta1, 1 - beta1, beta2, 1 - beta2, rate, epsilon], np.float32)
    run_step(library, Kind.ADAM, (table(*arrays, *news), constants), {0: Param.size}, parts(library, Param.size))
    param, moment1, moment2 = news
    return {
        "ParamOut": param,
        "Moment1Out": moment1,
        "Moment2Out": moment2,
        "Beta1PowOut": Beta1Pow * beta1,
        "Beta2PowOut": Beta2Pow * beta2,
    }


def momentum(
    library: Library,
    ctx: OpContext,
    Param: Any,
    Grad: Any,
    Velocity: Any,
    LearningRate: Any,
    *,
    mu: float,
    use_nesterov: bool,
) -> Any:
    """What fluidtool.ops.optimizers.descent.momentum does with a dense gradient in a program of Paddle 1.x."""
    if not is_plain(ctx, Param, Grad, Velocity) or not are_floats(LearningRate) or LearningRate.size != 1:
        return NotImplemented
    param, velocity = np.empty(Param.shape, np.float32), np.empty(Param.shape, np.float32)
    arrays = [in_rows(array) for array in (Param, Grad, Velocity)]
    numbers = (mu, float(LearningRate.reshape(())))
    sizes = {0: Param.size, 1: int(use_nesterov)}
    run_step(library, Kind.MOMENTUM, (*arrays, param, velocity), sizes, parts(library, Param.size), numbers)
    return {"ParamOut": param, "VelocityOut": velocity}


def is_plain(ctx: OpContext, param: Any, *others: Any) -> bool:
    """Whether all are dense float32 of one shape, and the operator has nothing of later versions."""
    dense = are_floats(param, *others) and have_shape(param.shape, *others) and param.size > 0
    return dense and not any(ctx.op.has_attr(name) for name in LATER)
