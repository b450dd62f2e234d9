"""Nodes that one kernel can compute together become one node: rules about a node and its producer."""

from __future__ import annotations

from dataclasses import replace
from math import prod

import numpy as np

from fluidtool.runtime.graph.importers.registry import ADD, AFFINE, MULTIPLY
from fluidtool.runtime.graph.ir import NONE, Activation, Node, Value
from fluidtool.runtime.graph.rewrites.rewriting import ELSEWHERE, NoMatch, Producer, Rewrite, merged
from fluidtool.runtime.graph.weights import scaled

ACTIVE = (
    "conv", "conv_int8", "conv3d", "conv_transpose", "affine", "product", "product_int8", "matmul", "binary",
    "layer_norm", "group_norm",
)  # fmt: skip
BY_CHANNEL = ("conv", "conv_int8", "conv3d", "conv_transpose", "affine")
READ_ELSEWHERE = NoMatch("the producer is an input, or has other readers")
ACTIVE_ALREADY = NoMatch("the producer has an activation")


def fold_border(node: Node, alone: Producer) -> Rewrite | NoMatch:
    """Zero padding before a convolution becomes its padding."""
    before = alone(node.inputs[0]) if node.kind == "conv" else None
    if before is None or before.kind != "pad":
        return ELSEWHERE
    if before.attrs["zeros"] is None:
        return NoMatch("the padding is not zero")
    more, attrs = before.attrs["zeros"], node.attrs
    pads = tuple(own + extra for own, extra in zip(attrs["pads"], more, strict=True))
    return merged(before, node, replace(node, inputs=before.inputs, attrs={**attrs, "pads": pads}))


def fold_affine(node: Node, alone: Producer) -> Rewrite | NoMatch:
    """A scale and shift by channel is folded into the weights and the bias of the convolution before it."""
    if node.kind != "affine":
        return ELSEWHERE
    before = alone(node.inputs[0])
    if before is None:
        return READ_ELSEWHERE
    if before.kind not in BY_CHANNEL:
        return NoMatch("its producer is not a convolution")
    if before.activation != NONE or before.residual is not None:
        return NoMatch("the convolution before it has an activation or a residual")
    scale, shift, old = node.attrs["scale"], node.attrs["shift"], before.attrs
    folded = {
        "shift": shift if old["shift"] is None else old["shift"].astype(np.float64) * scale + shift,
        "scale": scale if old["scale"] is None else old["scale"] * scale,
    }
    return merged(before, node, taking_over(before, node, attrs={**old, **folded}))


def taking_over(before: Node, node: Node, **changes: object) -> Node:
    """The producer, with the result and the activation of the node after it."""
    return replace(before, output=node.output, activation=node.activation, **changes)  # type: ignore[arg-type]


def fold_affine_of_products(node: Node, alone: Producer) -> Rewrite | NoMatch:
    """A vector added to each row of a product, or multiplied with it, is folded into its bias or its weights."""
    if node.kind != "binary" or node.attrs["operation"] not in (ADD, MULTIPLY) or node.inputs[1].array is None:
        return ELSEWHERE
    before, numbers = alone(node.inputs[0]), node.inputs[1].array
    if before is None or before.kind not in ("product", "product_int8"):
        return ELSEWHERE
    columns = before.attrs["weights"].shape[1]
    by_row = columns > 1 and prod(node.attrs["y_shape"]) == node.attrs["y_shape"][-1] == columns
    if not by_row or node.output.shape[-1] != columns:
        return NoMatch("the operand is not a vector as long as a row of the product")
    if before.activation != NONE:
        return ACTIVE_ALREADY
    old, numbers = before.attrs["shift"], numbers.reshape(-1)
    if node.attrs["operation"] == MULTIPLY and before.kind == "product_int8":
        scale, shift = before.attrs["scale"], None if old is None else old * numbers
        folded = {"scale": numbers if scale is None else scale * numbers, "shift": shift}
    elif node.attrs["operation"] == ADD:
        folded = {"shift": numbers if old is None else old + numbers}
    else:
        folded = {"weights": scaled(before.attrs["weights"], numbers), "shift": None if old is None else old * numbers}
    return merged(before, node, taking_over(before, node, attrs={**before.attrs, **folded}))


def fold_scale(node: Node, alone: Producer) -> Rewrite | NoMatch:
    """A scale and shift of all elements of a product of two computed matrices is applied when the product is stored."""
    if node.kind != "unary" or node.activation.kind != AFFINE:
        return ELSEWHERE
    before = alone(node.inputs[0])
    if before is None or before.kind != "matmul":
        return ELSEWHERE
    return ACTIVE_ALREADY if before.activation != NONE else merged(before, node, taking_over(before, node))


def fold_scale_before(node: Node, alone: Producer) -> Rewrite | NoMatch:
    """A scale of an operand of a product of two computed matrices is applied to the result; a softmax may include it."""
    before = alone(node.inputs[0]) if node.kind == "matmul" else None
    if before is None or before.kind != "unary" or not _is_factor(before.activation):
        return ELSEWHERE
    if node.activation != NONE:
        return NoMatch("the product has an activation")
    inputs = (before.inputs[0], *node.inputs[1:])
    return merged(before, node, replace(node, inputs=inputs, activation=before.activation))


def fold_factor(node: Node, alone: Producer) -> Rewrite | NoMatch:
    """A scale of a product before a softmax becomes part of the softmax, which multiplies as it reads."""
    before = alone(node.inputs[0]) if node.kind == "softmax" else None
    if before is None or before.kind != "matmul" or not _is_factor(before.activation):
        return ELSEWHERE
    factor = node.attrs["factor"] * before.activation.constants[0]
    plain, scaled = replace(before, activation=NONE), replace(node, attrs={**node.attrs, "factor": factor})
    return Rewrite({before: (plain,), node: (scaled,)})


def fold_heads(node: Node, alone: Producer) -> Rewrite | NoMatch:
    """Attention heads that are concatenated are stored that way by their product."""
    if node.kind != "transpose" or tuple(node.attrs["axes"]) != (0, 2, 1, 3):
        return ELSEWHERE
    before = alone(node.inputs[0])
    if before is None or before.kind != "matmul":
        return ELSEWHERE
    return merged(before, node, replace(before, output=node.output, attrs={**before.attrs, "heads_last": True}))


def _is_factor(activation: Activation) -> bool:
    return activation.kind == AFFINE and activation.constants[1] == 0


def fold_mask(node: Node, alone: Producer) -> Rewrite | NoMatch:
    """An addition before a softmax (the attention mask) is applied as it reads."""
    before = alone(node.inputs[0]) if node.kind == "softmax" else None
    if before is None or before.kind != "binary" or before.attrs["operation"] != ADD:
        return ELSEWHERE
    if node.attrs["mask_shape"] is not None:
        return NoMatch("the softmax already has a mask")
    if before.activation != NONE:
        return ACTIVE_ALREADY
    if len(node.output.shape) != 4 or before.inputs[1].integer:
        return NoMatch("the addend is not a mask of scores (batch, heads, rows, keys)")
    attrs = {"factor": 1.0, "mask_shape": before.attrs["y_shape"]}
    return merged(before, node, taking_over(before, node, kind="softmax", attrs=attrs))


def fold_residual(node: Node, alone: Producer) -> Rewrite | NoMatch:
    """A value of the same shape added to a convolution, a product or a scale by channel is added when that is stored."""
    if node.kind != "binary" or node.attrs["operation"] != ADD or node.inputs[0].shape != node.inputs[1].shape:
        return ELSEWHERE
    producers = [
        (before, other)
        for value, other in (node.inputs, reversed(node.inputs))
        if (before := alone(value)) is not None and _may_add(before, other)
    ]
    if not producers:
        return NoMatch("neither addend is a product or convolution that can add the other")
    # The operands of the other one may be released earlier: choose the larger.
    before, residual = min(producers, key=lambda pair: prod(pair[0].inputs[0].shape))
    return merged(before, node, taking_over(before, node, residual=residual))


def _may_add(before: Node, other: Value) -> bool:
    if before.residual is not None or before.activation != NONE or other.array is not None:
        return False
    if is_by_channel(before):
        return other is not before.inputs[1]  # a block of an image may add that image itself
    sums = before.kind in ("conv", "conv_int8", "conv3d", "product", "product_int8")
    return sums and not any(other is value for value in before.inputs)


def is_by_channel(node: Node) -> bool:
    """Whether a node multiplies every channel of an image by a separate factor, as in squeeze and excitation."""
    if node.kind != "binary" or node.attrs["operation"] != MULTIPLY or len(node.output.shape) != 4:
        return False
    return tuple(node.attrs["y_shape"][1:]) == (node.output.shape[1], 1, 1) and node.output.shape[2:] != (1, 1)


def fold_norm_residual(node: Node, alone: Producer) -> Rewrite | NoMatch:
    """An addition before a layer normalization is applied as it reads."""
    before = alone(node.inputs[0]) if node.kind == "layer_norm" else None
    if before is None or before.kind != "binary" or before.attrs["operation"] != ADD:
        return ELSEWHERE
    if node.residual is not None:
        return NoMatch("the normalization already adds another value")
    if before.activation != NONE:
        return ACTIVE_ALREADY
    if before.inputs[0].shape != before.inputs[1].shape or before.inputs[1].array is not None:
        return NoMatch("the addends are not two computed values of one shape")
    value, residual = before.inputs
    return merged(before, node, replace(node, inputs=(value,), residual=residual))


def fold_activation(node: Node, alone: Producer) -> Rewrite | NoMatch:
    """An activation is applied by its producer when it stores, if that can."""
    if node.kind != "unary":
        return ELSEWHERE
    before = alone(node.inputs[0])
    if before is None:
        return READ_ELSEWHERE
    if before.kind not in ACTIVE:
        return NoMatch(f"{before.kind.replace('_', ' ')} cannot apply an activation")
    return ACTIVE_ALREADY if before.activation != NONE else merged(before, node, taking_over(before, node))
