"""generate_proposal_labels: sampled regions, their classes and box targets for the second stage of Faster R-CNN."""

from __future__ import annotations

from itertools import accumulate
from typing import Any

from fluidtool.ops.context import InferContext, OpContext
from fluidtool.ops.detection.boxes import check_boxes, check_info, pixel_deltas, pixel_overlaps
from fluidtool.ops.detection.sampling import reservoir
from fluidtool.ops.registry import op
from fluidtool.ops.schema import FLOAT, FLOATS, INT, TensorMeta, required
from fluidtool.proto.enums import VarType

ATTRS: dict[str, Any] = {
    "batch_size_per_im": required(INT),
    "fg_fraction": required(FLOAT),
    "fg_thresh": required(FLOAT),
    "bg_thresh_hi": required(FLOAT),
    "bg_thresh_lo": required(FLOAT),
    "bbox_reg_weights": required(FLOATS),
    "class_nums": required(INT),
    "use_random": True,
    "is_cascade_rcnn": False,
    "is_cls_agnostic": False,
}
TIE = 1e-5
SLOTS = ("Rois", "LabelsInt32", "BboxTargets", "BboxInsideWeights", "BboxOutsideWeights")


def pool_of_boxes(np: Any, rois: Any, truths: Any, scale: Any, cascade: bool, before: Any) -> Any:
    """The boxes to choose from, in the original image: ground truth, then proposals.

    In a cascade Paddle 1.8.5 takes the first proposals, as many as there is ground truth, for the ground truth itself, in
    the original image already. Paddle 2.x leaves out those that overlapped fully `before`, or gives one box of zeros.
    """
    if not cascade:
        return np.concatenate([truths, rois / scale])
    if before is None:
        return np.concatenate([rois[: len(truths)], rois[len(truths) :] / scale])
    rois = rois / scale
    kept = rois[(rois[:, 2:] - rois[:, :2] + 1 > 0).all(axis=1) & (before < 1)]
    return np.concatenate([truths, kept if len(kept) else np.zeros((1, 4), rois.dtype)])


def sample(ctx: OpContext, overlaps: Any, usable: Any, crowd: Any, generator: Any) -> tuple[Any, Any, Any]:
    """Foreground and background of the usable boxes with overlaps [B, G] (the G ground truths come first), and the
    ground truth of the foreground. All for a cascade, else as many as batch_size_per_im and fg_fraction allow.
    """
    np, number = ctx.np, overlaps.dtype.type
    attr = {name: ctx.attr(name) for name in ATTRS}
    best = overlaps.max(axis=1, initial=number(-np.inf))
    best[: len(crowd)][crowd[: len(best)] != 0] = -1
    foreground = np.flatnonzero(usable & (best >= number(attr["fg_thresh"])))
    background = np.flatnonzero(
        usable
        & (best < number(attr["fg_thresh"]))
        & (best >= number(attr["bg_thresh_lo"]))
        & (best < number(attr["bg_thresh_hi"]))
    )
    near = abs(best[foreground, None] - overlaps[foreground]) < number(TIE)
    truth = near.argmax(axis=1) if overlaps.shape[1] else foreground
    if attr["is_cascade_rcnn"]:
        return foreground, background, truth
    batch = attr["batch_size_per_im"]
    wanted = int(np.floor(np.float32(batch) * np.float32(attr["fg_fraction"])))
    chosen = reservoir(np, wanted, len(foreground), generator)
    foreground, truth = foreground[chosen], truth[chosen]
    room = batch - len(foreground)
    # Paddle lets late background replace only as many places as there is foreground
    background = background[reservoir(np, room, len(background), generator, slots=len(foreground))]
    return foreground, background, truth


@op(
    "generate_proposal_labels",
    inputs="RpnRois GtClasses IsCrowd GtBoxes ImInfo",
    outputs=" ".join(SLOTS),
    attrs=ATTRS,
    random=True,
)
def generate_proposal_labels(
    ctx: OpContext,
    RpnRois: Any,
    GtClasses: Any,
    IsCrowd: Any,
    GtBoxes: Any,
    ImInfo: Any,
    *,
    bbox_reg_weights: list[float],
    class_nums: int,
    use_random: bool,
    is_cascade_rcnn: bool,
    is_cls_agnostic: bool,
) -> dict[str, Any]:
    """Rois [P, 4] sampled from proposals and ground truth, LabelsInt32 [P, 1], and by class BboxTargets and weights
    [P, 4 * class_nums]; one sequence per image.

    RpnRois [R, 4], GtClasses, IsCrowd (int32) and GtBoxes [G, 4] have one sequence per image; ImInfo [N, 3] is height,
    width and scale; ground truth is in the original image (Paddle 1.8.5 generate_proposal_labels_op.cc).
    """
    _check(ctx, RpnRois, GtBoxes, ImInfo, bbox_reg_weights)
    np = ctx.np
    generator = ctx.generator() if use_random else None
    overlap_before = ctx.host(ctx.value("MaxOverlap").array).reshape(-1) if ctx.has("MaxOverlap") else None
    rois, classes, crowd, truths, info = map(ctx.host, (RpnRois, GtClasses, IsCrowd, GtBoxes, ImInfo))
    starts, gt_starts = ctx.sequences("RpnRois"), ctx.sequences("GtBoxes")
    if not (
        ctx.sequences("GtClasses") == ctx.sequences("IsCrowd") == gt_starts
        and len(gt_starts) == len(starts) <= len(info) + 1
    ):
        raise ctx.error(
            f"RpnRois has {len(starts) - 1} sequences; GtClasses, IsCrowd and GtBoxes must have one LoD with as many, and "
            f"ImInfo as many rows, found LoD {ctx.sequences('GtClasses')}, {ctx.sequences('IsCrowd')}, {gt_starts} and "
            f"{len(info)} rows"
        )
    parts: dict[str, list[Any]] = {slot: [] for slot in (*SLOTS, "MaxOverlapWithGT")}
    counts = []
    for image in range(len(starts) - 1):
        own, gt = slice(starts[image], starts[image + 1]), slice(gt_starts[image], gt_starts[image + 1])
        if not len(rois[own]):
            counts.append(0)
            continue
        scale, before = info[image, 2], None if overlap_before is None else overlap_before[own]
        boxes = pool_of_boxes(np, rois[own], truths[gt], scale, is_cascade_rcnn, before)
        overlaps = pixel_overlaps(np, boxes, truths[gt])
        usable = (boxes[:, 2:] - boxes[:, :2] + 1 > 0).all(axis=1) if is_cascade_rcnn else np.ones(len(boxes), bool)
        foreground, background, truth = sample(ctx, overlaps, usable, crowd.reshape(-1)[gt], generator)
        taken = np.concatenate([foreground, background])
        label = np.concatenate([classes.reshape(-1)[gt][truth], np.zeros(len(background), "int32")]).astype("int32")
        deltas = pixel_deltas(np, boxes[foreground], truths[gt][truth]) / np.asarray(bbox_reg_weights, boxes.dtype)
        targets, weights = expand(ctx, deltas, label, class_nums, is_cls_agnostic)
        values = (
            boxes[taken] * scale,
            label[:, None],
            targets,
            weights,
            weights,
            overlaps[taken].max(axis=1, initial=0),
        )
        for slot, value in zip(parts, values, strict=True):
            parts[slot].append(value)
        counts.append(len(taken))
    for slot in parts:
        ctx.set_lod(slot, [list(accumulate(counts, initial=0))])
    empty = {slot: (0, 4 * class_nums) for slot in SLOTS} | {
        "Rois": (0, 4),
        "LabelsInt32": (0, 1),
        "MaxOverlapWithGT": (0,),
    }
    return {
        slot: ctx.array(
            np.concatenate([np.zeros(empty[slot], "int32" if slot == "LabelsInt32" else rois.dtype), *values])
        )
        for slot, values in parts.items()
    }


def expand(ctx: OpContext, deltas: Any, label: Any, class_nums: int, agnostic: bool) -> tuple[Any, Any]:
    """Targets [P, 4 * class_nums] with the deltas of the foreground in the columns of its class, and where they are."""
    np = ctx.np
    positive = np.flatnonzero(label > 0)
    column = np.ones_like(label[positive]) if agnostic else label[positive]
    highest = int(column.max(initial=0))
    if highest >= class_nums:
        raise ctx.error(f"input GtClasses must be below class_nums = {class_nums}, found {highest}")
    targets = np.zeros((len(label), class_nums, 4), deltas.dtype)
    weights = np.zeros_like(targets)
    targets[positive, column] = deltas[positive]
    weights[positive, column] = 1
    return targets.reshape(len(label), 4 * class_nums), weights.reshape(len(label), 4 * class_nums)


def _check(ctx: OpContext | InferContext, rois: Any, boxes: Any, info: Any, weights: list[float]) -> None:
    check_boxes(ctx, "RpnRois", rois)
    check_boxes(ctx, "GtBoxes", boxes)
    check_info(ctx, info)
    if not (len(weights) == 4 and all(weights)):
        raise ctx.error(f"attribute bbox_reg_weights must be four numbers other than 0, found {list(weights)}")


@generate_proposal_labels.infer
def _(
    ctx: InferContext,
    RpnRois: TensorMeta,
    GtClasses: TensorMeta,
    IsCrowd: TensorMeta,
    GtBoxes: TensorMeta,
    ImInfo: TensorMeta,
    *,
    bbox_reg_weights: list[float],
    class_nums: int,
) -> dict[str, TensorMeta]:
    _check(ctx, RpnRois, GtBoxes, ImInfo, bbox_reg_weights)
    wide = TensorMeta((-1, 4 * class_nums), RpnRois.dtype)
    return {
        "Rois": TensorMeta((-1, 4), RpnRois.dtype),
        "LabelsInt32": TensorMeta((-1, 1), VarType.INT32),
        "BboxTargets": wide,
        "BboxInsideWeights": wide,
        "BboxOutsideWeights": wide,
        "MaxOverlapWithGT": TensorMeta((-1,), RpnRois.dtype),
    }
