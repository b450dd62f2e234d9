"""Boxes: those of YOLO, and the decoder of SSD."""

from __future__ import annotations

from typing import Any

import numpy as np

from fluidtool.ir import Operator
from fluidtool.runtime.graph.importers.registry import GraphBuilder, imports, need

SAVED_BY_2 = 2_000_000  # the version of programs from Paddle 2.0 or later


@imports("yolo_box", results=("Boxes", "Scores"))
def _yolo_box(r: GraphBuilder, op: Operator, attrs: dict[str, Any]) -> None:
    x, sizes = r.get(op, "X"), r.from_outside(op, "ImgSize")
    anchors, classes = np.asarray(attrs["anchors"], np.float32), int(attrs["class_num"])
    need(not attrs.get("iou_aware"), "confidences by overlap")
    need(len(x.shape) == 4 and anchors.size % 2 == 0 and min(anchors.size, classes) > 0, "boxes of unexpected shapes")
    images, channels, height, width = x.shape
    count = anchors.size // 2
    need(channels == count * (5 + classes) and sizes.shape == (images, 2), "boxes that do not match the anchors")
    node_attrs: dict[str, Any] = {"classes": classes, "anchors": anchors, "threshold": float(attrs["conf_thresh"])}
    later = (op.block.program.version or 0) >= SAVED_BY_2
    node_attrs |= {"cells": (height, width if later else height), "ratio": int(attrs["downsample_ratio"])}
    node_attrs |= {"clip": bool(attrs["clip_bbox"]), "scale": float(attrs["scale_x_y"])}
    rows = count * height * width
    r.add("yolo_boxes", [x, sizes], op, "Boxes", (images, rows, 4), **node_attrs)
    r.add("yolo_scores", [x], op, "Scores", (images, rows, classes), **node_attrs)


@imports("box_coder")
def _box_coder(r: GraphBuilder, op: Operator, attrs: dict[str, Any]) -> None:
    priors, codes, scale = r.get(op, "PriorBox"), r.get(op, "TargetBox"), r.maybe(op, "PriorBoxVar")
    axis, variance = int(attrs["axis"]), [float(number) for number in attrs["variance"]]
    need(attrs["code_type"] == "decode_center_size", "boxes that are encoded")
    need(axis in (0, 1) and len(codes.shape) == 3 and codes.shape[2] == 4, "boxes of unexpected shapes")
    need(priors.shape == (codes.shape[1 - axis], 4), "boxes of unexpected shapes")
    fits = len(variance) in (0, 4) if scale is None else not variance and scale.shape == priors.shape
    need(fits, "variances of an unexpected shape")
    node_attrs: dict[str, Any] = {"along": axis, "variance": variance, "pixel": 0.0 if attrs["box_normalized"] else 1.0}
    inputs = [codes, priors] if scale is None else [codes, priors, scale]
    r.add("decode_boxes", inputs, op, "OutputBox", codes.shape, **node_attrs)
    r.lods[op.outputs["OutputBox"][0]] = r.lods.get(op.inputs["PriorBox" if axis else "TargetBox"][0], ())
