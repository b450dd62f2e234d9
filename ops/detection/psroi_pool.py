"""psroi_pool: the mean over every bin of a region, each bin from separate channels (R-FCN)."""

from __future__ import annotations

from itertools import pairwise, starmap
from typing import Any

from fluidtool.ops.context import InferContext, OpContext
from fluidtool.ops.detection.boxes import round_away
from fluidtool.ops.detection.regions import check_pooled, check_regions, pooled_meta, region_offsets
from fluidtool.ops.registry import op
from fluidtool.ops.schema import INT, TensorMeta, required
from fluidtool.shapes import shape_text

ATTRS: dict[str, Any] = {
    "output_channels": required(INT),
    "spatial_scale": 1.0,
    "pooled_height": 1,
    "pooled_width": 1,
}


@op("psroi_pool", inputs="X ROIs", outputs="Out", attrs=ATTRS)
def psroi_pool(
    ctx: OpContext,
    X: Any,
    ROIs: Any,
    *,
    output_channels: int,
    spatial_scale: float,
    pooled_height: int,
    pooled_width: int,
) -> Any:
    """[R, output_channels, pooled_height, pooled_width]: bin p, q of channel c is the mean of X's channel (c, p, q).

    X is [N, output_channels * pooled_height * pooled_width, H, W], ROIs [R, 4] are pixels of the image and have a LoD
    (in Paddle 2.x RoisNum may tell the counts instead). Bins without cells give 0 (Paddle 1.8.5 psroi_pool_op.h).
    """
    _check(ctx, X, ROIs, output_channels, spatial_scale, pooled_height, pooled_width)
    xp = ctx.xp
    offsets = region_offsets(ctx, ROIs, X.shape[0])
    rows, columns, scale = masks(xp, X, ROIs, spatial_scale, pooled_height, pooled_width)
    split = X.reshape(X.shape[0], output_channels, pooled_height, pooled_width, *X.shape[2:])
    out = xp.zeros((len(ROIs), output_channels, pooled_height, pooled_width), X.dtype)
    for image, some in enumerate(starmap(slice, pairwise(offsets))):
        for p in range(pooled_height):
            by_row = xp.tensordot(rows[some, p], split[image, :, p], axes=((1,), (2,)))
            out[some, :, p] = (by_row * columns[some, None]).sum(axis=-1)
    return out * scale[:, None]


def masks(xp: Any, X: Any, ROIs: Any, spatial_scale: float, height: int, width: int) -> tuple[Any, Any, Any]:
    """Which rows [R, P, H] and columns [R, Q, W] of X lie in each bin (1 or 0), and 1 / cells of the bin [R, P, Q]."""
    sides = round_away(xp, ROIs).astype(X.dtype)
    number = X.dtype.type(spatial_scale)
    rows = mask(xp, sides[:, 1] * number, (sides[:, 3] + 1) * number, height, X.shape[2])
    columns = mask(xp, sides[:, 0] * number, (sides[:, 2] + 1) * number, width, X.shape[3])
    cells = rows.sum(axis=2)[:, :, None] * columns.sum(axis=2)[:, None, :]
    return rows, columns, xp.where(cells > 0, 1 / xp.maximum(cells, 1), 0)


def mask(xp: Any, start: Any, end: Any, bins: int, size: int) -> Any:
    """1 for the cells [R, bins, size] of each bin of the regions start … end [R], else 0."""
    step = (xp.maximum(end - start, start.dtype.type(0.1)) / bins)[:, None]
    numbers = xp.arange(bins + 1, dtype=start.dtype)
    first = xp.floor(numbers[:-1] * step + start[:, None])[:, :, None]
    last = xp.ceil(numbers[1:] * step + start[:, None])[:, :, None]
    cells = xp.arange(size, dtype=start.dtype)
    return ((cells >= first) & (cells < last)).astype(start.dtype)


def _check(
    ctx: OpContext | InferContext, x: Any, rois: Any, channels: int, scale: float, height: int, width: int
) -> None:
    check_regions(ctx, "X", x, rois)
    check_pooled(ctx, output_channels=channels, pooled_height=height, pooled_width=width, spatial_scale=scale)
    if x.shape[1] not in (channels * height * width, -1):
        raise ctx.error(
            f"input X must have output_channels * pooled_height * pooled_width = {channels * height * width} channels, "
            f"found shape {shape_text(x.shape)}"
        )


@psroi_pool.infer
def _(
    ctx: InferContext,
    X: TensorMeta,
    ROIs: TensorMeta,
    *,
    output_channels: int,
    spatial_scale: float,
    pooled_height: int,
    pooled_width: int,
) -> TensorMeta:
    _check(ctx, X, ROIs, output_channels, spatial_scale, pooled_height, pooled_width)
    return pooled_meta(ctx, X, ROIs, output_channels, pooled_height, pooled_width)


@psroi_pool.grad(inputs="X ROIs Out@GRAD", outputs="X@GRAD")
def psroi_pool_grad(
    ctx: OpContext,
    X: Any,
    ROIs: Any,
    Out_grad: Any,
    *,
    output_channels: int,
    spatial_scale: float,
    pooled_height: int,
    pooled_width: int,
) -> Any:
    """The gradient of each bin is shared equally by its cells."""
    xp = ctx.xp
    offsets = region_offsets(ctx, ROIs, X.shape[0])
    rows, columns, scale = masks(xp, X, ROIs, spatial_scale, pooled_height, pooled_width)
    share = Out_grad * scale[:, None]
    out = xp.zeros((X.shape[0], output_channels, pooled_height, pooled_width, *X.shape[2:]), Out_grad.dtype)
    for image, some in enumerate(starmap(slice, pairwise(offsets))):
        for p in range(pooled_height):
            by_row = share[some, :, p, :, None] * columns[some, None]
            out[image, :, p] += xp.moveaxis(xp.tensordot(rows[some, p], by_row, axes=((0,), (0,))), 0, 2)
    return out.reshape(X.shape)
