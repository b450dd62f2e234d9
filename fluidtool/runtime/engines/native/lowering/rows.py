"""What works on rows: softmax, layer normalisation, tables."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from fluidtool.runtime.engines.native.calls import Buffer, Kind, constant
from fluidtool.runtime.engines.native.lowering.memory import Lowering, broadcast_strides, lowers
from fluidtool.runtime.graph.importers.registry import need
from fluidtool.runtime.graph.ir import Node


@lowers("softmax")
def _softmax(low: Lowering, node: Node) -> None:
    x = node.inputs[0]
    source = low.contiguous(x)
    columns = x.shape[-1]
    n = {0: prod(x.shape) // columns, 1: columns, 2: 1, 3: 1}
    pointers: dict[int, Any] = {0: (source.buffer, source.offset)}
    if node.attrs["mask_shape"] is not None:
        mask = low.contiguous(node.inputs[1])
        strides = broadcast_strides(mask.strides, node.inputs[1].shape, node.attrs["mask_shape"])
        pointers[1] = (mask.buffer, mask.offset)
        n |= {2: x.shape[1], 3: x.shape[2]} | {4 + i: stride for i, stride in enumerate(strides)}
    out = low.reuse_plain(x, node.output) or low.new_plain(node.output)
    pointers[3] = (out.buffer, out.offset)
    tasks = low.task_count(20 * prod(x.shape), n[0])
    low.steps.add(Kind.SOFTMAX, pointers, n, numbers=(node.attrs["factor"],), tasks=tasks)


@lowers("layer_norm")
def _layer_norm(low: Lowering, node: Node) -> None:
    x, (rows, columns), attrs = node.inputs[0], node.attrs["matrix"], node.attrs
    source = low.contiguous(x)
    residual = low.contiguous(node.residual) if node.residual is not None else None
    out = low.reuse_plain(x, node.output) or low.new_plain(node.output)
    need(node.activation.kind == 0 or not node.activation.constants, "an activation with constants")
    pointers = {
        0: (source.buffer, source.offset),
        1: None if attrs["scale"] is None else (constant(attrs["scale"]), 0),
        2: None if attrs["shift"] is None else (constant(attrs["shift"]), 0),
        3: (out.buffer, out.offset),
        4: None if residual is None else (residual.buffer, residual.offset),
    }
    low.steps.add(Kind.LAYER_NORM, pointers, {0: rows, 1: columns}, activation=node.activation,
                  numbers=(attrs["epsilon"],), tasks=low.task_count(10 * rows * columns, rows))  # fmt: skip


@lowers("gather_pool")
def _gather_pool(low: Lowering, node: Node) -> None:
    """The step reads offsets, and how many ids there are, anew in each run."""
    ids, attrs = node.inputs[0], node.attrs
    out, source = low.new_plain(node.output), low.plain(ids)
    sequences, width = node.output.shape[0], prod(node.output.shape[1:])
    if ids not in low.offsets:
        low.offsets[ids] = Buffer(2 * (sequences + 1), "input")
    n = {0: sequences, 1: width, 2: attrs["how"], 3: attrs["zero"], 4: attrs["table"].shape[0]}
    pointers = {0: (_table(attrs["table"]), 0), 1: (low.offsets[ids], 0), 3: (out.buffer, 0), 5: (source.buffer, 0)}
    tasks = low.task_count(prod(ids.shape) * width, sequences)
    low.steps.add(Kind.GATHER_POOL, pointers, n, numbers=(attrs["empty"],), tasks=tasks)


def _table(numbers: Any) -> Buffer:
    return Buffer(numbers.size, "constant", np.ascontiguousarray(numbers, np.float32))


@lowers("gather")
def _gather(low: Lowering, node: Node) -> None:
    ids, table = node.inputs[0], node.attrs["table"]
    source = low.plain(ids)
    need(source.buffer.role == "input" and source.offset == 0, "computed ids")
    out, memory = low.new_plain(node.output), _table(table)
    n = {0: prod(ids.shape), 1: table.shape[1], 3: node.attrs["zero"], 4: table.shape[0]}
    low.steps.add(Kind.GATHER_ROWS, {0: (memory, 0), 3: (out.buffer, 0), 5: (source.buffer, 0)}, n,
                  tasks=low.task_count(n[0] * n[1], n[0]))  # fmt: skip
