"""Recurrent layers and pooling over sequences."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from math import prod
from typing import Any

import numpy as np

from fluidtool.runtime.engines.native import abi
from fluidtool.runtime.engines.native.constants import Packing
from fluidtool.runtime.engines.native.layouts import Buffer, Plain, constant
from fluidtool.runtime.engines.native.lowering.builder import SMALL
from fluidtool.runtime.engines.native.lowering.values import Lowering, lowers
from fluidtool.runtime.graph.ir import Node


@lowers("lstm")
def _lstm(low: Lowering, node: Node) -> None:
    """An LSTM; if `projection` has weights, `fed_back` is the projected size."""
    x, attrs = low.contiguous(node.inputs[0]), node.attrs
    (fed_back, size), sequences = (attrs["weights"].shape[0], attrs["weights"].shape[1] // 4), len(attrs["offsets"]) - 1
    starts, rows = packed_rows(attrs["offsets"], attrs["reverse"])
    out = low.new_plain(node.output)
    table = np.concatenate([starts, rows])
    blocks = -(-size // low.width)
    parts = min(blocks, low.library.threads) if 4 * size * size > SMALL else 1
    projection = attrs.get("projection")
    gate, cell, candidate, *rest = attrs["activations"]
    memory = (3 * size if projection is None else 2 * (size + fed_back)) * sequences
    shared: dict[str, Any] = dict(
        source=(x.buffer, x.offset), weights=(packed_gates(low, [attrs["weights"]], size), 0),
        bias=(constant(padded(attrs["bias"].reshape(-1, size), low.width)), 0), out=(out.buffer, out.offset),
        scratch=(Buffer(memory), 0), table=(Buffer(table.size, "constant", table), 0), steps=len(starts) - 1, size=size,
        sequences=sequences, parts=parts, peepholes=int(attrs["peepholes"]), gate_activation=gate, cell_activation=cell,
        candidate_activation=candidate, fed_back=fed_back,
    )  # fmt: skip
    cell_bound, projection_bound = attrs.get("bounds", (0.0, 0.0))
    if projection is None:
        low.calls.add(abi.LstmSequences(**shared, cell_bound=cell_bound))
        return
    weights = packed_gates(low, [projection], fed_back)
    (projected,) = rest
    arguments = abi.ProjectedSequences(
        **shared, projection=(weights, 0), projection_activation=projected, cell_bound=cell_bound,
        projection_bound=projection_bound,
    )  # fmt: skip
    low.calls.add(arguments)


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
    gate, candidate = attrs["activations"]
    arguments = abi.GruSequences(
        source=(x.buffer, x.offset), weights=(packed_gates(low, matrices, size), 0),
        bias=(constant(padded(attrs["bias"].reshape(-1, size), low.width)), 0), out=(out.buffer, out.offset),
        scratch=(memory, 0), table=(Buffer(table.size, "constant", table), 0), steps=len(starts) - 1, size=size,
        sequences=sequences, parts=parts, has_initial=len(node.inputs) - 1, origin=int(attrs["origin"]),
        gate_activation=gate, candidate_activation=candidate,
    )  # fmt: skip
    low.calls.add(arguments)


def first_states(low: Lowering, initial: Plain, order: Any, size: int, memory: Buffer) -> None:
    """The call that stores the initial state of each sequence, longest first, for the layer."""
    ids = Buffer(2 * order.size, "constant", np.ascontiguousarray(order, np.int64))
    arguments = abi.GatherRows(
        table=(initial.buffer, initial.offset), out=(memory, size * len(order)), ids=(ids, 0), count=len(order),
        columns=size, table_rows=len(order),
    )  # fmt: skip
    low.calls.add(arguments)


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
    """Vectors padded with zeros to whole registers."""
    return np.pad(vectors, ((0, 0), (0, -vectors.shape[1] % width)))


def packed_gates(low: Lowering, matrices: Sequence[Any], size: int) -> Buffer:
    """Each matrix [depth][gates * size] as for each register of units [depth][gates][lanes], one after the other."""
    at, packings, width = 0, [], low.width
    for weights in matrices:
        depth = weights.shape[0]
        gates, blocks = weights.shape[1] // size, -(-size // width)
        if size % width:
            weights = np.pad(weights.reshape(depth, gates, size), ((0, 0), (0, 0), (0, -size % width)))
        call = partial(
            abi.Copy, source=np.ascontiguousarray(weights), shape=(1, 1, blocks, depth, gates, width),
            source_strides=(0, 0, width, gates * blocks * width, blocks * width, 1),
            out_strides=(0, 0, depth * gates * width, gates * width, width, 1),
        )  # fmt: skip
        packings.append(Packing(call, blocks, at))
        at += blocks * depth * gates * width
    return low.packing.materialize(at, packings)


@lowers("pick_rows")
def _pick_rows(low: Lowering, node: Node) -> None:
    x, rows = low.contiguous(node.inputs[0]), node.attrs["rows"]
    count, width = node.inputs[0].shape[0], prod(node.inputs[0].shape[1:])
    out = low.new_plain(node.output)
    ids = np.where(rows < 0, count, rows)
    arguments = abi.GatherRows(
        table=(x.buffer, x.offset), out=(out.buffer, 0), ids=(Buffer(2 * ids.size, "constant", ids), 0), count=ids.size,
        columns=width, zero_id=count, table_rows=count + 1,
    )  # fmt: skip
    low.calls.add(arguments, low.calls.task_count(ids.size * width, ids.size))


@lowers("sequence_softmax")
def _sequence_softmax(low: Lowering, node: Node) -> None:
    x, offsets = low.contiguous(node.inputs[0]), np.asarray(node.attrs["offsets"], np.int64)
    out = low.new_plain(node.output)
    table = Buffer(2 * offsets.size, "constant", offsets)
    arguments = abi.SoftmaxSequences(
        source=(x.buffer, x.offset), out=(out.buffer, out.offset), offsets=(table, 0), sequences=len(offsets) - 1
    )
    low.calls.add(arguments, low.calls.task_count(20 * prod(node.output.shape), len(offsets) - 1))


@lowers("cosine")
def _cosine(low: Lowering, node: Node) -> None:
    (x, y), (rows, _) = (low.contiguous(value) for value in node.inputs), node.output.shape
    width, out = prod(node.inputs[0].shape[1:]), low.new_plain(node.output)
    arguments = abi.Cosine(
        source=(x.buffer, x.offset), other=(y.buffer, y.offset), out=(out.buffer, out.offset), rows=rows, columns=width,
        other_row=width if node.inputs[1].shape[0] == rows else 0,
    )  # fmt: skip
    low.calls.add(arguments, low.calls.task_count(3 * rows * width, rows))


@lowers("sequence_pool")
def _sequence_pool(low: Lowering, node: Node) -> None:
    x, offsets = low.contiguous(node.inputs[0]), np.asarray(node.attrs["offsets"], np.int64)
    width = prod(node.output.shape[1:])
    out = low.new_plain(node.output)
    arguments = abi.PoolSequences(
        source=(x.buffer, x.offset), out=(out.buffer, out.offset), offsets=(Buffer(offsets.size, "constant", offsets), 0),
        sequences=len(offsets) - 1, columns=width, how=node.attrs["how"], empty=node.attrs["empty"],
    )  # fmt: skip
    low.calls.add(arguments, low.calls.task_count(prod(node.inputs[0].shape), -(-width // low.width)))
