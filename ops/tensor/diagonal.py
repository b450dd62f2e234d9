"""Diagonals: diag, diag_embed, trace, tril_triu and the 2.x operators diag_v2, diagonal, fill_diagonal, *_indices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fluidtool.ops.context import InferContext, OpContext
from fluidtool.ops.math.versions import later_attr, scalar_shape
from fluidtool.ops.registry import op
from fluidtool.ops.schema import BOOLEAN, INT, TensorMeta, long, required
from fluidtool.ops.tensor.arguments import Context, allocatable, axis_in
from fluidtool.proto.enums import VarType
from fluidtool.shapes import shape_text


@op("diag", inputs="Diagonal", outputs="Out")
def diag(ctx: OpContext, Diagonal: Any) -> Any:
    """The square matrix with the vector Diagonal on its diagonal (Paddle 1.8.5 diag_op.h)."""
    if Diagonal.ndim != 1:
        raise ctx.error(f"Diagonal must have one dimension, found shape {Diagonal.shape}")
    return ctx.xp.diag(Diagonal)


@diag.infer
def _(ctx: InferContext, Diagonal: TensorMeta) -> TensorMeta:
    if Diagonal.rank != 1:
        raise ctx.error(f"Diagonal must have one dimension, found shape {shape_text(Diagonal.shape)}")
    return Diagonal.with_shape(Diagonal.shape * 2).with_lod_level(0)


def _two_axes(ctx: Context, dim1: int, dim2: int, rank: int, names: str = "dim1 dim2") -> tuple[int, int]:
    first, second = names.split()
    one, two = axis_in(ctx, dim1, rank, first), axis_in(ctx, dim2, rank, second)
    if one == two:
        raise ctx.error(f"{first} and {second} must be different axes, found {dim1} and {dim2}")
    return one, two


@op("diag_embed", inputs="Input", outputs="Out", attrs={"offset": 0, "dim1": -2, "dim2": -1})
def diag_embed(ctx: OpContext, Input: Any, *, offset: int, dim1: int, dim2: int) -> Any:
    """Matrices along dim1 and dim2 with the last axis of Input on a diagonal (Paddle 1.8.5 diag_embed_op.h)."""
    one, two = _two_axes(ctx, dim1, dim2, Input.ndim + 1)
    size = Input.shape[-1] + abs(offset)
    out = ctx.xp.zeros(allocatable(ctx, (*Input.shape[:-1], size, size)), Input.dtype)
    places = ctx.xp.arange(Input.shape[-1])
    out[..., places + max(-offset, 0), places + max(offset, 0)] = Input
    return ctx.xp.moveaxis(out, (-2, -1), (one, two))


@diag_embed.infer
def _(ctx: InferContext, Input: TensorMeta, *, offset: int, dim1: int, dim2: int) -> TensorMeta:
    places = sorted(_two_axes(ctx, dim1, dim2, Input.rank + 1))
    shape, last = list(Input.shape[:-1]), Input.shape[-1]
    for place in places:
        shape.insert(place, -1 if last < 0 else last + abs(offset))
    return Input.with_shape(shape).with_lod_level(0)


def _diagonal_size(shape: Sequence[int], one: int, two: int, offset: int) -> int:
    rows, columns = shape[one], shape[two]
    if rows < 0 or columns < 0:
        return -1
    return max(min(rows, columns - offset) if offset >= 0 else min(rows + offset, columns), 0)


def _diagonals(ctx: OpContext, X: Any, offset: int, one: int, two: int) -> Any:
    """The diagonals along two axes as the last axis: empty ones when the offset lies beyond the edge."""
    if _diagonal_size(X.shape, one, two, offset):
        return X.diagonal(offset, one, two)
    rest = [size for axis, size in enumerate(X.shape) if axis not in (one, two)]
    return ctx.xp.zeros((*rest, 0), X.dtype)


def _trace_axes(ctx: Context, dim1: int, dim2: int, rank: int) -> tuple[int, int]:
    if rank < 2:
        raise ctx.error(f"Input must have at least two dimensions, found {rank}")
    one, two = _two_axes(ctx, later_attr(ctx, "axis1", dim1), later_attr(ctx, "axis2", dim2), rank)
    return min(one, two), max(one, two)


@op("trace", inputs="Input", outputs="Out", attrs={"offset": 0, "dim1": -2, "dim2": -1})
def trace(ctx: OpContext, Input: Any, *, offset: int, dim1: int, dim2: int) -> Any:
    """The sums of the diagonals of the matrices along dim1 and dim2 (Paddle 1.8.5 trace_op.h; 2.x: axis1, axis2).

    The axis further in front counts the rows, whichever of the two names it.
    """
    one, two = _trace_axes(ctx, dim1, dim2, Input.ndim)
    out = _diagonals(ctx, Input, offset, one, two).sum(axis=-1, dtype=Input.dtype)
    return out if out.ndim else ctx.xp.asarray(out).reshape(scalar_shape(ctx))


@trace.infer
def _(ctx: InferContext, Input: TensorMeta, *, dim1: int, dim2: int) -> TensorMeta:
    places = _trace_axes(ctx, dim1, dim2, Input.rank)
    shape = tuple(size for axis, size in enumerate(Input.shape) if axis not in places)
    return Input.with_shape(shape or scalar_shape(ctx)).with_lod_level(0)


@trace.grad(inputs="Input Out@GRAD", outputs="Input@GRAD")
def trace_grad(ctx: OpContext, Input: Any, Out_grad: Any, *, offset: int, dim1: int, dim2: int) -> Any:
    """dOut on the diagonals, zeros elsewhere."""
    one, two = _trace_axes(ctx, dim1, dim2, Input.ndim)
    rest = [size for axis, size in enumerate(Input.shape) if axis not in (one, two)]
    return _on_diagonal(ctx, Out_grad.reshape((*rest, 1)), Input.shape, offset, one, two)


def _on_diagonal(ctx: OpContext, values: Any, shape: Sequence[int], offset: int, one: int, two: int) -> Any:
    """Zeros of `shape` with `values` (the diagonal as the last axis) on the diagonals along two axes."""
    out = ctx.xp.zeros(shape, values.dtype)
    matrices = ctx.xp.moveaxis(out, (one, two), (-2, -1))
    places = ctx.xp.arange(_diagonal_size(shape, one, two, offset))
    matrices[..., places + max(-offset, 0), places + max(offset, 0)] = values
    return out


@op("tril_triu", inputs="X", outputs="Out", attrs={"diagonal": 0, "lower": required(BOOLEAN)}, lod="X")
def tril_triu(ctx: OpContext, X: Any, *, diagonal: int, lower: bool) -> Any:
    """The lower or upper triangle of the matrices in the last two axes, zeros elsewhere (Paddle 1.8.5 tril_triu_op.h)."""
    if X.ndim < 2:
        raise ctx.error(f"X must have at least two dimensions, found shape {X.shape}")
    return (ctx.xp.tril if lower else ctx.xp.triu)(X, diagonal)


@tril_triu.infer
def _(ctx: InferContext, X: TensorMeta) -> TensorMeta:
    if X.rank < 2:
        raise ctx.error(f"X must have at least two dimensions, found shape {shape_text(X.shape)}")
    return X


@tril_triu.grad(inputs="Out@GRAD", outputs="X@GRAD", lod="Out@GRAD")
def tril_triu_grad(ctx: OpContext, Out_grad: Any, *, diagonal: int, lower: bool) -> Any:
    """The same triangle of dOut."""
    return (ctx.xp.tril if lower else ctx.xp.triu)(Out_grad, diagonal)


@op("diag_v2", inputs="X", outputs="Out", attrs={"offset": 0, "padding_value": 0.0})
def diag_v2(ctx: OpContext, X: Any, *, offset: int, padding_value: float) -> Any:
    """A vector put on a diagonal of a matrix of padding_value, or the diagonal of a matrix (Paddle 2.6.2)."""
    if X.ndim not in (1, 2):
        raise ctx.error(f"X must have one or two dimensions, found shape {X.shape}")
    if X.ndim == 2:
        _within(ctx, offset, X.shape)
        return X.diagonal(offset)
    size = X.shape[0] + abs(offset)
    out = ctx.xp.full(allocatable(ctx, (size, size)), padding_value, X.dtype)
    places = ctx.xp.arange(X.shape[0])
    out[places + max(-offset, 0), places + max(offset, 0)] = X
    return out


def _within(ctx: Context, offset: int, shape: Sequence[int]) -> None:
    if not -shape[0] < offset < shape[1]:
        raise ctx.error(f"offset must be in ({-shape[0]}, {shape[1]}) for X {shape_text(shape)}, found {offset}")


@diag_v2.infer
def _(ctx: InferContext, X: TensorMeta, *, offset: int) -> TensorMeta:
    if X.rank not in (1, 2):
        raise ctx.error(f"X must have one or two dimensions, found shape {shape_text(X.shape)}")
    if X.rank == 2:
        return X.with_shape((_diagonal_size(X.shape, 0, 1, offset),)).with_lod_level(0)
    size = -1 if X.shape[0] < 0 else X.shape[0] + abs(offset)
    return X.with_shape((size, size)).with_lod_level(0)


@op("diagonal", inputs="Input", outputs="Out", attrs={"offset": 0, "axis1": 0, "axis2": 1})
def diagonal(ctx: OpContext, Input: Any, *, offset: int, axis1: int, axis2: int) -> Any:
    """The diagonals of the matrices along axis1 and axis2, as the last axis; none beyond the edge (Paddle 2.6.2)."""
    if Input.ndim < 2:
        raise ctx.error(f"Input must have at least two dimensions, found shape {Input.shape}")
    one, two = _two_axes(ctx, axis1, axis2, Input.ndim, "axis1 axis2")
    return _diagonals(ctx, Input, offset, one, two)


@diagonal.infer
def _(ctx: InferContext, Input: TensorMeta, *, offset: int, axis1: int, axis2: int) -> TensorMeta:
    one, two = _two_axes(ctx, axis1, axis2, Input.rank, "axis1 axis2")
    kept = [size for axis, size in enumerate(Input.shape) if axis not in (one, two)]
    return Input.with_shape([*kept, _diagonal_size(Input.shape, one, two, offset)]).with_lod_level(0)


@diagonal.grad(inputs="Input Out@GRAD", outputs="Input@GRAD")
def diagonal_grad(ctx: OpContext, Input: Any, Out_grad: Any, *, offset: int, axis1: int, axis2: int) -> Any:
    """dOut on the diagonals, zeros elsewhere."""
    one, two = _two_axes(ctx, axis1, axis2, Input.ndim, "axis1 axis2")
    return _on_diagonal(ctx, Out_grad, Input.shape, offset, one, two)


@op("fill_diagonal", inputs="X", outputs="Out", attrs={"value": 0.0, "offset": 0, "wrap": False}, lod="X")
def fill_diagonal(ctx: OpContext, X: Any, *, value: float, offset: int, wrap: bool) -> Any:
    """X with `value` on its diagonal; with `wrap` it restarts below a square (Paddle 2.6.2 fill_diagonal_kernel.cc).

    Of more than two dimensions Paddle reaches only as far as the first square, unless `wrap` is set.
    """
    if X.ndim < 2:
        raise ctx.error(f"X must have at least two dimensions, found shape {X.shape}")
    if X.ndim != 2 and len(set(X.shape)) != 1:
        raise ctx.error(f"X of more than two dimensions must be a cube, found {X.shape}")
    columns = X.shape[1]
    step = sum(int(ctx.np.prod(X.shape[axis + 1 :])) for axis in range(X.ndim))
    limit = X.size if wrap else min(X.size, columns * columns)
    flat = X.reshape(-1).copy()
    places = ctx.xp.arange(0, limit, step)
    kept = places[(places % columns + offset >= 0) & (places % columns + offset < columns)] + offset
    flat[kept[kept < X.size]] = value
    return flat.reshape(X.shape)


@fill_diagonal.infer
def _(ctx: InferContext, X: TensorMeta) -> TensorMeta:
    return X


@op("fill_diagonal_tensor", inputs="X Y", outputs="Out", attrs={"offset": long(0), "dim1": 0, "dim2": 1}, lod="X")
def fill_diagonal_tensor(ctx: OpContext, X: Any, Y: Any, *, offset: int, dim1: int, dim2: int) -> Any:
    """X with the diagonals along dim1 and dim2 replaced by Y, whose last axis runs along them (Paddle 2.6.2)."""
    one, two = _two_axes(ctx, dim1, dim2, X.ndim)
    size = _diagonal_size(X.shape, one, two, offset)
    rest = [length for axis, length in enumerate(X.shape) if axis not in (one, two)]
    if list(Y.shape) != [*rest, size]:
        raise ctx.error(
            f"Y must have the shape {shape_text((*rest, size))} of the diagonals, found {shape_text(Y.shape)}"
        )
    out = X.copy()
    places = ctx.xp.arange(size)
    ctx.xp.moveaxis(out, (one, two), (-2, -1))[..., places + max(-offset, 0), places + max(offset, 0)] = Y
    return out


@fill_diagonal_tensor.infer
def _(ctx: InferContext, X: TensorMeta, Y: TensorMeta) -> TensorMeta:
    return X


def _indices(ctx: OpContext, rows: int, columns: int, offset: int, dtype: int, lower: bool) -> Any:
    if not (rows >= 0 and columns >= 0):
        raise ctx.error(f"the sizes must not be negative, found {rows} rows and {columns} columns")
    make = ctx.np.tril_indices if lower else ctx.np.triu_indices
    return ctx.array(ctx.np.stack(make(rows, offset, columns)), dtype)


@op(
    "tril_indices",
    inputs="",
    outputs="out",
    attrs={"rows": 0, "cols": 0, "offset": 0, "dtype": 3},
)
def tril_indices(ctx: OpContext, *, rows: int, cols: int, offset: int, dtype: int) -> Any:
    """Rows and columns of the lower triangle of a rows x cols matrix, shape [2, count] (Paddle 2.6.2)."""
    return _indices(ctx, rows, cols, offset, dtype, True)


@op(
    "triu_indices",
    inputs="",
    outputs="out",
    attrs={"row": required(INT), "col": required(INT), "offset": 0, "dtype": 3},
)
def triu_indices(ctx: OpContext, *, row: int, col: int, offset: int, dtype: int) -> Any:
    """Rows and columns of the upper triangle of a row x col matrix, shape [2, count] (Paddle 2.6.2)."""
    return _indices(ctx, row, col, offset, dtype, False)


@tril_indices.infer
def _(ctx: InferContext, *, dtype: int) -> TensorMeta:
    return TensorMeta((2, -1), VarType(dtype))


@triu_indices.infer
def _(ctx: InferContext, *, dtype: int) -> TensorMeta:
    return TensorMeta((2, -1), VarType(dtype))
