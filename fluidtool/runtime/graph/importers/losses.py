"""Losses of classes, in regions on a GPU; training steps read their operators alike."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import prod
from typing import Any

import numpy as np

from fluidtool.ir import Operator
from fluidtool.ir.operator import EMPTY
from fluidtool.proto.enums import VarType
from fluidtool.runtime.graph.bounds import Bound
from fluidtool.runtime.graph.importers.reductions import HOW
from fluidtool.runtime.graph.importers.registry import AFFINE, GraphBuilder, imports, need
from fluidtool.runtime.graph.importers.whole_numbers import Ids, Marked
from fluidtool.runtime.graph.ir import Activation, Shape, Value

Attrs = Mapping[str, Any]
MOST_CLASSES = 1 << 24  # whose numbers are floats


def counted(classes: int, ignored: int, label: str) -> str:
    """Whether a label is a class, and is not the one that does not count."""
    return f"({label} >= 0.0f && {label} < {classes}.0f && {label} != {ignored}.0f)"


def soft_loss(r: GraphBuilder, op: Operator, slot: str, x: Value) -> None:
    """-sum(label * log of the probability), by row [..., 1], for labels that are probabilities, too."""
    labels = r.get(op, "Label")
    need(labels.shape == x.shape, "labels of another shape")
    finite = "(isinf(logf(a)) ? (a > 1.0f ? 1e20f : -1e20f) : logf(a))"
    known: dict[str, Any] = {"text": f"-(b * {finite})", "shapes": (x.shape, x.shape), "counts_columns": False}
    terms = r.node("formula", [x, labels], x.shape, exact=True, **known)
    (*lead, classes) = x.shape
    r.add("reduce", [terms], op, slot, (*lead, 1), sizes=(prod(lead), classes, 1), how=HOW["reduce_sum"])


def labels_of(op: Operator, attrs: Attrs, lead: Shape, classes: int, ids: Ids) -> tuple[Value, int]:
    """The labels of rows, and the label that does not count."""
    ignored = int(attrs["ignore_index"])
    labels = ids(op, "Label", classes, ignored)
    need(labels.shape in (lead, (*lead, 1)) and classes < MOST_CLASSES, "labels of another shape")
    return labels, ignored


def loss_of(
    r: GraphBuilder, x: Value, labels: Value, ignored: int, bounds: Iterable[Bound] = ()
) -> tuple[Value, Value]:
    """(-log of the probability that a label names, that probability), by row [..., 1]. bounds: of labels that kernels mark."""
    column, checks = (*x.shape[:-1], 1), tuple(bounds)
    match = r.node("label", [x, labels], column, ignored=ignored, checks=checks)
    finite = "(isinf(logf(a)) ? (a > 1.0f ? -1e20f : 1e20f) : -logf(a))"
    text = f"({counted(x.shape[-1], ignored, 'b')} ? {finite} : 0.0f)"
    return r.formula(text, match, labels, shapes=(column, column)), match


@imports("cross_entropy", "cross_entropy2")
def _cross_entropy(r: GraphBuilder, op: Operator, attrs: dict[str, Any]) -> None:
    x, bounds = r.get(op, "X"), list[Bound]()
    if attrs.get("soft_label"):
        soft_loss(r, op, "Y", x)
        return
    labels, ignored = labels_of(op, attrs, x.shape[:-1], x.shape[-1], Marked(r, bounds))
    r.add("view", [loss_of(r, x, labels, ignored, bounds)[0]], op, "Y", labels.shape)


def probabilities(r: GraphBuilder, op: Operator, attrs: Attrs) -> Value:
    """The softmax of the logits of softmax_with_cross_entropy, which may be a result, too."""
    x = r.get(op, "Logits")
    need(int(attrs["axis"]) in (-1, len(x.shape) - 1) and attrs.get("use_softmax", True), "another axis than the last")
    known: dict[str, Any] = {"factor": 1.0, "mask_shape": None}
    if op.outputs.get("Softmax", [EMPTY])[0] in ("", EMPTY):
        return r.node("softmax", [x], x.shape, **known)
    return r.add("softmax", [x], op, "Softmax", x.shape, **known)


@imports("softmax_with_cross_entropy", results=("Softmax", "Loss"))
def _softmax_with_cross_entropy(r: GraphBuilder, op: Operator, attrs: dict[str, Any]) -> None:
    y, bounds = probabilities(r, op, attrs), list[Bound]()
    if attrs["soft_label"]:
        soft_loss(r, op, "Loss", y)
        return
    labels, ignored = labels_of(op, attrs, y.shape[:-1], y.shape[-1], Marked(r, bounds))
    r.add("view", [loss_of(r, y, labels, ignored, bounds)[0]], op, "Loss", labels.shape)


# ---------------------------------------------------------------- labels
@imports("one_hot", "one_hot_v2")
def _one_hot(r: GraphBuilder, op: Operator, attrs: dict[str, Any]) -> None:
    bounds: list[Bound] = []
    add_one_hot(r, op, attrs, Marked(r, bounds), bounds)


def add_one_hot(r: GraphBuilder, op: Operator, attrs: Attrs, ids: Ids, bounds: list[Bound]) -> None:
    """A 1 at the place of each label. bounds: of labels that kernels mark, noted by `ids`."""
    depth = int(attrs["depth"])
    need(attrs["dtype"] == VarType.FP32 and not op.inputs.get("depth_tensor"), "another type, or a computed depth")
    labels = r.get(op, "X", integer=True) if attrs["allow_out_of_range"] else ids(op, "X", depth, None)
    lead = labels.shape[:-1] if op.type == "one_hot" else labels.shape
    need(prod(lead) == prod(labels.shape), "labels of another shape")
    r.add("one_hot", [labels], op, "Out", (*lead, depth), checks=tuple(bounds))


@imports("label_smooth")
def _label_smooth(r: GraphBuilder, op: Operator, attrs: dict[str, Any]) -> None:
    x, share = r.get(op, "X"), np.float32(attrs["epsilon"])
    need(not op.inputs.get("PriorDist"), "a prior distribution")
    factor, added = float(np.float32(1) - share), float(share / np.float32(x.shape[-1]))
    r.add("unary", [x], op, "Out", x.shape, Activation(AFFINE, (factor, added)))


# ---------------------------------------------------------------- logits
SIGMOID_CROSS_ENTROPY = "ft_larger(a, 0.0f) - a * b + logf(1.0f + expf(-fabsf(a)))"


def check_sigmoid_cross_entropy(op: Operator, attrs: Attrs, x: Value, labels: Value) -> None:
    """Refuse what counts labels, or weighs them."""
    need(x.shape == labels.shape and not attrs.get("normalize"), "a loss that is divided by the number of labels")
    need(not op.inputs.get("pos_weight"), "weights of positive labels")


def unless_ignored(attrs: Attrs, text: str) -> str:
    """A formula of labels b that is 0 for those that are ignored, once they are cut to integers (Paddle 1.8.5)."""
    return f"(truncf(b) == {int(attrs['ignore_index'])}.0f ? 0.0f : {text})"


@imports("sigmoid_cross_entropy_with_logits")
def _sigmoid_cross_entropy(r: GraphBuilder, op: Operator, attrs: dict[str, Any]) -> None:
    x, labels = r.get(op, "X"), r.get(op, "Label")
    check_sigmoid_cross_entropy(op, attrs, x, labels)
    text = unless_ignored(attrs, SIGMOID_CROSS_ENTROPY)
    shapes = (x.shape, x.shape)
    r.add("formula", [x, labels], op, "Out", x.shape, text=text, shapes=shapes, counts_columns=False)
