"""Region proposals of two-stage detectors, and their levels."""

from __future__ import annotations

from typing import Any

import numpy as np

from fluidtool.onnx_export import ragged
from fluidtool.onnx_export.graph import Graph, Value
from fluidtool.onnx_export.operation import Operation
from fluidtool.onnx_export.operators.detection import SHRINKS_ABOVE, corners, shrinking
from fluidtool.onnx_export.operators.reduction import sorted_along
from fluidtool.onnx_export.registry import need, renders
from fluidtool.ops.detection.proposals import LARGEST


@renders("generate_proposals", "generate_proposals_v2")
def generate_proposals(g: Graph, op: Operation) -> dict[str, Value]:
    """Of one image: the best anchors are moved by their offsets, cut to the image, and suppressed."""
    scores, deltas, anchors, variances = op["Scores"], op["BboxDeltas"], op["Anchors"], op["Variances"]
    later = op.type == "generate_proposals_v2"
    info = op["ImShape" if later else "ImInfo"]
    need(scores.shape is not None and scores.shape[0] in (1, -1), "a batch of more than one image")
    assert scores.shape is not None
    alone = scores.shape[0] == 1 and op.exporter.several
    if not alone:
        op.single()
    pixel = 1 if op.attr("pixel_offset", True) else 0
    flat = scores.transpose(0, 2, 3, 1).reshape([-1])
    offsets = deltas.transpose(0, 2, 3, 1).reshape([-1, 4])
    first, last = op.attr("pre_nms_topN"), op.attr("post_nms_topN")
    count = flat.dim_value(0)
    many = g.minimum(count, first) if first > 0 else count
    points, order = sorted_along(g, flat, 0, many, True)
    offsets, anchors, variances = (value.reshape([-1, 4]).gather(order, 0) for value in (offsets, anchors, variances))
    low_x, low_y, high_x, high_y = corners(anchors)
    width, height = high_x - low_x + pixel, high_y - low_y + pixel
    x, y, w, h = corners(variances * offsets)
    center_x, center_y = x * width + low_x + width * 0.5, y * height + low_y + height * 0.5
    w, h = (g.minimum(side, LARGEST).apply("Exp") for side in (w, h))
    w, h = w * width, h * height
    image = info if info.rank == 1 else info.pick(0, 0)
    rows, columns = image.part(0, 0, 1), image.part(0, 1, 2)
    box = [center_x - w * 0.5, center_y - h * 0.5, center_x + w * 0.5 - pixel, center_y + h * 0.5 - pixel]
    limits = [columns - pixel, rows - pixel, columns - pixel, rows - pixel]
    box = [g.minimum(side, limit).apply("Relu") for side, limit in zip(box, limits, strict=True)]
    kept = _wide(g, op, box, image, pixel, later)
    boxes = g.op("Compress", g.stack(box, 1), kept, axis=0, shape=(-1, 4))
    points = g.op("Compress", points, kept, axis=0, shape=(-1,))
    threshold, eta = op.attr("nms_thresh"), op.attr("eta")
    if threshold > SHRINKS_ABOVE and eta < 1:
        falling = (-np.inf, threshold, eta)
        chosen = shrinking(g, boxes.unsqueeze(0), points.unsqueeze(0, 1), boxes.dim_value(0), falling, pixel).pick(1, 2)
        chosen = chosen if last <= 0 else chosen.part(0, 0, last)
        boxes, points = boxes.gather(chosen, 0), points.gather(chosen, 0)
    elif threshold > 0:
        shifted = boxes + g.constant(np.asarray([0, 0, pixel, pixel], boxes.dtype)) if pixel else boxes
        most = boxes.dim_value(0) if last <= 0 else g.constant([last], np.int64)
        chosen = g.op(
            "NonMaxSuppression", shifted.unsqueeze(0), points.unsqueeze(0, 1), most, g.constant([threshold], np.float32),
            dtype=np.int64, shape=(-1, 3),
        ).pick(1, 2)  # fmt: skip
        boxes, points = boxes.gather(chosen, 0), points.gather(chosen, 0)
    boxes, points = _at_least_one(g, op, boxes, points.unsqueeze(1))
    number = boxes.dim_value(0)
    if alone:
        for slot in ("RpnRois", "RpnRoiProbs"):
            op.tell(slot, [number])
    return {
        "RpnRois": boxes, "RpnRoiProbs": points, "RpnRoisLod": number, "RpnRoisNum": number.cast(np.int32),
    }  # fmt: skip


def _wide(g: Graph, op: Operation, box: list[Value], image: Value, pixel: int, later: bool) -> Value:
    """Which boxes are large enough, and have their center inside the image."""
    least = max(op.attr("min_size"), 1.0)
    width, height = box[2] - box[0] + pixel, box[3] - box[1] + pixel
    if later:
        large = (width >= least) & (height >= least)
        if not pixel:
            return large
    else:
        scale = image.part(0, 2, 3)
        wide, high = (side / scale + 1 for side in (box[2] - box[0], box[3] - box[1]))
        large = (wide >= least) & (high >= least)
    rows, columns = image.part(0, 0, 1), image.part(0, 1, 2)
    return large & (box[0] + width / 2 <= columns) & (box[1] + height / 2 <= rows)


def _at_least_one(g: Graph, op: Operation, boxes: Value, points: Value) -> tuple[Value, Value]:
    """A box of zeros where there is none, as Paddle 2.x gives it."""
    if not op.saved_since(2, 0):
        return boxes, points
    empty = boxes.dim_value(0).equals(0).scalar()
    nothing, something = g.inner(), g.inner()
    zeros = [nothing.constant(np.zeros((1, n), boxes.dtype)) for n in (4, 1)]
    nothing.outputs = [nothing.same("Identity", zero).shaped((-1, n)) for zero, n in zip(zeros, (4, 1), strict=True)]
    something.outputs = [something.same("Identity", value) for value in (boxes, points)]
    one, two = g.node("If", [empty], [boxes.dtype, points.dtype], then_branch=nothing, else_branch=something)
    return one.shaped((-1, 4)), two.shaped((-1, 1))


@renders("distribute_fpn_proposals")
def distribute(g: Graph, op: Operation) -> dict[str, Any]:
    rois, counts = op["FpnRois"], op.all("RoisNum")
    low, high = op.attr("min_level"), op.attr("max_level")
    pixel = 1 if op.attr("pixel_offset", True) else 0
    lengths = counts[0].cast(np.int64).flat() if counts else op.lengths("FpnRois")
    x, y, right, bottom = corners(rois)
    area = (right - x + pixel) * (bottom - y + pixel)
    area = g.where((right < x) | (bottom < y), 0, area)
    size = area.apply("Sqrt") / op.attr("refer_scale") + 1e-6
    level = (size.cast(np.float64).apply("Log") / float(np.log(2.0))).cast(rois.dtype) + op.attr("refer_level")
    level = level.apply("Floor").clip(low, high)
    parts, places = [], []
    numbers = g.range(0, rois.dim_value(0).scalar())
    for number in range(low, high + 1):
        here = level.equals(float(number))
        parts.append(g.op("Compress", rois, here, axis=0, shape=(-1, 4)))
        places.append(g.op("Compress", numbers, here, axis=0, shape=(-1,)))
    order = g.concat(places, 0)
    restore = g.op("ScatterElements", numbers * 0, order, numbers, axis=0)
    each = [part.dim_value(0) for part in parts]
    if lengths is not None:
        each = [_of_images(g, level.equals(float(number)), lengths) for number in range(low, high + 1)]
        for name, found in zip(op.op.outputs["MultiFpnRois"], each, strict=True):
            op.exporter.tell(name, [found])
    return {
        "MultiFpnRois": parts,
        "RestoreIndex": restore.cast(np.int32).unsqueeze(1),
        "MultiLevelRoIsNum": [found.cast(np.int32) for found in each],
    }


def _of_images(g: Graph, here: Value, lengths: Value) -> Value:
    """How many regions of a level each image has."""
    return ragged.padded(g, here.cast(np.int64), lengths)[0].sum(1)


@renders("collect_fpn_proposals")
def collect(g: Graph, op: Operation) -> dict[str, Value]:
    """Of one image: the best of all levels."""
    counts = op.all("MultiLevelRoIsNum")
    need(not counts or counts[0].shape == (1,), "a batch of more than one image")
    if not counts:
        op.single()
    rois, scores = (
        g.concat(op.all("MultiLevelRois"), 0),
        g.concat([part.flat() for part in op.all("MultiLevelScores")], 0),
    )
    many = g.minimum(scores.dim_value(0), op.attr("post_nms_topN"))
    _, order = sorted_along(g, scores, 0, many, True)
    found = rois.gather(order, 0)
    return {"FpnRois": found, "RoisNum": found.dim_value(0).cast(np.int32)}
