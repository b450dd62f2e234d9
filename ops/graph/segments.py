"""Rows reduced by the number of their segment or target: sums, means, extremes."""

from __future__ import annotations

from typing import Any

from fluidtool.ops.context import InferContext, OpContext
from fluidtool.ops.registry import op
from fluidtool.ops.schema import TensorMeta
from fluidtool.shapes import shape_text

MOST_EMPTY = 1 << 20  # rows of Out that one row of X may ask for: a damaged number must not ask for all memory
REDUCTIONS = ("SUM", "MEAN", "MAX", "MIN")


def check_reduction(ctx: OpContext | InferContext, attribute: str, found: str) -> None:
    """Refuse any other reduction."""
    if found not in REDUCTIONS:
        raise ctx.error(f"{attribute} must be one of {', '.join(REDUCTIONS)}, found {found!r}")


def checked_targets(ctx: OpContext, slot: str, ids: Any, height: int) -> Any:
    """The numbers of rows as a vector; refuses what is below 0 or beyond `height`."""
    numbers = ctx.host(ids).reshape(-1)
    if numbers.size and not (int(numbers.min()) >= 0 and int(numbers.max()) < height):
        raise ctx.error(f"{slot} must lie in 0 to {height - 1}, found {int(numbers.min())} to {int(numbers.max())}")
    return ids.reshape(-1)


def reduced(ctx: OpContext, rows: Any, targets: Any, height: int, how: str) -> tuple[Any, Any]:
    """(`height` rows, of which each reduces the rows that have its number, or is 0; how many rows have each number).

    Row by row in the order of `rows`, so that sums do not depend on the device.
    """
    np = ctx.np
    host, numbers = ctx.host(rows), ctx.host(targets)
    counts = np.bincount(numbers, minlength=height)
    out = np.zeros((height, *host.shape[1:]), host.dtype)
    if how in ("SUM", "MEAN"):
        np.add.at(out, numbers, host)
        if how == "MEAN":
            out /= spread(np.maximum(counts, 1), out).astype(host.dtype)
    else:
        out[counts > 0] = _extreme(np, host.dtype, lowest=how == "MAX")
        (np.maximum if how == "MAX" else np.minimum).at(out, numbers, host)
    return ctx.array(out), ctx.array(counts)


def spread(per_row: Any, like: Any) -> Any:
    """Numbers of rows, shaped so that they spread over the rows of `like`."""
    return per_row.reshape(-1, *(1,) * (like.ndim - 1))


def _extreme(np: Any, dtype: Any, lowest: bool) -> Any:
    if dtype.kind == "f":
        return -np.inf if lowest else np.inf
    return np.iinfo(dtype).min if lowest else np.iinfo(dtype).max


@op("segment_pool", inputs="X SegmentIds", outputs="Out SummedIds?~", attrs={"pooltype": "SUM"})
def segment_pool(ctx: OpContext, X: Any, SegmentIds: Any, *, pooltype: str) -> dict[str, Any]:
    """The sum, mean, largest or smallest of the rows with the same of the rising SegmentIds (Paddle 2.6.2 segment_pool_op.cc).

    Out has a row for every number up to the last; those of numbers that do not occur are 0. SummedIds: how many
    rows each has, as X's data type [rows, 1].
    """
    check_reduction(ctx, "pooltype", pooltype)
    if SegmentIds.ndim != 1 or X.ndim == 0 or len(SegmentIds) != len(X):
        raise ctx.error(
            f"SegmentIds must hold one number per row of X {shape_text(X.shape)}, found shape {shape_text(SegmentIds.shape)}"
        )
    if not len(X):
        raise ctx.error("X must have rows, found none")
    ids = ctx.host(SegmentIds)
    if int(ids[0]) < 0 or (ids[1:] < ids[:-1]).any():
        raise ctx.error("SegmentIds must rise from 0 or more, without falling")
    if int(ids[-1]) >= MOST_EMPTY * len(ids):
        raise ctx.error(f"SegmentIds count up to {int(ids[-1])} for {len(ids)} rows, beyond {MOST_EMPTY} for each row")
    out, counts = reduced(ctx, X, SegmentIds, int(ids[-1]) + 1, pooltype)
    return {"Out": out, "SummedIds": counts.astype(X.dtype).reshape(-1, 1)}


@segment_pool.infer
def _(ctx: InferContext, X: TensorMeta, SegmentIds: TensorMeta, *, pooltype: str) -> dict[str, TensorMeta]:
    check_reduction(ctx, "pooltype", pooltype)
    out = X.with_shape((-1, *X.shape[1:])).with_lod_level(0)
    return {"Out": out, "SummedIds": out.with_shape((-1, 1))}


@segment_pool.grad(inputs="X SegmentIds Out Out@GRAD", outputs="X@GRAD")
def segment_pool_grad(ctx: OpContext, X: Any, SegmentIds: Any, Out: Any, Out_grad: Any, *, pooltype: str) -> Any:
    """dX = dOut of its segment, divided by its rows for a mean; of extremes at the numbers that are Out."""
    return gathered_gradient(ctx, X, SegmentIds, Out, Out_grad, pooltype)


def gathered_gradient(ctx: OpContext, rows: Any, targets: Any, out: Any, grad: Any, how: str) -> Any:
    """The gradient of `reduced` by its rows."""
    own = grad[targets]
    if how == "SUM":
        return own
    if how == "MEAN":
        counts = ctx.array(ctx.np.bincount(ctx.host(targets), minlength=len(out)))
        return own / spread(ctx.xp.maximum(counts, 1), own)[targets].astype(own.dtype)
    return own * (rows == out[targets])
