"""unique, unique_with_counts and unique_consecutive: every number once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fluidtool.ops.context import InferContext, OpContext
from fluidtool.ops.math.versions import later_attr
from fluidtool.ops.registry import op
from fluidtool.ops.schema import INT, TensorMeta, ints, required
from fluidtool.ops.tensor.arguments import Context, axis_in
from fluidtool.proto.enums import VarType
from fluidtool.shapes import shape_text


def _in_order_of_appearance(ctx: OpContext, X: Any) -> tuple[Any, Any, Any]:
    """Every number once in the order of its first appearance, for every place which one it holds, and how often."""
    values, first, inverse, counts = ctx.np.unique(
        ctx.host(X), return_index=True, return_inverse=True, return_counts=True
    )
    order = first.argsort()
    rank = ctx.np.empty_like(order)
    rank[order] = ctx.np.arange(len(order))
    return values[order], rank[inverse.reshape(-1)], counts[order]


def _index_dtype(ctx: Context, dtype: int) -> VarType:
    if dtype not in (VarType.INT32, VarType.INT64):
        raise ctx.error(f"dtype must be INT32 or INT64, found {dtype}")
    return VarType(dtype)


def _check_vector(ctx: Context, shape: Sequence[int]) -> None:
    if len(shape) != 1:
        raise ctx.error(f"X must have one dimension, found shape {shape_text(shape)}")


def _vector(ctx: OpContext, X: Any) -> Any:
    _check_vector(ctx, X.shape)
    if X.size <= 0:
        raise ctx.error("X is empty")
    return X


@op("unique", inputs="X", outputs="Out Index", attrs={"dtype": required(INT)})
def unique(ctx: OpContext, X: Any, *, dtype: int) -> Any:
    """The numbers of X in the order of their first appearance; Index says which of them each place of X holds.

    Paddle 1.8.5 unique_op.h. With is_sorted (2.x): sorted, along `axis` or flat, with Indices and Counts on request.
    """
    wanted = _index_dtype(ctx, dtype)
    if later_attr(ctx, "is_sorted", False):
        return _sorted_unique(ctx, X, wanted)
    values, index, _ = _in_order_of_appearance(ctx, _vector(ctx, X))
    return {"Out": ctx.array(values), "Index": ctx.array(index, wanted)}


def _axis_attr(ctx: Context, rank: int) -> int | None:
    axes = later_attr(ctx, "axis", [])
    return axis_in(ctx, axes[0], rank) if axes else None


def _sorted_unique(ctx: OpContext, X: Any, dtype: VarType) -> dict[str, Any]:
    axis = _axis_attr(ctx, X.ndim)
    values, first, inverse, counts = ctx.np.unique(
        ctx.host(X), return_index=True, return_inverse=True, return_counts=True, axis=axis
    )
    return {
        "Out": ctx.array(values),
        "Indices": ctx.array(first, dtype),
        "Index": ctx.array(inverse.reshape(-1), dtype),
        "Counts": ctx.array(counts, dtype),
    }


@unique.infer
def _(ctx: InferContext, X: TensorMeta, *, dtype: int) -> dict[str, TensorMeta]:
    index = _index_dtype(ctx, dtype)
    if not later_attr(ctx, "is_sorted", False):
        _check_vector(ctx, X.shape)
        return {"Out": X.with_shape((-1,)).with_lod_level(0), "Index": TensorMeta(X.shape, index)}
    return _unique_meta(ctx, X, index)


def _unique_meta(ctx: InferContext, X: TensorMeta, index: VarType) -> dict[str, TensorMeta]:
    axis = _axis_attr(ctx, X.rank)
    some = TensorMeta((-1,), index)
    shape = (-1,) if axis is None else (*X.shape[:axis], -1, *X.shape[axis + 1 :])
    places = TensorMeta((-1 if axis is None else X.shape[axis],), index)
    return {"Out": X.with_shape(shape).with_lod_level(0), "Indices": some, "Index": places, "Counts": some}


@op("unique_with_counts", inputs="X", outputs="Out Index Count", attrs={"dtype": required(INT)})
def unique_with_counts(ctx: OpContext, X: Any, *, dtype: int) -> Any:
    """unique, and how often each number comes (Paddle 1.8.5 unique_with_counts_op.h)."""
    wanted = _index_dtype(ctx, dtype)
    values, index, counts = _in_order_of_appearance(ctx, _vector(ctx, X))
    return {"Out": ctx.array(values), "Index": ctx.array(index, wanted), "Count": ctx.array(counts, wanted)}


@unique_with_counts.infer
def _(ctx: InferContext, X: TensorMeta, *, dtype: int) -> dict[str, TensorMeta]:
    index = _index_dtype(ctx, dtype)
    some = X.with_shape((-1,)).with_lod_level(0)
    return {"Out": some, "Index": TensorMeta(X.shape, index), "Count": TensorMeta((-1,), index)}


@op(
    "unique_consecutive",
    inputs="X",
    outputs="Out Index? Counts?",
    attrs={"return_inverse": False, "return_counts": False, "axis": ints(), "dtype": 3},
)
def unique_consecutive(ctx: OpContext, X: Any, *, axis: list[int], dtype: int) -> Any:
    """X without what equals the element, or the slice along `axis`, right before it (Paddle 2.6.2)."""
    wanted = _index_dtype(ctx, dtype)
    place = axis_in(ctx, axis[0], X.ndim) if axis else 0
    rows = ctx.xp.moveaxis(X, place, 0) if axis else X.reshape(-1)
    flat = rows.reshape(len(rows), -1)
    new = ctx.xp.ones(len(rows), bool)
    new[1:] = (flat[1:] != flat[:-1]).any(axis=1)
    starts = ctx.xp.nonzero(new)[0]
    ends = ctx.xp.concatenate([starts[1:], ctx.xp.full(min(len(rows), 1), len(rows), starts.dtype)])
    return {
        "Out": ctx.xp.moveaxis(rows[new], 0, place) if axis else rows[new],
        "Index": (ctx.xp.cumsum(new) - 1).astype(ctx.dtype(wanted)),
        "Counts": (ends - starts).astype(ctx.dtype(wanted)),
    }


@unique_consecutive.infer
def _(ctx: InferContext, X: TensorMeta, *, dtype: int) -> dict[str, TensorMeta]:
    return {slot: meta for slot, meta in _unique_meta(ctx, X, VarType(dtype)).items() if slot != "Indices"}
