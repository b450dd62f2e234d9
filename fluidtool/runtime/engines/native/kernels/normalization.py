"""layer_norm and its gradient, row by row; batch_norm and its gradient, channel by channel."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from fluidtool.ops.context import OpContext
from fluidtool.ops.nn.batch_norm import uses_running_statistics
from fluidtool.ops.nn.windows import CHANNELS_LAST
from fluidtool.runtime.engines.native import abi
from fluidtool.runtime.engines.native.kernels.direct import Array, are_floats, in_rows, run_call
from fluidtool.runtime.engines.native.kernels.last import empty_last, is_only_last, memory_of
from fluidtool.runtime.engines.native.library import Library
from fluidtool.runtime.graph.ir import NONE, RELU, Activation

GRAIN = 1 << 13  # floats worth a thread
CHUNK = 64  # pixels, of src/normalization.c
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
    compute = normalized_last if is_only_last(X) else normalized
    activation = RELU if ctx.attr("fuse_with_relu") else NONE
    out, mean, variance = compute(library, X, Scale, Bias, ctx.attr("epsilon"), activation)
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
    compute = gradients_last if is_only_last(X) else gradients
    grad, by_scale, by_bias = compute(library, X, Scale, SavedMean, SavedVariance, Y_grad)
    return {"X@GRAD": grad, "Scale@GRAD": by_scale, "Bias@GRAD": by_bias}


def normalized(
    library: Library, x: Array, scale: Array, bias: Array, epsilon: float, activation: Activation
) -> tuple[Array, Array, Array]:
    """The batch norm of planes, and the statistics of the batch."""
    out, (mean, variance) = np.empty(x.shape, np.float32), np.empty((2, x.shape[1]), np.float32)
    arguments = abi.BatchNorm(
        source=in_rows(x), scale=in_rows(scale), bias=in_rows(bias), out=out, mean=mean, variance=variance,
        **planes_of(x), epsilon=epsilon,
    )  # fmt: skip
    run_call(library, arguments, channel_parts(library, x), activation)
    return out, mean, variance


def normalized_last(
    library: Library, x: Array, scale: Array, bias: Array, epsilon: float, activation: Activation
) -> tuple[Array, Array, Array]:
    """The same where the channels are last."""
    out, source, sizes, tasks = empty_last(x.shape), memory_of(x), pixels_of(x), task_count_of_pixels(library, x)
    moments = chunks_of(x)
    run_call(library, abi.ChannelMoments(source=source, out=moments, **sizes), tasks)
    mean, variance = joined_moments(moments, sizes["pixels"])
    factor = scale / np.sqrt(variance + np.float32(epsilon))
    arguments = abi.NormalizeLast(
        source=source, mean=mean, factor=factor, bias=in_rows(bias), out=memory_of(out), **sizes
    )
    run_call(library, arguments, tasks, activation)
    return out, mean, variance


def joined_moments(moments: Array, pixels: int) -> tuple[Array, Array]:
    """Mean and variance from those of chunks, in double (Chan, Golub and LeVeque 1979)."""
    counts = np.full((len(moments), 1), CHUNK, np.float64)
    counts[-1] = pixels - CHUNK * (len(moments) - 1)
    means = moments[:, 0].astype(np.float64)
    mean = (means * counts).sum(axis=0) / pixels
    squares = moments[:, 1].sum(axis=0, dtype=np.float64) + (counts * (means - mean) ** 2).sum(axis=0)
    return mean.astype(np.float32), (squares / pixels).astype(np.float32)


def gradients(
    library: Library, x: Array, scale: Array, mean: Array, inverse: Array, grad: Array
) -> tuple[Array, Array, Array]:
    """The gradients of the batch norm of planes: by x, scale and bias."""
    found, by_scale, by_bias = (np.empty(shape, np.float32) for shape in (x.shape, scale.shape, scale.shape))
    arguments = abi.BatchNormGradient(
        source=in_rows(x), scale=in_rows(scale), mean=in_rows(mean), inverse=in_rows(inverse), out_grad=in_rows(grad),
        source_grad=found, scale_grad=by_scale, bias_grad=by_bias, **planes_of(x),
    )  # fmt: skip
    run_call(library, arguments, channel_parts(library, x))
    return found, by_scale, by_bias


def gradients_last(
    library: Library, x: Array, scale: Array, mean: Array, inverse: Array, grad: Array
) -> tuple[Array, Array, Array]:
    """The same where the channels are last."""
    found, sizes, tasks, sums = empty_last(x.shape), pixels_of(x), task_count_of_pixels(library, x), chunks_of(x)
    common: dict[str, Any] = {"source": memory_of(x), "mean": in_rows(mean), "inverse": in_rows(inverse)}
    common |= {"out_grad": memory_of(grad), **sizes}
    run_call(library, abi.ChannelSlopes(**common, out=sums), tasks)
    by_bias, by_scale = sums.sum(axis=0, dtype=np.float64)
    level, slope = (np.float32(total / sizes["pixels"]) for total in (by_bias, by_scale))
    arguments = abi.NormalizeLastGradient(
        **common, factor=scale * inverse, level=level, slope=slope, source_grad=memory_of(found)
    )
    run_call(library, arguments, tasks)
    return found, by_scale.astype(np.float32), by_bias.astype(np.float32)


def are_planes(ctx: OpContext, x: Any) -> bool:
    """Whether x is float32 with channels in dimension 1, whose rows are worth a vector, and batch statistics are used."""
    if not are_floats(x) or x.ndim < 3 or x.size == 0 or (prod(x.shape[2:]) < PLANE and not is_only_last(x)):
        return False
    return ctx.attr("data_layout") not in CHANNELS_LAST and not uses_running_statistics(ctx)


def by_channel(x: Any, *values: Any) -> bool:
    """Whether all are float32 with one element per channel of x."""
    return all(value is not None and value.shape == (x.shape[1],) for value in values) and are_floats(*values)


def planes_of(x: Any) -> dict[str, int]:
    """The sizes of an array with its channels in dimension 1."""
    return {"images": x.shape[0], "channels": x.shape[1], "plane": prod(x.shape[2:])}


def pixels_of(x: Any) -> dict[str, int]:
    """The same where the memory has them last."""
    return {"pixels": x.size // x.shape[1], "channels": x.shape[1]}


def chunks_of(x: Any) -> Array:
    """Two numbers for each channel of each chunk of pixels."""
    return np.empty((-(-x.size // x.shape[1] // CHUNK), 2, x.shape[1]), np.float32)


def task_count_of_pixels(library: Library, x: Any) -> int:
    """The number of tasks for its pixels."""
    return max(1, min(4 * library.threads, int(x.size) // GRAIN)) if library.threads > 1 else 1


def channel_parts(library: Library, x: Any) -> int:
    """The number of tasks for the channels."""
    return max(1, min(int(x.shape[1]), 4 * library.threads, int(x.size) // GRAIN))


def task_count(library: Library, rows: int, columns: int) -> int:
    """The number of tasks for the rows."""
    return max(1, min(rows, library.threads, rows * columns // GRAIN))
