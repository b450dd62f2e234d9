"""Sums over GPUs within training steps: gradients in buckets, on a side stream, beside what is computed meanwhile."""

from __future__ import annotations

import os
from collections.abc import Mapping
from math import prod
from typing import Any

from fluidtool.distribute.collective.buckets import bucket_bytes
from fluidtool.distribute.collective.compression import compression_of
from fluidtool.ir import Operator
from fluidtool.ir.collectives import may_wait, ring_number
from fluidtool.runtime.engines.cuda.calls import BYTES, Arrival, Buffer, Place, Reduction
from fluidtool.runtime.engines.cuda.lowering import Lowering, lowers
from fluidtool.runtime.engines.cuda.training.building import Bucket, StepBuilder, imports_step
from fluidtool.runtime.graph.importers.registry import need
from fluidtool.runtime.graph.ir import Node, Value

Attrs = Mapping[str, Any]


@imports_step("c_sync_calc_stream")
def _after_the_computation(b: StepBuilder, op: Operator, attrs: Attrs) -> None:
    b.put(op, "Out", b.get(op, "X"))


@imports_step("c_allreduce_sum")
def _all_reduce(b: StepBuilder, op: Operator, attrs: Attrs) -> None:
    ring = b.ring(op)
    value = b.get(op, "X")
    if ring.size == 1:
        return b.put(op, "Out", value)
    need(ring.on_streams, "sums over ranks that are reached from the host")
    need(compression_of(os.environ) is None, "gradients that are compressed")
    name, number = op.outputs["Out"][0], ring_number(op)
    waiting = b.buckets.setdefault(number, Bucket(ring))
    if not may_wait(op):
        _send(b, waiting)
        waiting.parts.append((name, value))
        _send(b, waiting)
        return _settle(b, waiting)
    if waiting.parts and waiting.floats + prod(value.shape) > bucket_bytes(os.environ) // BYTES:
        _send(b, waiting)
    waiting.parts.append((name, value))
    return b.put(op, "Out", value)  # nothing reads it before it is settled


@imports_step("c_sync_comm_stream")
def _after_the_sums(b: StepBuilder, op: Operator, attrs: Attrs) -> None:
    waiting = b.buckets.get(ring_number(op))
    if waiting is not None:
        _send(b, waiting)
        _settle(b, waiting)
    for number, name in enumerate(op.inputs.get("X", [])):
        need(name in b.values, f"{name} has no value")
        if number < len(op.outputs.get("Out", [])):
            b.put(op, "Out", b.values[name], number)


def _send(b: StepBuilder, waiting: Bucket) -> None:
    """Sum what a bucket holds, as one array."""
    if waiting.parts:
        flat = [b.view(value, (prod(value.shape),)) for _, value in waiting.parts]
        whole = flat[0] if len(flat) == 1 else b.node("concat", flat, (waiting.floats,), axis=0)
        total = b.node("all_reduce", [whole], whole.shape, ring=waiting.ring)
        waiting.sent.append((total, tuple(waiting.parts)))
        waiting.parts.clear()


def _settle(b: StepBuilder, waiting: Bucket) -> None:
    """Let the gradients of a ring stand for their sums from here on."""
    for total, parts in waiting.sent:
        arrived, start = b.node("arrived", [total], total.shape), 0
        b.reductions.append(arrived)
        for name, value in parts:
            count = prod(value.shape)
            part = b.node("slice", [arrived], (count,), starts=[start], sizes=(count,))
            b.values[name] = b.view(part, value.shape)
            start += count
    waiting.sent.clear()


@lowers("all_reduce")
def _lower_all_reduce(low: Lowering, node: Node) -> None:
    given = low.contiguous(node.inputs[0])
    out = low.places[node.output] = Place(Buffer(node.output.floats), (1,))
    call = Reduction(given.pointer, out.pointer, node.output.floats, node.attrs["ring"])
    low.reductions[node.output] = call
    low.calls.append(call)


@lowers("arrived")
def _lower_arrived(low: Lowering, node: Node) -> None:
    """The memory of a sum belongs to its call until here."""
    total: Value = node.inputs[0]
    low.calls.append(Arrival(low.reductions[total]))
    low.places[node.output] = low.places[total]
