"""Sequences in training: pooling, softmax, repetition, and their gradients; the gradient of sequence_conv."""

from __future__ import annotations

from typing import Any

import numpy as np

from fluidtool.ops.context import OpContext
from fluidtool.ops.sequence.picking import sequence_offsets, single_level
from fluidtool.runtime.engines.native import abi
from fluidtool.runtime.engines.native.kernels.direct import Array, are_floats, in_rows, run_call, task_count
from fluidtool.runtime.engines.native.kernels.rows import add_rows
from fluidtool.runtime.engines.native.library import Library

HOW = {"SUM": 0, "AVERAGE": 1, "SQRT": 2, "MAX": 3, "FIRST": 4, "LAST": 5}  # POOL_... of src/sequences.c


def sequence_pool(library: Library, ctx: OpContext, X: Any, *, pooltype: str, pad_value: float, is_test: bool) -> Any:
    """fluidtool.ops.sequence.sequence_pool."""
    if pooltype not in HOW or not are_floats(X) or not X.size:
        return NotImplemented
    offsets = sequence_offsets(ctx, "X", len(X))
    ctx.set_lod("Out", ctx.lod("X")[:-1])
    if pooltype != "MAX" or is_test:
        return pooled(library, X, offsets, pooltype, pad_value)
    places = np.empty((len(offsets) - 1, *X.shape[1:]), np.int32)
    return {"Out": pooled(library, X, offsets, pooltype, pad_value, places), "MaxIndex": places}


def sequence_pool_gradient(
    library: Library, ctx: OpContext, X: Any, MaxIndex: Any, Out_grad: Any, *, pooltype: str
) -> Any:
    """Its gradient for sums and means."""
    if pooltype not in ("SUM", "AVERAGE", "SQRT") or not are_floats(Out_grad):
        return NotImplemented
    lengths = np.diff(sequence_offsets(ctx, "X", len(X)))
    share = Out_grad
    if pooltype != "SUM":
        divisor = np.maximum(lengths, 1) ** (1.0 if pooltype == "AVERAGE" else 0.5)
        share = Out_grad / divisor.astype(np.float32).reshape(-1, *(1,) * (Out_grad.ndim - 1))
    return share.repeat(lengths, axis=0)


def sequence_softmax(library: Library, ctx: OpContext, X: Any) -> Any:
    """fluidtool.ops.sequence.sequence_softmax, to the rounding of float32."""
    if not are_floats(X) or not X.size or X.size != len(X):
        return NotImplemented
    offsets, out = table(sequence_offsets(ctx, "X", len(X))), np.empty(X.shape, np.float32)
    arguments = abi.SoftmaxSequences(
        source=in_rows(X), out=out, offsets=offsets, sequences=len(offsets) - 1, source_rows=X.size
    )
    run_call(library, arguments, task_count(library, X.size))
    return out


def sequence_softmax_gradient(library: Library, ctx: OpContext, X: Any, Out: Any, Out_grad: Any) -> Any:
    """Its gradient."""
    if not are_floats(Out, Out_grad) or not Out.size or Out.shape != Out_grad.shape or Out.size != len(Out):
        return NotImplemented
    ctx.set_lod("X@GRAD", ctx.lod("X"))
    offsets = sequence_offsets(ctx, "X", len(Out))
    weighted = Out * Out_grad
    sums = pooled(library, weighted, offsets, "SUM")
    weighted -= Out * sums.repeat(np.diff(offsets), axis=0)
    return weighted


def sequence_expand(library: Library, ctx: OpContext, X: Any, Y: Any, *, ref_level: int) -> Any:
    """fluidtool.ops.sequence.sequence_expand for rows of X without LoD."""
    levels = ctx.lod("Y")
    if ctx.lod("X") or not levels or not -1 <= ref_level < len(levels) or type(X) is not np.ndarray or X.ndim < 2:
        return NotImplemented
    copies = np.diff(levels[ref_level])
    if len(copies) != len(X):
        return NotImplemented
    ctx.set_lod("Out", [])
    return X.repeat(copies, axis=0)


def sequence_expand_gradient(library: Library, ctx: OpContext, X: Any, Y: Any, Out_grad: Any, *, ref_level: int) -> Any:
    """The gradient of fluidtool.ops.sequence.sequence_expand for rows of X without LoD."""
    levels = ctx.lod("Y")
    if ctx.lod("X") or not levels or not -1 <= ref_level < len(levels) or not are_floats(Out_grad) or not Out_grad.size:
        return NotImplemented
    copies = np.diff(levels[ref_level])
    if len(copies) != len(X) or int(copies.sum()) != len(Out_grad):
        return NotImplemented
    ctx.set_lod("X@GRAD", [])
    return pooled(library, Out_grad, [0, *copies.cumsum().tolist()], "SUM")


def pooled(
    library: Library, x: Array, offsets: Any, how: str, empty: float = 0.0, places: Array | None = None
) -> Array:
    """One row for each sequence of rows. places: filled with the rows that hold the maxima."""
    out, bounds = np.empty((len(offsets) - 1, *x.shape[1:]), np.float32), table(offsets)
    arguments = abi.PoolSequences(
        source=in_rows(x), out=out, offsets=bounds, sequences=len(out), columns=x.size // len(x), how=HOW[how],
        source_rows=len(x), empty=empty, places=places,
    )  # fmt: skip
    run_call(library, arguments, min(task_count(library, x.size), library.threads))
    return out


def table(offsets: Any) -> Array:
    """Offsets as kernels read them."""
    return np.ascontiguousarray(offsets, np.int64)


def sequence_conv_gradient(
    library: Library,
    ctx: OpContext,
    X: Any,
    PaddingData: Any,
    Filter: Any,
    Out_grad: Any,
    *,
    paddingTrainable: bool,
    contextLength: int,
    contextStart: int,
    contextStride: int,
) -> Any:
    """fluidtool.ops.sequence.sequence_conv_grad with rows of zeros around the sequences."""
    length, start = contextLength, contextStart
    if paddingTrainable or contextStride != 1 or length < 1 or not are_floats(X, Filter, Out_grad):
        return NotImplemented
    if X.ndim != 2 or Filter.ndim != 2 or len(Filter) != length * X.shape[1] or not X.size:
        return NotImplemented
    if Out_grad.shape != (len(X), Filter.shape[1]):
        return NotImplemented
    places = context_rows(single_level(ctx, "X", len(X)), length, start)
    grads: dict[str, Any] = {}
    if ctx.wants("Filter@GRAD"):
        context = np.concatenate([X, np.zeros((1, X.shape[1]), np.float32)]).take(places, axis=0)
        grads["Filter@GRAD"] = context.reshape(len(X), -1).T @ Out_grad
    if ctx.wants("X@GRAD"):
        grads["X@GRAD"] = np.zeros(X.shape, np.float32)
        add_rows(library, grads["X@GRAD"], places.reshape(-1), (Out_grad @ Filter.T).reshape(-1, X.shape[1]))
    return grads


def context_rows(offsets: Any, length: int, start: int) -> Any:
    """[rows, length]: the rows around every row, -1 (also the row that is added behind) where they are not of its sequence."""
    bounds = np.asarray(offsets, np.int64)
    lengths = np.diff(bounds)
    begin, end = np.repeat(bounds[:-1], lengths)[:, None], np.repeat(bounds[1:], lengths)[:, None]
    rows = np.arange(bounds[-1])[:, None] + start + np.arange(length)
    return np.where((begin <= rows) & (rows < end), rows, -1)
