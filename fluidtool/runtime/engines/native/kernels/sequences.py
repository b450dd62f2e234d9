"""The gradient of sequence_conv."""

from __future__ import annotations

from typing import Any

import numpy as np

from fluidtool.ops.context import OpContext
from fluidtool.ops.sequence.picking import single_level
from fluidtool.runtime.engines.native.kernels.direct import are_floats
from fluidtool.runtime.engines.native.kernels.rows import add_rows
from fluidtool.runtime.engines.native.library import Library


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
