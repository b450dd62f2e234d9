"""Nodes that only move elements, or only change their view."""

from __future__ import annotations

from fluidtool.runtime.engines.native.layouts import Plain, row_major, view_strides
from fluidtool.runtime.engines.native.lowering.channels import concat_blocked, slice_blocked
from fluidtool.runtime.engines.native.lowering.values import Lowering, lowers
from fluidtool.runtime.graph.ir import Node


@lowers("view")
def _view(low: Lowering, node: Node) -> None:
    x, shape = node.inputs[0], node.output.shape
    place = low.plain(x)
    strides = view_strides(x.shape, place.strides, shape)
    if strides is None:
        place, strides = low.contiguous(x), row_major(shape)
    low.plains[node.output] = Plain(place.buffer, place.offset, strides)


@lowers("transpose")
def _transpose(low: Lowering, node: Node) -> None:
    place = low.plain(node.inputs[0])
    strides = tuple(place.strides[axis] for axis in node.attrs["axes"])
    low.plains[node.output] = Plain(place.buffer, place.offset, strides)


@lowers("slice")
def _slice(low: Lowering, node: Node) -> None:
    if slice_blocked(low, node):
        return
    place = low.plain(node.inputs[0])
    starts, sizes = node.attrs["starts"], tuple(node.attrs["sizes"])
    offset = place.offset + sum(start * stride for start, stride in zip(starts, place.strides, strict=True))
    view = Plain(place.buffer, offset, place.strides)
    if node.output.shape == sizes:
        low.plains[node.output] = view
        return
    out = low.new_plain(node.output)
    low.calls.copy(view, Plain(out.buffer, 0, row_major(sizes)), sizes)


@lowers("concat")
def _concat(low: Lowering, node: Node) -> None:
    if concat_blocked(low, node):
        return
    out, axis, start = low.new_plain(node.output), node.attrs["axis"], 0
    for value in node.inputs:
        target = Plain(out.buffer, start * out.strides[axis], out.strides)
        low.calls.copy(low.plain(value), target, value.shape)
        start += value.shape[axis]


@lowers("stack")
def _stack(low: Lowering, node: Node) -> None:
    out, axis = low.new_plain(node.output), node.attrs["axis"]
    strides = (*out.strides[:axis], *out.strides[axis + 1 :])
    for number, value in enumerate(node.inputs):
        low.calls.copy(low.plain(value), Plain(out.buffer, number * out.strides[axis], strides), value.shape)
