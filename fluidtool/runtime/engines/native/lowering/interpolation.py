"""Resampling of images."""

from __future__ import annotations

from math import prod

import numpy as np

from fluidtool.runtime.engines.native import abi
from fluidtool.runtime.engines.native.layouts import Buffer, constant
from fluidtool.runtime.engines.native.lowering.values import Lowering, lowers
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
    row_taps, column_taps = (axis.shape[1] for axis in cells)
    shares = None if weights is None else (constant(np.concatenate([axis.reshape(-1) for axis in weights])), 0)
    arguments = abi.Interpolate(
        source=(source.buffer, source.origin), weights=shares, out=(out.buffer, out.origin),
        offsets=(Buffer(table.size, "constant", table), 0), images=images, rows=rows, columns=columns, blocks=out.blocks,
        row_taps=row_taps, column_taps=column_taps, source_image=source.image, source_block=source.block,
        out_image=out.image, out_row=out.row, out_block=out.block,
    )  # fmt: skip
    work = prod(node.output.shape) * row_taps * column_taps
    low.calls.add(arguments, low.calls.task_count(work, images * out.blocks * rows))
