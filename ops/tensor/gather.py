"""gather, scatter and where: elements picked by index or by condition, and put back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fluidtool.ops.context import InferContext, OpContext
from fluidtool.ops.math.versions import later_attr, saved_since
from fluidtool.ops.registry import op
from fluidtool.ops.schema import TensorMeta
from fluidtool.ops.tensor.arguments import (
    Context,
    axis_in,
    in_range,
    lod_of_same_rows,
    may_be_same,
    meta_of_same_rows,
    number,
    same_dtype,
)
from fluidtool.ops.traits import Traits
from fluidtool.proto.enums import VarType
from fluidtool.shapes import shape_text


def _gather_axis(ctx: OpContext, rank: int) -> int:
    if rank <= 0:
        raise ctx.error("X must have at least one dimension")
    if ctx.has("Axis"):
        axis = ctx.value("Axis").array
        return axis_in(ctx, number(ctx, axis, "Axis"), rank)
    return axis_in(ctx, later_attr(ctx, "axis", 0), rank)


def _is_column(ctx: Context, shape: Sequence[int], slot: str) -> bool:
    """Whether a list of rows is (n, 1) rather than (n,); fails for anything else."""
    column = len(shape) == 2 and shape[1] in (1, -1)
    if not (len(shape) <= 1 or column):
        raise ctx.error(f"{slot} must have the shape (n,) or (n, 1), found {shape_text(shape)}")
    return column


def _flat_index(ctx: OpContext, index: Any, slot: str) -> Any:
    return index.reshape(-1) if _is_column(ctx, index.shape, slot) else index


@op("gather", inputs="X Index", outputs="Out", attrs={"overwrite": True})
def gather(ctx: OpContext, X: Any, Index: Any) -> Any:
    """The slices of X at Index along axis 0 (Paddle 1.8.5 gather_op.h), or along `Axis` or `axis` of 2.x programs."""
    axis, index = _gather_axis(ctx, X.ndim), _flat_index(ctx, Index, "Index")
    in_range(ctx, index, X.shape[axis], "Index", f"the size of axis {axis} of X")
    return X[(slice(None),) * axis + (index,)]


@gather.infer
def _(ctx: InferContext, X: TensorMeta, Index: TensorMeta) -> TensorMeta:
    axis = axis_in(ctx, later_attr(ctx, "axis", 0), X.rank)
    _is_column(ctx, Index.shape, "Index")
    if ctx.op.input("Axis"):
        return X.with_shape((-1,) * X.rank).with_lod_level(0)
    return X.with_shape((*X.shape[:axis], *Index.shape[:1], *X.shape[axis + 1 :])).with_lod_level(0)


@gather.grad(inputs="X Index Out@GRAD", outputs="X@GRAD", lod="X")
def gather_grad(ctx: OpContext, X: Any, Index: Any, Out_grad: Any, *, overwrite: bool) -> Any:
    """dOut put back among zeros. For a repeated index the last one wins, or both are added without `overwrite`."""
    axis, index = _gather_axis(ctx, X.ndim), _flat_index(ctx, Index, "Index")
    out = ctx.xp.zeros(X.shape, Out_grad.dtype)
    where = (slice(None),) * axis + (index,)
    if overwrite and not saved_since(ctx, 2, 0):
        out[where] = Out_grad
    else:
        ctx.add_at(out, where, Out_grad)
    return out


def _index_depth(ctx: Context, index: Sequence[int], shape: Sequence[int]) -> int:
    """How many dimensions of a tensor of this shape the index vectors name."""
    if len(index) < 1:
        raise ctx.error("Index must have at least one dimension")
    if index[-1] > len(shape):
        raise ctx.error(f"the last size of Index is {index[-1]}, but the tensor has the shape {shape_text(shape)}")
    return index[-1]


def _nd_index(ctx: OpContext, index: Any, shape: tuple[int, ...]) -> tuple[Any, ...]:
    depth = _index_depth(ctx, index.shape, shape)
    for i in range(depth):
        in_range(ctx, index[..., i], shape[i], f"Index[..., {i}]", f"the size of axis {i}")
    return tuple(index[..., i] for i in range(depth))


@op("gather_nd", inputs="X Index", outputs="Out")
def gather_nd(ctx: OpContext, X: Any, Index: Any) -> Any:
    """The slices of X at the index vectors in the last dimension of Index (Paddle 1.8.5 gather_nd_op.h)."""
    where = _nd_index(ctx, Index, X.shape)
    out = X[where] if where else ctx.xp.broadcast_to(X, (*Index.shape[:-1], *X.shape))
    lod_of_same_rows(ctx, X, out)
    return out


@gather_nd.infer
def _(ctx: InferContext, X: TensorMeta, Index: TensorMeta) -> TensorMeta:
    depth = _index_depth(ctx, Index.shape, X.shape)
    return meta_of_same_rows(X, (*Index.shape[:-1], *X.shape[depth:]))


@gather_nd.grad(inputs="X Index Out@GRAD", outputs="X@GRAD", lod="X")
def gather_nd_grad(ctx: OpContext, X: Any, Index: Any, Out_grad: Any) -> Any:
    """dOut added up at its places among zeros."""
    out = ctx.xp.zeros(X.shape, Out_grad.dtype)
    where = _nd_index(ctx, Index, X.shape)
    if not where:
        return Out_grad.reshape((-1, *X.shape)).sum(axis=0, dtype=Out_grad.dtype)
    ctx.add_at(out, where, Out_grad)
    return out


def _check_updates(ctx: Context, shape: Sequence[int], count: int, updates: Sequence[int]) -> None:
    """Fail unless these may be the rows that `count` rows of a tensor of this shape are replaced by, or one for all."""
    expected = (count, *shape[1:]) if len(updates) == len(shape) else tuple(shape[1:])
    if not may_be_same(updates, expected):
        raise ctx.error(
            f"Updates must have the shape {shape_text(expected)}, a row of X per entry of Ids, found {shape_text(updates)}"
        )


@op("scatter", inputs="X Ids Updates", outputs="Out", attrs={"overwrite": True})
def scatter(ctx: OpContext, X: Any, Ids: Any, Updates: Any, *, overwrite: bool) -> Any:
    """X with the rows Ids replaced by Updates; without `overwrite`, by the sums of their updates.

    Paddle 1.8.5 scatter_op.h. For a repeated row the last update wins.
    """
    ids = _flat_index(ctx, Ids, "Ids").reshape(-1)
    in_range(ctx, ids, X.shape[0] if X.ndim else 0, "Ids", "the rows of X")
    same_dtype(ctx, X, [Updates], "X and Updates")
    _check_updates(ctx, X.shape, len(ids), Updates.shape)
    out = X.copy()
    if overwrite:
        ctx.replace_rows(out, ids, ctx.xp.broadcast_to(Updates, (len(ids), *X.shape[1:])))
    else:
        out[ids] = 0
        ctx.add_at(out, ids, Updates)
    return out


@scatter.infer
def _(ctx: InferContext, X: TensorMeta, Ids: TensorMeta, Updates: TensorMeta) -> TensorMeta:
    _is_column(ctx, Ids.shape, "Ids")
    _check_updates(ctx, X.shape, Ids.shape[0] if Ids.rank else 1, Updates.shape)
    return X.with_lod_level(0)


@scatter.grad(inputs="Ids Updates Out@GRAD", outputs="X@GRAD Updates@GRAD")
def scatter_grad(ctx: OpContext, Ids: Any, Updates: Any, Out_grad: Any) -> Any:
    """dUpdates are the rows Ids of dOut; dX is dOut.

    Paddle 1.8.5 lets the rows that were replaced pass their gradient to X too; Paddle 2 gives them 0.
    """
    ids = _flat_index(ctx, Ids, "Ids").reshape(-1)
    dx = Out_grad
    if saved_since(ctx, 2, 0):
        dx = Out_grad.copy()
        dx[ids] = 0
    return {"X@GRAD": dx, "Updates@GRAD": Out_grad[ids].reshape(Updates.shape)}


def _check_nd_updates(ctx: Context, shape: Sequence[int], index: Sequence[int], updates: Sequence[int]) -> None:
    """Fail unless these may be as many slices of a tensor of this shape as there are index vectors."""
    depth = _index_depth(ctx, index, shape)
    expected = (*index[:-1], *shape[depth:])
    if depth >= 0 and not may_be_same(updates, expected):
        raise ctx.error(
            f"Updates must have the shape {shape_text(expected)} for X {shape_text(shape)} and Index {shape_text(index)}, "
            f"found {shape_text(updates)}"
        )


@op("scatter_nd_add", inputs="X Index Updates", outputs="Out")
def scatter_nd_add(ctx: OpContext, X: Any, Index: Any, Updates: Any) -> Any:
    """X plus Updates at the index vectors in the last dimension of Index (Paddle 1.8.5 scatter_nd_add_op.h)."""
    where = _nd_index(ctx, Index, X.shape)
    _check_nd_updates(ctx, X.shape, Index.shape, Updates.shape)
    same_dtype(ctx, X, [Updates], "X and Updates")
    ctx.set_lod("Out", ctx.lod("X"))
    if not where:
        return X + Updates.reshape((-1, *X.shape)).sum(axis=0, dtype=X.dtype)
    out = X.copy()
    ctx.add_at(out, where, Updates)
    return out


@scatter_nd_add.infer
def _(ctx: InferContext, X: TensorMeta, Index: TensorMeta, Updates: TensorMeta) -> TensorMeta:
    _check_nd_updates(ctx, X.shape, Index.shape, Updates.shape)
    return X


@scatter_nd_add.grad(inputs="Index Updates Out@GRAD", outputs="X@GRAD Updates@GRAD")
def scatter_nd_add_grad(ctx: OpContext, Index: Any, Updates: Any, Out_grad: Any) -> Any:
    """dX is dOut; dUpdates is dOut at the indexes."""
    where = _nd_index(ctx, Index, Out_grad.shape)
    picked = Out_grad[where] if where else ctx.xp.broadcast_to(Out_grad, Updates.shape)
    return {"X@GRAD": Out_grad, "Updates@GRAD": picked}


@op("where", inputs="Condition X Y", outputs="Out", lod="X", traits=Traits(gradient_scope=False))
def where(ctx: OpContext, Condition: Any, X: Any, Y: Any) -> Any:
    """X where Condition holds, else Y, all of one shape (Paddle 1.8.5 where_op.h)."""
    if Condition.dtype.kind != "b":
        raise ctx.error(f"Condition must be bool, found {Condition.dtype}")
    same_dtype(ctx, X, [Y], "X and Y")
    if not tuple(Condition.shape) == tuple(X.shape) == tuple(Y.shape):
        raise ctx.error(f"Condition, X and Y must have one shape, found {Condition.shape}, {X.shape} and {Y.shape}")
    return ctx.xp.where(Condition, X, Y)


@where.infer
def _(ctx: InferContext, Condition: TensorMeta, X: TensorMeta, Y: TensorMeta) -> TensorMeta:
    return X


@where.grad(inputs="Condition X Y Out@GRAD", outputs="X@GRAD Y@GRAD")
def where_grad(ctx: OpContext, Condition: Any, X: Any, Y: Any, Out_grad: Any) -> Any:
    """dOut goes to X where Condition holds, to Y elsewhere."""
    zero = Out_grad.dtype.type(0)
    return {"X@GRAD": ctx.xp.where(Condition, Out_grad, zero), "Y@GRAD": ctx.xp.where(Condition, zero, Out_grad)}


@op("where_index", inputs="Condition", outputs="Out")
def where_index(ctx: OpContext, Condition: Any) -> Any:
    """The index vectors of what is not zero in Condition, int64, shape [count, rank] (Paddle 1.8.5 where_index_op.h)."""
    places = ctx.xp.nonzero(Condition) if Condition.ndim else ()
    count = len(places[0]) if places else int(bool(Condition))
    found = ctx.xp.stack(places, axis=1) if places else ctx.xp.zeros((count, 0))
    return found.astype("int64", copy=False)


@where_index.infer
def _(ctx: InferContext, Condition: TensorMeta) -> TensorMeta:
    return TensorMeta((-1, Condition.rank), VarType.INT64)
