"""Padding of tensors, plain or blocked."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from fluidtool.runtime.engines.native import abi
from fluidtool.runtime.engines.native.layouts import Blocked, Buffer, Plain, row_major
from fluidtool.runtime.engines.native.lowering.values import Lowering, lowers
from fluidtool.runtime.graph.importers.registry import need
from fluidtool.runtime.graph.ir import Node, Shape

AXES = 5
Axis = tuple[int, int, int, Any]  # size of the result, strides of what is read and of what is written, places or None


@lowers("pad")
def _pad(low: Lowering, node: Node) -> None:
    x, sources = node.inputs[0], node.attrs["sources"]
    source: Plain | Blocked
    out: Plain | Blocked
    if x in low.blockeds and x not in low.plains and sources[1] is None:
        source, out = low.blocked(x), low.new_blocked(node.output)
        shape = (node.output.shape[0], out.blocks, *node.output.shape[2:], out.lanes)
        axes = joined(shape, pixels(source), pixels(out), [*sources, None])
        starts = source.origin, out.origin
    else:
        source, out = low.contiguous(x), low.new_plain(node.output)
        axes = joined(node.output.shape, row_major(x.shape), out.strides, sources)
        starts = source.offset, out.offset
    need(len(axes) <= AXES, "borders of more than five axes")
    axes = [(1, 0, 0, None)] * (AXES - len(axes)) + axes
    tables = [np.arange(size) * step if at is None else np.where(at < 0, -1, at * step) for size, step, _, at in axes]
    first, run = middle(tables[-1])
    table = np.concatenate(tables).astype(np.int64)
    sizes = [size for size, *_ in axes]
    arguments = abi.Pad(
        source=(source.buffer, starts[0]), out=(out.buffer, starts[1]), places=(Buffer(table.size, "constant", table), 0),
        shape=sizes, out_strides=[to for _, _, to, _ in axes[:-1]], first=first, run=run, value=node.attrs["value"],
    )  # fmt: skip
    low.calls.add(arguments, low.calls.task_count(prod(sizes), prod(sizes[:3])))


def pixels(place: Blocked) -> Shape:
    """Strides of images, channel blocks, rows, columns, lanes."""
    return place.image, place.block, place.row, place.lanes, 1


def joined(shape: Shape, read: Shape, written: Shape, sources: Sequence[Any]) -> list[Axis]:
    """The axes from the first to the last; adjacent unpadded axes that are contiguous are merged."""
    found: list[Axis] = []
    for size, step, to, places in zip(shape, read, written, sources, strict=True):
        if size == 1 and places is None:
            continue
        before = found[-1] if found else None
        if before and before[3] is None and places is None and before[1] == size * step and before[2] == size * to:
            found[-1] = (before[0] * size, step, to, None)
        else:
            found.append((size, step, to, places))
    return found


def middle(table: Any) -> tuple[int, int]:
    """The longest run of consecutive indices: its start and its length."""
    breaks = np.flatnonzero((np.diff(table) != 1) | (table[:-1] < 0)) + 1
    bounds = np.concatenate([[0], breaks, [len(table)]])
    longest = int(np.argmax(np.diff(bounds)))
    first, length = int(bounds[longest]), int(np.diff(bounds)[longest])
    return (first, length) if table[first] >= 0 else (0, 0)
