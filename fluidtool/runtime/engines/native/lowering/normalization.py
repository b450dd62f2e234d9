"""Normalisation of images over groups of their channels, plain or blocked."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from fluidtool.runtime.engines.native.calls import Buffer, Kind, constant
from fluidtool.runtime.engines.native.lowering.memory import Lowering, lowers
from fluidtool.runtime.graph.ir import Node

COST = 8  # of a number, in multiplications


@lowers("group_norm")
def _group_norm(low: Lowering, node: Node) -> None:
    x = node.inputs[0]
    if x in low.blockeds and x not in low.plains:
        _blocked(low, node)
        return
    images, channels = x.shape[:2]
    attrs, rows = node.attrs, images * node.attrs["groups"]
    source, out = low.contiguous(x), low.reuse_plain(x, node.output) or low.new_plain(node.output)
    n = {0: rows, 1: attrs["groups"], 2: channels // attrs["groups"], 3: prod(x.shape[2:])}
    pointers = {0: (source.buffer, source.offset), 1: numbers_of(attrs["scale"]), 2: numbers_of(attrs["shift"])}
    pointers[3] = (out.buffer, out.offset)
    add(low, Kind.GROUP_NORM, pointers, n, node, rows)


def _blocked(low: Lowering, node: Node) -> None:
    x, attrs = node.inputs[0], node.attrs
    images, channels, rows, columns = x.shape
    source = low.blocked(x)
    out = low.reuse_blocked(x, node.output) or low.new_blocked(node.output)
    each = channels // attrs["groups"]
    together = each // low.width if each % low.width == 0 else 1 if low.width % each == 0 else out.blocks
    n = dict(enumerate((images, out.blocks, rows, columns, channels, each, together)))
    n |= dict(enumerate((source.image, source.block, source.row, out.image, out.block, out.row), 7))
    lanes = out.blocks * low.width
    pointers = {
        0: (source.buffer, source.origin),
        1: (constant(filled(attrs["scale"], channels, lanes, 1)), 0),
        2: (constant(filled(attrs["shift"], channels, lanes, 0)), 0),
        3: (out.buffer, out.origin),
        4: (Buffer(2 * images * lanes), 0),
    }
    add(low, Kind.GROUP_NORM_BLOCKED, pointers, n, node, images * -(-out.blocks // together))


@lowers("local_response")
def _local_response(low: Lowering, node: Node) -> None:
    attrs, source, out = node.attrs, low.blocked(node.inputs[0]), low.new_blocked(node.output)
    images, channels, rows, columns = node.output.shape
    n = dict(enumerate((images, out.blocks, rows, columns, channels, attrs["around"])))
    n |= dict(enumerate((source.image, source.block, source.row, out.image, out.block, out.row, attrs["fourths"]), 6))
    pointers = {0: (source.buffer, source.origin), 3: (out.buffer, out.origin)}
    tasks = low.task_count(COST * prod(node.output.shape), images * out.blocks * rows)
    low.steps.add(Kind.LOCAL_RESPONSE, pointers, n, numbers=attrs["numbers"], tasks=tasks)


def add(low: Lowering, kind: Kind, pointers: dict[int, Any], n: dict[int, int], node: Node, most: int) -> None:
    """The step: constants of the activation first, epsilon behind them."""
    constants = node.activation.constants
    numbers = (*constants, *(0.0,) * (3 - len(constants)), node.attrs["epsilon"])
    tasks = low.task_count(COST * prod(node.output.shape), most)
    low.steps.add(kind, pointers, n, activation=node.activation, numbers=numbers, tasks=tasks)


def numbers_of(values: Any) -> tuple[Buffer, int] | None:
    """A constant, or None."""
    return None if values is None else (constant(values), 0)


def filled(values: Any, channels: int, lanes: int, without: int) -> Any:
    """One number for each lane; zeros behind the last channel."""
    found = np.zeros(lanes, np.float32)
    found[:channels] = without if values is None else values
    return found
