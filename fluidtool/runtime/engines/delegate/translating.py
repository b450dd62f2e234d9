"""Translates the graph of a region, before fusion, to the operations of another library."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np

from fluidtool.runtime.engines.delegate.target import BINARY, Target
from fluidtool.runtime.graph.importers import registry
from fluidtool.runtime.graph.ir import RELU, Activation, Graph, Node, Shape, UnsupportedError, Value

Inputs = list[Any]
Translator = Callable[[Target, Node, Inputs], Any]


def translate(graph: Graph, target: Target) -> list[Any]:
    """The outputs of the graph, built in `target`; raises UnsupportedError for a computation without an operation."""
    found: dict[Value, Any] = {value: target.input(value.name, value.shape, value.integer) for value in graph.inputs}

    def operand(value: Value) -> Any:
        if value not in found:
            found[value] = target.constant(np.ascontiguousarray(value.array))
        return found[value]

    for node in graph.nodes:
        translator = TRANSLATORS.get(node.kind)
        if translator is None or node.residual is not None:
            raise UnsupportedError(f"{node.kind} is not delegated", result=node.output.name)
        try:
            out = translator(target, node, [operand(value) for value in node.inputs])
            found[node.output] = activated(target, out, node.activation)
        except UnsupportedError as error:
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
    raise UnsupportedError(f"activation {kind} is not delegated")


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
    attrs, count = node.attrs, node.attrs["weights"].shape[0]
    weights = attrs["weights"]
    if attrs["scale"] is not None:
        weights = weights * attrs["scale"].reshape(-1, 1, 1, 1)
    out = t.convolution(
        inputs[0],
        t.constant(np.ascontiguousarray(weights, np.float32)),
        attrs["strides"],
        attrs["pads"],
        attrs["dilations"],
        attrs["groups"],
    )
    return out if attrs["shift"] is None else t.binary("add", out, _numbers(t, attrs["shift"], (1, count, 1, 1)))


def _by_channel(t: Target, node: Node, inputs: Inputs) -> Any:
    shape = (1, node.output.shape[1], *[1] * (len(node.output.shape) - 2))
    out = t.binary("multiply", inputs[0], _numbers(t, node.attrs["scale"], shape))
    return t.binary("add", out, _numbers(t, node.attrs["shift"], shape))


def _pool(t: Target, node: Node, inputs: Inputs) -> Any:
    attrs, size, counts = node.attrs, node.inputs[0].shape[2:], node.output.shape[2:]
    window, strides, before = attrs["window"], attrs["strides"], attrs["pads"][:2]
    if attrs["adaptive"]:
        if any(n % count for n, count in zip(size, counts, strict=True)):
            raise UnsupportedError("adaptive windows of different sizes are not delegated")
        window = strides = tuple(n // count for n, count in zip(size, counts, strict=True))
    after = tuple(
        max((count - 1) * s + w - top - n, 0)
        for count, s, w, top, n in zip(counts, strides, window, before, size, strict=True)
    )
    if any(pad >= w for pad, w in zip((*before, *after), (*window, *window), strict=True)):
        raise UnsupportedError("windows that contain only padding are not delegated")
    return t.pool(inputs[0], window, strides, (*before, *after), attrs["mode"])


def _product(t: Target, node: Node, inputs: Inputs) -> Any:
    attrs = node.attrs
    out = t.product(t.reshape(inputs[0], attrs["matrix"]), t.constant(np.ascontiguousarray(attrs["weights"])))
    if attrs["shift"] is not None:
        out = t.binary("add", out, _numbers(t, attrs["shift"], (1, attrs["weights"].shape[1])))
    return t.reshape(out, node.output.shape)


def _matmul(t: Target, node: Node, inputs: Inputs) -> Any:
    x, y = inputs
    rank = len(node.inputs[1].shape)
    if node.attrs["swap_y"]:
        y = t.transpose(y, (*range(rank - 2), rank - 1, rank - 2))
    return t.product(x, y)


def _binary(t: Target, node: Node, inputs: Inputs) -> Any:
    x, y = inputs
    if node.inputs[1].shape != node.attrs["y_shape"]:
        y = t.reshape(y, node.attrs["y_shape"])
    if node.attrs["operation"] == registry.PRELU:
        raise UnsupportedError("prelu is not delegated")
    return t.binary(BINARY[node.attrs["operation"]], x, y)


def _softmax(t: Target, node: Node, inputs: Inputs) -> Any:
    if node.attrs["mask_shape"] is not None or node.attrs["factor"] != 1.0:
        raise UnsupportedError("a softmax that is already fused")
    return t.softmax(inputs[0])


def _layer_norm(t: Target, node: Node, inputs: Inputs) -> Any:
    attrs, shape = node.attrs, node.output.shape
    columns = attrs["matrix"][1]
    scale = np.ones(columns, np.float32) if attrs["scale"] is None else attrs["scale"]
    shift = np.zeros(columns, np.float32) if attrs["shift"] is None else attrs["shift"]
    x = inputs[0] if shape[-1] == columns else t.reshape(inputs[0], attrs["matrix"])
    out = t.normalize_rows(x, _numbers(t, scale, (columns,)), _numbers(t, shift, (columns,)), attrs["epsilon"])
    return out if shape[-1] == columns else t.reshape(out, shape)


def _gather(t: Target, node: Node, inputs: Inputs) -> Any:
    table, zero = node.attrs["table"], node.attrs["zero"]
    if 0 <= zero < len(table):
        table = table.copy()
        table[zero] = 0
    return t.rows(t.constant(np.ascontiguousarray(table)), t.reshape(inputs[0], node.output.shape[:-1]))


def _slice(t: Target, node: Node, inputs: Inputs) -> Any:
    starts, sizes = node.attrs["starts"], node.attrs["sizes"]
    out = t.slice(inputs[0], starts, [start + size for start, size in zip(starts, sizes, strict=True)])
    return out if node.output.shape == tuple(sizes) else t.reshape(out, node.output.shape)


def _stack(t: Target, node: Node, inputs: Inputs) -> Any:
    axis, shape = node.attrs["axis"], node.inputs[0].shape
    wide = (*shape[:axis], 1, *shape[axis:])
    return t.concat([t.reshape(x, wide) for x in inputs], axis)


def _view(t: Target, node: Node, inputs: Inputs) -> Any:
    if prod(node.inputs[0].shape) != prod(node.output.shape):
        raise UnsupportedError("a view of other sizes")
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
    "transpose": lambda t, node, inputs: t.transpose(inputs[0], node.attrs["axes"]),
    "slice": _slice,
    "concat": lambda t, node, inputs: t.concat(inputs, node.attrs["axis"]),
    "stack": _stack,
}
