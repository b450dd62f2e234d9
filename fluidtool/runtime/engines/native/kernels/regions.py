"""roi_align and roi_pool: the maps in blocks of channels, a part of the regions on every thread."""

from __future__ import annotations

from typing import Any

import numpy as np

from fluidtool.ops.context import OpContext
from fluidtool.ops.detection.regions import check_pooled, check_regions, region_images
from fluidtool.ops.detection.roi_align import is_aligned, sides_of
from fluidtool.ops.detection.roi_pool import edges_of
from fluidtool.ops.math.versions import saved_since
from fluidtool.runtime.engines.native.calls import Kind
from fluidtool.runtime.engines.native.kernels.direct import Array, are_floats, in_rows, run_step
from fluidtool.runtime.engines.native.kernels.extents import ROWS
from fluidtool.runtime.engines.native.library import Library

CELL = 6  # floats that what is known of a bin takes, an address and two numbers


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
    """What fluidtool.ops.detection.roi_align does, to the rounding of float32; not for regions without end."""
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
    sizes = dict(enumerate((len(ROIs), channels, height, width, pooled_height, pooled_width, sampling_ratio)))
    sizes |= {7: int(is_aligned(ctx)), 8: int(saved_since(ctx, 2, 0)), 9: memory, ROWS: len(X)}
    arrays = (blocks_of(library, X), in_rows(sides), np.empty(tasks * memory // 2, np.float64), out, None, image)
    run_step(library, Kind.ALIGN_REGIONS, arrays, sizes, tasks)
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
    """What fluidtool.ops.detection.roi_pool does."""
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
    sizes = dict(enumerate((len(ROIs), channels, height, width, pooled_height, pooled_width))) | {ROWS: len(X)}
    run_step(library, Kind.POOL_REGIONS, (blocks_of(library, X), None, memory, out, places, table), sizes, tasks)
    return {"Out": out, "Argmax": places}


def task_count(library: Library, regions: int) -> int:
    """How many tasks the regions are cut into."""
    return min(regions, 4 * library.threads) if library.threads > 1 else 1


def blocks_of(library: Library, x: Any) -> Array:
    """Maps [N, C, H, W] with their channels in blocks."""
    images, channels, height, width = x.shape
    lanes, blocks = library.width, -(-channels // library.width)
    out = np.empty((images, blocks, height, width, lanes), np.float32)
    strides = (out[0].size, out[0, 0].size, width * lanes)
    sizes = dict(enumerate((images, channels, height, width, *strides, blocks, lanes)))
    run_step(
        library, Kind.BLOCK, (in_rows(x), None, None, out), sizes, min(images * blocks * height, 4 * library.threads)
    )
    return out
