"""Regions of interest: which image each belongs to, and pooling with weights that are a product of rows and columns."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import accumulate, pairwise
from typing import Any

from fluidtool.ops.context import InferContext, OpContext
from fluidtool.ops.schema import TensorMeta

CHUNK = 1 << 24  # numbers held at once between the two halves of a pooling


def check_regions(ctx: OpContext | InferContext, slot: str, x: Any, rois: Any, width: int = 4) -> None:
    """Fail unless the input `slot` is [N, C, H, W] and ROIs [R, width]."""
    ctx.require(len(x.shape) == 4, f"input {slot} must be [N, C, H, W], found shape {tuple(x.shape)}")
    ctx.require(
        len(rois.shape) == 2 and rois.shape[1] in (width, -1),
        f"input ROIs must hold {width} numbers a row, [R, {width}], found shape {tuple(rois.shape)}",
    )


def check_pooled(ctx: OpContext | InferContext, **sizes: float) -> None:
    """Fail unless every attribute is above 0."""
    for name, value in sizes.items():
        ctx.require(value > 0, f"attribute {name} must be above 0, found {value}")


def pooled_meta(
    ctx: InferContext, X: TensorMeta, ROIs: TensorMeta, channels: int, height: int, width: int
) -> TensorMeta:
    """[R, channels, height, width] with the data type of X."""
    return TensorMeta((ROIs.shape[0], channels, height, width), X.dtype)


def region_offsets(ctx: OpContext, rois: Any, images: int) -> list[int]:
    """Where the regions of each image start, and the end: from the LoD of ROIs, or the input that says it.

    BatchRoINums and RoisNum (Paddle 2.x) hold counts, RoisLod offsets. Fails when they do not fit the images or ROIs.
    """
    source = "the LoD of ROIs"
    for slot in ("RoisNum", "BatchRoINums", "RoisLod"):
        if ctx.has(slot):
            numbers = ctx.host(ctx.value(slot).array).reshape(-1).tolist()
            source, offsets = f"input {slot}", numbers if slot == "RoisLod" else list(accumulate(numbers, initial=0))
            break
    else:
        offsets = ctx.sequences("ROIs")
    ctx.require(
        len(offsets) - 1 == images,
        f"{source} must tell the regions of {images} images, found those of {len(offsets) - 1}",
    )
    ctx.require(
        offsets[0] == 0 and offsets[-1] == len(rois) and all(a <= b for a, b in pairwise(offsets)),
        f"{source} counts {offsets[-1]} regions, but ROIs holds {len(rois)}",
    )
    return offsets


def region_images(ctx: OpContext, rois: Any, images: int) -> Any:
    """The image of each region, [R] on the device."""
    counts = ctx.np.diff(region_offsets(ctx, rois, images))
    return ctx.array(ctx.np.repeat(ctx.np.arange(images), counts))


def chunks(offsets: list[int], cost: int) -> Iterator[tuple[int, slice]]:
    """(image, regions) such that one piece of work, `cost` numbers a region, stays below CHUNK."""
    step = max(1, CHUNK // max(cost, 1))
    for image, (start, end) in enumerate(pairwise(offsets)):
        for first in range(start, end, step):
            yield image, slice(first, min(first + step, end))


def pool(xp: Any, X: Any, offsets: list[int], rows: Any, columns: Any) -> Any:
    """[R, C, P, Q]: sum over h, w of rows[r, p, h] * X[image of r, c, h, w] * columns[r, q, w]."""
    channels, width = X.shape[1], X.shape[3]
    regions, height, _ = rows.shape
    out = xp.zeros((regions, channels, height, columns.shape[1]), X.dtype)
    for image, some in chunks(offsets, height * channels * width):
        by_row = xp.tensordot(rows[some], X[image], axes=((2,), (1,)))
        flat = by_row.reshape(len(by_row), height * channels, width)
        pooled = xp.matmul(flat, columns[some].transpose(0, 2, 1))
        out[some] = pooled.reshape(len(by_row), height, channels, -1).transpose(0, 2, 1, 3)
    return out


def spread(xp: Any, grad: Any, offsets: list[int], rows: Any, columns: Any, shape: tuple[int, ...]) -> Any:
    """The transpose of `pool`: the gradient of X [N, C, H, W] from that of its result."""
    channels, width = shape[1], shape[3]
    height = rows.shape[1]
    out = xp.zeros(shape, grad.dtype)
    for image, some in chunks(offsets, height * channels * width):
        flat = grad[some].transpose(0, 2, 1, 3)
        flat = flat.reshape(len(flat), height * channels, -1)
        by_row = xp.matmul(flat, columns[some]).reshape(len(flat), height, channels, width)
        out[image] += xp.tensordot(rows[some], by_row, axes=((0, 1), (0, 1))).transpose(1, 0, 2)
    return out
