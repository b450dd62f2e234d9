"""The best boxes that do not overlap better ones: multiclass_nms and its successors, proposals, the output of RetinaNet."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import accumulate
from typing import Any

import numpy as np

from fluidtool.ops.context import OpContext
from fluidtool.ops.detection.multiclass_nms import (
    Finder,
    Options,
    detections,
    detections_and_counts,
    detections_and_index,
    options,
    run,
)
from fluidtool.ops.detection.proposals import later_proposals, proposals
from fluidtool.ops.detection.retinanet_detection_output import detections as retinanet_detections
from fluidtool.ops.detection.suppression import Overlap, Suppression, suppress
from fluidtool.runtime.engines.native import abi
from fluidtool.runtime.engines.native.kernels.direct import are_floats, in_rows, run_call
from fluidtool.runtime.engines.native.library import Library

MOST_SCORES = 1 << 31  # indices have 32 bits


def multiclass_nms(library: Library, ctx: OpContext, BBoxes: Any, Scores: Any) -> Any:
    """fluidtool.ops.detection.multiclass_nms for boxes of float32."""
    return with_boxes(detections, library, ctx, BBoxes, Scores)


def multiclass_nms2(library: Library, ctx: OpContext, BBoxes: Any, Scores: Any) -> Any:
    """The same with indices."""
    return with_boxes(detections_and_index, library, ctx, BBoxes, Scores)


def multiclass_nms3(library: Library, ctx: OpContext, BBoxes: Any, Scores: Any, RoisNum: Any) -> Any:
    """The same with indices and counts."""
    return with_boxes(detections_and_counts, library, ctx, BBoxes, Scores, RoisNum)


def with_boxes(
    kernel: Callable[..., Any], library: Library, ctx: OpContext, BBoxes: Any, Scores: Any, *more: Any
) -> Any:
    """The kernel with native suppression; not for float64."""
    if not are_floats(BBoxes, Scores) or not BBoxes.ndim:
        return NotImplemented
    return kernel(ctx, BBoxes, Scores, *more, finder(library, options(ctx), BBoxes, Scores))


def finder(library: Library, chosen: Options, BBoxes: Any, Scores: Any) -> Finder:
    """The library in place of `run`; if every class has its own boxes, it only suppresses."""
    shared = Scores.ndim == 3 and BBoxes.shape == (Scores.shape[0], Scores.shape[2], 4)
    if shared and 0 < Scores.size < MOST_SCORES and chosen.nms_threshold == chosen.nms_threshold:
        return partial(find, library, chosen)
    return partial(run, keep=keeping(library, pixel_of(chosen)))


def keeping(library: Library, pixel: float) -> Suppression:
    """The library in place of `suppress`."""
    return partial(native_suppress, library, pixel)


def generate_proposals(
    library: Library,
    ctx: OpContext,
    Scores: Any,
    BboxDeltas: Any,
    ImInfo: Any,
    Anchors: Any,
    Variances: Any,
    *,
    min_size: float,
) -> Any:
    """fluidtool.ops.detection.proposals, with native suppression."""
    tensors = Scores, BboxDeltas, ImInfo, Anchors, Variances
    return proposals(ctx, *tensors, min_size, keeping(library, 1.0)) if are_floats(*tensors) else NotImplemented


def generate_proposals_v2(
    library: Library,
    ctx: OpContext,
    Scores: Any,
    BboxDeltas: Any,
    ImShape: Any,
    Anchors: Any,
    Variances: Any,
    *,
    min_size: float,
    pixel_offset: bool,
) -> Any:
    """The same with image sizes without scale."""
    tensors, pixel = (Scores, BboxDeltas, ImShape, Anchors, Variances), int(pixel_offset)
    keep = keeping(library, float(pixel))
    return later_proposals(ctx, *tensors, min_size, pixel, keep) if are_floats(*tensors) else NotImplemented


def retinanet_detection_output(
    library: Library,
    ctx: OpContext,
    BBoxes: list[Any],
    Scores: list[Any],
    Anchors: list[Any],
    ImInfo: Any,
    *,
    score_threshold: float,
    nms_top_k: int,
    nms_threshold: float,
    nms_eta: float,
    keep_top_k: int,
) -> Any:
    """fluidtool.ops.detection.retinanet_detection_output, with native suppression."""
    if not are_floats(*BBoxes, *Scores, *Anchors, ImInfo):
        return NotImplemented
    limits = score_threshold, nms_top_k, nms_threshold, nms_eta, keep_top_k
    return retinanet_detections(ctx, BBoxes, Scores, Anchors, ImInfo, *limits, keeping(library, 1.0))


def pixel_of(chosen: Options) -> float:
    """The pixels that a box is longer than the distance of its ends."""
    return 0.0 if chosen.normalized else 1.0


def find(
    library: Library, chosen: Options, _: OpContext, BBoxes: Any, Scores: Any, offsets: list[int] | None
) -> tuple[Any, Any, list[int]]:
    """The result of `run` for boxes [N, M, 4] and scores [N, C, M]."""
    images, classes, size = Scores.shape
    most = size if chosen.nms_top_k < 0 else min(size, chosen.nms_top_k)
    boxes, scores = in_rows(BBoxes), in_rows(Scores)
    places = np.empty((images, classes, most + 1), np.int64)
    lines = np.empty((images * classes, 5, most + library.width), np.float32)
    best = abi.BestBoxes(
        boxes=boxes, scores=scores, scratch=lines, places=places, images=images, classes=classes, box_count=size,
        most=most, background=chosen.background_label, threshold=chosen.score_threshold, overlap=chosen.nms_threshold,
        decay=chosen.nms_eta, pixel=pixel_of(chosen),
    )  # fmt: skip
    run_call(library, best, images * classes)
    counts = places[..., most].sum(axis=1).tolist()
    if chosen.keep_top_k > -1:
        counts = [min(count, chosen.keep_top_k) for count in counts]
    offsets = list(accumulate(counts, initial=0))
    rows, index = np.empty((offsets[-1], 6), np.float32), np.empty((offsets[-1], 1), np.int32)
    arguments = abi.Detections(
        boxes=boxes, scores=scores, starts=np.array(offsets, np.int64), out=rows, heap=np.empty(offsets[-1], np.uint64),
        places=places, index=index, images=images, classes=classes, box_count=size, most=most, rows=offsets[-1],
    )  # fmt: skip
    run_call(library, arguments, images)
    return rows, index, offsets


def native_suppress(
    library: Library, pixel: float, xp: Any, boxes: Any, overlap: Overlap, threshold: float, eta: float = 1.0
) -> Any:
    """Positions of the boxes [N, 4] or polygons that `suppress` keeps; a NaN threshold is left to it."""
    if threshold != threshold or not len(boxes):
        return suppress(xp, boxes, overlap, threshold, eta)
    kept = np.empty(len(boxes) + 1, np.int64)
    lines = np.empty((5, len(boxes) + library.width), np.float32)
    (count, numbers), given = boxes.shape, in_rows(boxes)
    arguments: abi.Arguments[Any]
    if numbers == 4:
        arguments = abi.Suppress(
            boxes=given, scratch=lines, kept=kept, count=count, overlap=threshold, decay=eta, pixel=pixel
        )
    else:
        arguments = abi.SuppressPolygons(
            polygons=given, scratch=lines, kept=kept, count=count, numbers=numbers, overlap=threshold, decay=eta
        )
    run_call(library, arguments, 1)
    return kept[: int(kept[-1])]
