"""roi_align: the mean of bilinear samples in every bin of a region."""

from __future__ import annotations

from typing import Any

from fluidtool.ops.context import InferContext, OpContext
from fluidtool.ops.detection.regions import check_pooled, check_regions, pool, pooled_meta, region_offsets, spread
from fluidtool.ops.math.versions import later_attr, saved_since
from fluidtool.ops.registry import op
from fluidtool.ops.schema import TensorMeta


@op(
    "roi_align",
    inputs="X ROIs RoisLod?",
    outputs="Out",
    attrs={"spatial_scale": 1.0, "pooled_height": 1, "pooled_width": 1, "sampling_ratio": -1},
)
def roi_align(
    ctx: OpContext,
    X: Any,
    ROIs: Any,
    RoisLod: Any,
    *,
    spatial_scale: float,
    pooled_height: int,
    pooled_width: int,
    sampling_ratio: int,
) -> Any:
    """[R, C, pooled_height, pooled_width] of X [N, C, H, W] for ROIs [R, 4] in pixels of the image; floating point.

    A bin has sampling_ratio² samples, or with -1 one per cell that it spans. Images of regions come from the LoD, from
    RoisLod (offsets), or in Paddle 2.x from RoisNum; 2.x knows `aligned` too (Paddle 1.8.5 roi_align_op.h).
    """
    check_regions(ctx, "X", X, ROIs)
    offsets = region_offsets(ctx, ROIs, X.shape[0])
    rows, columns = weights(ctx, X, ROIs, spatial_scale, pooled_height, pooled_width, sampling_ratio)
    return pool(ctx, X, offsets, rows, columns)


def weights(
    ctx: OpContext, X: Any, ROIs: Any, scale: float, pooled_height: int, pooled_width: int, sampling_ratio: int
) -> tuple[Any, Any]:
    """What each row and each column of X weighs in each bin: [R, pooled_height, H] and [R, pooled_width, W]."""
    check_pooled(ctx, pooled_height=pooled_height, pooled_width=pooled_width, spatial_scale=scale)
    aligned, sides = is_aligned(ctx), sides_of(ctx, X, ROIs, scale)
    along_y = samples(ctx, sides[:, 1], sides[:, 3], pooled_height, X.shape[2], sampling_ratio, aligned)
    along_x = samples(ctx, sides[:, 0], sides[:, 2], pooled_width, X.shape[3], sampling_ratio, aligned)
    return along_y, along_x


def is_aligned(ctx: OpContext) -> bool:
    """Whether pixels have their centers at halves, as Paddle 2.x may have it."""
    return bool(later_attr(ctx, "aligned", False))


def sides_of(ctx: OpContext, X: Any, ROIs: Any, scale: float) -> Any:
    """The regions [R, 4] in pixels of X."""
    sides = ROIs * ROIs.dtype.type(scale)
    return (sides - 0.5 if is_aligned(ctx) else sides).astype(X.dtype)


def samples(ctx: OpContext, start: Any, end: Any, bins: int, size: int, ratio: int, aligned: bool) -> Any:
    """Mean weights [R, bins, size] of the cells of one axis, for samples spread evenly over bins of start … end [R].

    A sample weighs its two neighbors by 1 - distance. Beyond one cell outside it weighs nothing.
    """
    xp, dtype = ctx.xp, start.dtype
    extent = end - start if aligned else xp.maximum(end - start, 1)
    step = extent / bins
    counts = xp.full(len(start), ratio, "int64") if ratio > 0 else xp.maximum(xp.ceil(step), 0).astype("int64")
    cells, numbers = xp.arange(size, dtype="float64"), xp.arange(bins, dtype=dtype)
    total = xp.zeros((len(start), bins, size), "float64")
    number, later = xp.maximum(counts, 1).astype(dtype), saved_since(ctx, 2, 0)  # Paddle 2.x rounds in another order
    most = int(counts.max()) if len(start) else 0
    for sample in range(most):
        if later:
            inside = dtype.type(sample + 0.5) / number
            place = start[:, None] + step[:, None] * (numbers + inside[:, None])
        else:
            inside = dtype.type(sample + 0.5) * step / number
            place = start[:, None] + numbers * step[:, None] + inside[:, None]
        usable = (place >= -1) & (place <= size) & (sample < counts)[:, None]
        place = place.astype("float64").clip(0, size - 1)[:, :, None]
        total += xp.where(usable[:, :, None], xp.maximum(1 - abs(place - cells), 0), 0)
    return (total / xp.maximum(counts, 1)[:, None, None]).astype(dtype)


@roi_align.infer
def _(
    ctx: InferContext,
    X: TensorMeta,
    ROIs: TensorMeta,
    RoisLod: TensorMeta | None,
    *,
    spatial_scale: float,
    pooled_height: int,
    pooled_width: int,
) -> TensorMeta:
    check_regions(ctx, "X", X, ROIs)
    check_pooled(ctx, pooled_height=pooled_height, pooled_width=pooled_width, spatial_scale=spatial_scale)
    return pooled_meta(ctx, X, ROIs, X.shape[1], pooled_height, pooled_width)


@roi_align.grad(inputs="X ROIs RoisLod? Out@GRAD", outputs="X@GRAD")
def roi_align_grad(
    ctx: OpContext,
    X: Any,
    ROIs: Any,
    RoisLod: Any,
    Out_grad: Any,
    *,
    spatial_scale: float,
    pooled_height: int,
    pooled_width: int,
    sampling_ratio: int,
) -> Any:
    """Each cell of X gathers the gradients of the bins that it weighed in; ROIs get none."""
    offsets = region_offsets(ctx, ROIs, X.shape[0])
    rows, columns = weights(ctx, X, ROIs, spatial_scale, pooled_height, pooled_width, sampling_ratio)
    return spread(ctx, Out_grad, offsets, rows, columns, X.shape)
