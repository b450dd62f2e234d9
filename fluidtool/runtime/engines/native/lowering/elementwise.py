"""Elementwise operations, with broadcasting, plain or blocked."""

from __future__ import annotations

from fluidtool.runtime.engines.native.layouts import broadcast_strides
from fluidtool.runtime.engines.native.lowering.values import Lowering, lowers
from fluidtool.runtime.graph.importers.registry import ALONE
from fluidtool.runtime.graph.ir import Node


@lowers("unary")
def _unary(low: Lowering, node: Node) -> None:
    _elementwise(low, node, ALONE)


@lowers("binary")
def _binary(low: Lowering, node: Node) -> None:
    _elementwise(low, node, node.attrs["operation"])


def _elementwise(low: Lowering, node: Node, operation: int) -> None:
    x, rest = node.inputs[0], node.inputs[1:]
    y_shape = node.attrs.get("y_shape", x.shape)
    lies_blocked = [
        v for v in node.inputs if v in low.blockeds and v not in low.plains and v.shape == node.output.shape
    ]
    by_channel = bool(rest) and len(x.shape) == 4 and y_shape[1:] == (x.shape[1], 1, 1) and y_shape != x.shape
    as_image = not rest or (rest[0].shape == y_shape and (y_shape == x.shape or by_channel))
    if lies_blocked and x in low.blockeds and as_image:
        _elementwise_blocked(low, node, operation, by_channel)
        return
    places = [low.plain(value) for value in node.inputs]
    if any(
        place.strides[-1:] != (1,) and value.shape[-1:] != (1,)
        for place, value in zip(places, node.inputs, strict=True)
    ):
        places = [low.contiguous(value) for value in node.inputs]
    strides = [places[0].strides]
    if rest:
        strides.append(broadcast_strides(places[1].strides, rest[0].shape, y_shape))
    added = None
    if node.residual is not None:
        other = low.contiguous(node.residual)
        added = ((other.buffer, other.offset), other.strides)
    out = low.reuse_plain(x, node.output) or low.new_plain(node.output)
    a, *b = (((p.buffer, p.offset), s) for p, s in zip(places, strides, strict=True))
    y = ((out.buffer, out.offset), out.strides)
    low.calls.elementwise(operation, node.output.shape, a, b[0] if b else None, y, node.activation, added)


def _elementwise_blocked(low: Lowering, node: Node, operation: int, by_channel: bool) -> None:
    x, rest = node.inputs[0], node.inputs[1:]
    places = [low.blocked(x), *(low.blocked(value) for value in rest)]
    residual = None if node.residual is None else low.blocked(node.residual)
    out = low.reuse_blocked(x, node.output) or low.new_blocked(node.output)
    n, _, h, w = x.shape
    shape = (n, out.blocks, h, w, low.width)
    a, y = (((p.buffer, p.origin), (p.image, p.block, p.row, p.lanes, 1)) for p in (places[0], out))
    b = None
    if rest:
        other = places[1]
        steps = (
            (other.image * (rest[0].shape[0] > 1), other.block, 0, 0, 1)
            if by_channel
            else (other.image, other.block, other.row, other.lanes, 1)
        )
        b = ((other.buffer, other.origin), steps)
    added = None
    if residual is not None:
        strides = (residual.image, residual.block, residual.row, residual.lanes, 1)
        added = ((residual.buffer, residual.origin), strides)
    low.calls.elementwise(operation, shape, a, b, y, node.activation, added)
