"""prroi_pool: the exact mean over every bin of a region of X taken as a bilinear surface (Precise RoI Pooling)."""

from __future__ import annotations

from typing import Any

from fluidtool.ops.context import InferContext, OpContext
from fluidtool.ops.detection.regions import check_pooled, check_regions, pool, pooled_meta, region_offsets, spread
from fluidtool.ops.registry import op
from fluidtool.ops.schema import TensorMeta


@op(
    "prroi_pool",
    inputs="X ROIs BatchRoINums?",
    outputs="Out",
    attrs={"spatial_scale": 1.0, "pooled_height": 1, "pooled_width": 1},
)
def prroi_pool(
    ctx: OpContext, X: Any, ROIs: Any, BatchRoINums: Any, *, spatial_scale: float, pooled_height: int, pooled_width: int
) -> Any:
    """[R, C, pooled_height, pooled_width] of X [N, C, H, W] for ROIs [R, 4] in pixels of the image; floating point.

    Outside X the surface falls to 0. Empty regions give 0. Images of regions come from BatchRoINums (counts), else from
    the LoD of ROIs (Paddle 1.8.5 prroi_pool_op.h).
    """
    _check(ctx, X, ROIs, spatial_scale, pooled_height, pooled_width)
    offsets = region_offsets(ctx, ROIs, X.shape[0])
    rows, columns = weights(ctx, X, ROIs, spatial_scale, pooled_height, pooled_width)
    return pool(ctx, X, offsets, rows, columns)


class Bins:
    """The bins of all regions along one axis: ends in cells, extent, and the weights that follow from them."""

    def __init__(self, xp: Any, start: Any, end: Any, count: int, size: int) -> None:
        self.xp, self.cells = xp, xp.arange(size, dtype="float64")
        self.extent = xp.maximum(end - start, 0)[:, None] / count
        self.start = start[:, None] + self.extent * xp.arange(count)
        self.end = self.start + self.extent

    def near(self, place: Any) -> Any:
        """How much each cell counts at a place [R, bins]: 1 there, falling to 0 one cell away; [R, bins, size]."""
        return self.xp.maximum(1 - abs(place[:, :, None] - self.cells), 0)

    def integral(self) -> Any:
        """`near` integrated over each bin."""
        return self._up_to(self.end) - self._up_to(self.start)

    def _up_to(self, place: Any) -> Any:
        t = (place[:, :, None] - self.cells).clip(-1, 1)
        return self.xp.where(t < 0, (t + 1) ** 2 / 2, 1 - (1 - t) ** 2 / 2)


def bins_of(ctx: OpContext, X: Any, ROIs: Any, scale: float, height: int, width: int) -> tuple[Bins, Bins]:
    """The bins along y and along x."""
    sides = (ROIs * ROIs.dtype.type(scale)).astype("float64")
    down = Bins(ctx.xp, sides[:, 1], sides[:, 3], height, X.shape[2])
    across = Bins(ctx.xp, sides[:, 0], sides[:, 2], width, X.shape[3])
    return down, across


def inverse(xp: Any, extent: Any) -> Any:
    """1 / extent, 0 for bins without any; [R, 1, 1]."""
    return xp.where(extent > 0, 1 / xp.where(extent > 0, extent, 1), 0)[:, :, None]


def weights(ctx: OpContext, X: Any, ROIs: Any, scale: float, height: int, width: int) -> tuple[Any, Any]:
    """What each row and each column of X weighs in each bin: [R, height, H] and [R, width, W]."""
    xp = ctx.xp
    down, across = bins_of(ctx, X, ROIs, scale, height, width)
    rows = down.integral() * inverse(xp, down.extent)
    columns = across.integral() * inverse(xp, across.extent)
    return rows.astype(X.dtype), columns.astype(X.dtype)


def _check(ctx: OpContext | InferContext, x: Any, rois: Any, scale: float, height: int, width: int) -> None:
    check_regions(ctx, "X", x, rois)
    check_pooled(ctx, pooled_height=height, pooled_width=width, spatial_scale=scale)


@prroi_pool.infer
def _(
    ctx: InferContext,
    X: TensorMeta,
    ROIs: TensorMeta,
    BatchRoINums: TensorMeta | None,
    *,
    spatial_scale: float,
    pooled_height: int,
    pooled_width: int,
) -> TensorMeta:
    _check(ctx, X, ROIs, spatial_scale, pooled_height, pooled_width)
    return pooled_meta(ctx, X, ROIs, X.shape[1], pooled_height, pooled_width)


@prroi_pool.grad(inputs="X ROIs BatchRoINums? Out Out@GRAD", outputs="X@GRAD ROIs@GRAD")
def prroi_pool_grad(
    ctx: OpContext,
    X: Any,
    ROIs: Any,
    BatchRoINums: Any,
    Out: Any,
    Out_grad: Any,
    *,
    spatial_scale: float,
    pooled_height: int,
    pooled_width: int,
) -> dict[str, Any]:
    """Gradients of X and of the corners of ROIs; regions without area get none."""
    offsets = region_offsets(ctx, ROIs, X.shape[0])
    rows, columns = weights(ctx, X, ROIs, spatial_scale, pooled_height, pooled_width)
    grads = {"X@GRAD": spread(ctx, Out_grad, offsets, rows, columns, X.shape)}
    if ctx.wants("ROIs@GRAD"):
        down, across = bins_of(ctx, X, ROIs, spatial_scale, pooled_height, pooled_width)
        y = corner_grads(ctx, X, offsets, Out, Out_grad, down, (None, columns), 2)
        x = corner_grads(ctx, X, offsets, Out, Out_grad, across, (rows, None), 3)
        grads["ROIs@GRAD"] = ctx.xp.stack([x[0], y[0], x[1], y[1]], axis=1) * X.dtype.type(spatial_scale)
    return grads


def corner_grads(
    ctx: OpContext, X: Any, offsets: list[int], Out: Any, Out_grad: Any, bins: Bins, other: tuple[Any, Any], axis: int
) -> tuple[Any, Any]:
    """Gradients [R] of the start and the end of regions along one axis of the output (2 is y, 3 is x).

    A mean changes with the end of its bin by (surface at the end − mean) / extent, with the start by the opposite; an
    edge of a bin moves with the region's edges in proportion.
    """
    xp, dtype = ctx.xp, X.dtype
    scale = inverse(xp, bins.extent)
    means = []
    for place in (bins.start, bins.end):
        edge = bins.near(place).astype(dtype)
        rows, columns = (edge if weight is None else weight for weight in other)
        means.append(pool(ctx, X, offsets, rows, columns))
    shape = (len(Out), 1, 1, 1)
    by_start = (Out - means[0]) * scale.reshape(shape) * Out_grad
    by_end = (means[1] - Out) * scale.reshape(shape) * Out_grad
    others = tuple(a for a in (1, 2, 3) if a != axis)
    by_start, by_end = by_start.sum(axis=others), by_end.sum(axis=others)
    count = by_start.shape[1]
    share = xp.arange(count + 1) / count
    end = by_start * share[:-1] + by_end * share[1:]
    start = by_start * (1 - share[:-1]) + by_end * (1 - share[1:])
    return start.sum(axis=1).astype(dtype), end.sum(axis=1).astype(dtype)
