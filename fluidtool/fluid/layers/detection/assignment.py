"""Which ground truth every prior or anchor learns, and SSD's loss (Paddle 1.8.5 layers/detection.py)."""

from __future__ import annotations

from typing import Any

from fluidtool.errors import UsageError
from fluidtool.fluid.layer_helper import LayerHelper
from fluidtool.fluid.layers.creation import cast
from fluidtool.fluid.layers.detection.appending import append_op, check_int32, check_reals
from fluidtool.fluid.layers.detection.boxes import box_coder, iou_similarity
from fluidtool.fluid.layers.indexing import gather
from fluidtool.fluid.layers.loss import smooth_l1, softmax_with_cross_entropy
from fluidtool.fluid.layers.reduction import reduce_sum
from fluidtool.fluid.layers.shape import flatten, reshape, shape, slice
from fluidtool.ir import Variable


def bipartite_match(
    dist_matrix: Variable, match_type: str | None = None, dist_threshold: float | None = None, name: str | None = None
) -> tuple[Variable, Variable]:
    """For every column of dist_matrix the row it is matched with (-1: none), int32, and their distance.

    match_type 'per_prediction': unmatched columns get their nearest row if its distance is at least dist_threshold.
    """
    helper = LayerHelper("bipartite_match", name=name)
    outputs = {"ColToRowMatchIndices": "int32", "ColToRowMatchDist": dist_matrix.dtype}
    attrs = {"match_type": match_type, "dist_threshold": dist_threshold}
    inputs = {"DistMat": dist_matrix}
    indices, distance = append_op(helper, "bipartite_match", inputs, outputs, attrs, stop_gradient=False)
    return indices, distance


def target_assign(
    input: Variable,
    matched_indices: Variable,
    negative_indices: Variable | None = None,
    mismatch_value: float | None = None,
    name: str | None = None,
) -> tuple[Variable, Variable]:
    """The rows of input selected by matched_indices, mismatch_value for -1; and weights: 1 for selected rows.

    negative_indices: these get mismatch_value and weight 1.
    """
    helper = LayerHelper("target_assign", name=name)
    inputs = {"X": input, "MatchIndices": matched_indices, "NegIndices": negative_indices}
    outputs = {"Out": input.dtype, "OutWeight": "float32"}
    attrs = {"mismatch_value": mismatch_value}
    out, weight = append_op(helper, "target_assign", inputs, outputs, attrs, stop_gradient=False)
    return out, weight


def rpn_target_assign(
    bbox_pred: Variable,
    cls_logits: Variable,
    anchor_box: Variable,
    anchor_var: Variable,
    gt_boxes: Variable,
    is_crowd: Variable,
    im_info: Variable,
    rpn_batch_size_per_im: int = 256,
    rpn_straddle_thresh: float = 0.0,
    rpn_fg_fraction: float = 0.5,
    rpn_positive_overlap: float = 0.7,
    rpn_negative_overlap: float = 0.3,
    use_random: bool = True,
) -> tuple[Variable, ...]:
    """The targets of a region proposal network: predicted scores, predicted locations, labels, boxes, inside weights."""
    helper = LayerHelper("rpn_target_assign")
    check_reals(
        "rpn_target_assign",
        bbox_pred=bbox_pred,
        cls_logits=cls_logits,
        anchor_box=anchor_box,
        anchor_var=anchor_var,
        gt_boxes=gt_boxes,
    )
    check_int32("rpn_target_assign", is_crowd=is_crowd)
    check_reals("rpn_target_assign", im_info=im_info)
    inputs = {"Anchor": anchor_box, "GtBoxes": gt_boxes, "IsCrowd": is_crowd, "ImInfo": im_info}
    attrs = {
        "rpn_batch_size_per_im": rpn_batch_size_per_im,
        "rpn_straddle_thresh": rpn_straddle_thresh,
        "rpn_positive_overlap": rpn_positive_overlap,
        "rpn_negative_overlap": rpn_negative_overlap,
        "rpn_fg_fraction": rpn_fg_fraction,
        "use_random": use_random,
    }
    outputs = _targets(anchor_box)
    locations, scores, *targets = append_op(helper, "rpn_target_assign", inputs, outputs, attrs)
    return (*_picked(cls_logits, scores, 1, bbox_pred, locations), *targets)


def retinanet_target_assign(
    bbox_pred: Variable,
    cls_logits: Variable,
    anchor_box: Variable,
    anchor_var: Variable,
    gt_boxes: Variable,
    gt_labels: Variable,
    is_crowd: Variable,
    im_info: Variable,
    num_classes: int = 1,
    positive_overlap: float = 0.5,
    negative_overlap: float = 0.4,
) -> tuple[Variable, ...]:
    """The targets of RetinaNet: as rpn_target_assign, with labels of num_classes, and the number of foreground anchors."""
    layer = "retinanet_target_assign"
    check_reals(
        layer,
        bbox_pred=bbox_pred,
        cls_logits=cls_logits,
        anchor_box=anchor_box,
        anchor_var=anchor_var,
        gt_boxes=gt_boxes,
    )
    check_int32(layer, gt_labels=gt_labels, is_crowd=is_crowd)
    check_reals(layer, im_info=im_info)
    helper = LayerHelper(layer)
    inputs = {
        "Anchor": anchor_box,
        "GtBoxes": gt_boxes,
        "GtLabels": gt_labels,
        "IsCrowd": is_crowd,
        "ImInfo": im_info,
    }
    outputs = {**_targets(anchor_box), "ForegroundNumber": "int32"}
    attrs = {"positive_overlap": positive_overlap, "negative_overlap": negative_overlap}
    locations, scores, *targets = append_op(helper, layer, inputs, outputs, attrs)
    return (*_picked(cls_logits, scores, num_classes, bbox_pred, locations), *targets)


def _targets(anchor_box: Variable) -> dict[str, Any]:
    return {
        "LocationIndex": "int32",
        "ScoreIndex": "int32",
        "TargetLabel": "int32",
        "TargetBBox": anchor_box.dtype,
        "BBoxInsideWeight": anchor_box.dtype,
    }


def _picked(
    logits: Variable, score_index: Variable, classes: int, boxes: Variable, location_index: Variable
) -> tuple[Variable, Variable]:
    """The predicted scores and boxes of the anchors that take part."""
    logits, boxes = reshape(logits, shape=(-1, classes)), reshape(boxes, shape=(-1, 4))
    return gather(logits, score_index), gather(boxes, location_index)


# ---------------------------------------------------------------- the loss of SSD
def ssd_loss(
    location: Variable,
    confidence: Variable,
    gt_box: Variable,
    gt_label: Variable,
    prior_box: Variable,
    prior_box_var: Variable | list[float] | None = None,
    background_label: int = 0,
    overlap_threshold: float = 0.5,
    neg_pos_ratio: float = 3.0,
    neg_overlap: float = 0.5,
    loc_loss_weight: float = 1.0,
    conf_loss_weight: float = 1.0,
    match_type: str = "per_prediction",
    mining_type: str = "max_negative",
    normalize: bool = True,
    sample_size: int | None = None,
) -> Variable:
    """SSD's loss [n, 1] of predicted locations [n, priors, 4] and scores [n, priors, classes].

    Priors are matched with the true boxes; the hardest of the others count as background, neg_pos_ratio to one.
    """
    helper = LayerHelper("ssd_loss")
    if mining_type != "max_negative":
        raise UsageError("Only support mining_type == max_negative now.")
    conf_shape = shape(confidence)
    indices, distance = bipartite_match(iou_similarity(x=gt_box, y=prior_box), match_type, overlap_threshold)

    # The scores' loss after matching determines which of the others are hard.
    gt_label = reshape(gt_label, shape=(0,) * (len(gt_label.shape) - 1) + (-1, 1))
    gt_label.stop_gradient = True
    label, _ = target_assign(gt_label, indices, mismatch_value=background_label)
    confidence = flatten(confidence, axis=2)
    label = flatten(cast(label, "int64"), axis=2)
    label.stop_gradient = True
    conf_loss: Any = softmax_with_cross_entropy(confidence, label)
    by_image = slice(conf_shape, axes=[0], starts=[0], ends=[2])
    by_image.stop_gradient = True
    conf_loss = reshape(conf_loss, shape=(-1, 0), actual_shape=by_image)
    conf_loss.stop_gradient = True
    negative, mined = append_op(
        helper,
        "mine_hard_examples",
        {"ClsLoss": conf_loss, "MatchIndices": indices, "MatchDist": distance},
        {"NegIndices": "int32", "UpdatedMatchIndices": indices.dtype},
        {
            "neg_pos_ratio": neg_pos_ratio,
            "neg_dist_threshold": neg_overlap,
            "mining_type": mining_type,
            "sample_size": sample_size,
        },
        stop_gradient=False,
    )

    encoded = box_coder(prior_box, prior_box_var, gt_box)  # type: ignore[arg-type]
    box, location_weight = target_assign(encoded, mined, mismatch_value=background_label)
    label, confidence_weight = target_assign(
        gt_label, mined, negative_indices=negative, mismatch_value=background_label
    )
    label = cast(flatten(label, axis=2), "int64")
    conf_loss = softmax_with_cross_entropy(confidence, label)
    confidence_weight = flatten(confidence_weight, axis=2)
    conf_loss = conf_loss * confidence_weight
    label.stop_gradient = confidence_weight.stop_gradient = True

    location, box = flatten(location, axis=2), flatten(box, axis=2)
    loc_loss: Any = smooth_l1(location, box)
    location_weight = flatten(location_weight, axis=2)
    loc_loss = loc_loss * location_weight
    box.stop_gradient = location_weight.stop_gradient = True

    loss: Variable = conf_loss_weight * conf_loss + loc_loss_weight * loc_loss
    loss = reduce_sum(reshape(loss, shape=(-1, 0), actual_shape=by_image), dim=1, keep_dim=True)
    return loss / reduce_sum(location_weight) if normalize else loss  # type: ignore[operator]
