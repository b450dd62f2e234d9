"""Regions of interest: which image each belongs to, and pooling with weights that are a product of rows and columns."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import accumulate, pairwise
from typing import Any

from fluidtool.ops.context import InferContext, OpContext
from fluidtool.ops.detection.boxes import fits
from fluidtool.ops.schema import TensorMeta
from fluidtool.shapes import shape_text


def check_regions(ctx: OpContext | InferContext, slot: str, x: Any, rois: Any, width: int = 4) -> None:
    """Fail unless the input `slot` is [N, C, H, W] and ROIs [R, width]."""
    if len(x.shape) != 4:
        raise ctx.error(f"input {slot} must be (N, C, H, W), found shape {shape_text(x.shape)}")
    if not fits(rois.shape, (-1, width)):
        raise ctx.error(
            f"input ROIs must hold {width} numbers a row, (R, {width}), found shape {shape_text(rois.shape)}"
        )


def check_pooled(ctx: OpContext | InferContext, **sizes: float) -> None:
    """Fail unless every attribute is above 0."""
    for name, value in sizes.items():
        if not value > 0:
            raise ctx.error(f"attribute {name} must be above 0, found {value}")


def pooled_meta(
    ctx: InferContext, X: TensorMeta, ROIs: TensorMeta, channels: int, height: int, width: int
) -> TensorMeta:
    """[R, channels, height, width] with the data type of X."""
    return TensorMeta((ROIs.shape[0], channels, height, width), X.dtype)


def region_offsets(ctx: OpContext, rois: Any, images: int) -> list[int]:
    """Where the regions of each image start, and the end: from the LoD of ROIs, or the input that has it.

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
    if len(offsets) - 1 != images:
        raise ctx.error(f"{source} must cover {images} images, found {len(offsets) - 1}")
    if not (offsets[0] == 0 and offsets[-1] == len(rois) and all(a <= b for a, b in pairwise(offsets))):
        raise ctx.error(f"{source} counts {offsets[-1]} regions, but ROIs holds {len(rois)}")
    return offsets


def region_images(ctx: OpContext, rois: Any, images: int) -> Any:
    """The image of each region, [R] on the device."""
    counts = ctx.np.diff(region_offsets(ctx, rois, images))
    return ctx.array(ctx.np.repeat(ctx.np.arange(images), counts))


def windows(ctx: OpContext, offsets: list[int], rows: Any, columns: Any) -> Iterator[tuple[int, int, slice, slice]]:
    """(image, region, rows, columns) of each region: the part of the map that weighs anything in it."""
    spans = []
    for weights in (rows, columns):
        used = ctx.host((weights != 0).any(axis=1))
        last = used.shape[1] - used[:, ::-1].argmax(axis=1)
        spans.append([slice(int(a), int(b)) for a, b in zip(used.argmax(axis=1), last, strict=True)])
    for image, (start, end) in enumerate(pairwise(offsets)):
        for region in range(start, end):
            yield image, region, spans[0][region], spans[1][region]


def pool(ctx: OpContext, X: Any, offsets: list[int], rows: Any, columns: Any) -> Any:
    """[R, C, P, Q]: sum over h, w of rows[r, p, h] * X[image of r, c, h, w] * columns[r, q, w]."""
    xp, channels = ctx.xp, X.shape[1]
    maps = xp.ascontiguousarray(X.transpose(0, 2, 3, 1))
    out = xp.empty((len(rows), rows.shape[1], columns.shape[1], channels), X.dtype)
    for image, region, down, across in windows(ctx, offsets, rows, columns):
        window = maps[image, down, across]
        by_row = xp.matmul(rows[region, :, down], window.reshape(len(window), -1))
        out[region] = xp.matmul(columns[region, :, across], by_row.reshape(rows.shape[1], -1, channels))
    return xp.ascontiguousarray(out.transpose(0, 3, 1, 2))


def spread(ctx: OpContext, grad: Any, offsets: list[int], rows: Any, columns: Any, shape: tuple[int, ...]) -> Any:
    """The transpose of `pool`: the gradient of X [N, C, H, W] from that of its result."""
    xp, channels = ctx.xp, shape[1]
    given = xp.ascontiguousarray(grad.transpose(0, 2, 3, 1))
    out = xp.zeros((shape[0], shape[2], shape[3], channels), grad.dtype)
    for image, region, down, across in windows(ctx, offsets, rows, columns):
        by_row = xp.matmul(columns[region, :, across].T, given[region])
        window = xp.matmul(rows[region, :, down].T, by_row.reshape(len(by_row), -1))
        out[image, down, across] += window.reshape(len(window), -1, channels)
    return xp.ascontiguousarray(out.transpose(0, 3, 1, 2))
