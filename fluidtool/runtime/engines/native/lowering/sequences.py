"""Recurrent layers and pooling over sequences."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from fluidtool.runtime.engines.native.calls import Buffer, Kind, Plain, constant
from fluidtool.runtime.engines.native.lowering.memory import SMALL, Lowering, lowers
from fluidtool.runtime.engines.native.packed import Packing
from fluidtool.runtime.graph.ir import Node


@lowers("lstm")
def _lstm(low: Lowering, node: Node) -> None:
    """An LSTM; where `projection` has weights, `fed_back` is how many numbers they leave of the size."""
    x, attrs = low.contiguous(node.inputs[0]), node.attrs
    (fed_back, size), sequences = (attrs["weights"].shape[0], attrs["weights"].shape[1] // 4), len(attrs["offsets"]) - 1
    starts, rows = packed_rows(attrs["offsets"], attrs["reverse"])
    out = low.new_plain(node.output)
    table = np.concatenate([starts, rows])
    blocks = -(-size // low.width)
    parts = min(blocks, low.library.threads) if 4 * size * size > SMALL else 1
    n = {0: len(starts) - 1, 1: size, 2: sequences, 3: parts, 4: int(attrs["peepholes"])}
    n |= dict(zip((5, 6, 7, 9), attrs["activations"], strict=False)) | {8: fed_back}
    projection = attrs.get("projection")
    pointers = {
        0: (x.buffer, x.offset),
        1: (packed_gates(low, [attrs["weights"]], size), 0),
        2: (constant(padded(attrs["bias"].reshape(-1, size), low.width)), 0),
        3: (out.buffer, out.offset),
        4: (Buffer((3 * size if projection is None else 2 * (size + fed_back)) * sequences), 0),
        5: (Buffer(table.size, "constant", table), 0),
        6: None if projection is None else (packed_gates(low, [projection], fed_back), 0),
    }
    kind = Kind.LSTM_SEQUENCES if projection is None else Kind.PROJECTED_SEQUENCES
    low.steps.add(kind, pointers, n, numbers=attrs.get("bounds", (0.0, 0.0)))


@lowers("gru")
def _gru(low: Lowering, node: Node) -> None:
    x, attrs = low.contiguous(node.inputs[0]), node.attrs
    size, sequences = attrs["weights"].shape[0], len(attrs["offsets"]) - 1
    starts, rows = packed_rows(attrs["offsets"], attrs["reverse"])
    memory, flat = Buffer(4 * size * sequences), attrs["weights"].reshape(-1)
    matrices = flat[: 2 * size * size].reshape(size, 2 * size), flat[2 * size * size :].reshape(size, size)
    for initial in node.inputs[1:]:
        order = np.argsort(-np.diff(attrs["offsets"]), kind="stable")
        first_states(low, low.contiguous(initial), order, size, memory)
    out, table = low.new_plain(node.output), np.concatenate([starts, rows])
    parts = min(-(-size // low.width), low.library.threads) if 2 * size * size > SMALL else 1
    n = {0: len(starts) - 1, 1: size, 2: sequences, 3: parts, 4: len(node.inputs) - 1, 5: int(attrs["origin"])}
    n |= {6 + i: kind for i, kind in enumerate(attrs["activations"])}
    pointers = {
        0: (x.buffer, x.offset),
        1: (packed_gates(low, matrices, size), 0),
        2: (constant(padded(attrs["bias"].reshape(-1, size), low.width)), 0),
        3: (out.buffer, out.offset),
        4: (memory, 0),
        5: (Buffer(table.size, "constant", table), 0),
    }
    low.steps.add(Kind.GRU_SEQUENCES, pointers, n)


def first_states(low: Lowering, initial: Plain, order: Any, size: int, memory: Buffer) -> None:
    """The step that puts the first state of each sequence, longest first, where the layer looks for it."""
    n = {0: len(order), 1: size, 3: -1, 4: len(order)}
    ids = Buffer(2 * order.size, "constant", np.ascontiguousarray(order, np.int64))
    pointers = {0: (initial.buffer, initial.offset), 3: (memory, size * len(order)), 5: (ids, 0)}
    low.steps.add(Kind.GATHER_ROWS, pointers, n)


def packed_rows(offsets: Sequence[int], reverse: bool) -> tuple[Any, Any]:
    """(the first packed row of every step, then their number; the row that each packed row is): longest first."""
    bounds = np.asarray(offsets, np.int64)
    lengths = np.diff(bounds)
    order = np.argsort(-lengths, kind="stable")
    firsts, lengths = bounds[:-1][order], lengths[order]
    steps = np.arange(int(lengths[0]))
    alive = np.searchsorted(-lengths, -steps, side="left")
    starts = np.concatenate([[0], np.cumsum(alive)]).astype(np.int64)
    step = np.repeat(steps, alive)
    place = np.arange(starts[-1]) - starts[step]
    return starts, firsts[place] + (lengths[place] - 1 - step if reverse else step)


def padded(vectors: Any, width: int) -> Any:
    """Vectors filled up with zeros to whole registers."""
    return np.pad(vectors, ((0, 0), (0, -vectors.shape[1] % width)))


def packed_gates(low: Lowering, matrices: Sequence[Any], size: int) -> Buffer:
    """Each matrix [depth][gates * size] as for each register of units [depth][gates][lanes], one after the other."""
    at, packings, width = 0, [], low.width
    for weights in matrices:
        depth = weights.shape[0]
        gates, blocks = weights.shape[1] // size, -(-size // width)
        if size % width:
            weights = np.pad(weights.reshape(depth, gates, size), ((0, 0), (0, 0), (0, -size % width)))
        sizes = [1, 1, blocks, depth, gates, width]
        strides = [0, 0, width, gates * blocks * width, blocks * width, 1]
        target = [0, 0, depth * gates * width, gates * width, width, 1]
        n = dict(enumerate([*sizes, *strides, *target]))
        packings.append(Packing(Kind.COPY, {0: np.ascontiguousarray(weights)}, n, blocks, at))
        at += blocks * depth * gates * width
    return low.materialize(at, packings)


@lowers("pick_rows")
def _pick_rows(low: Lowering, node: Node) -> None:
    x, rows = low.contiguous(node.inputs[0]), node.attrs["rows"]
    count, width = node.inputs[0].shape[0], prod(node.inputs[0].shape[1:])
    out = low.new_plain(node.output)
    ids = np.where(rows < 0, count, rows)
    pointers = {0: (x.buffer, x.offset), 3: (out.buffer, 0), 5: (Buffer(2 * ids.size, "constant", ids), 0)}
    n = {0: ids.size, 1: width, 3: count, 4: count + 1}
    low.steps.add(Kind.GATHER_ROWS, pointers, n, tasks=low.task_count(ids.size * width, ids.size))


@lowers("sequence_softmax")
def _sequence_softmax(low: Lowering, node: Node) -> None:
    x, offsets = low.contiguous(node.inputs[0]), np.asarray(node.attrs["offsets"], np.int64)
    out = low.new_plain(node.output)
    table = Buffer(2 * offsets.size, "constant", offsets)
    pointers = {0: (x.buffer, x.offset), 3: (out.buffer, out.offset), 5: (table, 0)}
    tasks = low.task_count(20 * prod(node.output.shape), len(offsets) - 1)
    low.steps.add(Kind.SOFTMAX_SEQUENCES, pointers, {0: len(offsets) - 1}, tasks=tasks)


@lowers("cosine")
def _cosine(low: Lowering, node: Node) -> None:
    (x, y), (rows, _) = (low.contiguous(value) for value in node.inputs), node.output.shape
    width, out = prod(node.inputs[0].shape[1:]), low.new_plain(node.output)
    pointers = {0: (x.buffer, x.offset), 1: (y.buffer, y.offset), 3: (out.buffer, out.offset)}
    n = {0: rows, 1: width, 2: width if node.inputs[1].shape[0] == rows else 0}
    low.steps.add(Kind.COSINE, pointers, n, tasks=low.task_count(3 * rows * width, rows))


@lowers("sequence_pool")
def _sequence_pool(low: Lowering, node: Node) -> None:
    x, offsets = low.contiguous(node.inputs[0]), np.asarray(node.attrs["offsets"], np.int64)
    width = prod(node.output.shape[1:])
    out = low.new_plain(node.output)
    pointers = {0: (x.buffer, x.offset), 3: (out.buffer, out.offset), 5: (Buffer(offsets.size, "constant", offsets), 0)}
    n = {0: len(offsets) - 1, 1: width, 2: node.attrs["how"]}
    tasks = low.task_count(prod(node.inputs[0].shape), -(-width // low.width))
    low.steps.add(Kind.POOL_SEQUENCES, pointers, n, numbers=(node.attrs["empty"],), tasks=tasks)
