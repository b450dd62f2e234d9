"""Nodes along one axis of [outer][axis][inner]: reductions, softmax along an inner axis."""

from __future__ import annotations

from math import prod

from fluidtool.runtime.engines.native import abi
from fluidtool.runtime.engines.native.lowering.values import Lowering, lowers
from fluidtool.runtime.graph.ir import Node


@lowers("reduce")
def _reduce(low: Lowering, node: Node) -> None:
    source, out = low.contiguous(node.inputs[0]), low.new_plain(node.output)
    outer, axis, inner = node.attrs["sizes"]
    arguments = abi.Reduce(
        source=(source.buffer, source.offset), out=(out.buffer, 0), outer=outer, axis=axis, inner=inner,
        how=node.attrs["how"],
    )  # fmt: skip
    low.calls.add(arguments, low.calls.task_count(outer * axis * inner, outer * -(-inner // low.width)))


@lowers("softmax_axis")
def _softmax_axis(low: Lowering, node: Node) -> None:
    x = node.inputs[0]
    source = low.contiguous(x)
    out = low.reuse_plain(x, node.output) or low.new_plain(node.output)
    outer, axis, inner = node.attrs["sizes"]
    arguments = abi.SoftmaxAxis(
        source=(source.buffer, source.offset), out=(out.buffer, out.offset), outer=outer, axis=axis, inner=inner
    )
    low.calls.add(arguments, low.calls.task_count(20 * prod(x.shape), outer * -(-inner // low.width)))
