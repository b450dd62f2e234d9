"""Layers of one-stage detectors: YOLOv3 and the focal loss (Paddle 1.8.5 layers/detection.py)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fluidtool.errors import ArgumentTypeError
from fluidtool.fluid.layer_helper import LayerHelper
from fluidtool.fluid.layers.building import append_simple
from fluidtool.fluid.layers.detection.appending import append_op, check_int32, check_reals
from fluidtool.ir import Variable


def _must_be(value: Any, kinds: type | tuple[type, ...], text: str) -> None:
    if not isinstance(value, kinds):
        raise ArgumentTypeError(text)


def sigmoid_focal_loss(
    x: Variable, label: Variable, fg_num: Variable, gamma: float = 2.0, alpha: float = 0.25
) -> Variable:
    """The focal loss [n, classes] of logits x for labels [n, 1] (0: background), divided by fg_num."""
    check_reals("sigmoid_focal_loss", x=x)
    check_int32("sigmoid_focal_loss", label=label, fg_num=fg_num)
    inputs, attrs = {"X": x, "Label": label, "FgNum": fg_num}, {"gamma": gamma, "alpha": alpha}
    return append_simple(LayerHelper("sigmoid_focal_loss"), "sigmoid_focal_loss", inputs, attrs, dtype=x.dtype)


def yolov3_loss(
    x: Variable,
    gt_box: Variable,
    gt_label: Variable,
    anchors: Sequence[int],
    anchor_mask: Sequence[int],
    class_num: int,
    ignore_thresh: float,
    downsample_ratio: int,
    gt_score: Variable | None = None,
    use_label_smooth: bool = True,
    name: str | None = None,
    scale_x_y: float = 1.0,
) -> Variable:
    """YOLOv3's loss [n] of predictions x [n, anchors * (5 + class_num), height, width].

    gt_box [n, boxes, 4] (center, size; relative), gt_label int32 [n, boxes], gt_score: a weight for each of these.
    """
    helper = LayerHelper("yolov3_loss", name=name)
    _must_be(x, Variable, "Input x of yolov3_loss must be Variable")
    _must_be(gt_box, Variable, "Input gtbox of yolov3_loss must be Variable")
    _must_be(gt_label, Variable, "Input gtlabel of yolov3_loss must be Variable")
    _must_be(gt_score, (Variable, type(None)), "Input gtscore of yolov3_loss must be Variable")
    _must_be(anchors, (list, tuple), "Attr anchors of yolov3_loss must be list or tuple")
    _must_be(anchor_mask, (list, tuple), "Attr anchor_mask of yolov3_loss must be list or tuple")
    _must_be(class_num, int, "Attr class_num of yolov3_loss must be an integer")
    _must_be(ignore_thresh, float, "Attr ignore_thresh of yolov3_loss must be a float number")
    _must_be(use_label_smooth, bool, "Attr use_label_smooth of yolov3_loss must be a bool value")
    inputs = {"X": x, "GTBox": gt_box, "GTLabel": gt_label, "GTScore": gt_score}
    outputs = {"Loss": x.dtype, "ObjectnessMask": "int32", "GTMatchMask": "int32"}
    attrs = {
        "anchors": list(anchors),
        "anchor_mask": list(anchor_mask),
        "class_num": class_num,
        "ignore_thresh": ignore_thresh,
        "downsample_ratio": downsample_ratio,
        "use_label_smooth": use_label_smooth,
        "scale_x_y": scale_x_y,
    }
    return append_op(helper, "yolov3_loss", inputs, outputs, attrs, stop_gradient=False)[0]


def yolo_box(
    x: Variable,
    img_size: Variable,
    anchors: Sequence[int],
    class_num: int,
    conf_thresh: float,
    downsample_ratio: int,
    clip_bbox: bool = True,
    name: str | None = None,
    scale_x_y: float = 1.0,
) -> tuple[Variable, Variable]:
    """YOLOv3's boxes [n, boxes, 4] in images of img_size [n, 2] (height, width), and scores [n, boxes, class_num]."""
    helper = LayerHelper("yolo_box", name=name)
    _must_be(x, Variable, "Input x of yolo_box must be Variable")
    _must_be(img_size, Variable, "Input img_size of yolo_box must be Variable")
    _must_be(anchors, (list, tuple), "Attr anchors of yolo_box must be list or tuple")
    _must_be(class_num, int, "Attr class_num of yolo_box must be an integer")
    _must_be(conf_thresh, float, "Attr ignore_thresh of yolo_box must be a float number")
    attrs = {
        "anchors": list(anchors),
        "class_num": class_num,
        "conf_thresh": conf_thresh,
        "downsample_ratio": downsample_ratio,
        "clip_bbox": clip_bbox,
        "scale_x_y": scale_x_y,
    }
    outputs = {"Boxes": x.dtype, "Scores": x.dtype}
    inputs = {"X": x, "ImgSize": img_size}
    boxes, scores = append_op(helper, "yolo_box", inputs, outputs, attrs, stop_gradient=False)
    return boxes, scores
