"""Normalization over groups of channels, or over each channel, in training steps: a kernel each way, and sums for the factors."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Any

from fluidtool.ir import Operator
from fluidtool.runtime.engines.cuda.calls import Place
from fluidtool.runtime.engines.cuda.lowering import Lowering, lowers
from fluidtool.runtime.engines.cuda.rows import Groups, Rows, in_rows, normalized
from fluidtool.runtime.engines.cuda.sources import Source, number
from fluidtool.runtime.engines.cuda.training.building import StepBuilder, imports_step
from fluidtool.runtime.engines.cuda.training.forward import along, literal
from fluidtool.runtime.graph.importers.registry import need
from fluidtool.runtime.graph.ir import Node, Shape, Value

Attrs = Mapping[str, Any]
FACTORS = {"Scale": "scale", "Bias": "shift"}


# ---------------------------------------------------------------- importers
def _groups_of(attrs: Attrs, shape: Shape) -> int:
    groups = int(attrs["groups"])
    need(attrs["data_layout"] in ("NCHW", "AnyLayout") and len(shape) >= 2, "group_norm in NHWC")
    need(groups > 0 and shape[1] % groups == 0, "groups of different sizes")
    return groups


def _add_norm(b: StepBuilder, op: Operator, attrs: Attrs, groups: int) -> tuple[Value, Value]:
    """The operator's result Y; the means and the variances of groups, [images, groups]."""
    x, named = b.get(op, "X"), [slot for slot in FACTORS if b.has(op, slot)]
    factors = [b.get(op, slot) for slot in named]
    need(all(value.shape == x.shape[1:2] for value in factors), "factors of an unexpected shape")
    given = tuple(FACTORS[slot] for slot in named)
    y = b.node("group_norm_step", [x, *factors], x.shape, groups=groups, epsilon=float(attrs["epsilon"]), given=given)
    b.put(op, "Y", y)
    mean, variance = (b.node("beside", [y], (x.shape[0], groups), name=name) for name in ("mean", "variance"))
    return mean, variance


@imports_step("group_norm")
def _group_norm(b: StepBuilder, op: Operator, attrs: Attrs) -> None:
    found = _add_norm(b, op, attrs, _groups_of(attrs, b.get(op, "X").shape))
    for slot, value in zip(("Mean", "Variance"), found, strict=True):
        if b.wants(op, slot):
            b.put(op, slot, value)


@imports_step("instance_norm")
def _instance_norm(b: StepBuilder, op: Operator, attrs: Attrs) -> None:
    shape = b.get(op, "X").shape
    need(2 <= len(shape) <= 5, "not an image")
    mean, variance = (b.view(each, (prod(shape[:2]),)) for each in _add_norm(b, op, attrs, shape[1]))
    if b.wants(op, "SavedMean"):
        b.put(op, "SavedMean", mean)
    if b.wants(op, "SavedVariance"):
        b.put(op, "SavedVariance", b.formula(f"1.0f / sqrtf(a + {literal(float(attrs['epsilon']))})", variance))


@imports_step("group_norm_grad")
def _group_norm_gradient(b: StepBuilder, op: Operator, attrs: Attrs) -> None:
    """From Y, of which bias and scale are taken off again. Without a scale Paddle's gradient lacks the mean of that of Y."""
    y, grad = b.get(op, "Y"), b.get(op, "Y@GRAD")
    groups, rank = _groups_of(attrs, y.shape), len(y.shape)
    need(grad.shape == y.shape, "a gradient that does not fit")
    scale, bias = (along(b, b.get(op, slot), rank) if b.has(op, slot) else None for slot in FACTORS)

    def normal() -> Value:
        """Another node for each reader, which computes it."""
        inputs = [y, *(each for each in (bias, scale) if each is not None)]
        text = "a" if bias is None else "(a - b)"
        letter = "abc"[len(inputs) - 1]
        return b.formula(text if scale is None else f"{text} / ({letter} == 0.0f ? 1.0f : {letter})", *inputs)

    if b.wants(op, "Scale@GRAD"):
        b.put(op, "Scale@GRAD", b.sums(b.formula("a * b", grad, normal()), (1,)))
    if b.wants(op, "Bias@GRAD"):
        b.put(op, "Bias@GRAD", b.sums(grad, (1,)))
    if b.wants(op, "X@GRAD"):
        by = grad if scale is None else b.formula("a * b", grad, scale)
        how = {"groups": groups, "epsilon": float(attrs["epsilon"]), "centers": scale is not None}
        b.put(op, "X@GRAD", b.node("group_norm_gradient", [by, normal(), b.get(op, "Variance")], y.shape, **how))


@imports_step("instance_norm_grad")
def _instance_norm_gradient(b: StepBuilder, op: Operator, attrs: Attrs) -> None:
    x, grad = b.get(op, "X"), b.get(op, "Y@GRAD")
    need(2 <= len(x.shape) <= 5 and grad.shape == x.shape, "a gradient that does not fit")
    wide = (*x.shape[:2], *(1,) * (len(x.shape) - 2))
    mean, inverse = (b.view(b.get(op, slot), wide) for slot in ("SavedMean", "SavedVariance"))

    def normal() -> Value:
        return b.formula("(a - b) * c", x, mean, inverse)

    if b.wants(op, "Scale@GRAD"):
        b.put(op, "Scale@GRAD", b.sums(b.formula("a * b", grad, normal()), (1,)))
    if b.wants(op, "Bias@GRAD"):
        b.put(op, "Bias@GRAD", b.sums(grad, (1,)))
    if b.wants(op, "X@GRAD"):
        by = b.formula("a * b", grad, along(b, b.get(op, "Scale"), len(x.shape))) if b.has(op, "Scale") else grad
        how = {"groups": x.shape[1], "epsilon": None, "centers": True}
        b.put(op, "X@GRAD", b.node("group_norm_gradient", [by, normal(), inverse], x.shape, **how))


# ---------------------------------------------------------------- kernels
@lowers("group_norm_step")
def _lower_norm(low: Lowering, node: Node) -> None:
    """attrs: `groups`, `epsilon`, and which factors by channel follow the images: those `given`."""
    x, *factors = node.inputs
    given, groups = dict(zip(node.attrs["given"], factors, strict=True)), Groups(low, x, node.attrs["groups"])
    out = low.new(node.output, low.strides_like(node))
    kept = {name: Place(low.room(groups.matrix[:1]), (groups.count, 1)) for name in ("mean", "variance")}
    low.beside.update({(node.output, name): place for name, place in kept.items()})

    def column(src: Source, name: str, part: str, index: list[str]) -> str | None:
        return src.load(given[name], [index[1]]) if name in given else None

    normalized(low, node, out, groups.matrix, groups.index, lambda src, index: src.load(x, index), column, kept)


@lowers("group_norm_gradient")
def _lower_gradient(low: Lowering, node: Node) -> None:
    """(g - the mean of g - n * the mean of g * n) / deviation, by group: g is the gradient of n, the normalized numbers.

    attrs: `groups`; whether it `centers`, which Paddle does not without a scale; `epsilon`, or None where deviations are
    inverse already.
    """
    grad, normal, spread = node.inputs
    groups, attrs = Groups(low, grad, node.attrs["groups"]), node.attrs
    out, share = low.new(node.output, low.strides_like(node)), number(1 / groups.matrix[1])

    def write(kernel: Rows) -> None:
        src = kernel.src

        def element(value: Value, part: str) -> str:
            return src.load(value, groups.index(kernel, part))

        def stored(part: str) -> str:
            index = groups.index(kernel, part)
            level = "v - level" if attrs["centers"] else "v"
            return src.store(out, index, f"({level} - {src.load(normal, index)} * slope) * factor")

        found = src.load(spread, src.split("row", spread.shape))
        found = found if attrs["epsilon"] is None else f"1.0f / sqrtf({found} + {number(attrs['epsilon'])})"
        src.lines.append(f"float level = 0.0f, slope = 0.0f; const float factor = {found};")
        kernel.first(
            lambda part: element(grad, part), lambda part: f"level += v; slope += v * {element(normal, part)};"
        )
        for name in ("level", "slope"):
            kernel.joined(name, "({a} + {b})")
        src.lines.append(f"level *= {share}; slope *= {share};")
        kernel.again(lambda part: element(grad, part), stored)

    in_rows(low, out, *groups.matrix, "norm_back", write)
