"""Resampling of images."""

from __future__ import annotations

from math import prod

import numpy as np

from fluidtool.runtime.engines.native.calls import Buffer, Kind, constant
from fluidtool.runtime.engines.native.lowering.memory import Lowering, lowers
from fluidtool.runtime.graph.ir import Node


@lowers("interpolate")
def _interpolate(low: Lowering, node: Node) -> None:
    """attrs: by axis `cells` [outputs, taps] and `shares` of the same shape, or None where pixels are copied."""
    source, out = low.blocked(node.inputs[0]), low.new_blocked(node.output)
    cells, weights = node.attrs["cells"], node.attrs["shares"]
    steps = (source.row, source.lanes)
    offsets = np.concatenate([(axis * step).reshape(-1) for axis, step in zip(cells, steps, strict=True)])
    table = np.ascontiguousarray(offsets, np.int64)
    images, _, rows, columns = node.output.shape
    taps = [axis.shape[1] for axis in cells]
    n = dict(enumerate((images, rows, columns, out.blocks, *taps, source.image, source.block)))
    n |= dict(enumerate((out.image, out.row, out.block), 8))
    pointers = {
        0: (source.buffer, source.origin),
        1: None if weights is None else (constant(np.concatenate([axis.reshape(-1) for axis in weights])), 0),
        3: (out.buffer, out.origin),
        5: (Buffer(table.size, "constant", table), 0),
    }
    work = prod(node.output.shape) * prod(taps)
    low.steps.add(Kind.INTERPOLATE, pointers, n, tasks=low.task_count(work, images * out.blocks * rows))
