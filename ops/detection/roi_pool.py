"""roi_pool: the largest value in every bin of a region."""

from __future__ import annotations

from typing import Any

from fluidtool.ops.context import InferContext, OpContext
from fluidtool.ops.detection.boxes import round_away
from fluidtool.ops.detection.regions import (
    check_pooled,
    check_regions,
    chunks,
    pooled_meta,
    region_images,
    region_offsets,
)
from fluidtool.ops.registry import op
from fluidtool.ops.schema import TensorMeta
from fluidtool.proto.enums import VarType


@op(
    "roi_pool",
    inputs="X ROIs RoisLod?",
    outputs="Out Argmax~",
    attrs={"spatial_scale": 1.0, "pooled_height": 1, "pooled_width": 1},
)
def roi_pool(
    ctx: OpContext, X: Any, ROIs: Any, RoisLod: Any, *, spatial_scale: float, pooled_height: int, pooled_width: int
) -> dict[str, Any]:
    """Maxima [R, C, pooled_height, pooled_width] of X [N, C, H, W] over ROIs [R, 4] in pixels of the image.

    Argmax (int64) is the place h * W + w of each; bins without cells give 0 and -1. Images of regions come from the LoD,
    from RoisLod (offsets), or in Paddle 2.x from RoisNum (Paddle 1.8.5 roi_pool_op.h).
    """
    check_regions(ctx, "X", X, ROIs)
    check_pooled(ctx, pooled_height=pooled_height, pooled_width=pooled_width, spatial_scale=spatial_scale)
    xp, width = ctx.xp, X.shape[3]
    offsets = region_offsets(ctx, ROIs, X.shape[0])
    sides = round_away(xp, ROIs * ROIs.dtype.type(spatial_scale)).astype("int64")
    top, bottom = bin_edges(xp, sides[:, 1], sides[:, 3], pooled_height, X.shape[2])
    left, right = bin_edges(xp, sides[:, 0], sides[:, 2], pooled_width, width)
    out = xp.zeros((len(ROIs), X.shape[1], pooled_height, pooled_width), X.dtype)
    places = xp.full(out.shape, -1, "int64")
    for image, some in chunks(offsets, 8 * pooled_height * X.shape[1] * width):
        best, row = maxima_of_rows(xp, X[image], top[some], bottom[some])
        out[some], places[some] = maxima_of_columns(xp, best, row, left[some], right[some])
    empty = ((bottom <= top)[:, None, :, None]) | ((right <= left)[:, None, None, :])
    return {"Out": xp.where(empty, 0, out), "Argmax": places}


def bin_edges(xp: Any, start: Any, end: Any, bins: int, size: int) -> tuple[Any, Any]:
    """First cell and the one after the last, each [R, bins], of every bin of one axis; regions are start … end [R]."""
    extent = xp.maximum(end - start + 1, 1).astype("float32")[:, None]
    step = extent / xp.float32(bins)
    numbers = xp.arange(bins + 1, dtype="float32")
    first = xp.floor(numbers[:-1] * step).astype("int64") + start[:, None]
    last = xp.ceil(numbers[1:] * step).astype("int64") + start[:, None]
    return first.clip(0, size), last.clip(0, size)


def maxima_of_rows(xp: Any, x: Any, top: Any, bottom: Any) -> tuple[Any, Any]:
    """Largest value of rows top … bottom [R, P] of x [C, H, W] and its first row, both [R, P, C, W]; row -1 for none."""
    by_row = x.transpose(1, 0, 2)
    best = xp.full((*top.shape, x.shape[0], x.shape[2]), xp.finfo(x.dtype).min, x.dtype)
    row = xp.full(best.shape, -1, "int64")
    most = int((bottom - top).max()) if top.size else 0
    for step in range(most):
        here = top + step
        usable = (here < bottom)[:, :, None, None]
        values = by_row[xp.minimum(here, x.shape[1] - 1)]
        better = usable & (values > best)
        best, row = xp.where(better, values, best), xp.where(better, here[:, :, None, None], row)
    return best, row


def maxima_of_columns(xp: Any, values: Any, rows: Any, left: Any, right: Any) -> tuple[Any, Any]:
    """Largest of columns left … right [R, Q] of values [R, P, C, W] and its first place in reading order, [R, C, P, Q]."""
    width = values.shape[3]
    shape = (*values.shape[:3], left.shape[1])
    best = xp.full(shape, xp.finfo(values.dtype).min, values.dtype)
    place = xp.full(shape, -1, "int64")
    most = int((right - left).max()) if left.size else 0
    for step in range(most):
        here = (left + step)[:, None, None, :]
        column = xp.broadcast_to(xp.minimum(here, width - 1), shape)
        value = xp.take_along_axis(values, column, axis=3)
        row = xp.take_along_axis(rows, column, axis=3)
        found = row * width + here
        usable = (here < right[:, None, None, :]) & (row >= 0)
        better = usable & ((value > best) | ((value == best) & (found < place)))
        best, place = xp.where(better, value, best), xp.where(better, found, place)
    return best.transpose(0, 2, 1, 3), place.transpose(0, 2, 1, 3)


@roi_pool.infer
def _(
    ctx: InferContext,
    X: TensorMeta,
    ROIs: TensorMeta,
    RoisLod: TensorMeta | None,
    *,
    spatial_scale: float,
    pooled_height: int,
    pooled_width: int,
) -> dict[str, TensorMeta]:
    check_regions(ctx, "X", X, ROIs)
    check_pooled(ctx, pooled_height=pooled_height, pooled_width=pooled_width, spatial_scale=spatial_scale)
    out = pooled_meta(ctx, X, ROIs, X.shape[1], pooled_height, pooled_width)
    return {"Out": out, "Argmax": out.with_dtype(VarType.INT64)}


@roi_pool.grad(inputs="X ROIs RoisLod? Argmax Out@GRAD", outputs="X@GRAD")
def roi_pool_grad(ctx: OpContext, X: Any, ROIs: Any, RoisLod: Any, Argmax: Any, Out_grad: Any) -> Any:
    """The gradient of each bin goes to the cell that Argmax names."""
    xp = ctx.xp
    images, channels, height, width = X.shape
    image = region_images(ctx, ROIs, images)[:, None, None, None]
    plane = image * channels + xp.arange(channels)[:, None, None]
    chosen = Argmax >= 0
    places = (plane * (height * width) + Argmax)[chosen]
    summed = xp.bincount(places, weights=Out_grad[chosen].astype("float64"), minlength=X.size)
    return summed.astype(Out_grad.dtype).reshape(X.shape)
