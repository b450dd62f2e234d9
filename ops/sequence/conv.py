"""sequence_conv: a convolution over the rows of every sequence, with zero or learned rows around it."""

from __future__ import annotations

from typing import Any

from fluidtool.ops.context import InferContext, OpContext
from fluidtool.ops.gradient import GradMakerContext, OpDescription
from fluidtool.ops.multiply_adds import rows_multiply_adds
from fluidtool.ops.registry import op
from fluidtool.ops.schema import INT, TensorMeta, limited, required
from fluidtool.ops.sequence.picking import row_sequences, single_level
from fluidtool.ops.sequence.segments import scatter_sum

ATTRS: dict[str, Any] = {
    "paddingTrainable": False,
    "contextLength": limited(required(INT), 1),
    "contextStart": 0,
    "contextStride": limited(1, 1, 1),
}


@op(
    "sequence_conv",
    inputs="X PaddingData? Filter",
    outputs="Out",
    attrs=ATTRS,
    lod="X",
    multiply_adds=rows_multiply_adds("X", "Filter"),
)
def sequence_conv(
    ctx: OpContext,
    X: Any,
    PaddingData: Any,
    Filter: Any,
    *,
    paddingTrainable: bool,
    contextLength: int,
    contextStart: int,
    contextStride: int,
) -> Any:
    """Out[t] = [X[t + contextStart], …, X[t + contextStart + contextLength - 1]] @ Filter within every sequence.

    X [T, D], Filter [contextLength * D, M] -> [T, M]. Rows before and after the sequence are 0, or those of PaddingData
    [rows before + rows after, D] when paddingTrainable (Paddle 1.8.5 sequence_conv_op.cc, math/context_project.h).
    """
    _check(ctx, X, Filter, contextLength, contextStride)
    padding = PaddingData if paddingTrainable else None
    if paddingTrainable:
        _check_padding(ctx, X, PaddingData, contextLength, contextStart)
    return _context(ctx, X, padding, contextLength, contextStart) @ Filter


@sequence_conv.infer
def _(ctx: InferContext, X: TensorMeta, PaddingData: TensorMeta | None, Filter: TensorMeta) -> TensorMeta:
    if X.rank != 2 or Filter.rank != 2:
        raise ctx.error(f"X and Filter must be matrices, found shapes {X.shape} and {Filter.shape}")
    return X.with_shape((X.shape[0], Filter.shape[1]))


@sequence_conv.grad_maker
def _(context: GradMakerContext) -> list[OpDescription]:
    inputs = {"X": context.input("X"), "Filter": context.input("Filter"), "Out@GRAD": context.output_grad("Out")}
    outputs = {"X@GRAD": context.input_grad("X"), "Filter@GRAD": context.input_grad("Filter")}
    if context.op.get_attr("paddingTrainable", False) and context.input("PaddingData"):
        inputs["PaddingData"] = context.input("PaddingData")
        outputs["PaddingData@GRAD"] = context.input_grad("PaddingData")
    return [context.describe("sequence_conv_grad", inputs, outputs)]


@op(
    "sequence_conv_grad",
    inputs="X PaddingData? Filter Out@GRAD",
    outputs="X@GRAD Filter@GRAD PaddingData@GRAD",
    attrs=ATTRS,
    lod="X->X@GRAD",
)
def sequence_conv_grad(
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
) -> dict[str, Any]:
    """dFilter = context.T @ dOut; d(context) = dOut @ Filter.T, added up over the rows that it was made of."""
    _check(ctx, X, Filter, contextLength, contextStride)
    padding = PaddingData if paddingTrainable else None
    grads: dict[str, Any] = {}
    if ctx.wants("Filter@GRAD"):
        grads["Filter@GRAD"] = _context(ctx, X, padding, contextLength, contextStart).T @ Out_grad
    if not ctx.wants("X@GRAD") and not ctx.wants("PaddingData@GRAD"):
        return grads
    rows = (Out_grad @ Filter.T).reshape(X.shape[0] * contextLength, X.shape[1])
    source, inside, pad = (index.reshape(-1) for index in _sources(ctx, X, contextLength, contextStart))
    grads["X@GRAD"] = scatter_sum(ctx, rows[ctx.array(inside.nonzero()[0])], source[inside], X.shape[0])
    if padding is not None:
        outside = ~inside
        grads["PaddingData@GRAD"] = scatter_sum(ctx, rows[ctx.array(outside.nonzero()[0])], pad[outside], len(padding))
    return grads


def _check(ctx: OpContext, X: Any, Filter: Any, length: int, stride: int) -> None:
    if length <= 0:
        raise ctx.error(f"contextLength must be positive, found {length}")
    if stride != 1:
        raise ctx.error(f"contextStride must be 1, found {stride}; other strides are not supported")
    if X.ndim != 2 or Filter.ndim != 2 or Filter.shape[0] != length * X.shape[1]:
        raise ctx.error(
            f"Filter must have contextLength * width of X = {length} * {X.shape[-1]} rows, found X {X.shape}, "
            f"Filter {Filter.shape}"
        )


def _check_padding(ctx: OpContext, X: Any, padding: Any, length: int, start: int) -> None:
    expected = (max(0, -start) + max(0, start + length - 1), X.shape[1])
    found = None if padding is None else padding.shape
    if found != expected:
        raise ctx.error(f"PaddingData must have shape {expected} for this context, found {found}")


def _sources(ctx: OpContext, X: Any, length: int, start: int) -> tuple[Any, Any, Any]:
    """For every row and tap: the row of X, whether it lies inside the sequence, else the row of the padding (host)."""
    np = ctx.np
    offsets = np.asarray(single_level(ctx, "X", X.shape[0]))
    owner = row_sequences(ctx, offsets)
    begin, end = offsets[owner, None], offsets[owner + 1, None]
    source = np.arange(X.shape[0])[:, None] + start + np.arange(length)
    above = max(0, -start)
    pad = above + np.where(source < begin, source - begin, source - end)
    return source, (begin <= source) & (source < end), pad


def _context(ctx: OpContext, X: Any, padding: Any, length: int, start: int) -> Any:
    """The rows around every row, side by side: [T, length * D]."""
    source, inside, pad = _sources(ctx, X, length, start)
    around = ctx.xp.zeros((1, X.shape[1]), X.dtype) if padding is None else padding
    places = ctx.np.where(inside, source, len(X) + (0 if padding is None else pad))
    columns = ctx.xp.concatenate([X, around]).take(ctx.array(places), axis=0)
    return columns.reshape(X.shape[0], length * X.shape[1])
