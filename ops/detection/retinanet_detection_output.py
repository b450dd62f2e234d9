"""retinanet_detection_output: decoding of all pyramid levels, then suppression."""

from __future__ import annotations

from itertools import accumulate
from typing import Any

from fluidtool.ops.context import InferContext, OpContext
from fluidtool.ops.detection.boxes import check_info, corner_form, corners, exp, fits, round_away
from fluidtool.ops.detection.suppression import Suppression, candidates, descending, overlap_of, suppress
from fluidtool.ops.registry import op
from fluidtool.ops.schema import FLOAT, INT, TensorMeta, required
from fluidtool.shapes import shape_text


@op(
    "retinanet_detection_output",
    inputs="BBoxes* Scores* Anchors* ImInfo",
    outputs="Out",
    attrs={
        "score_threshold": required(FLOAT),
        "nms_top_k": required(INT),
        "nms_threshold": required(FLOAT),
        "nms_eta": required(FLOAT),
        "keep_top_k": required(INT),
    },
)
def retinanet_detection_output(
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
    """Detections [No, 6] as label (from 1 on), score, box in pixels of the original image; one sequence per image.

    By level l: BBoxes [N, Ml, 4] as offsets from Anchors [Ml, 4], Scores [N, Ml, C]. ImInfo [N, 3] is height, width and
    scale. The last level takes every score above 0 (Paddle 1.8.5 retinanet_detection_output_op.cc).
    """
    limits = score_threshold, nms_top_k, nms_threshold, nms_eta, keep_top_k
    return detections(ctx, BBoxes, Scores, Anchors, ImInfo, *limits)


def detections(
    ctx: OpContext,
    BBoxes: list[Any],
    Scores: list[Any],
    Anchors: list[Any],
    ImInfo: Any,
    score_threshold: float,
    nms_top_k: int,
    nms_threshold: float,
    nms_eta: float,
    keep_top_k: int,
    keep: Suppression = suppress,
) -> Any:
    """The output of retinanet_detection_output."""
    _check(ctx, BBoxes, Scores, Anchors, ImInfo)
    np = ctx.np
    levels = [tuple(map(ctx.host, level)) for level in zip(BBoxes, Scores, Anchors, strict=True)]
    info, overlap, dtype = ctx.host(ImInfo), overlap_of(np, 4, False), Scores[0].dtype
    rows = []
    for image in range(len(info)):
        found = []
        for number, (deltas, scores, anchors) in enumerate(levels):
            threshold = score_threshold if number < len(levels) - 1 else 0.0
            flat = scores[image].reshape(-1)
            order = candidates(np, flat, threshold, nms_top_k)
            box, label = order // scores.shape[2], order % scores.shape[2]
            boxes = decode(np, deltas[image, box], anchors[box], info[image])
            found.append(np.concatenate([np.stack([label.astype(dtype), flat[order]], axis=1), boxes], axis=1))
        merged = np.concatenate(found)
        kept = [merged[:0]]
        for label in np.unique(merged[:, 0]):
            of_class = merged[merged[:, 0] == label]
            of_class = of_class[descending(np, of_class[:, 1])]
            kept.append(of_class[keep(np, of_class[:, 2:], overlap, nms_threshold, nms_eta)])
        best = np.concatenate(kept)
        best = best[descending(np, best[:, 1])][: keep_top_k if keep_top_k > -1 else None]
        best[:, 0] += 1
        rows.append(best)
    ctx.set_lod("Out", [list(accumulate(map(len, rows), initial=0))])
    return ctx.array(np.concatenate([np.zeros((0, 6), dtype), *rows]))


def decode(np: Any, deltas: Any, anchors: Any, info: Any) -> Any:
    """Boxes [K, 4] in the original image, cut at its border."""
    height, width, scale = round_away(np, info[:1] / info[2]), round_away(np, info[1:2] / info[2]), info[2]
    xmin, ymin, xmax, ymax = corners(anchors)
    anchor_width, anchor_height = xmax - xmin + 1, ymax - ymin + 1
    x, y, w, h = corners(deltas)
    boxes = corner_form(
        np,
        x * anchor_width + (xmin + anchor_width / 2),
        y * anchor_height + (ymin + anchor_height / 2),
        exp(np, w) * anchor_width,
        exp(np, h) * anchor_height,
        1,
    )
    return np.maximum(np.minimum(boxes / scale, np.concatenate([width, height, width, height]) - 1), 0)


def _check(ctx: OpContext | InferContext, boxes: list[Any], scores: list[Any], anchors: list[Any], info: Any) -> None:
    counts = len(boxes), len(scores), len(anchors)
    if not (counts[0] > 0 and len(set(counts)) == 1):
        raise ctx.error(
            f"inputs BBoxes, Scores and Anchors need one tensor per level each, found {counts[0]}, {counts[1]} and {counts[2]}"
        )
    for level, (box, score, anchor) in enumerate(zip(boxes, scores, anchors, strict=True)):
        shapes = tuple(box.shape), tuple(score.shape), tuple(anchor.shape)
        count = max(shapes[0][1:2], default=-1)
        if not (fits(shapes[0], (-1, -1, 4)) and fits(shapes[1], (-1, count, -1)) and fits(shapes[2], (count, 4))):
            raise ctx.error(
                f"level {level} must have BBoxes (N, M, 4), Scores (N, M, C) and Anchors (M, 4), found shapes "
                f"{shape_text(shapes[0])}, {shape_text(shapes[1])} and {shape_text(shapes[2])}"
            )
    check_info(ctx, info)


@retinanet_detection_output.infer
def _(
    ctx: InferContext,
    BBoxes: list[TensorMeta],
    Scores: list[TensorMeta],
    Anchors: list[TensorMeta],
    ImInfo: TensorMeta,
) -> TensorMeta:
    _check(ctx, BBoxes, Scores, Anchors, ImInfo)
    return TensorMeta((BBoxes[0].shape[1], 6), Scores[0].dtype)
