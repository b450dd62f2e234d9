"""The graph of a stretch, before anything is fused, in the operations of another library."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np

from fluidtool.runtime.engines.handing.target import BINARY, Target
from fluidtool.runtime.engines.native.graph import RELU, Activation, Graph, Node, NotNativeError, Shape, Value
from fluidtool.runtime.engines.native.reading import registry

Inputs = list[Any]
Translator = Callable[[Target, Node, Inputs], Any]


def translate(graph: Graph, target: Target) -> list[Any]:
    """The outputs of the graph, built in `target`; raises NotNativeError for a computation without an operation."""
    found: dict[Value, Any] = {value: target.input(value.name, value.shape, value.integer) for value in graph.inputs}

    def operand(value: Value) -> Any:
        if value not in found:
            found[value] = target.constant(np.ascontiguousarray(value.array))
        return found[value]

    for node in graph.nodes:
        translator = TRANSLATORS.get(node.kind)
        if translator is None or node.residual is not None:
            raise NotNativeError(f"{node.kind} is not handed over", result=node.output.name)
        try:
            out = translator(target, node, [operand(value) for value in node.inputs])
            found[node.output] = activated(target, out, node.activation)
        except NotNativeError as error:
            error.result = node.output.name
            raise
    return [operand(value) for value in graph.outputs]


# ---------------------------------------------------------------- activations
def activated(t: Target, x: Any, activation: Activation) -> Any:
    """x after an activation (registry.py has their numbers, engine.h their constants)."""
    kind, numbers = activation.kind, activation.constants
    if kind == 0:
        return x
    if kind in PLAIN:
        return t.unary(PLAIN[kind], x)
    if kind == registry.SQUARE:
        return t.binary("multiply", x, x)
    if kind in (registry.GELU, registry.GELU_TANH):
        return t.gelu(x, kind == registry.GELU_TANH)
    if kind == 2:
        return t.clip(x, 0.0, numbers[0])
    if kind == registry.LEAKY:
        return t.leaky_relu(x, numbers[0])
    if kind == registry.AFFINE:
        return _affine(t, x, *numbers)
    if kind == registry.HARD_SIGMOID:
        return t.clip(_affine(t, x, *numbers), 0.0, 1.0)
    if kind == registry.SWISH:
        return t.binary("multiply", x, t.unary("sigmoid", _affine(t, x, numbers[0], 0.0)))
    if kind == registry.HARD_SWISH:
        threshold, offset, scale = numbers
        return t.binary("multiply", x, _affine(t, t.clip(_affine(t, x, 1.0, offset), 0.0, threshold), 1 / scale, 0.0))
    raise NotNativeError(f"activation {kind} is not handed over")


PLAIN = {
    RELU.kind: "relu",
    registry.SIGMOID: "sigmoid",
    registry.TANH: "tanh",
    registry.EXP: "exp",
    registry.SQRT: "sqrt",
    registry.ABS: "abs",
}


def _affine(t: Target, x: Any, factor: float, shift: float) -> Any:
    if factor != 1.0:
        x = t.binary("multiply", x, t.constant(np.full(1, factor, np.float32)))
    return t.binary("add", x, t.constant(np.full(1, shift, np.float32))) if shift else x


# ---------------------------------------------------------------- nodes
def _numbers(t: Target, array: Any, shape: Shape) -> Any:
    return t.constant(np.ascontiguousarray(array, np.float32).reshape(shape))


def _conv(t: Target, node: Node, inputs: Inputs) -> Any:
    facts, count = node.facts, node.facts["weights"].shape[0]
    weights = facts["weights"]
    if facts["scale"] is not None:
        weights = weights * facts["scale"].reshape(-1, 1, 1, 1)
    out = t.convolution(
        inputs[0],
        t.constant(np.ascontiguousarray(weights, np.float32)),
        facts["strides"],
        facts["pads"],
        facts["dilations"],
        facts["groups"],
    )
    return out if facts["shift"] is None else t.binary("add", out, _numbers(t, facts["shift"], (1, count, 1, 1)))


def _by_channel(t: Target, node: Node, inputs: Inputs) -> Any:
    shape = (1, node.output.shape[1], *[1] * (len(node.output.shape) - 2))
    out = t.binary("multiply", inputs[0], _numbers(t, node.facts["scale"], shape))
    return t.binary("add", out, _numbers(t, node.facts["shift"], shape))


def _pool(t: Target, node: Node, inputs: Inputs) -> Any:
    facts, size, counts = node.facts, node.inputs[0].shape[2:], node.output.shape[2:]
    window, strides, before = facts["window"], facts["strides"], facts["pads"][:2]
    if facts["adaptive"]:
        if any(n % count for n, count in zip(size, counts, strict=True)):
            raise NotNativeError("adaptive windows of different sizes are not handed over")
        window = strides = tuple(n // count for n, count in zip(size, counts, strict=True))
    after = tuple(
        max((count - 1) * s + w - top - n, 0)
        for count, s, w, top, n in zip(counts, strides, window, before, size, strict=True)
    )
    if any(pad >= w for pad, w in zip((*before, *after), (*window, *window), strict=True)):
        raise NotNativeError("windows that see nothing but padding are not handed over")
    return t.pool(inputs[0], window, strides, (*before, *after), facts["mode"])


def _product(t: Target, node: Node, inputs: Inputs) -> Any:
    facts = node.facts
    out = t.product(t.reshape(inputs[0], facts["matrix"]), t.constant(np.ascontiguousarray(facts["weights"])))
    if facts["shift"] is not None:
        out = t.binary("add", out, _numbers(t, facts["shift"], (1, facts["weights"].shape[1])))
    return t.reshape(out, node.output.shape)


def _matmul(t: Target, node: Node, inputs: Inputs) -> Any:
    x, y = inputs
    rank = len(node.inputs[1].shape)
    if node.facts["swap_y"]:
        y = t.transpose(y, (*range(rank - 2), rank - 1, rank - 2))
    return t.product(x, y)


def _binary(t: Target, node: Node, inputs: Inputs) -> Any:
    x, y = inputs
    if node.inputs[1].shape != node.facts["y_shape"]:
        y = t.reshape(y, node.facts["y_shape"])
    if node.facts["operation"] == registry.PRELU:
        raise NotNativeError("prelu is not handed over")
    return t.binary(BINARY[node.facts["operation"]], x, y)


def _softmax(t: Target, node: Node, inputs: Inputs) -> Any:
    if node.facts["mask_shape"] is not None or node.facts["factor"] != 1.0:
        raise NotNativeError("a softmax that is fused already")
    return t.softmax(inputs[0])


def _layer_norm(t: Target, node: Node, inputs: Inputs) -> Any:
    facts, shape = node.facts, node.output.shape
    columns = facts["matrix"][1]
    scale = np.ones(columns, np.float32) if facts["scale"] is None else facts["scale"]
    shift = np.zeros(columns, np.float32) if facts["shift"] is None else facts["shift"]
    x = inputs[0] if shape[-1] == columns else t.reshape(inputs[0], facts["matrix"])
    out = t.normalize_rows(x, _numbers(t, scale, (columns,)), _numbers(t, shift, (columns,)), facts["epsilon"])
    return out if shape[-1] == columns else t.reshape(out, shape)


def _gather(t: Target, node: Node, inputs: Inputs) -> Any:
    table, zero = node.facts["table"], node.facts["zero"]
    if 0 <= zero < len(table):
        table = table.copy()
        table[zero] = 0
    return t.rows(t.constant(np.ascontiguousarray(table)), t.reshape(inputs[0], node.output.shape[:-1]))


def _slice(t: Target, node: Node, inputs: Inputs) -> Any:
    starts, sizes = node.facts["starts"], node.facts["sizes"]
    out = t.slice(inputs[0], starts, [start + size for start, size in zip(starts, sizes, strict=True)])
    return out if node.output.shape == tuple(sizes) else t.reshape(out, node.output.shape)


def _stack(t: Target, node: Node, inputs: Inputs) -> Any:
    axis, shape = node.facts["axis"], node.inputs[0].shape
    wide = (*shape[:axis], 1, *shape[axis:])
    return t.concat([t.reshape(x, wide) for x in inputs], axis)


def _view(t: Target, node: Node, inputs: Inputs) -> Any:
    if prod(node.inputs[0].shape) != prod(node.output.shape):
        raise NotNativeError("a view of other sizes")
    return t.reshape(inputs[0], node.output.shape)


TRANSLATORS: dict[str, Translator] = {
    "conv": _conv,
    "affine": _by_channel,
    "pool": _pool,
    "product": _product,
    "matmul": _matmul,
    "binary": _binary,
    "unary": lambda t, node, inputs: inputs[0],
    "softmax": _softmax,
    "layer_norm": _layer_norm,
    "gather": _gather,
    "view": _view,
    "transpose": lambda t, node, inputs: t.transpose(inputs[0], node.facts["axes"]),
    "slice": _slice,
    "concat": lambda t, node, inputs: t.concat(inputs, node.facts["axis"]),
    "stack": _stack,
}
