"""Normalization of images over groups of channels, plain or blocked."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from fluidtool.runtime.engines.native import abi
from fluidtool.runtime.engines.native.layouts import Buffer, constant
from fluidtool.runtime.engines.native.lowering.values import Lowering, lowers
from fluidtool.runtime.graph.ir import Node

COST = 8  # per element, in multiplications


@lowers("group_norm")
def _group_norm(low: Lowering, node: Node) -> None:
    x = node.inputs[0]
    if x in low.blockeds and x not in low.plains:
        _blocked(low, node)
        return
    images, channels = x.shape[:2]
    attrs, rows = node.attrs, images * node.attrs["groups"]
    source, out = low.contiguous(x), low.reuse_plain(x, node.output) or low.new_plain(node.output)
    arguments = abi.GroupNorm(
        source=(source.buffer, source.offset), scale=numbers_of(attrs["scale"]), bias=numbers_of(attrs["shift"]),
        out=(out.buffer, out.offset), rows=rows, groups=attrs["groups"], group_channels=channels // attrs["groups"],
        plane=prod(x.shape[2:]), epsilon=attrs["epsilon"],
    )  # fmt: skip
    low.calls.add(arguments, low.calls.task_count(COST * prod(node.output.shape), rows), node.activation)


def _blocked(low: Lowering, node: Node) -> None:
    x, attrs = node.inputs[0], node.attrs
    images, channels, rows, columns = x.shape
    source = low.blocked(x)
    out = low.reuse_blocked(x, node.output) or low.new_blocked(node.output)
    each = channels // attrs["groups"]
    together = each // low.width if each % low.width == 0 else 1 if low.width % each == 0 else out.blocks
    lanes = out.blocks * low.width
    arguments = abi.GroupNormBlocked(
        source=(source.buffer, source.origin), scale=(constant(filled(attrs["scale"], channels, lanes, 1)), 0),
        bias=(constant(filled(attrs["shift"], channels, lanes, 0)), 0), out=(out.buffer, out.origin),
        scratch=(Buffer(2 * images * lanes), 0), images=images, blocks=out.blocks, rows=rows, columns=columns,
        channels=channels, group_channels=each, shared_blocks=together,
        source_image=source.image, source_block=source.block, source_row=source.row,
        out_image=out.image, out_block=out.block, out_row=out.row, epsilon=attrs["epsilon"],
    )  # fmt: skip
    tasks = low.calls.task_count(COST * prod(node.output.shape), images * -(-out.blocks // together))
    low.calls.add(arguments, tasks, node.activation)


@lowers("local_response")
def _local_response(low: Lowering, node: Node) -> None:
    attrs, source, out = node.attrs, low.blocked(node.inputs[0]), low.new_blocked(node.output)
    images, channels, rows, columns = node.output.shape
    k, alpha = attrs["numbers"]
    arguments = abi.LocalResponse(
        source=(source.buffer, source.origin), out=(out.buffer, out.origin), images=images, blocks=out.blocks, rows=rows,
        columns=columns, channels=channels, around=attrs["around"],
        source_image=source.image, source_block=source.block, source_row=source.row,
        out_image=out.image, out_block=out.block, out_row=out.row, fourths=attrs["fourths"], k=k, alpha=alpha,
    )  # fmt: skip
    low.calls.add(arguments, low.calls.task_count(COST * prod(node.output.shape), images * out.blocks * rows))


def numbers_of(values: Any) -> tuple[Buffer, int] | None:
    """A constant, or None."""
    return None if values is None else (constant(values), 0)


def filled(values: Any, channels: int, lanes: int, without: int) -> Any:
    """One number for each lane; zeros after the last channel."""
    found = np.zeros(lanes, np.float32)
    found[:channels] = without if values is None else values
    return found
