"""Arithmetic on boxes [xmin, ymin, xmax, ymax] (the last axis) that detection operators share; it broadcasts.

The order of the operations is Paddle's, so float32 results agree to the last bit. Extent of a box: max − min, plus one
pixel where coordinates are those of pixels (`pixel` is 1 then, else 0).
"""

from __future__ import annotations

from typing import Any

from fluidtool.ops.context import InferContext, OpContext
from fluidtool.shapes import shape_text


def fits(found: Any, expected: Any) -> bool:
    """Whether a shape is as expected; -1 on either side goes with any size."""
    return len(found) == len(expected) and all(a == b or -1 in (a, b) for a, b in zip(found, expected, strict=True))


def check_boxes(ctx: OpContext | InferContext, slot: str, boxes: Any, width: int = 4) -> None:
    """Fail unless `boxes` (array or TensorMeta) is [N, width]."""
    shape = tuple(boxes.shape)
    if not fits(shape, (-1, width)):
        raise ctx.error(
            f"input {slot} must hold one box of {width} numbers a row, (N, {width}), found shape {shape_text(shape)}"
        )


def check_info(ctx: OpContext | InferContext, info: Any) -> None:
    """Fail unless the input ImInfo is [N, 3]."""
    if not fits(info.shape, (-1, 3)):
        raise ctx.error(
            f"input ImInfo must be (N, 3), rows of height, width and scale, found shape {shape_text(info.shape)}"
        )


def corners(boxes: Any) -> tuple[Any, Any, Any, Any]:
    """xmin, ymin, xmax, ymax."""
    return boxes[..., 0], boxes[..., 1], boxes[..., 2], boxes[..., 3]


def exp(xp: Any, values: Any) -> Any:
    """e to the values, correctly rounded like C's expf; numpy's in float32 may be off by two units."""
    return xp.exp(values.astype("float64")).astype(values.dtype)


def log(xp: Any, values: Any) -> Any:
    """The natural logarithm, correctly rounded."""
    return xp.log(values.astype("float64")).astype(values.dtype)


def round_away(xp: Any, values: Any) -> Any:
    """Rounded to whole numbers, halves away from zero (C's round; numpy rounds halves to even)."""
    whole = xp.trunc(values)
    return whole + xp.copysign((abs(values - whole) >= 0.5).astype(values.dtype), values)


def area_or_zero(xp: Any, boxes: Any, pixel: int) -> Any:
    """Areas; 0 for a box whose maximum lies below its minimum (Paddle's BBoxArea)."""
    xmin, ymin, xmax, ymax = corners(boxes)
    width, height = xmax - xmin, ymax - ymin
    area = (width + 1) * (height + 1) if pixel else width * height
    return xp.where((xmax < xmin) | (ymax < ymin), xp.zeros_like(area), area)


def jaccard(xp: Any, first: Any, second: Any, pixel: int) -> Any:
    """Overlap divided by union; 0 where boxes do not touch (Paddle's JaccardOverlap of the suppression operators).

    Of a NaN and a number C++ takes the first box's.
    """

    def least(a: Any, b: Any) -> Any:
        return xp.where(b < a, b, a)

    def greatest(a: Any, b: Any) -> Any:
        return xp.where(b > a, b, a)

    xmin1, ymin1, xmax1, ymax1 = corners(first)
    xmin2, ymin2, xmax2, ymax2 = corners(second)
    apart = (xmin2 > xmax1) | (xmax2 < xmin1) | (ymin2 > ymax1) | (ymax2 < ymin1)
    width = least(xmax1, xmax2) - greatest(xmin1, xmin2) + pixel
    height = least(ymax1, ymax2) - greatest(ymin1, ymin2) + pixel
    inter = xp.where(apart, 0, width * height)
    union = area_or_zero(xp, first, pixel) + area_or_zero(xp, second, pixel) - inter
    return xp.where(apart, 0, inter / xp.where(apart, 1, union))


def pixel_overlaps(xp: Any, rows: Any, columns: Any) -> Any:
    """IoU [R, C] of boxes in pixels, [R, 4] against [C, 4]; 0 without overlap (Paddle's BboxOverlaps)."""
    xmin1, ymin1, xmax1, ymax1 = (side[:, None] for side in corners(rows))
    xmin2, ymin2, xmax2, ymax2 = corners(columns)
    areas1 = (xmax1 - xmin1 + 1) * (ymax1 - ymin1 + 1)
    areas2 = (xmax2 - xmin2 + 1) * (ymax2 - ymin2 + 1)
    width = xp.maximum(xp.minimum(xmax1, xmax2) - xp.maximum(xmin1, xmin2) + 1, 0)
    height = xp.maximum(xp.minimum(ymax1, ymax2) - xp.maximum(ymin1, ymin2) + 1, 0)
    inter = width * height
    union = areas1 + areas2 - inter
    return xp.where(inter == 0, 0, inter / xp.where(inter == 0, 1, union))


def pixel_deltas(xp: Any, boxes: Any, targets: Any) -> Any:
    """Offsets of centers and logarithms of sizes that move `boxes` onto `targets`, both [N, 4] in pixels (BoxToDelta)."""
    center_x, center_y, width, height = center_form(boxes, 1)
    target_x, target_y, target_width, target_height = center_form(targets, 1)
    deltas = (
        (target_x - center_x) / width,
        (target_y - center_y) / height,
        log(xp, target_width / width),
        log(xp, target_height / height),
    )
    return xp.stack(deltas, axis=-1)


def center_form(boxes: Any, pixel: int) -> tuple[Any, Any, Any, Any]:
    """Center x and y, width, height."""
    xmin, ymin, xmax, ymax = corners(boxes)
    width, height = xmax - xmin + pixel, ymax - ymin + pixel
    return xmin + width * 0.5, ymin + height * 0.5, width, height


def corner_form(xp: Any, center_x: Any, center_y: Any, width: Any, height: Any, pixel: int) -> Any:
    """Boxes [..., 4] from centers and sizes; the inverse of `center_form`."""
    half_width, half_height = width / 2, height / 2
    sides = (center_x - half_width, center_y - half_height, center_x + half_width, center_y + half_height)
    return xp.stack((sides[0], sides[1], sides[2] - pixel, sides[3] - pixel), axis=-1)
