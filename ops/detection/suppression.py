"""Greedy suppression of overlapping boxes, on the host: the loop runs over the boxes that are kept."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from fluidtool.ops.context import InferContext, OpContext
from fluidtool.ops.detection.boxes import jaccard
from fluidtool.ops.detection.polygons import polygon_iou
from fluidtool.shapes import shape_text

BLOCK = 512  # boxes whose mutual overlaps are computed at once
WIDTHS = (4, 8, 16, 24, 32)

Overlap = Callable[[Any, Any], Any]
Suppression = Callable[..., Any]
"""Like `suppress`."""


def overlap_of(np: Any, width: int, normalized: bool) -> Overlap:
    """The overlap of boxes [..., 4] or polygons [..., 2 * points]; it broadcasts."""
    if width == 4:
        return partial(jaccard, np, pixel=0 if normalized else 1)
    return partial(polygon_iou, np)


def descending(np: Any, scores: Any) -> Any:
    """Positions of the scores from high to low, equal ones in order; Paddle compares scores as float32."""
    return np.argsort(-scores.astype("float32"), kind="stable")


def candidates(np: Any, scores: Any, threshold: float, top_k: int) -> Any:
    """Positions of the scores [N] above the threshold, from high to low, the first `top_k` of them (-1: all)."""
    above = np.flatnonzero(scores > scores.dtype.type(threshold))
    if 0 < top_k < len(above) // 2:  # what scores less than the one at top_k need not be sorted
        found = scores[above].astype("float32")
        last = len(found) - top_k
        above = above[found >= np.partition(found, last)[last]]
    order = above[descending(np, scores[above])]
    return order[:top_k] if top_k > -1 else order


def suppress(np: Any, boxes: Any, overlap: Overlap, threshold: float, eta: float = 1.0) -> Any:
    """Positions of the boxes [N, width], given from best to worst, that overlap no better kept one by more than
    `threshold`. With eta < 1 the threshold is multiplied by eta after each kept box as long as it is above 0.5.
    """
    number = boxes.dtype.type
    limit = number(threshold)
    kept: list[int] = []
    for start in range(0, len(boxes), BLOCK):
        block = boxes[start : start + BLOCK]
        worst = np.full(len(block), -np.inf, boxes.dtype)
        if kept:
            worst = overlap(block[:, None], boxes[kept]).max(axis=1)
        inner = overlap(block, block[:, None])  # by the kept box, then by the other
        position = 0
        while True:
            passing = worst[position:] <= limit
            step = int(passing.argmax()) if len(passing) else 0
            if not len(passing) or not passing[step]:
                break
            position += step
            kept.append(start + position)
            if eta < 1 and limit > 0.5:
                limit = number(limit * number(eta))
            position += 1
            np.maximum(worst[position:], inner[position - 1, position:], out=worst[position:])
    return np.asarray(kept, "int64")


def check_scores(ctx: OpContext | InferContext, boxes: Any, scores: Any, flat: bool) -> None:
    """Fail unless boxes [N, M, width] go with scores [N, C, M] or, where `flat` may be, boxes [M, C, 4] with [M, C]."""
    ranks = (2, 3) if flat else (3,)
    if len(scores.shape) not in ranks or len(boxes.shape) != 3:
        raise ctx.error(
            f"input BBoxes must have 3 dimensions and Scores {' or '.join(map(str, ranks))}, found shapes "
            f"{shape_text(boxes.shape)} and {shape_text(scores.shape)}"
        )
    three = len(scores.shape) == 3
    widths: Sequence[int] = WIDTHS if three else (4,)
    if boxes.shape[2] not in (*widths, -1):
        raise ctx.error(
            f"the last dimension of input BBoxes must be one of {', '.join(map(str, widths))}, "
            f"found shape {shape_text(boxes.shape)}"
        )
    expected, found = (scores.shape[2], boxes.shape[1]) if three else (scores.shape[1], boxes.shape[1])
    if expected != found and -1 not in (expected, found):
        raise ctx.error(
            f"inputs BBoxes and Scores do not match: dimension 1 of BBoxes {shape_text(boxes.shape)} must be the last "
            f"dimension of Scores {shape_text(scores.shape)}"
        )


def row_width(boxes: Any) -> int:
    """How many numbers a detection has: label, score and the box's own; -1 when that is not known."""
    return int(boxes.shape[2]) + 2 if boxes.shape[2] > 0 else -1
