"""What runs along one axis of [outer][axis][inner]: reductions, softmax along an inner axis."""

from __future__ import annotations

from math import prod

from fluidtool.runtime.engines.native.calls import Kind
from fluidtool.runtime.engines.native.lowering.memory import Lowering, lowers
from fluidtool.runtime.graph.ir import Node


@lowers("reduce")
def _reduce(low: Lowering, node: Node) -> None:
    source, out = low.contiguous(node.inputs[0]), low.new_plain(node.output)
    outer, axis, inner = node.attrs["sizes"]
    n = {0: outer, 1: axis, 2: inner, 3: node.attrs["how"]}
    pointers = {0: (source.buffer, source.offset), 3: (out.buffer, 0)}
    low.steps.add(Kind.REDUCE, pointers, n, tasks=low.task_count(outer * axis * inner, outer * -(-inner // low.width)))


@lowers("softmax_axis")
def _softmax_axis(low: Lowering, node: Node) -> None:
    x = node.inputs[0]
    source = low.contiguous(x)
    out = low.reuse_plain(x, node.output) or low.new_plain(node.output)
    outer, axis, inner = node.attrs["sizes"]
    pointers = {0: (source.buffer, source.offset), 3: (out.buffer, out.offset)}
    tasks = low.task_count(20 * prod(x.shape), outer * -(-inner // low.width))
    low.steps.add(Kind.SOFTMAX_AXIS, pointers, {0: outer, 1: axis, 2: inner}, tasks=tasks)
