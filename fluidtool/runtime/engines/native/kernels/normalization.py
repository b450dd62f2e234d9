"""layer_norm and its gradient, row by row; batch_norm and its gradient, channel by channel."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from fluidtool.ops.context import OpContext
from fluidtool.ops.nn.batch_norm import uses_running_statistics
from fluidtool.ops.nn.windows import CHANNELS_LAST
from fluidtool.runtime.engines.native import abi
from fluidtool.runtime.engines.native.kernels.direct import are_floats, in_rows, run_call
from fluidtool.runtime.engines.native.library import Library
from fluidtool.runtime.graph.ir import NONE, RELU

GRAIN = 1 << 13  # floats worth a thread
PLANE = 4  # numbers of a plane below which numpy, which goes along the channels, is faster


def layer_norm(
    library: Library, ctx: OpContext, X: Any, Scale: Any, Bias: Any, *, epsilon: float, begin_norm_axis: int
) -> Any:
    """fluidtool.ops.nn.layer_norm for float32, to its rounding."""
    if not fits(begin_norm_axis, X, Scale, Bias):
        return NotImplemented
    rows, columns = prod(X.shape[:begin_norm_axis]), prod(X.shape[begin_norm_axis:])
    out, statistics = np.empty(X.shape, np.float32), np.empty((2, rows), np.float32)
    arguments = abi.LayerNorm(
        source=in_rows(X), scale=in_rows(Scale), bias=in_rows(Bias), out=out, statistics=statistics, rows=rows,
        columns=columns, epsilon=epsilon,
    )  # fmt: skip
    run_call(library, arguments, task_count(library, rows, columns))
    return {"Y": out, "Mean": statistics[0], "Variance": statistics[1]}


def layer_norm_gradient(
    library: Library,
    ctx: OpContext,
    X: Any,
    Scale: Any,
    Bias: Any,
    Mean: Any,
    Variance: Any,
    Y_grad: Any,
    *,
    epsilon: float,
    begin_norm_axis: int,
) -> Any:
    """The gradient of fluidtool.ops.nn.layer_norm for float32, to its rounding."""
    if not fits(begin_norm_axis, X, Scale, Bias) or not are_floats(Mean, Variance, Y_grad) or Y_grad.size != X.size:
        return NotImplemented
    rows, columns = prod(X.shape[:begin_norm_axis]), prod(X.shape[begin_norm_axis:])
    if Mean.size != rows or Variance.size != rows:
        return NotImplemented
    tasks = task_count(library, rows, columns)
    grad, sums = np.empty(X.shape, np.float32), np.zeros((tasks, 2, columns), np.float32)
    arguments = abi.LayerNormGradient(
        source=in_rows(X), scale=in_rows(Scale), mean=in_rows(Mean), variance=in_rows(Variance),
        out_grad=in_rows(Y_grad), source_grad=grad, sums=sums, rows=rows, columns=columns, epsilon=epsilon,
    )  # fmt: skip
    run_call(library, arguments, tasks)
    by_scale, by_bias = sums.sum(axis=0)
    grads: dict[str, Any] = {"X@GRAD": grad}
    if Scale is not None:
        grads["Scale@GRAD"] = by_scale.reshape(Scale.shape)
    if Bias is not None:
        grads["Bias@GRAD"] = by_bias.reshape(Bias.shape)
    return grads


def fits(axis: int, x: Any, scale: Any, bias: Any) -> bool:
    """Whether x is float32 with rows, and scale and bias are as long as one."""
    if not are_floats(x, scale, bias) or not 0 < axis < x.ndim or x.size == 0:
        return False
    return all(value is None or value.size == prod(x.shape[axis:]) for value in (scale, bias))


def batch_norm(
    library: Library, ctx: OpContext, X: Any, Scale: Any, Bias: Any, Mean: Any, Variance: Any, MomentumTensor: Any
) -> Any:
    """fluidtool.ops.nn.batch_norm for float32 with batch statistics, to its rounding."""
    if MomentumTensor is not None or not are_planes(ctx, X) or not by_channel(X, Scale, Bias, Mean, Variance):
        return NotImplemented
    out, statistics = np.empty(X.shape, np.float32), np.empty((2, X.shape[1]), np.float32)
    mean, variance = statistics
    arguments = abi.BatchNorm(
        source=in_rows(X), scale=in_rows(Scale), bias=in_rows(Bias), out=out, mean=mean, variance=variance,
        images=X.shape[0], channels=X.shape[1], plane=prod(X.shape[2:]), epsilon=ctx.attr("epsilon"),
    )  # fmt: skip
    run_call(library, arguments, channel_parts(library, X), RELU if ctx.attr("fuse_with_relu") else NONE)
    momentum = ctx.attr("momentum")
    return {
        "Y": out,
        "MeanOut": Mean * momentum + mean * (1 - momentum),
        "VarianceOut": Variance * momentum + variance * (1 - momentum),
        "SavedMean": mean,
        "SavedVariance": 1 / np.sqrt(variance + ctx.attr("epsilon")),
    }


def batch_norm_gradient(
    library: Library,
    ctx: OpContext,
    X: Any,
    Scale: Any,
    Bias: Any,
    SavedMean: Any,
    SavedVariance: Any,
    ReserveSpace: Any,
    Y_grad: Any,
    Mean: Any,
    Variance: Any,
) -> Any:
    """The gradient of fluidtool.ops.nn.batch_norm for float32 with batch statistics, to its rounding."""
    if not are_planes(ctx, X) or not by_channel(X, Scale, SavedMean, SavedVariance):
        return NotImplemented
    if not are_floats(Y_grad) or Y_grad.shape != X.shape:
        return NotImplemented
    grad, by_scale, by_bias = (np.empty(shape, np.float32) for shape in (X.shape, Scale.shape, Scale.shape))
    arguments = abi.BatchNormGradient(
        source=in_rows(X), scale=in_rows(Scale), mean=in_rows(SavedMean), inverse=in_rows(SavedVariance),
        out_grad=in_rows(Y_grad), source_grad=grad, scale_grad=by_scale, bias_grad=by_bias,
        images=X.shape[0], channels=X.shape[1], plane=prod(X.shape[2:]),
    )  # fmt: skip
    run_call(library, arguments, channel_parts(library, X))
    return {"X@GRAD": grad, "Scale@GRAD": by_scale, "Bias@GRAD": by_bias}


def are_planes(ctx: OpContext, x: Any) -> bool:
    """Whether x is float32 with channels in dimension 1, whose rows are worth a vector, and batch statistics are used."""
    if not are_floats(x) or x.ndim < 3 or x.size == 0 or prod(x.shape[2:]) < PLANE:
        return False
    return ctx.attr("data_layout") not in CHANNELS_LAST and not uses_running_statistics(ctx)


def by_channel(x: Any, *values: Any) -> bool:
    """Whether all are float32 with one element per channel of x."""
    return all(value is not None and value.shape == (x.shape[1],) for value in values) and are_floats(*values)


def channel_parts(library: Library, x: Any) -> int:
    """The number of tasks for the channels."""
    return max(1, min(int(x.shape[1]), 4 * library.threads, int(x.size) // GRAIN))


def task_count(library: Library, rows: int, columns: int) -> int:
    """The number of tasks for the rows."""
    return max(1, min(rows, library.threads, rows * columns // GRAIN))
