"""locality_aware_nms: merges neighboring boxes of text detectors, then suppresses."""

from __future__ import annotations

from itertools import accumulate
from typing import Any

from fluidtool.ops.context import InferContext, OpContext
from fluidtool.ops.detection.suppression import (
    Overlap,
    candidates,
    check_scores,
    descending,
    overlap_of,
    row_width,
    suppress,
)
from fluidtool.ops.registry import op
from fluidtool.ops.schema import FLOAT, INT, TensorMeta, required


@op(
    "locality_aware_nms",
    inputs="BBoxes Scores",
    outputs="Out",
    attrs={
        "background_label": -1,
        "score_threshold": required(FLOAT),
        "nms_top_k": required(INT),
        "nms_threshold": 0.3,
        "nms_eta": 1.0,
        "keep_top_k": required(INT),
        "normalized": True,
    },
)
def locality_aware_nms(
    ctx: OpContext,
    BBoxes: Any,
    Scores: Any,
    *,
    background_label: int,
    score_threshold: float,
    nms_top_k: int,
    nms_threshold: float,
    nms_eta: float,
    keep_top_k: int,
    normalized: bool,
) -> Any:
    """Detections [No, 2 + width] as label, score, box, one sequence per image; [[-1]] when there are none.

    BBoxes [N, M, 4] or polygons [N, M, 8, 16, 24 or 32], Scores [N, C, M]. Runs of neighbors that overlap become their
    mean weighted by scores, and their scores add up; boxes merged for one class stay merged for the classes after it
    (Paddle 1.8.5 locality_aware_nms_op.cc).
    """
    check_scores(ctx, BBoxes, Scores, flat=False)
    np = ctx.np
    overlap = overlap_of(np, BBoxes.shape[2], normalized)
    rows = []
    for boxes, scores in zip(ctx.host(BBoxes).copy(), ctx.host(Scores).copy(), strict=True):
        labels, positions = [np.zeros(0, "int64")], [np.zeros(0, "int64")]
        for label in range(len(scores)):
            if label == background_label:
                continue
            first = merge_neighbors(np, boxes, scores[label], overlap, nms_threshold)
            order = first[candidates(np, scores[label, first], score_threshold, nms_top_k)]
            positions.append(order[suppress(np, boxes[order], overlap, nms_threshold, nms_eta)])
            labels.append(np.full(len(positions[-1]), label))
        label, position = np.concatenate(labels), np.concatenate(positions)
        if -1 < keep_top_k < len(label):
            best = descending(np, scores[label, position])[:keep_top_k]
            best = best[np.argsort(label[best], kind="stable")]
            label, position = label[best], position[best]
        leading = np.stack([label.astype(boxes.dtype), scores[label, position]], axis=1)
        rows.append(np.concatenate([leading, boxes[position]], axis=1))
    offsets = list(accumulate(map(len, rows), initial=0))
    out = np.concatenate([np.zeros((0, BBoxes.shape[2] + 2), Scores.dtype), *rows])
    if not len(out):
        out, offsets = np.full((1, 1), -1, Scores.dtype), [0, 1]
    ctx.set_lod("Out", [offsets])
    return ctx.array(out)


def merge_neighbors(np: Any, boxes: Any, scores: Any, overlap: Overlap, threshold: float) -> Any:
    """Merge each run of overlapping boxes into its first, in place; returns the positions of the firsts.

    A box joins the run before it when it overlaps what that run has become by more than `threshold`.
    """
    threshold = boxes.dtype.type(threshold)
    count, merged = len(boxes), np.zeros(len(boxes), bool)
    joins = np.concatenate([np.zeros(1, bool), overlap(boxes[1:], boxes[:-1]) > threshold])[:count]
    position = 0
    while position < count:
        ahead = joins[position:]
        step = int(ahead.argmax())
        if not ahead[step]:
            break
        position += step
        first = position - 1
        while position < count and overlap(boxes[position], boxes[first]) > threshold:
            weight, other = scores[position], scores[first]
            boxes[first] = (boxes[position] * weight + boxes[first] * other) / (weight + other)
            scores[first] = weight + other
            merged[position] = True
            position += 1
        position += 1
    return np.flatnonzero(~merged)


@locality_aware_nms.infer
def _(ctx: InferContext, BBoxes: TensorMeta, Scores: TensorMeta) -> TensorMeta:
    check_scores(ctx, BBoxes, Scores, flat=False)
    return TensorMeta((BBoxes.shape[1], row_width(BBoxes)), Scores.dtype)
