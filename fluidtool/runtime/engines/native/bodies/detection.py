"""The suppression of multiclass_nms and its successors: the greedy loop over the boxes of a class."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from fluidtool.ops.context import OpContext
from fluidtool.ops.detection.multiclass_nms import detections, detections_and_counts, detections_and_index
from fluidtool.ops.detection.suppression import Overlap, suppress
from fluidtool.runtime.engines.native.bodies.calls import are_floats, in_rows, run_step
from fluidtool.runtime.engines.native.library import Library
from fluidtool.runtime.engines.native.steps import Kind


def multiclass_nms(library: Library, ctx: OpContext, BBoxes: Any, Scores: Any) -> Any:
    """What fluidtool.ops.detection.multiclass_nms does with boxes of float32."""
    if not are_floats(BBoxes, Scores) or BBoxes.shape[-1] != 4:
        return NotImplemented
    return detections(ctx, BBoxes, Scores, keeping(library, ctx))


def multiclass_nms2(library: Library, ctx: OpContext, BBoxes: Any, Scores: Any) -> Any:
    """The same with indices."""
    if not are_floats(BBoxes, Scores) or BBoxes.shape[-1] != 4:
        return NotImplemented
    return detections_and_index(ctx, BBoxes, Scores, keeping(library, ctx))


def multiclass_nms3(library: Library, ctx: OpContext, BBoxes: Any, Scores: Any, RoisNum: Any) -> Any:
    """The same with indices and counts."""
    if not are_floats(BBoxes, Scores) or BBoxes.shape[-1] != 4:
        return NotImplemented
    return detections_and_counts(ctx, BBoxes, Scores, RoisNum, keeping(library, ctx))


def keeping(library: Library, ctx: OpContext) -> Any:
    """The library in the place of `suppress`."""
    return partial(native_suppress, library, 0.0 if ctx.attr("normalized") else 1.0)


def native_suppress(
    library: Library, pixel: float, xp: Any, boxes: Any, overlap: Overlap, threshold: float, eta: float = 1.0
) -> Any:
    """Positions of the boxes [N, 4] that stay, as `suppress` finds them; NaN as threshold is left to that."""
    if threshold != threshold or not len(boxes):
        return suppress(xp, boxes, overlap, threshold, eta)
    kept = np.empty(len(boxes) + 1, np.int64)
    areas = np.empty(len(boxes), np.float32)
    numbers = (threshold, eta, pixel)
    run_step(library, Kind.SUPPRESS, (in_rows(boxes), areas, None, None, None, kept), {0: len(boxes)}, 1, numbers)
    return kept[: int(kept[-1])]
