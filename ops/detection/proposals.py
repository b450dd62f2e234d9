"""Region proposals of Faster R-CNN: generate_proposals, generate_proposals_v2 (Paddle 2.x)."""

from __future__ import annotations

from collections.abc import Callable
from itertools import accumulate
from math import log
from typing import Any

from fluidtool.ops.context import InferContext, OpContext
from fluidtool.ops.detection.boxes import center_form, corner_form, corners, exp, fits
from fluidtool.ops.detection.suppression import Suppression, overlap_of, suppress
from fluidtool.ops.math.versions import saved_since
from fluidtool.ops.registry import op
from fluidtool.ops.schema import FLOAT, INT, TensorMeta, required
from fluidtool.proto.enums import VarType
from fluidtool.shapes import shape_text

ATTRS: dict[str, Any] = {
    "pre_nms_topN": required(INT),
    "post_nms_topN": required(INT),
    "nms_thresh": required(FLOAT),
    "min_size": required(FLOAT),
    "eta": required(FLOAT),
}
LARGEST = log(1000.0 / 16.0)  # how much larger than its anchor, as a logarithm, a proposal may become

LargeEnough = Callable[[Any, Any], Any]


def decode(np: Any, anchors: Any, deltas: Any, variances: Any, pixel: int) -> Any:
    """Proposals [K, 4] from offsets of anchors."""
    center_x, center_y, width, height = center_form(anchors, pixel)
    x, y, w, h = corners(variances * deltas)
    limit = deltas.dtype.type(LARGEST)
    return corner_form(
        np,
        x * width + center_x,
        y * height + center_y,
        exp(np, np.minimum(w, limit)) * width,
        exp(np, np.minimum(h, limit)) * height,
        pixel,
    )


def best_first(np: Any, scores: Any, count: int) -> Any:
    """Positions of the `count` best scores [N] from high to low, equal ones in order; all of them with 0 or less."""
    keys = -scores
    if 0 < count < len(keys) // 2:  # what is worse than the one at `count` need not be sorted
        last = np.partition(keys, count - 1)[count - 1]
        if last == last:
            among = np.flatnonzero(keys <= last)
            return among[np.argsort(keys[among], kind="stable")][:count]
    return np.argsort(keys, kind="stable")[: count if count > 0 else None]


def propose(
    ctx: OpContext,
    scores: Any,
    deltas: Any,
    info: Any,
    anchors: Any,
    variances: Any,
    pixel: int,
    wide: LargeEnough,
    keep: Suppression = suppress,
) -> tuple[Any, Any]:
    """Proposals [K, 4] and scores [K, 1] of one image; without any, Paddle 2.x gives a single box of zeros."""
    np, dtype = ctx.np, scores.dtype
    first, last, threshold = (ctx.attr(name) for name in ("pre_nms_topN", "post_nms_topN", "nms_thresh"))
    order = best_first(np, scores, first)
    boxes = decode(np, anchors[order], deltas[order], variances[order], pixel)
    border = np.asarray([info[1], info[0], info[1], info[0]], dtype) - pixel
    boxes = np.maximum(np.minimum(boxes, border), 0)
    kept = np.flatnonzero(wide(boxes, info))
    if not len(kept) and saved_since(ctx, 2, 0):
        return np.zeros((1, 4), dtype), np.zeros((1, 1), dtype)
    boxes, chosen = boxes[kept], scores[order[kept]]
    if threshold > 0:
        best = np.argsort(chosen, kind="stable")[::-1]
        kept_best = keep(np, boxes[best], overlap_of(np, 4, not pixel), threshold, ctx.attr("eta"))
        best = best[kept_best][: last if last > 0 else None]
        boxes, chosen = boxes[best], chosen[best]
    return boxes, chosen[:, None]


def run(
    ctx: OpContext,
    Scores: Any,
    BboxDeltas: Any,
    Info: Any,
    Anchors: Any,
    Variances: Any,
    pixel: int,
    wide: LargeEnough,
    keep: Suppression = suppress,
) -> dict[str, Any]:
    """All images: the outputs by slot."""
    np = ctx.np
    anchors, variances = (ctx.host(tensor).reshape(-1, 4) for tensor in (Anchors, Variances))
    scores = ctx.host(Scores).transpose(0, 2, 3, 1).reshape(Scores.shape[0], -1)
    deltas = ctx.host(BboxDeltas).transpose(0, 2, 3, 1).reshape(Scores.shape[0], -1, 4)
    found = [
        propose(ctx, *image, anchors, variances, pixel, wide, keep)
        for image in zip(scores, deltas, ctx.host(Info).reshape(len(scores), -1), strict=True)
    ]
    counts = [len(boxes) for boxes, _ in found]
    return {
        "RpnRois": ctx.array(np.concatenate([boxes for boxes, _ in found])),
        "RpnRoiProbs": ctx.array(np.concatenate([probs for _, probs in found])),
        "RpnRoisLod": ctx.array(np.asarray(list(accumulate(counts)), "int64")),
        "RpnRoisNum": ctx.array(np.asarray(counts, "int32")),
    }


def _check(
    ctx: OpContext | InferContext, scores: Any, deltas: Any, info: Any, info_slot: str, width: int, anchors: Any
) -> None:
    shape = tuple(scores.shape)
    if len(shape) != 4:
        raise ctx.error(f"input Scores must be (N, A, H, W), found shape {shape_text(shape)}")
    expected = (shape[0], -1 if shape[1] == -1 else 4 * shape[1], *shape[2:])
    if not fits(deltas.shape, expected):
        raise ctx.error(
            f"input BboxDeltas must be {shape_text(expected)} for Scores of shape {shape_text(shape)}, "
            f"found shape {shape_text(deltas.shape)}"
        )
    if not fits(info.shape, (shape[0], width)) and not (shape[0] in (1, -1) and tuple(info.shape) == (width,)):
        raise ctx.error(f"input {info_slot} must be ({shape[0]}, {width}), found shape {shape_text(info.shape)}")
    if len(anchors.shape) <= 1 or anchors.shape[-1] not in (4, -1):
        raise ctx.error(f"input Anchors must be (H, W, A, 4), found shape {shape_text(anchors.shape)}")


def _check_anchors(ctx: OpContext, Scores: Any, Anchors: Any, Variances: Any) -> None:
    count = Scores.size // max(Scores.shape[0], 1)
    if Anchors.size != 4 * count or Variances.size != 4 * count:
        raise ctx.error(
            f"inputs Anchors and Variances must hold {count} boxes, one for each score of an image, found shapes "
            f"{Anchors.shape} and {Variances.shape}"
        )


@op(
    "generate_proposals",
    inputs="Scores BboxDeltas ImInfo Anchors Variances",
    outputs="RpnRois RpnRoiProbs RpnRoisLod?",
    attrs=ATTRS,
)
def generate_proposals(
    ctx: OpContext, Scores: Any, BboxDeltas: Any, ImInfo: Any, Anchors: Any, Variances: Any, *, min_size: float
) -> dict[str, Any]:
    """RpnRois [K, 4] and RpnRoiProbs [K, 1], one sequence per image, from the maps of a region proposal network.

    Scores [N, A, H, W], BboxDeltas [N, 4 * A, H, W], Anchors and Variances [H, W, A, 4], ImInfo [N, 3] height, width and
    scale, of one image also [3]. The pre_nms_topN best are decoded and cut at the image's border, those below min_size in
    the original image dropped, the rest suppressed (Paddle 1.8.5 generate_proposals_op.cc; Paddle 2.x gives counts in
    RpnRoisNum).
    """
    return proposals(ctx, Scores, BboxDeltas, ImInfo, Anchors, Variances, min_size)


def proposals(
    ctx: OpContext,
    Scores: Any,
    BboxDeltas: Any,
    ImInfo: Any,
    Anchors: Any,
    Variances: Any,
    min_size: float,
    keep: Suppression = suppress,
) -> dict[str, Any]:
    """The outputs of generate_proposals."""
    _check(ctx, Scores, BboxDeltas, ImInfo, "ImInfo", 3, Anchors)
    _check_anchors(ctx, Scores, Anchors, Variances)
    smallest = ctx.np.float32(max(min_size, 1.0))

    def wide(boxes: Any, info: Any) -> Any:
        xmin, ymin, xmax, ymax = corners(boxes)
        inside = (xmin + (xmax - xmin + 1) / 2 <= info[1]) & (ymin + (ymax - ymin + 1) / 2 <= info[0])
        return inside & ((xmax - xmin) / info[2] + 1 >= smallest) & ((ymax - ymin) / info[2] + 1 >= smallest)

    found = run(ctx, Scores, BboxDeltas, ImInfo, Anchors, Variances, 1, wide, keep)
    for slot in ("RpnRois", "RpnRoiProbs"):
        ctx.set_lod(slot, [list(accumulate(ctx.host(found["RpnRoisNum"]).tolist(), initial=0))])
    return found


@op(
    "generate_proposals_v2",
    inputs="Scores BboxDeltas ImShape Anchors Variances",
    outputs="RpnRois RpnRoiProbs RpnRoisNum?",
    attrs={**ATTRS, "pixel_offset": True},
)
def generate_proposals_v2(
    ctx: OpContext,
    Scores: Any,
    BboxDeltas: Any,
    ImShape: Any,
    Anchors: Any,
    Variances: Any,
    *,
    min_size: float,
    pixel_offset: bool,
) -> dict[str, Any]:
    """generate_proposals with ImShape [N, 2] height and width, min_size in the scaled image, and RpnRoisNum [N] int32.

    Coordinates are those of pixels (a box from 2 to 5 is 4 wide) unless pixel_offset is False (Paddle 2.6.2
    generate_proposals_kernel.cc).
    """
    return later_proposals(ctx, Scores, BboxDeltas, ImShape, Anchors, Variances, min_size, int(pixel_offset))


def later_proposals(
    ctx: OpContext,
    Scores: Any,
    BboxDeltas: Any,
    ImShape: Any,
    Anchors: Any,
    Variances: Any,
    min_size: float,
    pixel: int,
    keep: Suppression = suppress,
) -> dict[str, Any]:
    """The outputs of generate_proposals_v2."""
    _check(ctx, Scores, BboxDeltas, ImShape, "ImShape", 2, Anchors)
    _check_anchors(ctx, Scores, Anchors, Variances)
    smallest = ctx.np.float32(max(min_size, 1.0))

    def wide(boxes: Any, info: Any) -> Any:
        xmin, ymin, xmax, ymax = corners(boxes)
        width, height = xmax - xmin + pixel, ymax - ymin + pixel
        large = (width >= smallest) & (height >= smallest)
        return large & (xmin + width / 2 <= info[1]) & (ymin + height / 2 <= info[0]) if pixel else large

    return run(ctx, Scores, BboxDeltas, ImShape, Anchors, Variances, pixel, wide, keep)


@generate_proposals.infer
def _(
    ctx: InferContext,
    Scores: TensorMeta,
    BboxDeltas: TensorMeta,
    ImInfo: TensorMeta,
    Anchors: TensorMeta,
    Variances: TensorMeta,
) -> dict[str, TensorMeta]:
    _check(ctx, Scores, BboxDeltas, ImInfo, "ImInfo", 3, Anchors)
    return _metas(Scores, Anchors, max(Scores.lod_level, 1) if saved_since(ctx, 2, 0) else 0)


@generate_proposals_v2.infer
def _(
    ctx: InferContext,
    Scores: TensorMeta,
    BboxDeltas: TensorMeta,
    ImShape: TensorMeta,
    Anchors: TensorMeta,
    Variances: TensorMeta,
) -> dict[str, TensorMeta]:
    _check(ctx, Scores, BboxDeltas, ImShape, "ImShape", 2, Anchors)
    return _metas(Scores, Anchors, 0)


def _metas(Scores: TensorMeta, Anchors: TensorMeta, level: int) -> dict[str, TensorMeta]:
    return {
        "RpnRois": TensorMeta((-1, 4), Anchors.dtype, level),
        "RpnRoiProbs": TensorMeta((-1, 1), Anchors.dtype, level),
        "RpnRoisLod": TensorMeta((Scores.shape[0],), VarType.INT64),
        "RpnRoisNum": TensorMeta((Scores.shape[0],), VarType.INT32),
    }
