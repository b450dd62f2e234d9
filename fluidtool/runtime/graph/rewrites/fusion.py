"""Nodes that one kernel can do together become one node."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np

from fluidtool.runtime.graph.importers.registry import ADD, AFFINE, MULTIPLY
from fluidtool.runtime.graph.ir import NONE, Activation, Graph, Node, Value

Finder = Callable[[Value], Node | None]


def fuse(graph: Graph) -> None:
    """Fold what follows a node into it wherever nobody else reads the result between, in place."""
    for rule in (
        fold_border,
        fold_affine,
        fold_affine_of_products,
        fold_scale,
        fold_scale_before,
        fold_mask,
        fold_factor,
        fold_heads,
        fold_residual,
        fold_norm_residual,
        fold_activation,
    ):
        sweep(graph, rule)


def sweep(graph: Graph, rule: Callable[[Node, Finder], Node | None]) -> None:
    """Ask the rule at every node: it returns the earlier node that has taken this one in, or None."""
    maker: dict[Value, Node] = {}
    uses = graph.uses()
    kept: dict[Node, None] = {}
    for node in graph.nodes:

        def alone(value: Value) -> Node | None:
            """The node that made a value which only the node asking reads."""
            return maker.get(value) if uses[value] == 1 else None

        producer = rule(node, alone)
        if producer is None:
            kept[node] = None
            maker[node.output] = node
        else:
            # The producer writes what this node wrote, at this node's place: all it reads is there by then.
            del kept[producer]
            producer.output = node.output
            kept[producer] = None
            maker[node.output] = producer
    graph.nodes = list(kept)


def fold_border(node: Node, alone: Finder) -> Node | None:
    """A border of zeros around what a convolution reads: into its padding."""
    before = alone(node.inputs[0]) if node.kind == "conv" else None
    if before is None or before.kind != "pad" or before.attrs["zeros"] is None:
        return None
    more, attrs = before.attrs["zeros"], node.attrs
    before.kind, before.activation = node.kind, node.activation
    before.attrs = attrs | {"pads": tuple(own + extra for own, extra in zip(attrs["pads"], more, strict=True))}
    return before


def fold_affine(node: Node, alone: Finder) -> Node | None:
    """Convolution, then a factor and a shift by channel: into its weights and its bias."""
    if node.kind != "affine":
        return None
    before = alone(node.inputs[0])
    if (
        before is None
        or before.kind not in ("conv", "conv3d", "conv_transpose", "affine")
        or before.activation != NONE
        or before.residual
    ):
        return None
    scale, shift, old = node.attrs["scale"], node.attrs["shift"], before.attrs
    old["shift"] = shift if old["shift"] is None else old["shift"].astype(np.float64) * scale + shift
    old["scale"] = scale if old["scale"] is None else old["scale"] * scale
    before.activation = node.activation
    return before


def fold_affine_of_products(node: Node, alone: Finder) -> Node | None:
    """A product of rows, then a vector added to each row, or multiplied with it: its bias, or a part of its weights."""
    if node.kind != "binary" or node.attrs["operation"] not in (ADD, MULTIPLY) or node.inputs[1].array is None:
        return None
    before, numbers = alone(node.inputs[0]), node.inputs[1].array
    columns = before.attrs["weights"].shape[1] if before is not None and before.kind == "product" else 0
    by_row = columns > 1 and prod(node.attrs["y_shape"]) == node.attrs["y_shape"][-1] == columns
    if before is None or not by_row or node.output.shape[-1] != columns or before.activation != NONE:
        return None
    old, numbers = before.attrs["shift"], numbers.reshape(-1)
    if node.attrs["operation"] == MULTIPLY:
        before.attrs["weights"] = before.attrs["weights"] * numbers
        before.attrs["shift"] = None if old is None else old * numbers
    else:
        before.attrs["shift"] = numbers if old is None else old + numbers
    before.activation = node.activation
    return before


def fold_scale(node: Node, alone: Finder) -> Node | None:
    """A factor and a shift of every number, after a product of two computed matrices."""
    if node.kind != "unary" or node.activation.kind != AFFINE:
        return None
    before = alone(node.inputs[0])
    if before is None or before.kind != "matmul" or before.activation != NONE:
        return None
    before.activation = node.activation
    return before


def fold_scale_before(node: Node, alone: Finder) -> Node | None:
    """A factor of every number before a product of two computed matrices: after it, where a softmax takes it along."""
    if node.kind != "matmul" or node.activation != NONE:
        return None
    before = alone(node.inputs[0])
    if before is None or before.kind != "unary" or not _is_factor(before.activation):
        return None
    before.kind, before.attrs, before.inputs = "matmul", node.attrs, [before.inputs[0], node.inputs[1]]
    return before


def fold_factor(node: Node, alone: Finder) -> Node | None:
    """A factor of every number of a product before a softmax, which multiplies as it reads; the product stays."""
    before = alone(node.inputs[0]) if node.kind == "softmax" else None
    if before is not None and before.kind == "matmul" and _is_factor(before.activation):
        node.attrs["factor"] *= before.activation.constants[0]
        before.activation = NONE
    return None


def fold_heads(node: Node, alone: Finder) -> Node | None:
    """Heads of attention that are put side by side: their product stores them so."""
    if node.kind != "transpose" or tuple(node.attrs["axes"]) != (0, 2, 1, 3):
        return None
    before = alone(node.inputs[0])
    if before is None or before.kind != "matmul":
        return None
    before.attrs = before.attrs | {"heads_last": True}
    return before


def _is_factor(activation: Activation) -> bool:
    return activation.kind == AFFINE and activation.constants[1] == 0


def fold_mask(node: Node, alone: Finder) -> Node | None:
    """An addition before a softmax (the mask of attention)."""
    if node.kind != "softmax" or node.attrs["mask_shape"] is not None:
        return None
    before = alone(node.inputs[0])
    if before is None or before.kind != "binary" or before.attrs["operation"] != ADD or before.activation != NONE:
        return None
    mask = before.inputs[1]
    if len(node.output.shape) != 4 or mask.integer:
        return None
    before.kind, before.attrs = "softmax", {"factor": 1.0, "mask_shape": before.attrs["y_shape"]}
    before.activation = node.activation
    return before


def fold_residual(node: Node, alone: Finder) -> Node | None:
    """An addition of another value of the same shape, after a convolution, a product, or factors by channel."""
    if node.kind != "binary" or node.attrs["operation"] != ADD or node.inputs[0].shape != node.inputs[1].shape:
        return None
    producers = [
        (before, other)
        for value, other in (tuple(node.inputs), tuple(reversed(node.inputs)))
        if (before := alone(value)) is not None
        and (before.kind in ("conv", "conv3d", "product") or is_by_channel(before))
        and before.residual is None
        and before.activation is NONE
        and other.array is None
        and not _reads(before, other)
    ]
    if not producers:
        return None
    # What the other one reads may be forgotten earlier: let that be the larger.
    producer, residual = min(producers, key=lambda pair: prod(pair[0].inputs[0].shape))
    producer.residual, producer.activation = residual, node.activation
    return producer


def is_by_channel(node: Node) -> bool:
    """Whether a node multiplies every channel of an image by a number of its own, as squeeze and excitation does."""
    if node.kind != "binary" or node.attrs["operation"] != MULTIPLY or len(node.output.shape) != 4:
        return False
    return tuple(node.attrs["y_shape"][1:]) == (node.output.shape[1], 1, 1) and node.output.shape[2:] != (1, 1)


def fold_norm_residual(node: Node, alone: Finder) -> Node | None:
    """An addition before a layer normalisation."""
    if node.kind != "layer_norm" or node.residual is not None:
        return None
    before = alone(node.inputs[0])
    if before is None or before.kind != "binary" or before.attrs["operation"] != ADD or before.activation != NONE:
        return None
    if before.inputs[0].shape != before.inputs[1].shape or before.inputs[1].array is not None:
        return None
    before.residual = before.inputs.pop()
    before.kind, before.attrs, before.activation = "layer_norm", node.attrs, node.activation
    return before


def fold_activation(node: Node, alone: Finder) -> Node | None:
    """An activation after anything that can do it while it stores."""
    if node.kind != "unary":
        return None
    before = alone(node.inputs[0])
    if before is None or before.activation != NONE or before.kind not in ACTIVE:
        return None
    before.activation = node.activation
    return before


ACTIVE = ("conv", "conv3d", "conv_transpose", "affine", "product", "matmul", "binary", "layer_norm", "group_norm")


def _reads(node: Node, value: Value) -> Any:
    return any(value is other for other in node.inputs)
