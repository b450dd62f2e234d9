"""Boxes: those of YOLO, and the decoding of those of SSD."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from fluidtool.runtime.engines.native.calls import Kind, constant
from fluidtool.runtime.engines.native.lowering.memory import Lowering, lowers
from fluidtool.runtime.graph.ir import Node

COST = 50  # of a box or a score, in multiplications


@lowers("yolo_boxes")
def _yolo_boxes(low: Lowering, node: Node) -> None:
    sizes, attrs = low.plain(node.inputs[1]), node.attrs
    pointers = {1: (constant(attrs["anchors"]), 0), 5: (sizes.buffer, 0)}
    n = {5: attrs["cells"][0], 6: attrs["cells"][1], 7: attrs["ratio"], 8: int(attrs["clip"])}
    numbers = (attrs["threshold"], attrs["scale"], -0.5 * (attrs["scale"] - 1.0))
    _yolo(low, node, Kind.YOLO_BOXES, pointers, n, numbers)


@lowers("yolo_scores")
def _yolo_scores(low: Lowering, node: Node) -> None:
    _yolo(low, node, Kind.YOLO_SCORES, {}, {}, (node.attrs["threshold"],))


def _yolo(
    low: Lowering, node: Node, kind: Kind, pointers: dict[int, Any], n: dict[int, int], numbers: tuple[float, ...]
) -> None:
    x, (images, _, height, width) = low.contiguous(node.inputs[0]), node.inputs[0].shape
    out, count = low.new_plain(node.output), node.attrs["anchors"].size // 2
    n = n | dict(enumerate((images, count, height, width, node.attrs["classes"])))
    pointers = pointers | {0: (x.buffer, x.offset), 3: (out.buffer, 0)}
    tasks = low.task_count(COST * prod(node.output.shape), images * count * -(-height * width // low.width))
    low.steps.add(kind, pointers, n, numbers=numbers, tasks=tasks)


@lowers("decode_boxes")
def _decode_boxes(low: Lowering, node: Node) -> None:
    codes, priors = (low.contiguous(value) for value in node.inputs[:2])
    attrs, (rows, columns, _) = node.attrs, node.output.shape
    out = low.new_plain(node.output)
    pointers = {0: (codes.buffer, codes.offset), 1: (priors.buffer, priors.offset), 3: (out.buffer, 0)}
    if len(node.inputs) > 2:
        scale = low.contiguous(node.inputs[2])
        pointers[2] = (scale.buffer, scale.offset)
    else:
        pointers[2] = (constant(np.array(attrs["variance"] or [1.0] * 4)), 0)
    n = {0: rows, 1: columns, 2: attrs["along"], 3: 4 if len(node.inputs) > 2 else 0}
    tasks = low.task_count(COST * rows * columns, rows * -(-columns // low.width))
    low.steps.add(Kind.DECODE_BOXES, pointers, n, numbers=(attrs["pixel"],), tasks=tasks)
