"""Indices of the largest elements along an axis, and the elements at such indices."""

from __future__ import annotations

from math import prod

from fluidtool.runtime.engines.native import abi
from fluidtool.runtime.engines.native.lowering.values import Lowering, lowers
from fluidtool.runtime.graph.ir import Node


@lowers("extreme_place")
def _extreme_place(low: Lowering, node: Node) -> None:
    source, out = low.contiguous(node.inputs[0]), low.new_plain(node.output)
    outer, axis, inner = node.attrs["sizes"]
    arguments = abi.ExtremePlace(
        source=(source.buffer, source.offset), out=(out.buffer, 0), outer=outer, axis=axis, inner=inner,
        smallest=int(node.attrs["smallest"]),
    )  # fmt: skip
    low.calls.add(arguments, low.calls.task_count(outer * axis * inner, outer * -(-inner // low.width)))


@lowers("top_k")
def _top_k(low: Lowering, node: Node) -> None:
    x = node.inputs[0]
    source, out = low.contiguous(x), low.new_plain(node.output)
    rows = prod(x.shape[:-1])
    arguments = abi.TopK(
        source=(source.buffer, source.offset), out=(out.buffer, 0), rows=rows, columns=x.shape[-1],
        k=node.output.shape[-1],
    )  # fmt: skip
    low.calls.add(arguments, low.calls.task_count(prod(x.shape), rows))


@lowers("pick")
def _pick(low: Lowering, node: Node) -> None:
    x, places = node.inputs
    source, where, out = low.contiguous(x), low.plain(places), low.new_plain(node.output)
    rows = prod(x.shape[:-1])
    arguments = abi.Pick(
        source=(source.buffer, source.offset), out=(out.buffer, 0), places=(where.buffer, 0), rows=rows,
        columns=x.shape[-1], k=node.output.shape[-1],
    )  # fmt: skip
    low.calls.add(arguments, low.calls.task_count(prod(node.output.shape), rows))
