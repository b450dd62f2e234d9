"""Boxes: those of YOLO, and the decoder of SSD."""

from __future__ import annotations

from math import prod

import numpy as np

from fluidtool.runtime.engines.native import abi
from fluidtool.runtime.engines.native.layouts import constant
from fluidtool.runtime.engines.native.lowering.values import Lowering, lowers
from fluidtool.runtime.graph.ir import Node

COST = 50  # of a box or a score, in multiplications


@lowers("yolo_boxes")
def _yolo_boxes(low: Lowering, node: Node) -> None:
    attrs, (images, _, height, width) = node.attrs, node.inputs[0].shape
    x, sizes, count = low.contiguous(node.inputs[0]), low.plain(node.inputs[1]), attrs["anchors"].size // 2
    grid_h, grid_w = attrs["cells"]
    arguments = abi.YoloBoxes(
        source=(x.buffer, x.offset), anchors=(constant(attrs["anchors"]), 0), out=(low.new_plain(node.output).buffer, 0),
        image_sizes=(sizes.buffer, 0), images=images, anchor_count=count, rows=height, columns=width,
        classes=attrs["classes"], grid_h=grid_h, grid_w=grid_w, cell_pixels=attrs["ratio"], clip=int(attrs["clip"]),
        threshold=attrs["threshold"], scale=attrs["scale"], shift=-0.5 * (attrs["scale"] - 1.0),
    )  # fmt: skip
    low.calls.add(arguments, _yolo_tasks(low, node, count))


@lowers("yolo_scores")
def _yolo_scores(low: Lowering, node: Node) -> None:
    attrs, (images, _, height, width) = node.attrs, node.inputs[0].shape
    x, count = low.contiguous(node.inputs[0]), attrs["anchors"].size // 2
    arguments = abi.YoloScores(
        source=(x.buffer, x.offset), out=(low.new_plain(node.output).buffer, 0), images=images, anchor_count=count,
        rows=height, columns=width, classes=attrs["classes"], threshold=attrs["threshold"],
    )  # fmt: skip
    low.calls.add(arguments, _yolo_tasks(low, node, count))


def _yolo_tasks(low: Lowering, node: Node, anchors: int) -> int:
    images, _, height, width = node.inputs[0].shape
    return low.calls.task_count(COST * prod(node.output.shape), images * anchors * -(-height * width // low.width))


@lowers("decode_boxes")
def _decode_boxes(low: Lowering, node: Node) -> None:
    codes, priors = (low.contiguous(value) for value in node.inputs[:2])
    attrs, (rows, columns, _), given = node.attrs, node.output.shape, len(node.inputs) > 2
    out = low.new_plain(node.output)
    if given:
        place = low.contiguous(node.inputs[2])
        scale = place.buffer, place.offset
    else:
        scale = constant(np.array(attrs["variance"] or [1.0] * 4)), 0
    arguments = abi.DecodeBoxes(
        source=(codes.buffer, codes.offset), priors=(priors.buffer, priors.offset), scale=scale, out=(out.buffer, 0),
        rows=rows, columns=columns, along_rows=attrs["along"], scale_step=4 if given else 0, pixel=attrs["pixel"],
    )  # fmt: skip
    low.calls.add(arguments, low.calls.task_count(COST * rows * columns, rows * -(-columns // low.width)))
