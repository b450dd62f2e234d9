"""Regions proposed, sampled, labeled and dealt to the levels of a pyramid (Paddle 1.8.5 layers/detection.py)."""

from __future__ import annotations

from collections.abc import Sequence

from fluidtool.fluid.checks import check_variable_and_dtype
from fluidtool.fluid.layer_helper import LayerHelper
from fluidtool.fluid.layers.detection.appending import append_op, check_int32, check_reals
from fluidtool.ir import Variable


def generate_proposals(
    scores: Variable,
    bbox_deltas: Variable,
    im_info: Variable,
    anchors: Variable,
    variances: Variable,
    pre_nms_top_n: int = 6000,
    post_nms_top_n: int = 1000,
    nms_thresh: float = 0.5,
    min_size: float = 0.1,
    eta: float = 1.0,
    name: str | None = None,
    return_rois_num: bool = False,
) -> tuple[Variable, ...]:
    """The best regions of every image and their scores, with one LoD level; return_rois_num: their numbers, int32, too."""
    helper = LayerHelper("generate_proposals", name=name)
    for label, value in (("scores", scores), ("bbox_deltas", bbox_deltas)):
        check_variable_and_dtype(value, label, ("float32",), "generate_proposals")
    check_reals("generate_proposals", im_info=im_info)
    for label, value in (("anchors", anchors), ("variances", variances)):
        check_variable_and_dtype(value, label, ("float32",), "generate_proposals")
    inputs = {
        "Scores": scores,
        "BboxDeltas": bbox_deltas,
        "ImInfo": im_info,
        "Anchors": anchors,
        "Variances": variances,
    }
    outputs = {"RpnRois": bbox_deltas.dtype, "RpnRoiProbs": scores.dtype, "RpnRoisLod": "int32"}
    attrs = {
        "pre_nms_topN": pre_nms_top_n,
        "post_nms_topN": post_nms_top_n,
        "nms_thresh": nms_thresh,
        "min_size": min_size,
        "eta": eta,
    }
    rois, probs, counts = append_op(helper, "generate_proposals", inputs, outputs, attrs)
    return (rois, probs, counts) if return_rois_num else (rois, probs)


def generate_proposal_labels(
    rpn_rois: Variable,
    gt_classes: Variable,
    is_crowd: Variable,
    gt_boxes: Variable,
    im_info: Variable,
    batch_size_per_im: int = 256,
    fg_fraction: float = 0.25,
    fg_thresh: float = 0.25,
    bg_thresh_hi: float = 0.5,
    bg_thresh_lo: float = 0.0,
    bbox_reg_weights: Sequence[float] = (0.1, 0.1, 0.2, 0.2),
    class_nums: int | None = None,
    use_random: bool = True,
    is_cls_agnostic: bool = False,
    is_cascade_rcnn: bool = False,
) -> tuple[Variable, ...]:
    """Sampled regions, their labels (int32), box targets, inside and outside weights."""
    layer = "generate_proposal_labels"
    helper = LayerHelper(layer)
    check_reals(layer, rpn_rois=rpn_rois)
    check_int32(layer, gt_classes=gt_classes, is_crowd=is_crowd)
    inputs = {
        "RpnRois": rpn_rois,
        "GtClasses": gt_classes,
        "IsCrowd": is_crowd,
        "GtBoxes": gt_boxes,
        "ImInfo": im_info,
    }
    outputs = {
        "Rois": rpn_rois.dtype,
        "LabelsInt32": gt_classes.dtype,
        "BboxTargets": rpn_rois.dtype,
        "BboxInsideWeights": rpn_rois.dtype,
        "BboxOutsideWeights": rpn_rois.dtype,
    }
    attrs = {
        "batch_size_per_im": batch_size_per_im,
        "fg_fraction": fg_fraction,
        "fg_thresh": fg_thresh,
        "bg_thresh_hi": bg_thresh_hi,
        "bg_thresh_lo": bg_thresh_lo,
        "bbox_reg_weights": list(bbox_reg_weights),
        "class_nums": class_nums,
        "use_random": use_random,
        "is_cls_agnostic": is_cls_agnostic,
        "is_cascade_rcnn": is_cascade_rcnn,
    }
    return tuple(append_op(helper, layer, inputs, outputs, attrs))


def generate_mask_labels(
    im_info: Variable,
    gt_classes: Variable,
    is_crowd: Variable,
    gt_segms: Variable,
    rois: Variable,
    labels_int32: Variable,
    num_classes: int,
    resolution: int,
) -> tuple[Variable, ...]:
    """The regions that have a mask, which ones these are, and the masks [masks, num_classes * resolution²] (int32)."""
    helper = LayerHelper("generate_mask_labels")
    inputs = {
        "ImInfo": im_info,
        "GtClasses": gt_classes,
        "IsCrowd": is_crowd,
        "GtSegms": gt_segms,
        "Rois": rois,
        "LabelsInt32": labels_int32,
    }
    outputs = {"MaskRois": rois.dtype, "RoiHasMaskInt32": gt_classes.dtype, "MaskInt32": gt_classes.dtype}
    attrs = {"num_classes": num_classes, "resolution": resolution}
    return tuple(append_op(helper, "generate_mask_labels", inputs, outputs, attrs))


def distribute_fpn_proposals(
    fpn_rois: Variable, min_level: int, max_level: int, refer_level: int, refer_scale: int, name: str | None = None
) -> tuple[list[Variable], Variable]:
    """Regions dealt to the levels by their size, and the index (int32) that puts them back in order."""
    helper = LayerHelper("distribute_fpn_proposals", fpn_rois=fpn_rois, name=name)
    dtype = helper.input_dtype("fpn_rois")
    levels = [helper.create_variable_for_type_inference(dtype) for _ in range(max_level - min_level + 1)]
    restore = helper.create_variable_for_type_inference("int32")
    helper.append_op(
        type="distribute_fpn_proposals",
        inputs={"FpnRois": fpn_rois},
        outputs={"MultiFpnRois": levels, "RestoreIndex": restore},
        attrs={
            "min_level": min_level,
            "max_level": max_level,
            "refer_level": refer_level,
            "refer_scale": refer_scale,
        },
    )
    return levels, restore


def collect_fpn_proposals(
    multi_rois: Sequence[Variable],
    multi_scores: Sequence[Variable],
    min_level: int,
    max_level: int,
    post_nms_top_n: int,
    name: str | None = None,
) -> Variable:
    """The best regions of all levels."""
    helper = LayerHelper("collect_fpn_proposals", multi_rois=multi_rois, name=name)
    count = max_level - min_level + 1
    inputs = {"MultiLevelRois": list(multi_rois[:count]), "MultiLevelScores": list(multi_scores[:count])}
    outputs = {"FpnRois": helper.input_dtype("multi_rois")}
    return append_op(helper, "collect_fpn_proposals", inputs, outputs, {"post_nms_topN": post_nms_top_n})[0]
