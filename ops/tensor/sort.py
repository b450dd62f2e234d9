"""top_k, argsort, arg_max and related operators: the order of the numbers along an axis."""

from __future__ import annotations

from typing import Any

from fluidtool.ops.context import InferContext, OpContext
from fluidtool.ops.gradient import GradMakerContext, OpDescription
from fluidtool.ops.math.versions import later_attr, scalar_shape
from fluidtool.ops.registry import op
from fluidtool.ops.schema import LONG, AttrSpec, TensorMeta, or_variable, required
from fluidtool.ops.tensor.arguments import axis_in, index_grid, number
from fluidtool.ops.tensor.partial_sort import partial_sort
from fluidtool.ops.traits import Traits
from fluidtool.proto.enums import VarType

PARTITION_FROM = 2048


def sorted_indices(ctx: OpContext, X: Any, axis: int, descending: bool) -> Any:
    """The order of X along an axis; equal numbers keep theirs, NaN counts as the largest."""
    if not descending:
        return ctx.xp.argsort(X, axis=axis, kind="stable")
    backwards = ctx.xp.argsort(ctx.xp.flip(X, axis), axis=axis, kind="stable")
    return ctx.xp.flip(X.shape[axis] - 1 - backwards, axis)


def picked(ctx: OpContext, X: Any, index: Any, axis: int) -> Any:
    """The elements of X at `index` along an axis."""
    return X[index_grid(ctx, index.shape, axis, index)]


def put_back(ctx: OpContext, grad: Any, index: Any, X: Any, axis: int) -> Any:
    """Zeros like X with `grad` at `index` along an axis."""
    out = ctx.xp.zeros(X.shape, grad.dtype)
    out[index_grid(ctx, index.shape, axis, index)] = grad.reshape(index.shape)
    return out


def largest(ctx: OpContext, X: Any, k: int, axis: int) -> Any:
    """The indices of the k largest elements along an axis, largest first; equal ones in real Paddle's order."""
    rows = ctx.xp.moveaxis(X, axis, -1)
    size = rows.shape[-1]
    index = _leading(ctx, rows, min(k + 1, size))
    values = picked(ctx, rows, index, rows.ndim - 1)
    tied = (values[..., 1:] == values[..., :-1]).any(axis=-1)
    index = index[..., :k]
    if bool(tied.any()):
        index = _retied(ctx, rows.reshape(-1, size), index.reshape(-1, k), tied.reshape(-1), k).reshape(index.shape)
    return ctx.xp.moveaxis(index, -1, axis)


def _leading(ctx: OpContext, rows: Any, count: int) -> Any:
    """The indices of the largest `count` numbers of every row, largest first."""
    size, last = rows.shape[-1], rows.ndim - 1
    if count * 8 > size or size < PARTITION_FROM:
        return sorted_indices(ctx, rows, last, True)[..., :count]
    candidates = ctx.xp.argpartition(rows, size - count, axis=-1)[..., size - count :]
    return picked(ctx, candidates, sorted_indices(ctx, picked(ctx, rows, candidates, last), last, True), last)


def _retied(ctx: OpContext, rows: Any, index: Any, tied: Any, k: int) -> Any:
    host = ctx.host(index).copy()
    for i in ctx.host(tied).nonzero()[0]:
        host[i] = partial_sort(ctx.host(rows[int(i)]), k)
    return ctx.array(host)


def _how_many(ctx: OpContext, X: Any, K: Any, k: int, axis: int) -> int:
    count = k if K is None else number(ctx, K, "K")
    if X.ndim <= 0:
        raise ctx.error("X must have at least one dimension")
    if not 1 <= count <= X.shape[axis]:
        raise ctx.error(f"k must be in [1, {X.shape[axis]}], the size of axis {axis} of X, found {count}")
    return count


@op("top_k", inputs="X K?", outputs="Out Indices", attrs={"k": 1}, lod="X", traits=Traits(gradient_scope=False))
def top_k(ctx: OpContext, X: Any, K: Any, *, k: int) -> Any:
    """The k largest numbers of every row and their places, int64, largest first (Paddle 1.8.5 top_k_op.h).

    NaN counts as the largest number.
    """
    index = largest(ctx, X, _how_many(ctx, X, K, k, -1), X.ndim - 1)
    return {"Out": picked(ctx, X, index, X.ndim - 1), "Indices": index.astype("int64", copy=False)}


@top_k.infer
def _(ctx: InferContext, X: TensorMeta, K: TensorMeta | None, *, k: int) -> dict[str, TensorMeta]:
    if X.rank <= 0:
        raise ctx.error("X must have at least one dimension")
    if K is None and k < 1:
        raise ctx.error(f"k must be at least 1, found {k}")
    count = k if K is None else -1
    if X.shape[-1] >= 0 and count > X.shape[-1]:
        raise ctx.error(f"k is {k}, but the rows of X have {X.shape[-1]} elements")
    out = X.with_shape((*X.shape[:-1], count))
    return {"Out": out, "Indices": out.with_dtype(VarType.INT64)}


@op("top_k_grad", inputs="X Indices Out@GRAD", outputs="X@GRAD")
def top_k_grad(ctx: OpContext, X: Any, Indices: Any, Out_grad: Any) -> Any:
    """dOut at its places within zeros."""
    return put_back(ctx, Out_grad, Indices, X, X.ndim - 1)


@top_k.grad_maker
def _(context: GradMakerContext) -> list[OpDescription]:
    inputs = {"X": context.input("X"), "Indices": context.output("Indices"), "Out@GRAD": context.output_grad("Out")}
    described = context.describe("top_k_grad", inputs, {"X@GRAD": context.input_grad("X")})
    described.attrs.pop("k", None)
    return [described]


@op(
    "top_k_v2",
    inputs="X K?",
    outputs="Out Indices",
    attrs={"k": 1, "axis": -1, "largest": True, "sorted": True},
    lod="X",
)
def top_k_v2(ctx: OpContext, X: Any, K: Any, *, k: int, axis: int, largest: bool) -> Any:
    """The k largest or smallest numbers along `axis` and their places, in order (Paddle 2.6.2 top_k_kernel.cc)."""
    if X.ndim == 0:
        return {"Out": X, "Indices": ctx.array([0], "int64").reshape(())}
    place = axis_in(ctx, axis, X.ndim)
    count = _how_many(ctx, X, K, k, place)
    if largest:
        index = _largest(ctx, X, count, place)
    else:
        index = sorted_indices(ctx, X, place, False)[(slice(None),) * place + (slice(count),)]
    return {"Out": picked(ctx, X, index, place), "Indices": index.astype("int64", copy=False)}


_largest = largest


@top_k_v2.infer
def _(ctx: InferContext, X: TensorMeta, K: TensorMeta | None, *, k: int, axis: int) -> dict[str, TensorMeta]:
    if X.rank == 0:
        return {"Out": X, "Indices": X.with_dtype(VarType.INT64)}
    place = axis_in(ctx, axis, X.rank)
    out = X.with_shape((*X.shape[:place], k if K is None else -1, *X.shape[place + 1 :]))
    return {"Out": out, "Indices": out.with_dtype(VarType.INT64)}


@top_k_v2.grad(inputs="X Indices Out@GRAD", outputs="X@GRAD", lod="X")
def top_k_v2_grad(ctx: OpContext, X: Any, Indices: Any, Out_grad: Any, *, axis: int) -> Any:
    """dOut at its places within zeros."""
    return Out_grad if X.ndim == 0 else put_back(ctx, Out_grad, Indices, X, axis_in(ctx, axis, X.ndim))


@op("argsort", inputs="X", outputs="Out Indices", attrs={"axis": -1, "descending": False}, lod="X")
def argsort(ctx: OpContext, X: Any, *, axis: int, descending: bool) -> Any:
    """X sorted along `axis`, and the places its numbers come from, int64 (Paddle 1.8.5 argsort_op.h)."""
    if X.ndim == 0:
        return {"Out": X, "Indices": ctx.array([0], "int64").reshape(())}
    place = axis_in(ctx, axis, X.ndim)
    index = sorted_indices(ctx, X, place, descending)
    return {"Out": picked(ctx, X, index, place), "Indices": index.astype("int64", copy=False)}


@argsort.infer
def _(ctx: InferContext, X: TensorMeta, *, axis: int) -> dict[str, TensorMeta]:
    axis_in(ctx, axis, X.rank)
    return {"Out": X, "Indices": X.with_dtype(VarType.INT64)}


@argsort.grad(inputs="X Indices Out@GRAD", outputs="X@GRAD", lod="X")
def argsort_grad(ctx: OpContext, X: Any, Indices: Any, Out_grad: Any, *, axis: int) -> Any:
    """dOut put back where its numbers came from."""
    return Out_grad if X.ndim == 0 else put_back(ctx, Out_grad, Indices, X, axis_in(ctx, axis, X.ndim))


ARG: dict[str, AttrSpec | bool | int] = {"axis": or_variable(required(LONG)), "keepdims": False, "dtype": -1}


def _extreme_index(ctx: OpContext, X: Any, sign: int, axis: int, keepdims: bool, dtype: int) -> Any:
    """The first place of the largest (sign 1) or smallest (-1) number; NaN is never it."""
    flat = later_attr(ctx, "flatten", False)
    place = 0 if flat else axis_in(ctx, axis, X.ndim)
    source = X.reshape(-1) if flat or X.ndim == 0 else X
    if source.shape[place] <= 0:
        raise ctx.error(f"X of shape {X.shape} is empty along axis {place}")
    if source.dtype.kind == "f":
        source = ctx.xp.where(ctx.xp.isnan(source), source.dtype.type(-sign * float("inf")), source)
    found = (source.argmax if sign > 0 else source.argmin)(axis=place)
    out = ctx.xp.asarray(found).astype(_index_type(ctx, dtype))
    if flat:
        return out.reshape((1,) * X.ndim if keepdims else scalar_shape(ctx))
    return ctx.xp.expand_dims(out, place) if keepdims and X.ndim else out


def _index_type(ctx: OpContext, dtype: int) -> Any:
    wanted = VarType.INT64 if dtype < 0 else dtype
    if wanted not in (VarType.INT32, VarType.INT64):
        raise ctx.error(f"dtype must be INT32, INT64 or -1, found {dtype}")
    return ctx.dtype(wanted)


def _extreme_meta(ctx: InferContext, X: TensorMeta, axis: int, keepdims: bool, dtype: int) -> TensorMeta:
    result = VarType.INT64 if dtype < 0 else VarType(dtype)
    if later_attr(ctx, "flatten", False):
        return TensorMeta((1,) * X.rank if keepdims else scalar_shape(ctx), result)
    place = axis_in(ctx, axis, X.rank)
    return TensorMeta((*X.shape[:place], *([1] if keepdims else []), *X.shape[place + 1 :]), result)


@op("arg_max", inputs="X", outputs="Out", attrs=ARG)
def arg_max(ctx: OpContext, X: Any, *, axis: int, keepdims: bool, dtype: int) -> Any:
    """The place of the first largest number along `axis` (Paddle 1.8.5 arg_min_max_op_base.h; `flatten` of 2.x)."""
    return _extreme_index(ctx, X, 1, axis, keepdims, dtype)


@op("arg_min", inputs="X", outputs="Out", attrs=ARG)
def arg_min(ctx: OpContext, X: Any, *, axis: int, keepdims: bool, dtype: int) -> Any:
    """The place of the first smallest number along `axis`."""
    return _extreme_index(ctx, X, -1, axis, keepdims, dtype)


@arg_max.infer
def _(ctx: InferContext, X: TensorMeta, *, axis: int, keepdims: bool, dtype: int) -> TensorMeta:
    return _extreme_meta(ctx, X, axis, keepdims, dtype)


@arg_min.infer
def _(ctx: InferContext, X: TensorMeta, *, axis: int, keepdims: bool, dtype: int) -> TensorMeta:
    return _extreme_meta(ctx, X, axis, keepdims, dtype)
