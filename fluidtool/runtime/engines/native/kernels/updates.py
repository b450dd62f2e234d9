"""Optimizers: the parameter and its moments in one pass, in place if nothing else refers to them.

A sparse gradient is the sums of its rows; where an optimizer changes all rows, the others have gradient 0 in the same pass.
`stands_for_dense`: the gradient is rows only because nothing else reads it (row_gradients.py), and means what the dense one
would. `pending`: the calls of several parameters, which are run together afterwards (step.py).
"""

from __future__ import annotations

from math import isfinite, prod
from typing import Any

import numpy as np

from fluidtool.ops.context import OpContext
from fluidtool.runtime.engines.native import abi
from fluidtool.runtime.engines.native.kernels.direct import (
    Array,
    Pending,
    are_floats,
    have_shape,
    in_rows,
    run_call,
    task_count,
)
from fluidtool.runtime.engines.native.kernels.rows import add_rows, are_rows, merged, ours
from fluidtool.runtime.engines.native.library import Library
from fluidtool.tensor import SelectedRows

LATER = ("use_global_beta_pow", "multi_precision", "regularization_method", "rescale_grad")  # of Paddle 2.x
SQUARE_ROOT = -0.5  # the power of ftrl that has a kernel


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
    stands_for_dense: bool = False,
    pending: Pending | None = None,
) -> Any:
    """fluidtool.ops.optimizers.adam in a program of Paddle 1.x."""
    numbers = (LearningRate, Beta1Pow, Beta2Pow)
    if not is_plain(ctx, Param, Grad, numbers, Moment1, Moment2):
        return NotImplemented
    if Beta1Tensor is not None or Beta2Tensor is not None or ctx.has("SkipUpdate"):
        return NotImplemented
    rate, power1, power2 = (number.reshape(()) for number in numbers)
    sparse = isinstance(Grad, SelectedRows) and not stands_for_dense
    if sparse and ctx.op.output("Beta1PowOut") == ctx.op.input("Beta1Pow"):
        # advanced first, as in Paddle's kernel
        power1, power2 = power1 * np.float32(beta1), power2 * np.float32(beta2)
    rate = rate * (np.sqrt(1 - power2) / (1 - power1))
    param, moment1, moment2 = ours(in_place, Param, Moment1, Moment2)
    arguments = abi.Adam(
        param=param, moment1=moment1, moment2=moment2, **gradient(library, Grad, Param, listed=sparse and lazy_mode),
        beta1=beta1, beta1_rest=1 - beta1, beta2=beta2, beta2_rest=1 - beta2, rate=float(rate), epsilon=epsilon,
    )  # fmt: skip
    update(library, arguments, pending)
    return {
        "ParamOut": param,
        "Moment1Out": moment1,
        "Moment2Out": moment2,
        "Beta1PowOut": Beta1Pow * beta1,
        "Beta2PowOut": Beta2Pow * beta2,
    }


def sgd(
    library: Library,
    ctx: OpContext,
    Param: Any,
    LearningRate: Any,
    Grad: Any,
    *,
    in_place: bool = False,
    stands_for_dense: bool = False,
    pending: Pending | None = None,
) -> Any:
    """fluidtool.ops.optimizers.descent.sgd with a dense parameter in a program of Paddle 1.x."""
    if not is_plain(ctx, Param, Grad, (LearningRate,)):
        return NotImplemented
    rate = float(LearningRate.reshape(()))
    (param,) = ours(in_place, Param)
    if isinstance(Grad, SelectedRows) and not stands_for_dense:  # one after the other, as in Paddle's kernel
        add_rows(library, param, Grad.row_ids, Grad.value, -rate)
    else:
        update(
            library,
            abi.Descend(param=param, **gradient(library, Grad, Param, listed=isfinite(rate)), rate=rate),
            pending,
        )
    return {"ParamOut": param}


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
    stands_for_dense: bool = False,
    pending: Pending | None = None,
) -> Any:
    """fluidtool.ops.optimizers.descent.momentum in a program of Paddle 1.x."""
    if not is_plain(ctx, Param, Grad, (LearningRate,), Velocity):
        return NotImplemented
    param, velocity = ours(in_place, Param, Velocity)
    arguments = abi.Momentum(
        param=param, velocity=velocity, **gradient(library, Grad, Param), nesterov=int(use_nesterov), momentum=mu,
        rate=float(LearningRate.reshape(())),
    )  # fmt: skip
    update(library, arguments, pending)
    return {"ParamOut": param, "VelocityOut": velocity}


def adagrad(
    library: Library,
    ctx: OpContext,
    Param: Any,
    Grad: Any,
    Moment: Any,
    LearningRate: Any,
    *,
    epsilon: float,
    in_place: bool = False,
    stands_for_dense: bool = False,
    pending: Pending | None = None,
) -> Any:
    """fluidtool.ops.optimizers.adagrad.adagrad."""
    if not is_plain(ctx, Param, Grad, (LearningRate,), Moment):
        return NotImplemented
    rate = float(LearningRate.reshape(()))
    listed = (isfinite(rate) and epsilon > 0) or not stands_for_dense
    param, moment = ours(in_place, Param, Moment)
    arguments = abi.Adagrad(
        param=param, moment=moment, **gradient(library, Grad, Param, listed=listed), decay=1.0, rest=1.0, rate=rate,
        epsilon=epsilon,
    )  # fmt: skip
    update(library, arguments, pending)
    return {"ParamOut": param, "MomentOut": moment}


def decayed_adagrad(
    library: Library,
    ctx: OpContext,
    Param: Any,
    Grad: Any,
    Moment: Any,
    LearningRate: Any,
    *,
    decay: float,
    epsilon: float,
    in_place: bool = False,
    stands_for_dense: bool = False,
    pending: Pending | None = None,
) -> Any:
    """fluidtool.ops.optimizers.adagrad.decayed_adagrad, which has no sparse gradients."""
    sparse = isinstance(Grad, SelectedRows) and not stands_for_dense
    if sparse or not is_plain(ctx, Param, Grad, (LearningRate,), Moment):
        return NotImplemented
    param, moment = ours(in_place, Param, Moment)
    arguments = abi.Adagrad(
        param=param, moment=moment, **gradient(library, Grad, Param), decay=decay, rest=1 - decay,
        rate=float(LearningRate.reshape(())), epsilon=epsilon,
    )  # fmt: skip
    update(library, arguments, pending)
    return {"ParamOut": param, "MomentOut": moment}


def rmsprop(
    library: Library,
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
    in_place: bool = False,
    stands_for_dense: bool = False,
    pending: Pending | None = None,
) -> Any:
    """fluidtool.ops.optimizers.adagrad.rmsprop; not centered, where a difference of squares needs numpy's roundings."""
    if centered or not is_plain(ctx, Param, Grad, (LearningRate,), MeanSquare, Moment):
        return NotImplemented
    param, squares, moment = ours(in_place, Param, MeanSquare, Moment)
    arguments = abi.Rmsprop(
        param=param, squares=squares, moment=moment, **gradient(library, Grad, Param), decay=decay, rest=1 - decay,
        momentum=momentum, rate=float(LearningRate.reshape(())), epsilon=epsilon,
    )  # fmt: skip
    update(library, arguments, pending)
    return {"ParamOut": param, "MomentOut": moment, "MeanSquareOut": squares, "MeanGradOut": MeanGrad}


def ftrl(
    library: Library,
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
    in_place: bool = False,
    stands_for_dense: bool = False,
    pending: Pending | None = None,
) -> Any:
    """fluidtool.ops.optimizers.adagrad.ftrl with a power of -1/2."""
    if lr_power != SQUARE_ROOT or not is_plain(
        ctx, Param, Grad, (LearningRate,), SquaredAccumulator, LinearAccumulator
    ):
        return NotImplemented
    param, squares, linear = ours(in_place, Param, SquaredAccumulator, LinearAccumulator)
    arguments = abi.Ftrl(
        param=param, squares=squares, linear=linear, **gradient(library, Grad, Param, listed=not stands_for_dense),
        l1=l1, l2=l2, rate=float(LearningRate.reshape(())),
    )  # fmt: skip
    update(library, arguments, pending)
    return {"ParamOut": param, "SquaredAccumOut": squares, "LinearAccumOut": linear}


def is_plain(ctx: OpContext, param: Any, grad: Any, numbers: tuple[Any, ...], *moments: Any) -> bool:
    """Whether all are float32 of one shape, the gradient dense or rows, and the operator uses no later features."""
    if not are_floats(param, *numbers, *moments) or any(number.size != 1 for number in numbers):
        return False
    if not have_shape(param.shape, *moments) or not param.size or any(ctx.op.has_attr(name) for name in LATER):
        return False
    if isinstance(grad, SelectedRows):
        return are_rows(grad) and are_rows_of(grad, param)
    return are_floats(grad) and grad.shape == param.shape


def are_rows_of(grad: SelectedRows, param: Array) -> bool:
    """Whether a table has all the rows that a gradient names, of the same width."""
    ids, height = grad.row_ids, len(param) if param.ndim else 0
    return grad.value.shape[1:] == param.shape[1:] and bool(ids.min() >= 0 and ids.max() < height)


def gradient(library: Library, grad: Any, param: Array, listed: bool = False) -> dict[str, Any]:
    """The arguments that say a gradient: of all of the parameter, or its rows; `listed`: only these change."""
    if not isinstance(grad, SelectedRows):
        return {"grad": in_rows(grad), "places": None, "rows": 1, "columns": param.size, "count": 0, "listed": 0}
    rows, values = merged(library, grad.row_ids, grad.value, len(param))
    return {
        "grad": in_rows(values), "places": in_rows(rows), "rows": len(param), "columns": prod(param.shape[1:]),
        "count": len(rows), "listed": int(listed),
    }  # fmt: skip


def update(library: Library, arguments: Any, pending: Pending | None) -> None:
    """Run the kernel in tasks for the floats that it passes over, or put it off with those of other parameters."""
    rows = arguments.count if arguments.listed else arguments.rows
    tasks = task_count(library, rows * arguments.columns)
    if pending is None:
        run_call(library, arguments, tasks)
    else:
        pending.append((arguments, tasks))
