"""Where the largest numbers along an axis are, and what is found at such places."""

from __future__ import annotations

from math import prod

from fluidtool.runtime.engines.native.calls import Kind
from fluidtool.runtime.engines.native.lowering.memory import Lowering, lowers
from fluidtool.runtime.graph.ir import Node


@lowers("extreme_place")
def _extreme_place(low: Lowering, node: Node) -> None:
    source, out = low.contiguous(node.inputs[0]), low.new_plain(node.output)
    outer, axis, inner = node.attrs["sizes"]
    n = {0: outer, 1: axis, 2: inner, 3: int(node.attrs["smallest"])}
    pointers = {0: (source.buffer, source.offset), 3: (out.buffer, 0)}
    tasks = low.task_count(outer * axis * inner, outer * -(-inner // low.width))
    low.steps.add(Kind.EXTREME_PLACE, pointers, n, tasks=tasks)


@lowers("top_k")
def _top_k(low: Lowering, node: Node) -> None:
    x = node.inputs[0]
    source, out = low.contiguous(x), low.new_plain(node.output)
    rows = prod(x.shape[:-1])
    n = {0: rows, 1: x.shape[-1], 2: node.output.shape[-1]}
    pointers = {0: (source.buffer, source.offset), 3: (out.buffer, 0)}
    low.steps.add(Kind.TOP_K, pointers, n, tasks=low.task_count(prod(x.shape), rows))


@lowers("pick")
def _pick(low: Lowering, node: Node) -> None:
    x, places = node.inputs
    source, where, out = low.contiguous(x), low.plain(places), low.new_plain(node.output)
    rows = prod(x.shape[:-1])
    n = {0: rows, 1: x.shape[-1], 2: node.output.shape[-1]}
    pointers = {0: (source.buffer, source.offset), 3: (out.buffer, 0), 5: (where.buffer, 0)}
    low.steps.add(Kind.PICK, pointers, n, tasks=low.task_count(prod(node.output.shape), rows))
