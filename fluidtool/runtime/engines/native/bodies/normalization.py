"""layer_norm and its gradient, row by row."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from fluidtool.ops.context import OpContext
from fluidtool.runtime.engines.native.bodies.calls import are_floats, in_rows, run_step, table
from fluidtool.runtime.engines.native.library import Library
from fluidtool.runtime.engines.native.steps import Kind

PART = 1 << 13  # floats that are worth a thread


def layer_norm(
    library: Library, ctx: OpContext, X: Any, Scale: Any, Bias: Any, *, epsilon: float, begin_norm_axis: int
) -> Any:
    """What fluidtool.ops.nn.layer_norm does with float32, to its rounding."""
    if not fits(begin_norm_axis, X, Scale, Bias):
        return NotImplemented
    rows, columns = prod(X.shape[:begin_norm_axis]), prod(X.shape[begin_norm_axis:])
    out, statistics = np.empty(X.shape, np.float32), np.empty((2, rows), np.float32)
    arrays = (in_rows(X), in_rows(Scale), in_rows(Bias), out, None, statistics)
    run_step(library, Kind.LAYER_NORM, arrays, {0: rows, 1: columns}, parts(library, rows, columns), (epsilon,))
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
    """What the gradient of fluidtool.ops.nn.layer_norm does with float32, to its rounding."""
    if not fits(begin_norm_axis, X, Scale, Bias) or not are_floats(Mean, Variance, Y_grad) or Y_grad.size != X.size:
        return NotImplemented
    rows, columns = prod(X.shape[:begin_norm_axis]), prod(X.shape[begin_norm_axis:])
    if Mean.size != rows or Variance.size != rows:
        return NotImplemented
    tasks = parts(library, rows, columns)
    grad, sums = np.empty(X.shape, np.float32), np.zeros((tasks, 2, columns), np.float32)
    arrays = tuple(in_rows(array) for array in (X, Scale, Mean, Variance, Y_grad))
    addresses = table(*arrays, grad, sums)
    run_step(library, Kind.LAYER_NORM_GRADIENT, (addresses,), {0: rows, 1: columns}, tasks, (epsilon,))
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


def parts(library: Library, rows: int, columns: int) -> int:
    """Into how many parts the rows are cut."""
    return max(1, min(rows, library.threads, rows * columns // PART))
