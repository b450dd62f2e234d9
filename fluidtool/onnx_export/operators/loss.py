"""Losses, as models that are evaluated have them."""

from __future__ import annotations

import numpy as np

from fluidtool.onnx_export.graph import Graph, Value
from fluidtool.onnx_export.operation import Operation
from fluidtool.onnx_export.operators.indexing import elements
from fluidtool.onnx_export.registry import need, renders

SMALLEST = 1e-20  # what probabilities are kept above, by their logarithm


@renders("softmax_with_cross_entropy")
def softmax_with_cross_entropy(g: Graph, op: Operation) -> dict[str, Value]:
    logits, label = op["Logits"], op["Label"]
    axis = op.attr("axis") % logits.rank
    if op.attr("use_softmax", True):
        chances, logs = logits.apply("Softmax", axis=axis), logits.apply("LogSoftmax", axis=axis)
    else:
        chances, logs = logits, logits.apply("Log")
    if op.attr("soft_label"):
        return {"Softmax": chances, "Loss": -(label * logs).sum(axis, keepdims=True)}
    return {"Softmax": chances, "Loss": _picked(g, logs, label, axis, op.attr("ignore_index"))}


def _picked(g: Graph, logs: Value, label: Value, axis: int, ignored: int) -> Value:
    """-logs at the labels, 0 for those that are ignored."""
    label = label.cast(np.int64)
    label = label if label.rank == logs.rank else label.unsqueeze(axis)
    skipped = label.equals(ignored)
    found = elements(logs, g.where(skipped, 0, label), axis)
    return g.where(skipped, 0, -found)


@renders("cross_entropy", "cross_entropy2")
def cross_entropy(g: Graph, op: Operation) -> dict[str, Value]:
    x, label = op["X"], op["Label"]
    logs = x.clip(SMALLEST, None).apply("Log")
    if op.attr("soft_label", False):
        return {"Y": -(label * logs).sum(-1, keepdims=True)}
    loss = _picked(g, logs, label, x.rank - 1, op.attr("ignore_index"))
    found = {"Y": loss if label.rank == x.rank else loss.squeeze(-1)}
    if op.type == "cross_entropy2":
        skipped = label.cast(np.int64).equals(op.attr("ignore_index"))
        found["MatchX"] = g.where(skipped, 0, (-found["Y"]).apply("Exp"))
    return found


@renders("bce_loss")
def bce_loss(g: Graph, op: Operation) -> Value:
    x, label = op["X"], op["Label"]
    one, other = (value.apply("Log").clip(-100.0, None) for value in (x, 1 - x))
    return -(label * one + (1 - label) * other)


@renders("sigmoid_cross_entropy_with_logits")
def sigmoid_cross_entropy(g: Graph, op: Operation) -> Value:
    x, label, ignored = op["X"], op["Label"], op.attr("ignore_index")
    loss = x.apply("Relu") - x * label + ((-x.apply("Abs")).apply("Exp") + 1).apply("Log")
    loss = g.where(label.cast(np.int64).equals(ignored), 0, loss)
    if not op.attr("normalize"):
        return loss
    counts = (label - ignored).apply("Abs") > 1e-5
    return loss / g.maximum(counts.cast(x.dtype).sum(), 1e-5)


@renders("smooth_l1_loss")
def smooth_l1_loss(g: Graph, op: Operation) -> dict[str, Value]:
    difference, inside, outside = op["X"] - op["Y"], op.get("InsideWeight"), op.get("OutsideWeight")
    square = op.attr("sigma") ** 2
    difference = difference if inside is None else difference * inside
    size = difference.apply("Abs")
    loss = g.where(size < 1.0 / square, difference * difference * (0.5 * square), size - 0.5 / square)
    loss = loss if outside is None else loss * outside
    return {"Diff": difference, "Out": loss.sum(*range(1, loss.rank)).reshape([-1, 1])}


@renders("huber_loss")
def huber_loss(g: Graph, op: Operation) -> dict[str, Value]:
    residual, delta = op["Y"] - op["X"], op.attr("delta")
    size = residual.apply("Abs")
    return {
        "Residual": residual,
        "Out": g.where(size <= delta, residual * residual * 0.5, (size - 0.5 * delta) * delta),
    }


@renders("kldiv_loss")
def kldiv_loss(g: Graph, op: Operation) -> Value:
    x, target, reduction = op["X"], op["Target"], op.attr("reduction")
    loss = g.where(target > 0, target * (g.where(target > 0, target, 1).apply("Log") - x), 0)
    if reduction == "none":
        return loss
    if reduction == "batchmean":
        total = loss.sum() / x.dim_value(0).cast(x.dtype).scalar()
    else:
        total = loss.reduce("Mean" if reduction == "mean" else "Sum", [])
    return total.reshape(list(op.shape()))


@renders("log_loss")
def log_loss(g: Graph, op: Operation) -> Value:
    x, label, epsilon = op["Predicted"], op["Labels"], op.attr("epsilon")
    return -(label * (x + epsilon).apply("Log")) - (1 - label) * (1 - x + epsilon).apply("Log")


@renders("hinge_loss")
def hinge_loss(g: Graph, op: Operation) -> Value:
    return (1 - op["Logits"] * (op["Labels"] * 2 - 1)).apply("Relu")


@renders("modified_huber_loss")
def modified_huber_loss(g: Graph, op: Operation) -> dict[str, Value]:
    inner = op["X"] * (op["Y"] * 2 - 1)
    gap = (1 - inner).apply("Relu")
    return {"IntermediateVal": inner, "Out": g.where(inner < -1, inner * -4, gap * gap)}


@renders("margin_rank_loss")
def margin_rank_loss(g: Graph, op: Operation) -> dict[str, Value]:
    loss = -op["Label"] * (op["X1"] - op["X2"]) + op.attr("margin")
    return {"Out": loss.apply("Relu"), "Activated": (loss > 0).cast(loss.dtype)}


@renders("rank_loss")
def rank_loss(g: Graph, op: Operation) -> Value:
    difference = op["Left"] - op["Right"]
    label = op["Label"]
    loss = (difference.apply("Exp") + 1).apply("Log") - label.reshape(difference.sizes()) * difference
    return loss.reshape(label.sizes())


@renders("label_smooth")
def label_smooth(g: Graph, op: Operation) -> Value:
    x, prior, epsilon = op["X"], op.get("PriorDist"), op.attr("epsilon")
    kept = x * (1 - epsilon)
    return kept + epsilon / x.size(-1) if prior is None else kept + prior.reshape([1] * (x.rank - 1) + [-1]) * epsilon


@renders("nll_loss")
def nll_loss(g: Graph, op: Operation) -> dict[str, Value]:
    x, label, weight = op["X"], op["Label"].cast(np.int64), op.get("Weight")
    reduction, ignored = op.attr("reduction"), op.attr("ignore_index")
    skipped = label.equals(ignored)
    at = g.where(skipped, 0, label)
    share = g.full(label.dims(), 1, x.dtype) if weight is None else weight.gather(at, 0)
    share = g.where(skipped, 0, share)
    loss = -elements(x, at.unsqueeze(1), 1).squeeze(1) * share
    total = share.sum()
    whole = op.meta("Total_weight")
    given = list(whole.shape) if whole is not None else []
    if reduction == "none":
        return {"Out": loss, "Total_weight": g.full(g.vector(given or [0]), 0, x.dtype).reshape(given)}
    summed = loss.sum() if reduction == "sum" else loss.sum() / total
    return {"Out": summed.reshape(list(op.shape())), "Total_weight": total.reshape(given)}


@renders("bpr_loss")
def bpr_loss(g: Graph, op: Operation) -> Value:
    x, label = op["X"], op["Label"].cast(np.int64)
    count = x.size(-1)
    own = elements(x, label, x.rank - 1)
    others = ~g.constant(np.arange(count)).equals(label)
    loss = ((x - own).apply("Exp") + 1).apply("Log")
    return g.where(others, loss, 0).sum(-1, keepdims=True) / (count - 1)


@renders("accuracy")
def accuracy(g: Graph, op: Operation) -> dict[str, Value]:
    indices, label = op["Indices"].cast(np.int64), op["Label"].cast(np.int64)
    hits = indices.equals(label.reshape([-1, 1])).cast(np.int32).reduce("Max", [1]).sum(0, keepdims=True)
    total = indices.dim_value(0).cast(np.int32)
    kind = op.dtype("Accuracy", np.float32)
    return {
        "Accuracy": (hits.cast(kind) / total.cast(kind)).reshape(_like(op, "Accuracy")),
        "Correct": hits.reshape(_like(op, "Correct")),
        "Total": total.reshape(_like(op, "Total")),
    }


def _like(op: Operation, slot: str) -> list[int]:
    meta = op.meta(slot)
    return [1] if meta is None else list(meta.shape)


@renders("sigmoid_focal_loss")
def sigmoid_focal_loss(g: Graph, op: Operation) -> Value:
    x, label, count = op["X"], op["Label"].cast(np.int64), op["FgNum"]
    gamma, alpha = op.attr("gamma"), op.attr("alpha")
    classes = x.size(1)
    own = label.equals(g.constant(np.arange(1, classes + 1)))
    other = ~own & ~label.equals(-1)
    share = g.maximum(count.cast(x.dtype).scalar(), 1)
    chance = x.apply("Sigmoid")
    small = float(np.finfo(np.float32).tiny)
    one = g.binary("Pow", 1 - chance, gamma) * chance.clip(small, None).apply("Log")
    rest = -((-x.apply("Abs")).apply("Exp") + 1).apply("Log") - x.apply("Relu")
    two = g.binary("Pow", chance, gamma) * rest
    return -(own.cast(x.dtype) * one * alpha + other.cast(x.dtype) * two * (1 - alpha)) / share


@renders("cvm")
def cvm(g: Graph, op: Operation) -> Value:
    x = op["X"]
    if not op.attr("use_cvm"):
        return x.part(1, 2)
    show, click = (x.part(1, i, i + 1) for i in (0, 1))
    first = (show + 1).apply("Log")
    return g.concat([first, (click + 1).apply("Log") - first, x.part(1, 2)], 1)


@renders("fused_elemwise_activation", "fused_elemwise_add_activation")
def fused_activation(g: Graph, op: Operation) -> dict[str, Value]:
    """Two functions, one of two values: 'elementwise_add,relu' is x + relu(y), 'relu,elementwise_add' relu(x + y)."""
    from fluidtool.onnx_export.operators.activation import activated
    from fluidtool.onnx_export.operators.elementwise import ARITHMETIC, operands

    outer, inner = (name.strip() for name in op.attr("functor_list"))
    x, y = operands(op)

    def alone(name: str, value: Value) -> Value:
        return value * op.attr("scale") if name == "scale" else activated(g, value, name)

    if outer in ARITHMETIC:
        between = alone(inner, y)
        return {"Out": g.binary(ARITHMETIC[outer], x, between), "IntermediateOut": between}
    need(inner in ARITHMETIC, f"the functions {outer} and {inner}")
    between = g.binary(ARITHMETIC[inner], x, y)
    return {"Out": alone(outer, between), "IntermediateOut": between}
