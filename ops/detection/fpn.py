"""Proposals and the levels of a feature pyramid: distribute_fpn_proposals, collect_fpn_proposals."""

from __future__ import annotations

from itertools import accumulate
from typing import Any

from fluidtool.ops.context import InferContext, OpContext
from fluidtool.ops.detection.boxes import area_or_zero, check_boxes
from fluidtool.ops.math.versions import later_attr
from fluidtool.ops.registry import op
from fluidtool.ops.schema import INT, TensorMeta, required
from fluidtool.proto.enums import VarType


def offsets_of(ctx: OpContext, slot: str, counts_slot: str, index: int = 0) -> list[int]:
    """Where the boxes of each image start in `slot`: from the counts of Paddle 2.x where they are given, else its LoD."""
    counts = ctx.inputs.get(counts_slot, ())
    if index < len(counts) and counts[index] is not None:
        return list(accumulate(ctx.host(ctx.value(counts_slot, index).array).reshape(-1).tolist(), initial=0))
    return ctx.sequences(slot, index)


@op(
    "distribute_fpn_proposals",
    inputs="FpnRois",
    outputs="MultiFpnRois* RestoreIndex",
    attrs={
        "min_level": required(INT),
        "max_level": required(INT),
        "refer_level": required(INT),
        "refer_scale": required(INT),
    },
)
def distribute_fpn_proposals(
    ctx: OpContext, FpnRois: Any, *, min_level: int, max_level: int, refer_level: int, refer_scale: int
) -> dict[str, Any]:
    """Sort FpnRois [R, 4] into levels by size: a box as large as refer_scale² goes to refer_level, twice as wide one up.

    MultiFpnRois are the boxes by level, with one sequence per image; RestoreIndex [R, 1] int32 tells where each box went
    in their concatenation. Images come from the LoD, in Paddle 2.x from RoisNum; 2.x gives counts in MultiLevelRoIsNum
    and knows `pixel_offset` (Paddle 1.8.5 distribute_fpn_proposals_op.h).
    """
    _check_levels(ctx, FpnRois, min_level, max_level, refer_scale)
    np, rois = ctx.np, ctx.host(FpnRois)
    offsets = offsets_of(ctx, "FpnRois", "RoisNum")
    if offsets[-1] != len(rois):
        raise ctx.error(f"input FpnRois holds {len(rois)} boxes, but its images count {offsets[-1]}")
    scale = np.sqrt(area_or_zero(np, rois, int(later_attr(ctx, "pixel_offset", True)))) / rois.dtype.type(refer_scale)
    logarithm = np.log2((scale + rois.dtype.type(1e-6)).astype("float64")).astype(rois.dtype)
    level = np.floor(logarithm + refer_level).clip(min_level, max_level).astype("int64") - min_level
    order = np.argsort(level, kind="stable")
    image = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
    parts, counts = [], []
    for number in range(max_level - min_level + 1):
        members = np.flatnonzero(level == number)
        parts.append(ctx.array(rois[members]))
        counts.append(np.bincount(image[members], minlength=len(offsets) - 1))
        ctx.set_lod("MultiFpnRois", [[0, *np.cumsum(counts[-1]).tolist()]], index=number)
    restore = np.empty(len(rois), "int32")
    restore[order] = np.arange(len(rois), dtype="int32")
    return {
        "MultiFpnRois": parts,
        "RestoreIndex": ctx.array(restore[:, None]),
        "MultiLevelRoIsNum": [ctx.array(count.astype("int32")) for count in counts],
    }


def _check_levels(ctx: OpContext | InferContext, rois: Any, low: int, high: int, scale: int) -> None:
    check_boxes(ctx, "FpnRois", rois)
    if not low <= high:
        raise ctx.error(f"attribute min_level must not exceed max_level, found {low} and {high}")
    if not scale > 0:
        raise ctx.error(f"attribute refer_scale must be above 0, found {scale}")


@distribute_fpn_proposals.infer
def _(
    ctx: InferContext, FpnRois: TensorMeta, *, min_level: int, max_level: int, refer_scale: int
) -> dict[str, TensorMeta | list[TensorMeta]]:
    _check_levels(ctx, FpnRois, min_level, max_level, refer_scale)
    levels = max_level - min_level + 1
    return {
        "MultiFpnRois": [TensorMeta((-1, 4), FpnRois.dtype, FpnRois.lod_level)] * levels,
        "RestoreIndex": TensorMeta((-1, 1), VarType.INT32),
        "MultiLevelRoIsNum": [TensorMeta((-1,), VarType.INT32)] * levels,
    }


@op(
    "collect_fpn_proposals",
    inputs="MultiLevelRois* MultiLevelScores*",
    outputs="FpnRois",
    attrs={"post_nms_topN": required(INT)},
)
def collect_fpn_proposals(
    ctx: OpContext, MultiLevelRois: list[Any], MultiLevelScores: list[Any], *, post_nms_topN: int
) -> dict[str, Any]:
    """The post_nms_topN boxes [K, 4] with the highest scores of all levels and images, ordered by image then score.

    MultiLevelRois are [Rl, 4], MultiLevelScores [Rl, 1] with the same LoD (one sequence per image). Of equal scores the
    one that comes later goes first, as in Paddle. In Paddle 2.x MultiLevelRoIsNum gives counts by image, and RoisNum
    [N] int32 tells those of the result (Paddle 1.8.5 collect_fpn_proposals_op.h).
    """
    _check_collect(ctx, MultiLevelRois, MultiLevelScores, post_nms_topN)
    np = ctx.np
    offsets = [offsets_of(ctx, "MultiLevelRois", "MultiLevelRoIsNum", level) for level in range(len(MultiLevelRois))]
    images = len(offsets[0]) - 1
    for level, (starts, rois, scores) in enumerate(zip(offsets, MultiLevelRois, MultiLevelScores, strict=True)):
        if not (len(starts) - 1 == images and starts[-1] == len(rois) == len(scores)):
            raise ctx.error(
                f"level {level} of MultiLevelRois must have {images} sequences and equally many boxes and scores, found "
                f"{len(starts) - 1} sequences, {len(rois)} boxes and {len(scores)} scores"
            )
    image = np.concatenate([np.repeat(np.arange(images), np.diff(starts)) for starts in offsets])
    scores = np.concatenate([ctx.host(level).reshape(-1) for level in MultiLevelScores])
    rois = np.concatenate([ctx.host(level) for level in MultiLevelRois])
    best = np.argsort(scores, kind="stable")[::-1][:post_nms_topN]
    best = best[np.argsort(image[best], kind="stable")]
    counts = np.bincount(image[best], minlength=images)
    ctx.set_lod("FpnRois", [[0, *np.cumsum(counts).tolist()]])
    return {"FpnRois": ctx.array(rois[best]), "RoisNum": ctx.array(counts.astype("int32"))}


def _check_collect(ctx: OpContext | InferContext, rois: list[Any], scores: list[Any], count: int) -> None:
    if not len(rois) == len(scores) > 0:
        raise ctx.error(
            f"inputs MultiLevelRois and MultiLevelScores need one tensor per level each, found {len(rois)} and {len(scores)}"
        )
    if count < 0:
        raise ctx.error(f"attribute post_nms_topN must not be negative, found {count}")
    for level_rois, level_scores in zip(rois, scores, strict=True):
        check_boxes(ctx, "MultiLevelRois", level_rois)
        check_boxes(ctx, "MultiLevelScores", level_scores, width=1)


@collect_fpn_proposals.infer
def _(
    ctx: InferContext,
    MultiLevelRois: list[TensorMeta],
    MultiLevelScores: list[TensorMeta],
    *,
    post_nms_topN: int,
) -> dict[str, TensorMeta]:
    _check_collect(ctx, MultiLevelRois, MultiLevelScores, post_nms_topN)
    first = MultiLevelRois[0]
    return {
        "FpnRois": TensorMeta((post_nms_topN, 4), first.dtype, first.lod_level),
        "RoisNum": TensorMeta((-1,), VarType.INT32),
    }
