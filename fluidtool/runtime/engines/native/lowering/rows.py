"""Nodes on rows: softmax, layer normalization, tables."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from fluidtool.runtime.engines.native import abi
from fluidtool.runtime.engines.native.layouts import Buffer, broadcast_strides, constant
from fluidtool.runtime.engines.native.lowering.values import Lowering, lowers
from fluidtool.runtime.graph.importers.registry import need
from fluidtool.runtime.graph.ir import Node, Shape


@lowers("softmax")
def _softmax(low: Lowering, node: Node) -> None:
    x = node.inputs[0]
    source = low.contiguous(x)
    columns = x.shape[-1]
    rows, mask, heads, head_rows = prod(x.shape) // columns, None, 1, 1
    strides: Shape = (0, 0, 0, 0)
    if node.attrs["mask_shape"] is not None:
        place = low.contiguous(node.inputs[1])
        mask = place.buffer, place.offset
        heads, head_rows = x.shape[1:3]
        strides = broadcast_strides(place.strides, node.inputs[1].shape, node.attrs["mask_shape"])
    out = low.reuse_plain(x, node.output) or low.new_plain(node.output)
    arguments = abi.Softmax(
        source=(source.buffer, source.offset), mask=mask, out=(out.buffer, out.offset), rows=rows, columns=columns,
        heads=heads, head_rows=head_rows, mask_image=strides[0], mask_head=strides[1], mask_row=strides[2],
        mask_column=strides[3], factor=node.attrs["factor"],
    )  # fmt: skip
    low.calls.add(arguments, low.calls.task_count(20 * prod(x.shape), rows))


@lowers("layer_norm")
def _layer_norm(low: Lowering, node: Node) -> None:
    x, (rows, columns), attrs = node.inputs[0], node.attrs["matrix"], node.attrs
    source = low.contiguous(x)
    residual = low.contiguous(node.residual) if node.residual is not None else None
    out = low.reuse_plain(x, node.output) or low.new_plain(node.output)
    need(node.activation.kind == 0 or not node.activation.constants, "an activation with constants")
    arguments = abi.LayerNorm(
        source=(source.buffer, source.offset), scale=None if attrs["scale"] is None else (constant(attrs["scale"]), 0),
        bias=None if attrs["shift"] is None else (constant(attrs["shift"]), 0), out=(out.buffer, out.offset),
        residual=None if residual is None else (residual.buffer, residual.offset), rows=rows, columns=columns,
        epsilon=attrs["epsilon"],
    )  # fmt: skip
    low.calls.add(arguments, low.calls.task_count(10 * rows * columns, rows), node.activation)


@lowers("gather_pool")
def _gather_pool(low: Lowering, node: Node) -> None:
    """The call reads offsets, and the number of ids, which change with each run."""
    ids, attrs = node.inputs[0], node.attrs
    out, source = low.new_plain(node.output), low.plain(ids)
    sequences, width = node.output.shape[0], prod(node.output.shape[1:])
    if ids not in low.offsets:
        low.offsets[ids] = Buffer(2 * (sequences + 1), "input")
    arguments = abi.GatherPool(
        table=(_table(attrs["table"]), 0), offsets=(low.offsets[ids], 0), out=(out.buffer, 0), ids=(source.buffer, 0),
        sequences=sequences, columns=width, how=attrs["how"], zero_id=attrs["zero"], table_rows=attrs["table"].shape[0],
        empty=attrs["empty"],
    )  # fmt: skip
    low.calls.add(arguments, low.calls.task_count(prod(ids.shape) * width, sequences))


def _table(numbers: Any) -> Buffer:
    return Buffer(numbers.size, "constant", np.ascontiguousarray(numbers, np.float32))


@lowers("gather")
def _gather(low: Lowering, node: Node) -> None:
    ids, table = node.inputs[0], node.attrs["table"]
    source = low.plain(ids)
    need(source.buffer.role == "input" and source.offset == 0, "computed ids")
    out, memory = low.new_plain(node.output), _table(table)
    count, columns = prod(ids.shape), table.shape[1]
    arguments = abi.GatherRows(
        table=(memory, 0), out=(out.buffer, 0), ids=(source.buffer, 0), count=count, columns=columns,
        zero_id=node.attrs["zero"], table_rows=table.shape[0],
    )  # fmt: skip
    low.calls.add(arguments, low.calls.task_count(count * columns, count))
