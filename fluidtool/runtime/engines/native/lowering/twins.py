"""Convolutions of 8 bits with half as many outputs as a vector has lanes: two neighboring pixels of a row share a vector.

For the kernels they are one pixel with twice the outputs, by filters as much wider as a step is. Their bytes lie side by side
anyway; floats that only such convolutions add lie in blocks of as many channels as there are.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from fluidtool.runtime.engines.native.layouts import Blocked
from fluidtool.runtime.engines.native.lowering.convolution import is_depthwise
from fluidtool.runtime.graph.ir import Graph, Node, Value


def find_twins(
    graph: Graph, width: int, wants_floats: Mapping[Value, bool], settled: Collection[Node]
) -> frozenset[Node]:
    """The convolutions whose pixels share vectors. wants_floats: by result whether it is stored as floats. settled: the quantizers
    that read none, since what they make is stored as bytes before.
    """
    found = {node.output: node for node in graph.nodes if _is_narrow(node, width)}
    readers: dict[Value, list[Node]] = {}
    for node in graph.nodes:
        for value in {*node.inputs} if node.residual is None else {*node.inputs, node.residual}:
            readers.setdefault(value, []).append(node)

    def fits(node: Node) -> bool:
        residual, out = node.residual, node.output
        if residual is not None and not (residual in found and wants_floats[residual]):
            return False
        added = all(
            reader in settled or (reader.output in found and reader.residual is out and out not in reader.inputs)
            for reader in readers.get(out, [])
        )
        return not wants_floats[out] or (added and out not in graph.outputs)

    while unfit := [out for out, node in found.items() if not fits(node)]:
        for out in unfit:
            del found[out]
    return frozenset(found.values())


def _is_narrow(node: Node, width: int) -> bool:
    if node.kind != "conv_int8" or 2 * node.output.shape[1] != width or node.output.shape[3] % 2:
        return False
    (_, step), (_, apart) = node.attrs["strides"], node.attrs["dilations"]
    return bool(apart == 1 and (step == 1 or not is_depthwise(node)))


def as_twins(place: Blocked) -> Blocked:
    """An image without a halo, with two neighboring pixels as one."""
    images, count, rows, columns = place.shape
    return replace(place, shape=(images, 2 * count, rows, columns // 2), lanes=2 * place.lanes)


def doubled(node: Node) -> Node:
    """The convolution with two neighboring pixels as one."""
    attrs, (images, count, rows, columns) = node.attrs, node.output.shape
    numbers, (down, right) = attrs["whole"], attrs["strides"]
    if is_depthwise(node):
        wide = np.concatenate([numbers, numbers])
    else:
        _, inner, lines, window = numbers.shape
        pair = np.zeros((2, count, inner, lines, window + right), np.int8)
        pair[0, ..., :window] = pair[1, ..., right:] = numbers
        wide = pair.reshape(2 * count, inner, lines, window + right)
    twice: dict[str, Any] = {
        name: None if attrs.get(name) is None else np.tile(np.reshape(attrs[name], -1), 2)
        for name in ("steps", "scale", "shift")
    }
    output = Value(node.output.name, (images, 2 * count, rows, columns // 2))
    return replace(node, output=output, attrs={**attrs, **twice, "whole": wide, "strides": (down, 2 * right)})
