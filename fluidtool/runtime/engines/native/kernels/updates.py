"""adam, momentum and sgd: the parameter and its moments in one pass, in place if nothing else refers to them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from fluidtool.ops.context import OpContext
from fluidtool.runtime.engines.native import abi
from fluidtool.runtime.engines.native.kernels.direct import Array, are_floats, have_shape, in_rows, run_call, task_count
from fluidtool.runtime.engines.native.kernels.rows import add_rows, merged, moves_rows, ours
from fluidtool.runtime.engines.native.library import Library
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
    in_place: bool = False,
) -> Any:
    """fluidtool.ops.optimizers.adam in a program of Paddle 1.x."""
    numbers = (LearningRate, Beta1Pow, Beta2Pow)
    sparse = isinstance(Grad, SelectedRows)
    if sparse and not moves_rows(ctx, Grad, LearningRate, Param, Moment1, Moment2):
        return NotImplemented
    if not is_plain(ctx, Param, *(() if sparse else (Grad,)), Moment1, Moment2):
        return NotImplemented
    if not are_floats(*numbers) or any(n.size != 1 for n in numbers):
        return NotImplemented
    if Beta1Tensor is not None or Beta2Tensor is not None or ctx.has("SkipUpdate"):
        return NotImplemented
    rate, power1, power2 = (number.reshape(()) for number in numbers)
    if sparse and ctx.op.output("Beta1PowOut") == ctx.op.input("Beta1Pow"):
        # advanced first, as in Paddle's kernel
        power1, power2 = power1 * np.float32(beta1), power2 * np.float32(beta2)
    rate = rate * (np.sqrt(1 - power2) / (1 - power1))
    constants = {
        "beta1": beta1, "beta1_rest": 1 - beta1, "beta2": beta2, "beta2_rest": 1 - beta2, "rate": float(rate),
        "epsilon": epsilon,
    }  # fmt: skip
    olds = (Param, Moment1, Moment2)
    if sparse and lazy_mode:
        news = adam_rows(library, Grad, ours(in_place, *olds), constants)
    else:
        news = adam_whole(library, in_rows(whole(library, Grad, Param) if sparse else Grad), olds, constants, in_place)
    param, moment1, moment2 = news
    return {
        "ParamOut": param,
        "Moment1Out": moment1,
        "Moment2Out": moment2,
        "Beta1PowOut": Beta1Pow * beta1,
        "Beta2PowOut": Beta2Pow * beta2,
    }


def adam_whole(
    library: Library, grad: Array, olds: tuple[Array, ...], constants: Mapping[str, float], in_place: bool
) -> tuple[Array, ...]:
    """Parameter and moments afterwards."""
    news = room(in_place, *olds)
    (param, moment1, moment2), (new_param, new_moment1, new_moment2) = map(in_rows, olds), news
    arguments = abi.Adam(
        param=param, grad=in_rows(grad), moment1=moment1, moment2=moment2, new_param=new_param, new_moment1=new_moment1,
        new_moment2=new_moment2, count=param.size, **constants,
    )  # fmt: skip
    run_call(library, arguments, task_count(library, param.size))
    return news


def adam_rows(
    library: Library, grad: SelectedRows, news: tuple[Array, ...], constants: Mapping[str, float]
) -> tuple[Array, ...]:
    """Parameter and moments with the gradient's rows updated."""
    rows, values = merged(library, grad.row_ids, grad.value)
    param, moment1, moment2 = news
    arguments = abi.AdamRows(
        param=param, moment1=moment1, moment2=moment2, grad=in_rows(values), places=in_rows(rows), count=len(rows),
        columns=values.size // len(rows), rows=len(param), **constants,
    )  # fmt: skip
    run_call(library, arguments, task_count(library, values.size))
    return news


def whole(library: Library, grad: SelectedRows, like: Array) -> Array:
    """The gradient with zeros in its missing rows."""
    dense = np.zeros(like.shape, np.float32)
    add_rows(library, dense, grad.row_ids, grad.value)
    return dense


def sgd(library: Library, ctx: OpContext, Param: Any, LearningRate: Any, Grad: Any, *, in_place: bool = False) -> Any:
    """fluidtool.ops.optimizers.descent.sgd with a dense parameter in a program of Paddle 1.x."""
    if isinstance(Grad, SelectedRows):
        if not moves_rows(ctx, Grad, LearningRate, Param):
            return NotImplemented
        (out,) = ours(in_place, Param)
        add_rows(library, out, Grad.row_ids, Grad.value, -float(LearningRate.reshape(())))
        return {"ParamOut": out}
    if not are_floats(LearningRate) or LearningRate.size != 1 or not is_plain(ctx, Param, Grad):
        return NotImplemented
    (out,) = room(in_place, Param)
    rate = float(LearningRate.reshape(()))
    arguments = abi.Descend(param=in_rows(Param), grad=in_rows(Grad), new_param=out, count=Param.size, rate=rate)
    run_call(library, arguments, task_count(library, Param.size))
    return {"ParamOut": out}


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
    in_place: bool = False,
) -> Any:
    """fluidtool.ops.optimizers.descent.momentum with a dense gradient in a program of Paddle 1.x."""
    if not is_plain(ctx, Param, Grad, Velocity) or not are_floats(LearningRate) or LearningRate.size != 1:
        return NotImplemented
    param, velocity = room(in_place, Param, Velocity)
    arguments = abi.Momentum(
        param=in_rows(Param), grad=in_rows(Grad), velocity=in_rows(Velocity), new_param=param, new_velocity=velocity,
        count=Param.size, nesterov=int(use_nesterov), momentum=mu, rate=float(LearningRate.reshape(())),
    )  # fmt: skip
    run_call(library, arguments, task_count(library, Param.size))
    return {"ParamOut": param, "VelocityOut": velocity}


def room(in_place: bool, *arrays: Array) -> tuple[Array, ...]:
    """Where results shaped like the arrays go: into the arrays themselves, or into new memory."""
    return arrays if in_place else tuple(np.empty(array.shape, np.float32) for array in arrays)


def is_plain(ctx: OpContext, param: Any, *others: Any) -> bool:
    """Whether all are dense float32 of one shape, and the operator uses no later features."""
    dense = are_floats(param, *others) and have_shape(param.shape, *others) and param.size > 0
    return dense and not any(ctx.op.has_attr(name) for name in LATER)
