"""Boxes: those of YOLO, and the decoding of those of SSD."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from fluidtool.runtime.engines.native.graph import Node
from fluidtool.runtime.engines.native.lowering.memory import Lowering, lowers
from fluidtool.runtime.engines.native.steps import Kind, constant

COST = 50  # of a box or a score, in multiplications


@lowers("yolo_boxes")
def _yolo_boxes(low: Lowering, node: Node) -> None:
    sizes, facts = low.plain(node.inputs[1]), node.facts
    pointers = {1: (constant(facts["anchors"]), 0), 5: (sizes.buffer, 0)}
    n = {5: facts["cells"][0], 6: facts["cells"][1], 7: facts["ratio"], 8: int(facts["clip"])}
    numbers = (facts["threshold"], facts["scale"], -0.5 * (facts["scale"] - 1.0))
    _yolo(low, node, Kind.YOLO_BOXES, pointers, n, numbers)


@lowers("yolo_scores")
def _yolo_scores(low: Lowering, node: Node) -> None:
    _yolo(low, node, Kind.YOLO_SCORES, {}, {}, (node.facts["threshold"],))


def _yolo(
    low: Lowering, node: Node, kind: Kind, pointers: dict[int, Any], n: dict[int, int], numbers: tuple[float, ...]
) -> None:
    x, (images, _, height, width) = low.contiguous(node.inputs[0]), node.inputs[0].shape
    out, count = low.new_plain(node.output), node.facts["anchors"].size // 2
    n = n | dict(enumerate((images, count, height, width, node.facts["classes"])))
    pointers = pointers | {0: (x.buffer, x.offset), 3: (out.buffer, 0)}
    tasks = low.parts(COST * prod(node.output.shape), images * count * -(-height * width // low.width))
    low.steps.add(kind, pointers, n, numbers=numbers, tasks=tasks)


@lowers("decode_boxes")
def _decode_boxes(low: Lowering, node: Node) -> None:
    codes, priors = (low.contiguous(value) for value in node.inputs[:2])
    facts, (rows, columns, _) = node.facts, node.output.shape
    out = low.new_plain(node.output)
    pointers = {0: (codes.buffer, codes.offset), 1: (priors.buffer, priors.offset), 3: (out.buffer, 0)}
    if len(node.inputs) > 2:
        scale = low.contiguous(node.inputs[2])
        pointers[2] = (scale.buffer, scale.offset)
    else:
        pointers[2] = (constant(np.array(facts["variance"] or [1.0] * 4)), 0)
    n = {0: rows, 1: columns, 2: facts["along"], 3: 4 if len(node.inputs) > 2 else 0}
    tasks = low.parts(COST * rows * columns, rows * -(-columns // low.width))
    low.steps.add(Kind.DECODE_BOXES, pointers, n, numbers=(facts["pixel"],), tasks=tasks)
