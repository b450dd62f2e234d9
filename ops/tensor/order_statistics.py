"""kthvalue, mode, nanmedian, searchsorted and bincount of 2.x programs: based on sorted numbers."""

from __future__ import annotations

from typing import Any

from fluidtool.ops.context import InferContext, OpContext
from fluidtool.ops.registry import op
from fluidtool.ops.schema import TensorMeta, ints, long, or_variable
from fluidtool.ops.tensor.arguments import axis_in
from fluidtool.ops.tensor.sort import picked, put_back, sorted_indices
from fluidtool.proto.enums import VarType


def _reduced(shape: tuple[int, ...], axis: int, keepdim: bool) -> tuple[int, ...]:
    return (*shape[:axis], *((1,) if keepdim else ()), *shape[axis + 1 :])


def _one_per_row(ctx: OpContext, X: Any, index: Any, axis: int, keepdim: bool) -> dict[str, Any]:
    shape = _reduced(X.shape, axis, keepdim)
    return {
        "Out": picked(ctx, X, index, axis).reshape(shape),
        "Indices": index.reshape(shape).astype("int64", copy=False),
    }


def _meta(X: TensorMeta, axis: int, keepdim: bool) -> dict[str, TensorMeta]:
    out = X.with_shape(_reduced(X.shape, axis, keepdim)).with_lod_level(0)
    return {"Out": out, "Indices": out.with_dtype(VarType.INT64)}


@op("kthvalue", inputs="X", outputs="Out Indices", attrs={"k": 1, "axis": -1, "keepdim": False})
def kthvalue(ctx: OpContext, X: Any, *, k: int, axis: int, keepdim: bool) -> Any:
    """The k-th smallest number along `axis` and its place (Paddle 2.6.2 kthvalue_kernel.cc)."""
    if X.ndim == 0:
        return {"Out": X, "Indices": ctx.array([0], "int64").reshape(())}
    place = axis_in(ctx, axis, X.ndim)
    size = X.shape[place]
    if not 1 <= k <= size:
        raise ctx.error(f"k must be in [1, {size}], the size of axis {axis} of X, found {k}")
    order = sorted_indices(ctx, X, place, False)
    return _one_per_row(ctx, X, order[(*(slice(None),) * place, slice(k - 1, k))], place, keepdim)


@kthvalue.infer
def _(ctx: InferContext, X: TensorMeta, *, axis: int, keepdim: bool) -> dict[str, TensorMeta]:
    return (
        _meta(X, axis_in(ctx, axis, X.rank), keepdim) if X.rank else {"Out": X, "Indices": X.with_dtype(VarType.INT64)}
    )


@op("mode", inputs="X", outputs="Out Indices", attrs={"axis": -1, "keepdim": False})
def mode(ctx: OpContext, X: Any, *, axis: int, keepdim: bool) -> Any:
    """The number that comes most often along `axis`, the smallest of several, and its last place (Paddle 2.6.2)."""
    if X.ndim == 0:
        return {"Out": X, "Indices": ctx.array([0], "int64").reshape(())}
    place = axis_in(ctx, axis, X.ndim)
    if X.shape[place] <= 0:
        raise ctx.error(f"X of shape {X.shape} is empty along axis {axis}")
    rows = ctx.xp.moveaxis(X, place, -1)
    order = sorted_indices(ctx, rows, rows.ndim - 1, False)
    ordered = picked(ctx, rows, order, rows.ndim - 1)
    index = picked(ctx, order, _end_of_longest_run(ctx, ordered), rows.ndim - 1)
    return _one_per_row(ctx, X, ctx.xp.moveaxis(index, -1, place), place, keepdim)


def _end_of_longest_run(ctx: OpContext, ordered: Any) -> Any:
    """Where the longest run of equal numbers ends in the last axis, the first of several; that axis has size 1 then."""
    host = ctx.host(ordered)
    places = ctx.np.arange(host.shape[-1])
    first = ctx.np.ones(host.shape, bool)
    first[..., 1:] = host[..., 1:] != host[..., :-1]
    start = ctx.np.maximum.accumulate(ctx.np.where(first, places, 0), axis=-1)
    return ctx.array((places - start).argmax(axis=-1)[..., None])


@mode.infer
def _(ctx: InferContext, X: TensorMeta, *, axis: int, keepdim: bool) -> dict[str, TensorMeta]:
    return (
        _meta(X, axis_in(ctx, axis, X.rank), keepdim) if X.rank else {"Out": X, "Indices": X.with_dtype(VarType.INT64)}
    )


def _restored(ctx: OpContext, X: Any, Indices: Any, Out_grad: Any, axis: int) -> Any:
    if X.ndim == 0:
        return Out_grad
    place = axis_in(ctx, axis, X.ndim)
    index = Indices.reshape(_reduced(X.shape, place, True))
    return put_back(ctx, Out_grad, index, X, place)


@kthvalue.grad(inputs="X Indices Out@GRAD", outputs="X@GRAD")
def kthvalue_grad(ctx: OpContext, X: Any, Indices: Any, Out_grad: Any, *, axis: int) -> Any:
    """dOut at its places within zeros."""
    return _restored(ctx, X, Indices, Out_grad, axis)


@mode.grad(inputs="X Indices Out@GRAD", outputs="X@GRAD")
def mode_grad(ctx: OpContext, X: Any, Indices: Any, Out_grad: Any, *, axis: int) -> Any:
    """dOut at its places within zeros."""
    return _restored(ctx, X, Indices, Out_grad, axis)


@op("searchsorted", inputs="SortedSequence Values", outputs="Out", attrs={"out_int32": False, "right": False})
def searchsorted(ctx: OpContext, SortedSequence: Any, Values: Any, *, out_int32: bool, right: bool) -> Any:
    """Where each of Values goes in the last axis of SortedSequence, row by row (Paddle 2.6.2 searchsorted_kernel.cc)."""
    side, dtype = "right" if right else "left", "int32" if out_int32 else "int64"
    if SortedSequence.ndim <= 1:
        return ctx.xp.searchsorted(SortedSequence, Values, side=side).astype(dtype)
    if tuple(SortedSequence.shape[:-1]) != tuple(Values.shape[:-1]):
        raise ctx.error(
            f"SortedSequence {SortedSequence.shape} and Values {Values.shape} must agree in all sizes but the last"
        )
    sequences = SortedSequence.reshape(-1, SortedSequence.shape[-1])
    rows = Values.reshape(len(sequences), -1)
    found = [ctx.xp.searchsorted(s, v, side=side) for s, v in zip(sequences, rows, strict=True)]
    return ctx.xp.stack(found).reshape(Values.shape).astype(dtype) if found else ctx.xp.zeros(Values.shape, dtype)


@searchsorted.infer
def _(ctx: InferContext, SortedSequence: TensorMeta, Values: TensorMeta, *, out_int32: bool) -> TensorMeta:
    return Values.with_dtype(VarType.INT32 if out_int32 else VarType.INT64).with_lod_level(0)


@op("bincount", inputs="X Weights?", outputs="Out", attrs={"minlength": or_variable(0)})
def bincount(ctx: OpContext, X: Any, Weights: Any, *, minlength: int) -> Any:
    """How often each number comes in X, or the sum of its Weights (Paddle 2.6.2 bincount_kernel.cc)."""
    if X.ndim != 1:
        raise ctx.error(f"X must have one dimension, found shape {X.shape}")
    if minlength < 0:
        raise ctx.error(f"minlength must not be negative, found {minlength}")
    if X.dtype.kind not in "iu":
        raise ctx.error(f"X must hold int32 or int64, found {X.dtype}")
    if X.size and not int(X.min()) >= 0:
        raise ctx.error("X must not hold negative numbers")
    if Weights is None:
        return ctx.xp.bincount(X, minlength=minlength).astype("int64")
    if Weights.shape != X.shape:
        raise ctx.error(f"Weights must have the shape of X {X.shape}, found {Weights.shape}")
    dtype = Weights.dtype if Weights.dtype.kind == "f" else "float64"
    size = max(minlength, int(X.max()) + 1 if X.size else 0)
    return ctx.sums_at(X, Weights.astype("float64"), size).astype(dtype)


@bincount.infer
def _(ctx: InferContext, X: TensorMeta, Weights: TensorMeta | None) -> TensorMeta:
    return TensorMeta((-1,), VarType.INT64 if Weights is None else Weights.dtype)


@op("histogram", inputs="X", outputs="Out", attrs={"bins": long(100), "min": 0, "max": 0})
def histogram(ctx: OpContext, X: Any, *, bins: int, min: int, max: int) -> Any:
    """How many numbers of X fall into each of `bins` equal parts of [min, max]; of X's own range when both are 0.

    Paddle 2.6.2 histogram_kernel.cc.
    """
    if bins <= 0:
        raise ctx.error(f"bins must be positive, found {bins}")
    if not max >= min:
        raise ctx.error(f"max must not lie below min, found [{min}, {max}]")
    values = ctx.host(X).reshape(-1).astype("float64")
    if not len(values):
        return ctx.xp.zeros(bins, "int64")
    low, high = (float(values.min()), float(values.max())) if min == max == 0 else (float(min), float(max))
    low, high = (low - 1, high + 1) if low == high else (low, high)
    finite = bool(ctx.np.isfinite([low, high]).all())
    if not finite:
        raise ctx.error("the range of X is not finite; set min and max")
    inside = values[(values >= low) & (values <= high)]
    places = ctx.np.minimum(((inside - low) * bins / (high - low)).astype("int64"), bins - 1)
    return ctx.array(ctx.np.bincount(places, minlength=bins), VarType.INT64)


@histogram.infer
def _(ctx: InferContext, X: TensorMeta, *, bins: int) -> TensorMeta:
    return TensorMeta((bins,), VarType.INT64)


@op("nanmedian", inputs="X", outputs="Out MedianIndex~", attrs={"axis": ints(), "keepdim": True})
def nanmedian(ctx: OpContext, X: Any, *, axis: list[int], keepdim: bool) -> dict[str, Any]:
    """The mean of the two middle numbers along `axis` (all if empty), NaN left out (Paddle 2.6.2 nanmedian_kernel.cc).

    MedianIndex [..., 2]: where these two are along the axes, which are counted as one; -1 if there are only NaN.
    """
    np = ctx.np
    axes = _median_axes(ctx, axis, X.ndim)
    others = [i for i in range(X.ndim) if i not in axes]
    rows = ctx.host(X).transpose(*others, *axes).reshape(*(X.shape[i] for i in others), -1)
    wide = rows.astype("float64") if rows.dtype.kind != "f" else rows
    order = np.argsort(wide, axis=-1, kind="stable")
    known = (~np.isnan(wide)).sum(axis=-1, keepdims=True)
    middle = np.concatenate([np.maximum(known - 1, 0) // 2, known // 2], axis=-1)
    middle = np.minimum(middle, max(rows.shape[-1] - 1, 0))
    index = np.take_along_axis(order, middle, axis=-1)
    both = np.take_along_axis(wide, index, axis=-1)
    out = np.where(known[..., 0] > 0, (both[..., 0] + both[..., 1]) / 2, np.nan).astype(wide.dtype)
    shape = _median_shape(X.shape, axes, keepdim)
    return {
        "Out": ctx.array(out.reshape(shape)),
        "MedianIndex": ctx.array(np.where(known > 0, index, -1).astype("int64").reshape(*shape, 2)),
    }


@nanmedian.infer
def _(ctx: InferContext, X: TensorMeta, *, axis: list[int], keepdim: bool) -> dict[str, TensorMeta]:
    shape = _median_shape(X.shape, _median_axes(ctx, axis, X.rank), keepdim)
    out = X if X.dtype in (VarType.FP32, VarType.FP64) else X.with_dtype(VarType.FP64)
    return {
        "Out": out.with_shape(shape).with_lod_level(0),
        "MedianIndex": X.with_shape((*shape, 2)).with_dtype(VarType.INT64).with_lod_level(0),
    }


def _median_axes(ctx: OpContext | InferContext, axis: list[int], rank: int) -> list[int]:
    return sorted({axis_in(ctx, one, rank) for one in axis}) or list(range(rank))


def _median_shape(shape: tuple[int, ...], axes: list[int], keepdim: bool) -> tuple[int, ...]:
    return tuple(1 if i in axes else size for i, size in enumerate(shape) if keepdim or i not in axes)
