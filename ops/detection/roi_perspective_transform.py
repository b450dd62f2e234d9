"""roi_perspective_transform: quadrangles of a feature map straightened to rectangles."""

from __future__ import annotations

from typing import Any

from fluidtool.ops.context import InferContext, OpContext
from fluidtool.ops.detection.boxes import round_away
from fluidtool.ops.detection.regions import check_pooled, check_regions, pooled_meta, region_images
from fluidtool.ops.registry import op
from fluidtool.ops.schema import TensorMeta
from fluidtool.proto.enums import VarType
from fluidtool.records import dataclass

NEAR = 1e-4  # what Paddle takes for equal


@dataclass(frozen=True, slots=True)
class Sampling:
    """Where each output cell [R, 1, h, w] comes from: whether it does at all, its four cells and their weights."""

    matrix: Any
    usable: Any
    places: tuple[Any, ...]
    weights: tuple[Any, ...]


def transform_matrix(xp: Any, x: Any, y: Any, width: int, height: int) -> Any:
    """The perspective transforms [R, 9] from output cells to the corners x, y [R, 4], clockwise from the top left.

    The output is filled over its height, and over as much of its width as keeps the region's proportions.
    """
    x0, x1, x2, x3 = (x[:, corner] for corner in range(4))
    y0, y1, y2, y3 = (y[:, corner] for corner in range(4))
    sides = xp.sqrt((x - xp.roll(x, -1, axis=1)) ** 2 + (y - xp.roll(y, -1, axis=1)) ** 2)
    region_height, region_width = (sides[:, 1] + sides[:, 3]) / 2, (sides[:, 0] + sides[:, 2]) / 2
    last_row = max(2, height) - 1
    columns = round_away(xp, region_width * last_row / region_height) + 1
    last_column = xp.maximum(2, xp.minimum(columns, width)) - 1

    dx1, dx2, dx3 = x1 - x2, x3 - x2, x0 - x1 + x2 - x3
    dy1, dy2, dy3 = y1 - y2, y3 - y2, y0 - y1 + y2 - y3
    determinant = (dx1 * dy2 - dx2 * dy1).astype("float64") + 1e-5
    m6 = ((dx3 * dy2 - dx2 * dy3) / determinant / last_column).astype(x.dtype)
    m7 = ((dx1 * dy3 - dx3 * dy1) / determinant / last_row).astype(x.dtype)
    m3 = (y1 - y0 + m6 * last_column * y1) / last_column
    m4 = (y3 - y0 + m7 * last_row * y3) / last_row
    m0 = (x1 - x0 + m6 * last_column * x1) / last_column
    m1 = (x3 - x0 + m7 * last_row * x3) / last_row
    return xp.stack([m0, m1, x0, m3, m4, y0, m6, m7, xp.ones_like(m0)], axis=1)


def in_quadrangle(xp: Any, x: Any, y: Any, corners_x: Any, corners_y: Any) -> Any:
    """Whether points x, y [R, h, w] lie in the quadrangles [R, 4], their edges included."""
    on_edge, crossings = xp.zeros(x.shape, bool), xp.zeros(x.shape, "int64")
    for corner in range(4):
        xs, ys = (side[:, corner, None, None] for side in (corners_x, corners_y))
        xe, ye = (side[:, (corner + 1) % 4, None, None] for side in (corners_x, corners_y))
        flat = abs(ys - ye) < NEAR
        on_flat = (
            flat
            & (abs(y - ys) < NEAR)
            & (abs(y - ye) < NEAR)
            & _from(x, xp.minimum(xs, xe))
            & _from(xp.maximum(xs, xe), x)
        )
        meets = (y - ys) * (xe - xs) / xp.where(flat, 1, ye - ys) + xs
        low, high = xp.minimum(ys, ye), xp.maximum(ys, ye)
        on_edge |= on_flat | (~flat & (abs(meets - x) < NEAR) & _from(y, low) & _from(high, y))
        counted = ~flat & ~_from(low, y) & ~(y - high > NEAR)
        on_edge |= counted & (abs(meets - x) < NEAR)
        crossings += counted & (meets - x > NEAR)
    return on_edge | (crossings % 2 == 1)


def _from(a: Any, b: Any) -> Any:
    """a >= b, or as good as."""
    return (a > b) | (abs(a - b) < NEAR)


def sampling(ctx: OpContext, X: Any, ROIs: Any, scale: float, height: int, width: int) -> Sampling:
    """The transforms of all regions and what they take from X."""
    xp, dtype = ctx.xp, X.dtype
    points = (ROIs * ROIs.dtype.type(scale)).astype(dtype)
    corners_x, corners_y = points[:, 0::2], points[:, 1::2]
    matrix = transform_matrix(xp, corners_x, corners_y, width, height)
    m = [matrix[:, place, None, None] for place in range(9)]
    column, row = xp.arange(width, dtype=dtype), xp.arange(height, dtype=dtype)[:, None]
    divisor = m[6] * column + m[7] * row + m[8]
    x = (m[0] * column + m[1] * row + m[2]) / divisor
    y = (m[3] * column + m[4] * row + m[5]) / divisor
    usable = in_quadrangle(xp, x, y, corners_x, corners_y)
    for place, size in ((x, X.shape[3]), (y, X.shape[2])):
        usable &= ~(_from(dtype.type(-0.5), place) | _from(place, dtype.type(size - 0.5)))
    x, x_floor, x_ceil = neighbors(xp, xp.where(usable, x, 0), X.shape[3])
    y, y_floor, y_ceil = neighbors(xp, xp.where(usable, y, 0), X.shape[2])
    image = region_images(ctx, ROIs, X.shape[0])[:, None, None, None]
    plane = (image * X.shape[1] + xp.arange(X.shape[1])[:, None, None]) * X.shape[2]
    cells = ((y_floor, x_floor), (y_ceil, x_floor), (y_ceil, x_ceil), (y_floor, x_ceil))
    places = tuple((plane + y_cell[:, None]) * X.shape[3] + x_cell[:, None] for y_cell, x_cell in cells)
    dx, dy = (x - x_floor)[:, None].astype(dtype), (y - y_floor)[:, None].astype(dtype)
    weights = ((1 - dx) * (1 - dy), (1 - dx) * dy, dx * dy, dx * (1 - dy))
    return Sampling(matrix, usable[:, None], places, weights)


def neighbors(xp: Any, place: Any, size: int) -> tuple[Any, Any, Any]:
    """The place moved into the map, and the cells before and after it."""
    place = xp.where(_from(0, place), 0, place)
    floor = xp.floor(place).astype("int64")
    last = floor >= size - 1
    floor = xp.minimum(floor, size - 1)
    return xp.where(last, floor, place), floor, xp.where(last, floor, floor + 1)


@op(
    "roi_perspective_transform",
    inputs="X ROIs",
    outputs="Out Mask TransformMatrix Out2InIdx~ Out2InWeights~",
    attrs={"spatial_scale": 1.0, "transformed_height": 1, "transformed_width": 1},
    lod="ROIs->Out",
)
def roi_perspective_transform(
    ctx: OpContext, X: Any, ROIs: Any, *, spatial_scale: float, transformed_height: int, transformed_width: int
) -> dict[str, Any]:
    """Out [R, C, transformed_height, transformed_width] of X [N, C, H, W] for quadrangles ROIs [R, 8] with a LoD.

    Mask [R, 1, h, w] int32 tells which cells lie in region and map, TransformMatrix [R, 9] the transforms. Out2InIdx and
    Out2InWeights stay without memory, as on Paddle's CPU (Paddle 1.8.5 roi_perspective_transform_op.cc).
    """
    _check(ctx, X, ROIs, spatial_scale, transformed_height, transformed_width)
    found = sampling(ctx, X, ROIs, spatial_scale, transformed_height, transformed_width)
    flat = X.reshape(-1)
    value = sum(weight * flat[place] for place, weight in zip(found.places, found.weights, strict=True))
    out = ctx.xp.where(found.usable, value, 0)
    return {
        "Out": out,
        "Mask": found.usable.astype("int32"),
        "TransformMatrix": found.matrix,
        "Out2InIdx": ctx.dims_only(out.shape),
        "Out2InWeights": ctx.dims_only(out.shape),
    }


def _check(ctx: OpContext | InferContext, x: Any, rois: Any, scale: float, height: int, width: int) -> None:
    check_regions(ctx, "X", x, rois, width=8)
    check_pooled(ctx, transformed_height=height, transformed_width=width, spatial_scale=scale)


@roi_perspective_transform.infer
def _(
    ctx: InferContext,
    X: TensorMeta,
    ROIs: TensorMeta,
    *,
    spatial_scale: float,
    transformed_height: int,
    transformed_width: int,
) -> dict[str, TensorMeta]:
    _check(ctx, X, ROIs, spatial_scale, transformed_height, transformed_width)
    out = pooled_meta(ctx, X, ROIs, X.shape[1], transformed_height, transformed_width)
    return {
        "Out": out.with_lod_level(ROIs.lod_level),
        "Mask": TensorMeta((out.shape[0], 1, *out.shape[2:]), VarType.INT32),
        "TransformMatrix": TensorMeta((out.shape[0], 9), X.dtype),
        "Out2InIdx": out.with_dtype(VarType.INT32),
        "Out2InWeights": out,
    }


@roi_perspective_transform.grad(inputs="X ROIs Out2InIdx Out2InWeights Out@GRAD", outputs="X@GRAD")
def roi_perspective_transform_grad(
    ctx: OpContext,
    X: Any,
    ROIs: Any,
    Out2InIdx: Any,
    Out2InWeights: Any,
    Out_grad: Any,
    *,
    spatial_scale: float,
    transformed_height: int,
    transformed_width: int,
) -> Any:
    """Each output cell gives its gradient to the four cells that it was made of."""
    xp = ctx.xp
    found = sampling(ctx, X, ROIs, spatial_scale, transformed_height, transformed_width)
    given = xp.where(found.usable, Out_grad, 0).astype("float64")
    total = xp.zeros(X.size)
    for place, weight in zip(found.places, found.weights, strict=True):
        total = total + ctx.sums_at(place.reshape(-1), (given * weight).reshape(-1), X.size)
    return total.astype(X.dtype).reshape(X.shape)
