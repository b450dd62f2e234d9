"""roi_align and roi_pool: the maps in blocks of channels, the regions split over threads."""

from __future__ import annotations

from typing import Any

import numpy as np

from fluidtool.ops.context import OpContext
from fluidtool.ops.detection.regions import check_pooled, check_regions, region_images
from fluidtool.ops.detection.roi_align import is_aligned, sides_of
from fluidtool.ops.detection.roi_pool import edges_of
from fluidtool.ops.math.versions import saved_since
from fluidtool.runtime.engines.native import abi
from fluidtool.runtime.engines.native.kernels.direct import Array, are_floats, in_rows, run_call
from fluidtool.runtime.engines.native.library import Library

CELL = 6  # floats per bin: an address and two numbers


def roi_align(
    library: Library,
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
    """fluidtool.ops.detection.roi_align, to the rounding of float32; not for infinite regions."""
    if not are_floats(X, ROIs):
        return NotImplemented
    check_regions(ctx, "X", X, ROIs)
    check_pooled(ctx, pooled_height=pooled_height, pooled_width=pooled_width, spatial_scale=spatial_scale)
    image, sides = region_images(ctx, ROIs, X.shape[0]), sides_of(ctx, X, ROIs, spatial_scale)
    if not X.size or not len(ROIs) or not np.isfinite(sides).all():
        return NotImplemented
    (_, channels, height, width), width_of_vector = X.shape, library.width
    memory = CELL * (pooled_height + pooled_width) + 2 * max(height, width) + pooled_height * height
    memory += pooled_width * width + (width + pooled_height * pooled_width) * width_of_vector
    memory += memory % 2  # every task's starts at a double
    tasks = task_count(library, len(ROIs))
    out = np.empty((len(ROIs), channels, pooled_height, pooled_width), np.float32)
    arguments = abi.AlignRegions(
        source=blocks_of(library, X), regions=in_rows(sides), scratch=np.empty(tasks * memory // 2, np.float64), out=out,
        region_images=image, region_count=len(ROIs), channels=channels, source_height=height, source_width=width,
        bins_h=pooled_height, bins_w=pooled_width, samples=sampling_ratio, aligned=int(is_aligned(ctx)),
        later=int(saved_since(ctx, 2, 0)), task_scratch=memory, images=len(X),
    )  # fmt: skip
    run_call(library, arguments, tasks)
    return out


def roi_pool(
    library: Library,
    ctx: OpContext,
    X: Any,
    ROIs: Any,
    RoisLod: Any,
    *,
    spatial_scale: float,
    pooled_height: int,
    pooled_width: int,
) -> Any:
    """fluidtool.ops.detection.roi_pool."""
    if not are_floats(X, ROIs):
        return NotImplemented
    check_regions(ctx, "X", X, ROIs)
    check_pooled(ctx, pooled_height=pooled_height, pooled_width=pooled_width, spatial_scale=spatial_scale)
    image = region_images(ctx, ROIs, X.shape[0])
    if not X.size or not len(ROIs) or X.shape[2] * X.shape[3] >= 1 << 31:
        return NotImplemented
    _, channels, height, width = X.shape
    edges = edges_of(ctx, X, ROIs, spatial_scale, pooled_height, pooled_width)
    out = np.empty((len(ROIs), channels, pooled_height, pooled_width), np.float32)
    places = np.empty(out.shape, np.int64) if ctx.wants("Argmax") else None
    tasks = task_count(library, len(ROIs))
    memory = np.empty(tasks * 2 * pooled_height * pooled_width * library.width, np.float32)
    table = np.concatenate([image[:, None], *edges], axis=1).astype(np.int64)
    arguments = abi.PoolRegions(
        source=blocks_of(library, X), scratch=memory, out=out, places=places, edges=table, region_count=len(ROIs),
        channels=channels, source_height=height, source_width=width, bins_h=pooled_height, bins_w=pooled_width,
        images=len(X),
    )  # fmt: skip
    run_call(library, arguments, tasks)
    return {"Out": out, "Argmax": places}


def task_count(library: Library, regions: int) -> int:
    """The number of tasks for the regions."""
    return min(regions, 4 * library.threads) if library.threads > 1 else 1


def blocks_of(library: Library, x: Any) -> Array:
    """Maps [N, C, H, W] with their channels in blocks."""
    images, channels, height, width = x.shape
    lanes, blocks = library.width, -(-channels // library.width)
    out = np.empty((images, blocks, height, width, lanes), np.float32)
    arguments = abi.Block(
        source=in_rows(x), out=out, images=images, channels=channels, rows=height, columns=width, out_image=out[0].size,
        out_block=out[0, 0].size, out_row=width * lanes, blocks=blocks, lanes=lanes,
    )  # fmt: skip
    run_call(library, arguments, min(images * blocks * height, 4 * library.threads))
    return out
