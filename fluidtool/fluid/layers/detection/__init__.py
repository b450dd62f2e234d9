"""Object detection: priors, assignment, proposals, suppression (Paddle 1.8.5 layers/detection.py)."""

from fluidtool.fluid.layers.detection.assignment import (
    bipartite_match,
    retinanet_target_assign,
    rpn_target_assign,
    ssd_loss,
    target_assign,
)
from fluidtool.fluid.layers.detection.boxes import (
    box_clip,
    box_coder,
    box_decoder_and_assign,
    iou_similarity,
    polygon_box_transform,
    roi_perspective_transform,
)
from fluidtool.fluid.layers.detection.one_stage import sigmoid_focal_loss, yolo_box, yolov3_loss
from fluidtool.fluid.layers.detection.postprocessing import (
    detection_map,
    detection_output,
    locality_aware_nms,
    matrix_nms,
    multiclass_nms,
    retinanet_detection_output,
)
from fluidtool.fluid.layers.detection.priors import anchor_generator, density_prior_box, multi_box_head, prior_box
from fluidtool.fluid.layers.detection.proposals import (
    collect_fpn_proposals,
    distribute_fpn_proposals,
    generate_mask_labels,
    generate_proposal_labels,
    generate_proposals,
)

__all__ = [
    "anchor_generator",
    "bipartite_match",
    "box_clip",
    "box_coder",
    "box_decoder_and_assign",
    "collect_fpn_proposals",
    "density_prior_box",
    "detection_map",
    "detection_output",
    "distribute_fpn_proposals",
    "generate_mask_labels",
    "generate_proposal_labels",
    "generate_proposals",
    "iou_similarity",
    "locality_aware_nms",
    "matrix_nms",
    "multi_box_head",
    "multiclass_nms",
    "polygon_box_transform",
    "prior_box",
    "retinanet_detection_output",
    "retinanet_target_assign",
    "roi_perspective_transform",
    "rpn_target_assign",
    "sigmoid_focal_loss",
    "ssd_loss",
    "target_assign",
    "yolo_box",
    "yolov3_loss",
]
