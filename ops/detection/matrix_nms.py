"""matrix_nms: scores decay by how much better boxes overlap, all at once instead of greedily."""

from __future__ import annotations

from itertools import accumulate
from typing import Any

from fluidtool.ops.context import InferContext, OpContext
from fluidtool.ops.detection.boxes import exp
from fluidtool.ops.detection.partial_sort import best_first
from fluidtool.ops.detection.suppression import check_scores, overlap_of, row_width
from fluidtool.ops.math.versions import saved_since
from fluidtool.ops.registry import op
from fluidtool.ops.schema import FLOAT, INT, TensorMeta, required
from fluidtool.proto.enums import VarType


@op(
    "matrix_nms",
    inputs="BBoxes Scores",
    outputs="Out Index",
    attrs={
        "background_label": 0,
        "score_threshold": required(FLOAT),
        "post_threshold": 0.0,
        "nms_top_k": required(INT),
        "keep_top_k": required(INT),
        "normalized": True,
        "use_gaussian": False,
        "gaussian_sigma": 2.0,
    },
)
def matrix_nms(
    ctx: OpContext,
    BBoxes: Any,
    Scores: Any,
    *,
    background_label: int,
    score_threshold: float,
    post_threshold: float,
    nms_top_k: int,
    keep_top_k: int,
    normalized: bool,
    use_gaussian: bool,
    gaussian_sigma: float,
) -> dict[str, Any]:
    """Detections [No, 2 + width] as label, decayed score, box; Index [No, 1] int32 among all boxes of the batch.

    BBoxes [N, M, width], Scores [N, C, M]; the output has one sequence per image. Paddle 2.x gives counts in RoisNum [N]
    instead of a LoD. Equal scores come as the C++ library's partial_sort puts them, which scores of NaN pass (Paddle 1.8.5
    matrix_nms_op.cc).
    """
    check_scores(ctx, BBoxes, Scores, flat=False)
    np, all_boxes, all_scores = ctx.np, ctx.host(BBoxes), ctx.host(Scores)
    sigma = gaussian_sigma if use_gaussian else None
    rows, indices = [], []
    for image, (boxes, scores) in enumerate(zip(all_boxes, all_scores, strict=True)):
        found, positions = [np.zeros((0, 2), scores.dtype)], [np.zeros(0, "int64")]
        for label in range(len(scores)):
            if label == background_label:
                continue
            passing = np.flatnonzero(~(scores[label] <= scores.dtype.type(score_threshold)))
            order = passing[best_first(np, scores[label, passing], nms_top_k)]
            decayed = decay(np, boxes[order], scores[label, order], normalized, sigma)
            kept = ~(decayed <= decayed.dtype.type(post_threshold))
            kept[:1] &= decayed[:1] == decayed[:1]  # only of the best score Paddle refuses NaN
            found.append(np.stack([np.full(int(kept.sum()), label, scores.dtype), decayed[kept]], axis=1))
            positions.append(order[kept])
        label_score, position = np.concatenate(found), np.concatenate(positions)
        best = best_first(np, label_score[:, 1], keep_top_k)
        rows.append(np.concatenate([label_score[best], boxes[position[best]]], axis=1))
        indices.append(position[best] + image * scores.shape[1])
    out = np.concatenate([np.zeros((0, BBoxes.shape[2] + 2), Scores.dtype), *rows])
    index = np.concatenate([np.zeros(0, "int64"), *indices]).astype("int32")[:, None]
    counts = [len(found) for found in rows]
    if not saved_since(ctx, 2, 0):
        for slot in ("Out", "Index"):
            ctx.set_lod(slot, [list(accumulate(counts, initial=0))])
    return {"Out": ctx.array(out), "Index": ctx.array(index), "RoisNum": ctx.array(np.asarray(counts, "int32"))}


def decay(np: Any, boxes: Any, scores: Any, normalized: bool, sigma: float | None) -> Any:
    """Scores [K] of boxes given from best to worst, each times the least decay that a better box causes.

    A box that overlaps a better one by `iou` decays by (1 - iou) / (1 - worst), `worst` being the largest overlap of the
    better one with boxes better still; with sigma by exp((worst² - iou²) * sigma).
    """
    if not len(boxes):
        return scores
    iou = np.tril(overlap_of(np, boxes.shape[1], normalized)(boxes[:, None], boxes), -1)
    worst = np.fmax.reduce(iou, axis=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        if sigma is None:
            factors = ((1.0 - iou.astype("float64")) / (1.0 - worst.astype("float64"))).astype(iou.dtype)
        else:
            factors = exp(np, (worst * worst - iou * iou) * iou.dtype.type(sigma))
    better = np.tri(len(boxes), k=-1, dtype=bool)
    return np.fmin.reduce(np.where(better, factors, 1), axis=1, initial=1) * scores


@matrix_nms.infer
def _(ctx: InferContext, BBoxes: TensorMeta, Scores: TensorMeta) -> dict[str, TensorMeta]:
    check_scores(ctx, BBoxes, Scores, flat=False)
    rows, level = BBoxes.shape[1], 0 if saved_since(ctx, 2, 0) else max(BBoxes.lod_level, 1)
    return {
        "Out": TensorMeta((rows, row_width(BBoxes)), Scores.dtype, level),
        "Index": TensorMeta((rows, 1), VarType.INT32, level),
        "RoisNum": TensorMeta((Scores.shape[0],), VarType.INT32),
    }
