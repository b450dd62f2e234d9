"""elementwise_add of arrays of one shape, of rows, and of a number for each channel where the channels are last in memory."""

from __future__ import annotations

from typing import Any

import numpy as np

from fluidtool.ops.context import OpContext
from fluidtool.ops.math.elementwise_common import grad_lod
from fluidtool.runtime.engines.native import abi
from fluidtool.runtime.engines.native.kernels.backward import added, place_for
from fluidtool.runtime.engines.native.kernels.direct import Array, are_floats, in_rows, run_call
from fluidtool.runtime.engines.native.kernels.last import is_only_last, memory_of
from fluidtool.runtime.engines.native.kernels.normalization import chunks_of, pixels_of, task_count_of_pixels
from fluidtool.runtime.engines.native.library import Library


def elementwise_add(library: Library, ctx: OpContext, X: Any, Y: Any, *, axis: int, over: Any = None) -> Any:
    """fluidtool.ops.math.elementwise.elementwise_add for X [N, C, H, W] and Y [C], or for rows, or arrays of one shape."""
    if not is_bias(X, Y, axis):
        if not are_floats(X, Y) or X is None or Y is None or axis not in (-1, X.ndim - Y.ndim):
            return NotImplemented
        return added(library, X, Y, over)
    out, channels = place_for(X, over), X.shape[1]
    arguments = abi.NormalizeLast(
        source=memory_of(X), mean=np.zeros(channels, np.float32), factor=np.ones(channels, np.float32), bias=in_rows(Y),
        out=memory_of(out), **pixels_of(X),
    )  # fmt: skip
    run_call(library, arguments, task_count_of_pixels(library, X))
    return out


def elementwise_add_gradient(library: Library, ctx: OpContext, X: Any, Y: Any, Out_grad: Any, *, axis: int) -> Any:
    """fluidtool.ops.math.elementwise.elementwise_add_grad for the same."""
    if not is_bias(Out_grad, Y, axis) or not ctx.wants("Y@GRAD"):
        return NotImplemented
    grad_lod(ctx)
    return {"X@GRAD": Out_grad, "Y@GRAD": sum_of_pixels(library, Out_grad)}


def elementwise_mul_gradient(library: Library, ctx: OpContext, X: Any, Y: Any, Out_grad: Any, *, axis: int) -> Any:
    """fluidtool.ops.math.elementwise.elementwise_mul_grad for a factor for each row, without an array of the products."""
    if axis != 0 or not are_floats(X, Y, Out_grad) or X.ndim != 2 or Y.shape not in ((len(X),), (len(X), 1)):
        return NotImplemented
    if Out_grad.shape != X.shape:
        return NotImplemented
    grad_lod(ctx)
    found: dict[str, Any] = {}
    if ctx.wants("X@GRAD"):
        found["X@GRAD"] = Out_grad * Y.reshape(-1, 1)
    if ctx.wants("Y@GRAD"):
        found["Y@GRAD"] = np.einsum("rc,rc->r", Out_grad, X).reshape(Y.shape)
    return found


def is_bias(x: Any, y: Any, axis: int) -> bool:
    """Whether y has a number for each channel of x, whose channels are last in memory."""
    if axis != 1 or not are_floats(x, y) or y is None or not is_only_last(x):
        return False
    return bool(y.shape == (x.shape[1],) and x.size > 0)


def sum_of_pixels(library: Library, x: Array) -> Array:
    """The sum over everything but channels, which are last in memory."""
    source, nothing, sums = memory_of(x), np.zeros(x.shape[1], np.float32), chunks_of(x)
    arguments = abi.ChannelSlopes(
        source=source, out_grad=source, mean=nothing, inverse=nothing, out=sums, **pixels_of(x)
    )
    run_call(library, arguments, task_count_of_pixels(library, x))
    total: Array = sums[:, 0].sum(axis=0, dtype=np.float64).astype(np.float32)
    return total
