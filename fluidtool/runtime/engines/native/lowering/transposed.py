"""Transposed convolutions: the pixels of every phase of the strides are a plain convolution by part of the filters.

Phases with few channels, which fit one vector together, are one convolution, whose channels become pixels.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from math import prod
from typing import Any

import numpy as np

from fluidtool.runtime.engines.native.layouts import NO_HALO, Blocked, Buffer, Halo, Plain
from fluidtool.runtime.engines.native.lowering.channels import spread_pixels
from fluidtool.runtime.engines.native.lowering.convolution import Packed, convolve, pack_filter
from fluidtool.runtime.engines.native.lowering.values import Lowering, lowers
from fluidtool.runtime.graph.importers.registry import ALONE
from fluidtool.runtime.graph.ir import NONE, Activation, Graph, Node, Value
from fluidtool.runtime.graph.rewrites.rewriting import ELSEWHERE, NoMatch, Producer, Rewrite, sweep

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


# ---------------------------------------------------------------- one after the other
BAND_BYTES = 1 << 20  # of what lies between two transposed convolutions: it stays in the L2 cache


def join_transposed(graph: Graph, width: int) -> Graph:
    """The graph with one node `conv_transposes` for two that follow each other and need not meet in memory."""

    def rule(node: Node, alone: Producer) -> Rewrite | NoMatch:
        """Two transposed convolutions without overlaps, the second to few channels, are computed band by band."""
        if node.kind != "conv_transpose" or not is_together(node, width):
            return ELSEWHERE
        before = alone(node.inputs[0])
        if before is None or before.kind != "conv_transpose" or is_together(before, width):
            return NoMatch("what it reads is no transposed convolution to many channels")
        if not (_has_no_overlap(before) and _has_no_overlap(node)):
            return NoMatch("windows overlap")
        if 4 * prod(before.output.shape) < 2 * BAND_BYTES:
            return NoMatch("what lies between them is small")
        work = before.multiply_adds + node.multiply_adds
        joined = Node("conv_transposes", before.inputs, node.output, {"nodes": (before, node)}, multiply_adds=work)
        return Rewrite({before: (), node: (joined,)})

    return sweep(graph, rule).graph


def _has_no_overlap(node: Node) -> bool:
    """Whether every output is of one input, and all inputs have as many."""
    sizes = zip(node.inputs[0].shape[2:], node.output.shape[2:], node.attrs["strides"], strict=True)
    return (
        tuple(node.attrs["weights"].shape[2:]) == tuple(node.attrs["strides"])
        and not any(node.attrs["pads"])
        and all(out == step * size for size, out, step in sizes)
    )


@lowers("conv_transposes")
def _conv_transposes(low: Lowering, node: Node) -> None:
    first, second = node.attrs["nodes"]
    if node.output in low.whole:
        _conv_transpose(low, first)
        _conv_transpose(low, second)
        return
    source, out = low.blocked(first.inputs[0], narrow=True), low.new_plain(node.output)
    images, _, rows, _ = first.inputs[0].shape
    (step, _), (then, _) = first.attrs["strides"], second.attrs["strides"]
    _, channels, height, width = first.output.shape
    of_row = 4 * images * (-(-channels // low.width) + 1) * low.width * step * width
    band = min(rows, max(1, BAND_BYTES // of_row))
    between = Blocked(Buffer(0), (images, channels, step * band, width), low.width, NO_HALO)
    between.buffer.size = between.size
    made = Blocked(
        Buffer(0), (images, prod(second.output.shape[1:]) // (height * width), step * band, width), low.width, NO_HALO
    )
    made.buffer.size = made.size
    filters: dict[Any, Packed] = {}
    for start in range(0, rows, band):
        count = min(band, rows - start)
        middle = between.band(0, step * count)
        _by_phases(low, _of_rows(first, count), source.band(start, count), middle, filters)
        place = Plain(out.buffer, out.offset + start * step * then * out.strides[2], out.strides)
        _by_pixels(low, _of_rows(second, step * count), middle, made.band(0, step * count), place, filters)


def _of_rows(node: Node, rows: int) -> Node:
    """A transposed convolution of so many rows."""
    x, out, (step, _) = node.inputs[0], node.output, node.attrs["strides"]
    shapes = [(*value.shape[:2], count, value.shape[3]) for value, count in ((x, rows), (out, step * rows))]
    return replace(node, inputs=[Value(x.name, shapes[0])], output=Value(out.name, shapes[1]))


# ---------------------------------------------------------------- alone
@lowers("conv_transpose")
def _conv_transpose(low: Lowering, node: Node) -> None:
    source = low.blocked(node.inputs[0], narrow=True)
    if not is_together(node, low.width):
        _by_phases(low, node, source, low.new_blocked(node.output), {})
        return
    made = low.new_blocked(_channels_for_pixels(node))
    if node.output in low.whole:
        _together(low, node, source, made, node.activation, {})
        spread_pixels(low, made, low.new_blocked(node.output), node.attrs["strides"][0])
        return
    _by_pixels(low, node, source, made, low.new_plain(node.output), {})


def _by_phases(low: Lowering, node: Node, source: Blocked, out: Blocked, filters: dict[Any, Packed]) -> None:
    """A convolution for the pixels of each phase; `filters` has those packed before."""
    strides, attrs = node.attrs["strides"], node.attrs
    for row, _, top, height, above in phases(node, 0):
        for column, _, left, width, before in phases(node, 1):
            taps = attrs["weights"][:, :, row :: strides[0], column :: strides[1]][..., ::-1, ::-1].swapaxes(0, 1)
            part: dict[str, Any] = {
                "weights": np.ascontiguousarray(taps),
                "pads": (above, before, 0, 0),
                "groups": 1,
            }
            part |= {"strides": (1, 1), "dilations": (1, 1), "scale": attrs["scale"], "shift": attrs["shift"]}
            value = Value(node.output.name, (*node.output.shape[:2], height, width))
            piece = Node("conv", node.inputs, value, part, node.activation)
            if (row, column) not in filters:
                filters[row, column] = pack_filter(low, part, source.lanes)
            spread = (top * out.row + left * out.lanes, *strides)
            convolve(low, piece, source, out, spread, filters[row, column])


def _channels_for_pixels(node: Node) -> Value:
    """What a convolution gives that has a channel for each phase of each channel."""
    images, count = node.output.shape[:2]
    return Value(node.output.name, (images, count * prod(node.attrs["strides"]), *node.inputs[0].shape[2:]))


def _by_pixels(
    low: Lowering, node: Node, source: Blocked, made: Blocked, out: Plain, filters: dict[Any, Packed]
) -> None:  # fmt: skip
    """One convolution with a channel for each phase of each channel, then its channels as pixels, row by row: in blocks, most
    lanes would be empty.
    """
    _together(low, node, source, made, NONE, filters)
    stride, (images, _, rows, columns) = node.attrs["strides"][0], made.shape
    image, channel, row, _ = out.strides
    low.calls.copy(
        Plain(made.buffer, made.origin, (made.image, stride * stride, made.row, stride, made.lanes, 1)),
        Plain(out.buffer, out.offset, (image, channel, stride * row, row, stride, 1)),
        (images, node.output.shape[1], rows, stride, columns, stride),
    )
    if node.activation != NONE:
        place = (out.buffer, out.offset), out.strides
        low.calls.elementwise(ALONE, node.output.shape, place, None, place, node.activation)


def _together(
    low: Lowering, node: Node, source: Blocked, made: Blocked, activation: Activation, packed: dict[Any, Packed]
) -> None:  # fmt: skip
    """The convolution with a channel for each phase of each channel."""
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
    if "together" not in packed:
        packed["together"] = pack_filter(low, part, source.lanes)
    piece = Node("conv", node.inputs, _channels_for_pixels(node), part, activation)
    convolve(low, piece, source, made, packed=packed["together"])
