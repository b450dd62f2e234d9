"""roi_pool: the largest value in every bin of a region."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from fluidtool.ops.context import InferContext, OpContext
from fluidtool.ops.detection.boxes import round_away
from fluidtool.ops.detection.regions import (
    check_pooled,
    check_regions,
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
    xp = ctx.xp
    offsets = region_offsets(ctx, ROIs, X.shape[0])
    top, bottom, left, right = edges_of(ctx, X, ROIs, spatial_scale, pooled_height, pooled_width)
    tallest, widest = ctx.host((bottom - top).max(axis=1)), ctx.host((right - left).max(axis=1))
    out = xp.zeros((len(ROIs), X.shape[1], pooled_height, pooled_width), X.dtype)
    places = xp.full(out.shape, -1, "int64")
    for image, (start, end) in enumerate(pairwise(offsets)):
        for region in range(start, end):
            if tallest[region] > 0 and widest[region] > 0:
                rows = top[region, :, None] + xp.arange(int(tallest[region]))
                columns = left[region, :, None] + xp.arange(int(widest[region]))
                usable = (rows < bottom[region, :, None])[:, None, :, None] & (columns < right[region, :, None])[
                    :, None
                ]
                out[region], places[region] = maxima(xp, X[image], rows, columns, usable)
    empty = ((bottom <= top)[:, None, :, None]) | ((right <= left)[:, None, None, :])
    return {"Out": xp.where(empty, 0, out), "Argmax": places}


def maxima(xp: Any, x: Any, rows: Any, columns: Any, usable: Any) -> tuple[Any, Any]:
    """Largest value of x [C, H, W] over the cells of every bin and its first place in reading order, both [C, P, Q].

    Bin p, q has the cells rows[p] × columns[q] where usable [P, Q, rows, columns]; the place is -1 where none is.
    """
    rows, columns = rows[:, None, :, None], columns[None, :, None, :]
    inside = xp.minimum(rows, x.shape[1] - 1), xp.minimum(columns, x.shape[2] - 1)
    values = x[:, inside[0], inside[1]]
    lowest = xp.finfo(x.dtype).min
    values = xp.where(usable & (values > lowest), values, lowest)
    flat = values.reshape(*values.shape[:3], -1)
    best = flat.argmax(axis=3)[..., None]
    value = xp.take_along_axis(flat, best, axis=3)[..., 0]
    place = xp.broadcast_to(rows * x.shape[2] + columns, usable.shape).reshape(1, *flat.shape[1:])
    place = xp.take_along_axis(xp.broadcast_to(place, flat.shape), best, axis=3)[..., 0]
    return value, xp.where(value > lowest, place, -1)


def edges_of(
    ctx: OpContext, X: Any, ROIs: Any, scale: float, pooled_height: int, pooled_width: int
) -> tuple[Any, Any, Any, Any]:
    """First row and the one after the last of all bins, [R, pooled_height], and the columns, [R, pooled_width]; int64."""
    sides = round_away(ctx.xp, ROIs * ROIs.dtype.type(scale)).astype("int64")
    rows = bin_edges(ctx.xp, sides[:, 1], sides[:, 3], pooled_height, X.shape[2])
    return *rows, *bin_edges(ctx.xp, sides[:, 0], sides[:, 2], pooled_width, X.shape[3])


def bin_edges(xp: Any, start: Any, end: Any, bins: int, size: int) -> tuple[Any, Any]:
    """First cell and the one after the last, each [R, bins], of every bin of one axis; regions are start … end [R]."""
    extent = xp.maximum(end - start + 1, 1).astype("float32")[:, None]
    step = extent / xp.float32(bins)
    numbers = xp.arange(bins + 1, dtype="float32")
    first = xp.floor(numbers[:-1] * step).astype("int64") + start[:, None]
    last = xp.ceil(numbers[1:] * step).astype("int64") + start[:, None]
    return first.clip(0, size), last.clip(0, size)


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
    summed = ctx.sums_at(places, Out_grad[chosen].astype("float64"), X.size)
    return summed.astype(Out_grad.dtype).reshape(X.shape)
