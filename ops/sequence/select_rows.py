"""Parts of sequences: sequence_slice, sequence_scatter, sequence_erase, sequence_enumerate."""

from __future__ import annotations

from math import prod
from typing import Any

from fluidtool.ops.context import InferContext, OpContext
from fluidtool.ops.registry import op
from fluidtool.ops.schema import INT, INTS, TensorMeta, limited, required
from fluidtool.ops.sequence.picking import offsets_of, ranges, row_sequences, sequence_offsets, single_level
from fluidtool.shapes import shape_text


@op("sequence_slice", inputs="X Offset Length", outputs="Out")
def sequence_slice(ctx: OpContext, X: Any, Offset: Any, Length: Any) -> Any:
    """Rows Offset[i] to before Offset[i] + Length[i] of every sequence i, X [T, …] (Paddle 1.8.5 sequence_slice_op.h)."""
    starts, sizes = _slices(ctx, X, Offset, Length)
    ctx.set_lod("Out", [offsets_of(sizes)])
    return X[ctx.array(ranges(ctx, starts, sizes))]


@sequence_slice.infer
def _(ctx: InferContext, X: TensorMeta, Offset: TensorMeta, Length: TensorMeta) -> TensorMeta:
    if Offset.rank != 2 or Length.rank != 2:
        raise ctx.error(
            f"Offset and Length must have the shape (sequences, 1), found {shape_text(Offset.shape)} "
            f"and {shape_text(Length.shape)}"
        )
    return X.with_lod_level(0)


@sequence_slice.grad(inputs="X Offset Length Out@GRAD", outputs="X@GRAD")
def sequence_slice_grad(ctx: OpContext, X: Any, Offset: Any, Length: Any, Out_grad: Any) -> Any:
    """The gradient where the slices were, 0 elsewhere."""
    ctx.set_lod("X@GRAD", ctx.lod("X"))
    grad = ctx.xp.zeros(X.shape, dtype=Out_grad.dtype)
    grad[ctx.array(ranges(ctx, *_slices(ctx, X, Offset, Length)))] = Out_grad
    return grad


def _slices(ctx: OpContext, X: Any, Offset: Any, Length: Any) -> tuple[Any, Any]:
    """First row and number of rows of every slice (host)."""
    offsets = ctx.np.asarray(single_level(ctx, "X", X.shape[0]))
    starts, sizes = ctx.host(Offset).reshape(-1), ctx.host(Length).reshape(-1)
    count = len(offsets) - 1
    if len(starts) != count or len(sizes) != count:
        raise ctx.error(
            f"Offset and Length must have one value for each of {count} sequences of X, found {len(starts)} and {len(sizes)}"
        )
    for number, (start, size, length) in enumerate(zip(starts, sizes, ctx.np.diff(offsets), strict=True)):
        if not (start >= 0 and size >= 0 and start + size <= length):
            raise ctx.error(
                f"Offset {start} and Length {size} reach outside sequence {number} of X, which has {length} rows"
            )
    return offsets[:-1] + starts, sizes


@op("sequence_scatter", inputs="X Ids Updates", outputs="Out")
def sequence_scatter(ctx: OpContext, X: Any, Ids: Any, Updates: Any) -> Any:
    """Out = X; Out[i, Ids[t]] += Updates[t] for every row t of sequence i of Ids (Paddle 1.8.5 sequence_scatter_op.h)."""
    cells = _cells(ctx, X, Ids)
    if Updates.size != Ids.size:
        raise ctx.error(f"Updates must have as many values as Ids, found {Updates.shape} and {Ids.shape}")
    out = X.reshape(X.shape[0], prod(X.shape[1:])).copy()
    ctx.add_at(out, cells, Updates.reshape(-1))
    return out.reshape(X.shape)


@sequence_scatter.infer
def _(ctx: InferContext, X: TensorMeta, Ids: TensorMeta, Updates: TensorMeta) -> TensorMeta:
    return X.with_lod_level(0)


@sequence_scatter.grad(inputs="Ids Updates Out@GRAD", outputs="X@GRAD Updates@GRAD")
def sequence_scatter_grad(ctx: OpContext, Ids: Any, Updates: Any, Out_grad: Any) -> dict[str, Any]:
    """X gets the gradient as it is, every update that of its cell."""
    flat = Out_grad.reshape(Out_grad.shape[0], prod(Out_grad.shape[1:]))
    return {"X@GRAD": Out_grad, "Updates@GRAD": flat[_cells(ctx, Out_grad, Ids)].reshape(Updates.shape)}


def _cells(ctx: OpContext, X: Any, Ids: Any) -> tuple[Any, Any]:
    """Row and column of X that every id means."""
    offsets = single_level(ctx, "Ids", Ids.shape[0])
    count, width = len(offsets) - 1, prod(X.shape[1:])
    if count > X.shape[0]:
        raise ctx.error(f"Ids has {count} sequences, but X only {X.shape[0]} rows")
    columns = Ids.reshape(-1)
    if columns.size:
        low, high = int(columns.min()), int(columns.max())
        if not (low >= 0 and high < width):
            raise ctx.error(f"Ids must lie in [0, {width}), found values from {low} to {high}")
    return ctx.array(row_sequences(ctx, offsets)), columns


@op("sequence_erase", inputs="X", outputs="Out", attrs={"tokens": required(INTS)})
def sequence_erase(ctx: OpContext, X: Any, *, tokens: list[int]) -> Any:
    """X [T, 1] of integers without the rows that hold one of `tokens` (Paddle 1.8.5 sequence_erase_op.h)."""
    if X.ndim < 1 or X.size != X.shape[0]:
        raise ctx.error(f"X must have one value a row, found shape {X.shape}")
    offsets = sequence_offsets(ctx, "X", X.shape[0])
    values = ctx.host(X).reshape(-1)
    kept = ~ctx.np.isin(values, ctx.np.asarray(tokens, dtype=values.dtype))
    before = offsets_of(kept)
    ctx.set_lod("Out", [*ctx.lod("X")[:-1], [before[offset] for offset in offsets]])
    return X[ctx.array(ctx.np.flatnonzero(kept))]


@sequence_erase.infer
def _(ctx: InferContext, X: TensorMeta) -> TensorMeta:
    if X.rank != 2 or X.shape[1] not in (1, -1):
        raise ctx.error(f"X must have the shape (rows, 1), found {shape_text(X.shape)}")
    return X


@op(
    "sequence_enumerate",
    inputs="X",
    outputs="Out",
    attrs={"win_size": limited(required(INT), 2), "pad_value": 0, "@ALL_KERNELS_MUST_COMPUTE_RUNTIME_SHAPE@": True},
    lod="X",
)
def sequence_enumerate(ctx: OpContext, X: Any, *, win_size: int, pad_value: int) -> Any:
    """X [T, 1] -> [T, win_size]: every value and those that follow it in its sequence, then `pad_value`.

    (Paddle 1.8.5 sequence_enumerate_op.h)
    """
    if X.ndim != 2 or X.shape[1] != 1:
        raise ctx.error(f"X must have shape (rows, 1), found {X.shape}")
    if win_size < 2:
        raise ctx.error(f"win_size must be at least 2, found {win_size}")
    offsets = sequence_offsets(ctx, "X", X.shape[0])
    rows = ctx.np.arange(X.shape[0])[:, None] + ctx.np.arange(win_size)
    inside = rows < ctx.np.repeat(offsets[1:], ctx.np.diff(offsets))[:, None]
    windows = X[:, 0][ctx.array(rows.clip(max=max(X.shape[0] - 1, 0)))]
    return ctx.xp.where(ctx.array(inside), windows, X.dtype.type(pad_value))


@sequence_enumerate.infer
def _(ctx: InferContext, X: TensorMeta, *, win_size: int) -> TensorMeta:
    return X.with_shape((X.shape[0], win_size))
