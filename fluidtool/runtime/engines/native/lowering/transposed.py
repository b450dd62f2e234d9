"""Transposed convolutions: the pixels of every phase of the strides are a plain convolution by part of the filters.

Phases with few channels, which fit one vector together, are one convolution, whose channels become pixels.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from math import prod
from typing import Any

import numpy as np

from fluidtool.runtime.engines.native.layouts import Blocked, Halo, Plain
from fluidtool.runtime.engines.native.lowering.channels import spread_pixels
from fluidtool.runtime.engines.native.lowering.convolution import convolve
from fluidtool.runtime.engines.native.lowering.values import Lowering, lowers
from fluidtool.runtime.graph.importers.registry import ALONE
from fluidtool.runtime.graph.ir import NONE, Node, Value

Phase = tuple[int, int, int, int, int]  # first tap, taps, first output, outputs, zeros before the first input


def phases(node: Node, axis: int) -> Iterator[Phase]:
    """On one axis: output `first + stride * j` sums taps `tap + stride * t` of inputs that step back from j."""
    stride, before = node.attrs["strides"][axis], node.attrs["pads"][axis]
    size, window = node.output.shape[2 + axis], node.attrs["weights"].shape[2 + axis]
    for tap in range(stride):
        taps, first = -(-(window - tap) // stride), (tap - before) % stride
        outputs = -(-(size - first) // stride)
        if outputs > 0:
            yield tap, taps, first, outputs, taps - 1 - (first + before - tap) // stride


def reach_of_all(node: Node, axis: int) -> tuple[int, int]:
    """On one axis: how many inputs before and after its own the pixels of an input need."""
    stride, before = node.attrs["strides"][axis], node.attrs["pads"][axis]
    window = node.attrs["weights"].shape[2 + axis]
    return (window - 1 - before) // stride, (stride - 1 + before) // stride


def is_together(node: Node, width: int) -> bool:
    """Whether all phases are better computed as one convolution: they are whole, and a vector holds the channels of all."""
    attrs, (images, count, *size) = node.attrs, node.output.shape
    down, right = attrs["strides"]
    if down != right or count * down * right > width or down * right == 1 or images < 1:
        return False
    whole = all(out == down * given for out, given in zip(size, node.inputs[0].shape[2:], strict=True))
    taps = prod(max(sum(reach_of_all(node, axis)) + 1, 0) for axis in (0, 1))
    return whole and min(reach_of_all(node, 0) + reach_of_all(node, 1)) >= 0 and taps < prod(attrs["weights"].shape[2:])


def needed_halo(node: Node, width: int) -> Halo:
    """The halo that a transposed convolution needs around its input."""
    if is_together(node, width):
        (top, bottom), (left, right) = (reach_of_all(node, axis) for axis in (0, 1))
        return top, left, bottom, right
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
    source = low.blocked(node.inputs[0], narrow=True)
    if is_together(node, low.width):
        _together(low, node, source)
        return
    out = low.new_blocked(node.output)
    strides, attrs = node.attrs["strides"], node.attrs
    for row, _, top, height, above in phases(node, 0):
        for column, _, left, width, before in phases(node, 1):
            filters = attrs["weights"][:, :, row :: strides[0], column :: strides[1]][..., ::-1, ::-1].swapaxes(0, 1)
            part: dict[str, Any] = {
                "weights": np.ascontiguousarray(filters),
                "pads": (above, before, 0, 0),
                "groups": 1,
            }
            part |= {"strides": (1, 1), "dilations": (1, 1), "scale": attrs["scale"], "shift": attrs["shift"]}
            value = Value(node.output.name, (*node.output.shape[:2], height, width))
            piece = Node("conv", node.inputs, value, part, node.activation)
            convolve(low, piece, source, out, (top * out.row + left * out.lanes, *strides))


def _together(low: Lowering, node: Node, source: Blocked) -> None:
    """One convolution with a channel for each phase of each channel, then its channels as pixels.

    The pixels lie row by row: in blocks, most lanes would be empty. Only a part of a concatenation lies as that does.
    """
    attrs, stride = node.attrs, node.attrs["strides"][0]
    (above, below), (left, right) = (reach_of_all(node, axis) for axis in (0, 1))
    channels, count, *window = attrs["weights"].shape
    filters = np.zeros((count, stride, stride, channels, above + below + 1, left + right + 1), np.float32)
    for row, column in product(range(window[0]), range(window[1])):
        (back, down), (aside, over) = divmod(row - attrs["pads"][0], stride), divmod(column - attrs["pads"][1], stride)
        filters[:, down, over, :, above - back, left - aside] = attrs["weights"][:, :, row, column].T
    scale, shift = (None if attrs[name] is None else np.repeat(attrs[name], stride**2) for name in ("scale", "shift"))
    part: dict[str, Any] = {
        "weights": filters.reshape(-1, channels, *filters.shape[-2:]), "pads": (above, left, below, right), "groups": 1,
        "strides": (1, 1), "dilations": (1, 1), "scale": scale, "shift": shift,
    }  # fmt: skip
    value = Value(node.output.name, (node.output.shape[0], len(part["weights"]), *node.inputs[0].shape[2:]))
    made = low.new_blocked(value)
    whole = node.output in low.whole
    convolve(low, Node("conv", node.inputs, value, part, node.activation if whole else NONE), source, made)
    if whole:
        spread_pixels(low, made, low.new_blocked(node.output), stride)
        return
    out = low.new_plain(node.output)
    images, _, rows, columns = made.shape
    image, channel, row, _ = out.strides
    low.calls.copy(
        Plain(made.buffer, made.origin, (made.image, stride * stride, made.row, stride, made.lanes, 1)),
        Plain(out.buffer, out.offset, (image, channel, stride * row, row, stride, 1)),
        (images, count, rows, stride, columns, stride),
    )
    if node.activation != NONE:
        place = (out.buffer, out.offset), out.strides
        low.calls.elementwise(ALONE, node.output.shape, place, None, place, node.activation)
