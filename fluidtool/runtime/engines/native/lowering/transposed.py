"""Transposed convolutions: the pixels of every phase of the strides are a plain convolution by part of the filters."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from fluidtool.runtime.engines.native.graph import Node, Value
from fluidtool.runtime.engines.native.lowering.convolution import convolve
from fluidtool.runtime.engines.native.lowering.memory import Halo, Lowering, lowers

Phase = tuple[int, int, int, int, int]  # first tap, taps, first output, outputs, zeros before the first input


def phases(node: Node, axis: int) -> Iterator[Phase]:
    """On one axis: output `first + stride * j` sums taps `tap + stride * t` of inputs that step back from j."""
    stride, before = node.facts["strides"][axis], node.facts["pads"][axis]
    size, window = node.output.shape[2 + axis], node.facts["weights"].shape[2 + axis]
    for tap in range(stride):
        taps, first = -(-(window - tap) // stride), (tap - before) % stride
        outputs = -(-(size - first) // stride)
        if outputs > 0:
            yield tap, taps, first, outputs, taps - 1 - (first + before - tap) // stride


def needed_halo(node: Node) -> Halo:
    """The zeros that a transposed convolution needs around its input."""
    ends = []
    for axis in (0, 1):
        size = node.inputs[0].shape[2 + axis]
        found = list(phases(node, axis))
        ends.append(
            (max(phase[4] for phase in found), max(phase[3] + phase[1] - 1 - phase[4] - size for phase in found))
        )
    (top, bottom), (left, right) = ends
    return max(top, 0), max(left, 0), max(bottom, 0), max(right, 0)


@lowers("conv_transpose")
def _conv_transpose(low: Lowering, node: Node) -> None:
    source, out = low.blocked(node.inputs[0], narrow=True), low.new_blocked(node.output)
    strides, facts = node.facts["strides"], node.facts
    for row, _, top, height, above in phases(node, 0):
        for column, _, left, width, before in phases(node, 1):
            filters = facts["weights"][:, :, row :: strides[0], column :: strides[1]][..., ::-1, ::-1].swapaxes(0, 1)
            part: dict[str, Any] = {
                "weights": np.ascontiguousarray(filters),
                "pads": (above, before, 0, 0),
                "groups": 1,
            }
            part |= {"strides": (1, 1), "dilations": (1, 1), "scale": facts["scale"], "shift": facts["shift"]}
            value = Value(node.output.name, (*node.output.shape[:2], height, width))
            piece = Node("conv", node.inputs, value, part, node.activation)
            convolve(low, piece, source, out, (top * out.row + left * out.lanes, *strides))
