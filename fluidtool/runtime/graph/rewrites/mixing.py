"""Channels that are only moved: activations move before concatenations, and consecutive moves become one."""

from __future__ import annotations

from typing import Any

import numpy as np

from fluidtool.records import dataclass
from fluidtool.runtime.graph.ir import NONE, Graph, Node, Value
from fluidtool.runtime.graph.rewrites.fusion import ACTIVE
from fluidtool.runtime.graph.rewrites.rewriting import ELSEWHERE, NoMatch, Outcome, Producer, Rewrite


def spread_activations(node: Node, alone: Producer) -> Rewrite | NoMatch:
    """An activation of a concatenation is applied by the producers of all parts, if they can."""
    before = alone(node.inputs[0]) if node.kind == "unary" else None
    if before is None or before.kind != "concat":
        return ELSEWHERE
    if not all(_is_free(alone(value)) for value in before.inputs):
        return NoMatch("not every part of the concatenation can be stored with an activation")
    active = [Value(value.name, value.shape) for value in before.inputs]
    parts = [
        Node("unary", [value], output, node.attrs, node.activation)
        for value, output in zip(before.inputs, active, strict=True)
    ]
    return Rewrite({before: (), node: (*parts, Node("concat", active, node.output, before.attrs))})


def _is_free(node: Node | None) -> bool:
    """Whether a node can take an activation."""
    return node is not None and node.kind in ACTIVE and node.activation == NONE


@dataclass(frozen=True, slots=True)
class Mixed:
    """The origin of each channel of an image: one of `values`, and a channel of it."""

    values: tuple[Value, ...]
    which: Any
    channels: Any

    def take(self, chosen: Any) -> Mixed:
        """Some of the channels, in this order."""
        which, channels = self.which[chosen], self.channels[chosen]
        left = sorted(set(which.tolist()))
        return Mixed(tuple(self.values[i] for i in left), np.searchsorted(left, which), channels)


def mix_channels(graph: Graph) -> Outcome:
    """Shuffled channels, with concatenations before and slices after them: one node `mix` per result.

    attrs: `taken`, by input, the channels that are written and the channels that they are copies of.
    """
    maker = {node.output: node for node in graph.nodes}
    shuffles = {node.output: order for node in graph.nodes if (order := shuffled(node, maker)) is not None}
    if not shuffles:
        return Outcome(graph)
    found: dict[Value, Mixed] = {}
    for node in graph.nodes:
        mixed = _mixed(node, shuffles, found)
        if mixed is not None:
            found[node.output] = mixed
    through = {value for value in found if _from_shuffle(maker[value], shuffles)}
    nodes = [_node(node, found[node.output]) if node.output in through else node for node in graph.nodes]
    return Outcome(graph.with_nodes(nodes).without_unread(), len(through))


def _from_shuffle(node: Node, shuffles: dict[Value, Any]) -> bool:
    """Whether a move shuffles channels, or slices shuffled ones."""
    return node.output in shuffles or (node.kind == "slice" and node.inputs[0] in shuffles)


def _mixed(node: Node, shuffles: dict[Value, Any], found: dict[Value, Mixed]) -> Mixed | None:
    """The result of a node that moves channels."""
    if node.output in shuffles:
        source, order = shuffles[node.output]
        return found.get(source, alone(source)).take(order)
    if len(node.output.shape) != 4 or len(node.inputs[0].shape) != 4:
        return None
    if node.kind == "concat" and node.attrs["axis"] == 1:
        counts = [value.shape[1] for value in node.inputs]
        which, channels = np.repeat(np.arange(len(counts)), counts), np.concatenate([np.arange(n) for n in counts])
        return Mixed(tuple(node.inputs), which, channels)
    size = node.inputs[0].shape
    if node.kind == "slice" and all(node.attrs["sizes"][axis] == size[axis] for axis in (0, 2, 3)):
        start = node.attrs["starts"][1]
        source = node.inputs[0]
        return found.get(source, alone(source)).take(start + np.arange(node.output.shape[1]))
    return None


def alone(value: Value) -> Mixed:
    """An image with unmoved channels."""
    count = value.shape[1]
    return Mixed((value,), np.zeros(count, np.int64), np.arange(count))


def _node(node: Node, mixed: Mixed) -> Node:
    """The node that computes all of it in one call."""
    taken = [(np.flatnonzero(mixed.which == i), mixed.channels[mixed.which == i]) for i in range(len(mixed.values))]
    return Node("mix", mixed.values, node.output, {"taken": taken})


def shuffled(node: Node, maker: dict[Value, Node]) -> tuple[Value, Any] | None:
    """The image that a reshape, a transpose and a reshape back shuffle, and its order of channels; else None."""
    turned = maker.get(node.inputs[0]) if node.kind == "view" else None
    split = maker.get(turned.inputs[0]) if turned is not None and turned.kind == "transpose" else None
    if turned is None or split is None or split.kind != "view" or tuple(turned.attrs["axes"]) != (0, 2, 1, 3, 4):
        return None
    x, wide = split.inputs[0], split.output.shape
    if len(x.shape) != 4 or node.output.shape != x.shape or (wide[0], *wide[3:]) != (x.shape[0], *x.shape[2:]):
        return None
    return x, np.arange(x.shape[1]).reshape(wide[1:3]).T.reshape(-1)
