"""What stands between products in training: activations, softmax, dropout, sums, and their gradients.

`over`: an array that nobody reads afterwards, in whose place a result of its shape may be computed (step.py).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fluidtool.ops.context import OpContext
from fluidtool.ops.nn.dropout import scales_up
from fluidtool.runtime.engines.native import abi
from fluidtool.runtime.engines.native.kernels.direct import Array, are_floats, in_rows, run_call, task_count
from fluidtool.runtime.engines.native.kernels.draws import random
from fluidtool.runtime.engines.native.kernels.last import empty_last, is_only_last, memory_of
from fluidtool.runtime.engines.native.library import Library
from fluidtool.runtime.graph.ir import Activation

WORD = 4  # bytes of a mask, so that its length is a whole number of floats (extents.py)
LEAST = 1 << 11  # numbers from which a call is quicker than numpy
LEAST_ADDED = 1 << 17  # the same for sums, on several threads
KINDS = {
    "gelu": abi.ActivationKind.GELU,
    "relu": abi.ActivationKind.RELU,
    "sigmoid": abi.ActivationKind.SIGMOID,
    "tanh": abi.ActivationKind.TANH,
}


def is_worth_it(*arrays: Any) -> bool:
    """Whether these are arrays of float32 of one shape, large enough for a call."""
    first = arrays[0]
    if not are_floats(*arrays) or any(array is None for array in arrays) or first.size < LEAST:
        return False
    return all(array.shape == first.shape for array in arrays)


def place_for(like: Array, over: Any) -> Array:
    """Where a result of this shape is written: `over` if it fits, else a new array; with the channels last as `like`."""
    last = is_only_last(like)
    if over is not None and over.shape == like.shape and (is_only_last(over) if last else over.flags.c_contiguous):
        found: Array = over
        return found
    return empty_last(like.shape) if last else np.empty(like.shape, np.float32)


def in_memory(like: Array, array: Array) -> Array:
    """The numbers of an array as they lie, or as those of `like` lie."""
    return memory_of(array) if is_only_last(like) else in_rows(array)


def relu(library: Library, ctx: OpContext, X: Any, *, over: Any = None) -> Any:
    """fluidtool.ops.activation's relu."""
    return activated(library, "relu", X, over)


def sigmoid(library: Library, ctx: OpContext, X: Any, *, over: Any = None) -> Any:
    """Its sigmoid, to the rounding of float32."""
    return activated(library, "sigmoid", X, over)


def tanh(library: Library, ctx: OpContext, X: Any, *, over: Any = None) -> Any:
    """Its tanh, to the rounding of float32."""
    return activated(library, "tanh", X, over)


def gelu(library: Library, ctx: OpContext, X: Any, *, approximate: bool, over: Any = None) -> Any:
    """Its gelu, to 3e-7 of X."""
    return NotImplemented if approximate else activated(library, "gelu", X, over)


def activated(library: Library, name: str, x: Any, over: Any) -> Any:
    """An activation of every number."""
    if not is_worth_it(x):
        return NotImplemented
    out = place_for(x, over)
    arguments = abi.Activate(source=in_memory(x, x), out=in_memory(x, out), count=x.size)
    run_call(library, arguments, task_count(library, x.size), Activation(KINDS[name]))
    return out


def gelu_gradient(
    library: Library, ctx: OpContext, X: Any, Out_grad: Any, *, approximate: bool, over: Any = None
) -> Any:
    """The gradient of gelu, to the rounding of float32."""
    if not is_worth_it(X, Out_grad):
        return NotImplemented
    found = place_for(X, over)
    arguments = abi.InputGradient(
        source=in_memory(X, X), out_grad=in_memory(X, Out_grad), source_grad=in_memory(X, found), count=X.size
    )
    kind = abi.ActivationKind.GELU_TANH if approximate else abi.ActivationKind.GELU
    run_call(library, arguments, task_count(library, X.size), Activation(kind))
    return found


def softmax(library: Library, ctx: OpContext, X: Any, *, axis: int, over: Any = None) -> Any:
    """fluidtool.ops.activation.softmax along the last axis, to the rounding of float32."""
    if not is_worth_it(X) or axis not in (-1, X.ndim - 1) or not X.flags.c_contiguous:
        return NotImplemented
    out = place_for(X, over)
    rows, columns = X.size // X.shape[-1], X.shape[-1]
    arguments = abi.Softmax(source=X, out=out, rows=rows, columns=columns, factor=1.0)
    run_call(library, arguments, min(rows, task_count(library, X.size)))
    return out


def softmax_gradient(library: Library, ctx: OpContext, Out: Any, Out_grad: Any, *, axis: int, over: Any = None) -> Any:
    """Its gradient, for the same."""
    if not is_worth_it(Out, Out_grad) or axis not in (-1, Out.ndim - 1) or not Out.flags.c_contiguous:
        return NotImplemented
    found = place_for(Out, over)
    rows, columns = Out.size // Out.shape[-1], Out.shape[-1]
    arguments = abi.SoftmaxGradient(out=Out, out_grad=in_rows(Out_grad), source_grad=found, rows=rows, columns=columns)
    run_call(library, arguments, min(rows, task_count(library, Out.size)))
    return found


def dropout(library: Library, ctx: OpContext, X: Any, Seed: Any, *, over: Any = None) -> Any:
    """fluidtool.ops.nn.dropout in training, with the same numbers drawn."""
    rate, scaled = ctx.attr("dropout_prob"), scales_up(ctx, ctx.attr("dropout_prob"))
    if not is_worth_it(X) or X.size % WORD or Seed is not None or ctx.attr("is_test") or is_only_last(X):
        return NotImplemented
    drawn = random(library, ctx.generator(ctx.attr("seed") if ctx.attr("fix_seed") else 0), X.shape)
    out, mask = place_for(X, over), np.empty(X.shape, np.uint8)
    arguments = abi.Drop(
        source=in_rows(X), drawn=drawn, out=out, mask=mask, count=X.size, rate=rate, factor=factor_of(rate, scaled)
    )
    run_call(library, arguments, task_count(library, X.size))
    return {"Out": out, "Mask": mask}


def dropout_gradient(library: Library, ctx: OpContext, Mask: Any, Out_grad: Any, *, over: Any = None) -> Any:
    """Its gradient."""
    rate = ctx.attr("dropout_prob")
    scaled = scales_up(ctx, rate)
    if not is_worth_it(Out_grad) or Out_grad.size % WORD or type(Mask) is not np.ndarray or Mask.dtype != np.uint8:
        return NotImplemented
    if Mask.shape != Out_grad.shape or not (Mask.flags.c_contiguous and Out_grad.flags.c_contiguous):
        return NotImplemented
    found = place_for(Out_grad, over)
    arguments = abi.DropGradient(
        out_grad=Out_grad, mask=Mask, source_grad=found, count=Out_grad.size, factor=factor_of(rate, scaled)
    )
    run_call(library, arguments, task_count(library, Out_grad.size))
    return found


def factor_of(rate: float, scaled: bool) -> float:
    """What is kept is multiplied by this."""
    return 1 / (1 - rate) if scaled and rate < 1 else 1.0


def added(library: Library, x: Any, y: Any, over: Any) -> Any:
    """x + y of one shape, or of rows and one row."""
    if not is_worth_it(x) or not are_floats(y) or y is None or not x.flags.c_contiguous or not y.flags.c_contiguous:
        return NotImplemented
    rows = x.shape != y.shape
    if rows and (y.size == 0 or y.shape != x.shape[x.ndim - y.ndim :]):
        return NotImplemented
    out = place_for(x, over)
    if x.size < LEAST_ADDED:
        return np.add(x, y, out=out)
    sizes = {"rows": x.size // y.size, "columns": y.size} if rows else {"rows": 1, "columns": x.size}
    run_call(library, abi.Add(source=x, other=y, out=out, each_row=int(not rows), **sizes), task_count(library, x.size))
    return out


def sum_of_arrays(library: Library, X: list[Any], over: Any) -> Any:
    """The sum of arrays of one shape, from the first to the last."""
    if len(X) < 2 or not is_worth_it(*X) or not all(x.flags.c_contiguous for x in X):
        return NotImplemented
    total = added(library, X[0], X[1], over if over is X[0] or over is X[1] else None)
    for x in X[2:]:
        total = added(library, total, x, total)
    return total
