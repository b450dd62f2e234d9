"""Elementwise operators and activations."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any

import numpy as np

from fluidtool.ir import Operator
from fluidtool.ops.math.versions import saved_by
from fluidtool.runtime.graph.bounds import Bound
from fluidtool.runtime.graph.importers.registry import (
    ABS,
    ADD,
    AFFINE,
    CLIP,
    DIVIDE,
    EXP,
    GELU,
    GELU_TANH,
    HARD_SIGMOID,
    HARD_SWISH,
    LARGER,
    LEAKY,
    MULTIPLY,
    PRELU,
    SIGMOID,
    SMALLER,
    SOFTSIGN,
    SQRT,
    SQUARE,
    SUBTRACT,
    SWISH,
    TANH,
    GraphBuilder,
    imports,
    need,
)
from fluidtool.runtime.graph.ir import Activation, Shape, Value

OPERATIONS = {
    "elementwise_add": ADD,
    "elementwise_sub": SUBTRACT,
    "elementwise_mul": MULTIPLY,
    "elementwise_div": DIVIDE,
    "elementwise_max": LARGER,
    "elementwise_min": SMALLER,
}
EITHER_WAY = frozenset({"elementwise_add", "elementwise_mul", "elementwise_max", "elementwise_min"})
ACTIVATIONS: dict[str, Callable[[dict[str, Any]], Activation]] = {
    "relu": lambda a: Activation(1),
    "relu6": lambda a: Activation(2, (float(a["threshold"]),)),
    "sigmoid": lambda a: Activation(SIGMOID),
    "tanh": lambda a: Activation(TANH),
    "gelu": lambda a: Activation(GELU_TANH if a.get("approximate") else GELU),
    "leaky_relu": lambda a: Activation(LEAKY, (float(a["alpha"]),)),
    "hard_swish": lambda a: Activation(HARD_SWISH, (float(a["threshold"]), float(a["offset"]), float(a["scale"]))),
    "swish": lambda a: Activation(SWISH, (float(a["beta"]),)),
    "exp": lambda a: Activation(EXP),
    "sqrt": lambda a: Activation(SQRT),
    "square": lambda a: Activation(SQUARE),
    "hard_sigmoid": lambda a: Activation(HARD_SIGMOID, (float(a["slope"]), float(a["offset"]))),
    "softsign": lambda a: Activation(SOFTSIGN),
    "abs": lambda a: Activation(ABS),
    "brelu": lambda a: Activation(CLIP, (float(a["t_min"]), float(a["t_max"]))),
}


@imports(*OPERATIONS)
def _binary(r: GraphBuilder, op: Operator, attrs: dict[str, Any]) -> None:
    x, y = r.either(op, "X"), r.either(op, "Y")
    need(x.integer == y.integer and x.short == y.short, "numbers of two types")
    if x.integer:
        add_whole(r, op, attrs, x, y)
        return
    axis = int(attrs.get("axis", -1))
    need(len(y.shape) <= len(x.shape), "broadcasting of X")
    if len(x.shape) == len(y.shape) and prod(x.shape) < prod(y.shape) and op.type in EITHER_WAY:
        x, y = y, x
    operation, y_shape = OPERATIONS[op.type], aligned(x.shape, y.shape, axis)
    need(all(b in (1, a) for a, b in zip(x.shape, y_shape, strict=True)), "broadcasting of X")
    if len(x.shape) == 4 != len(y.shape) and y_shape[1:] == (x.shape[1], 1, 1) and y.array is None:
        y = r.add("view", [y], op, "Out", y_shape)
    if y.array is not None and len(x.shape) == 4 and y_shape == (1, x.shape[1], 1, 1) and operation in (ADD, MULTIPLY):
        numbers = y.array.astype(np.float64).reshape(-1)
        ones, zeros = np.ones_like(numbers), np.zeros_like(numbers)
        scale, shift = (ones, numbers) if operation == ADD else (numbers, zeros)
        r.add("affine", [x], op, "Out", x.shape, scale=scale, shift=shift)
        return
    r.add("binary", [x, y], op, "Out", x.shape, operation=operation, y_shape=y_shape)


WHOLE_OPERATIONS = {
    "elementwise_add": "a + b", "elementwise_sub": "a - b", "elementwise_mul": "a * b", "elementwise_div": "a / b",
    "elementwise_max": "(a > b ? a : b)", "elementwise_min": "(a < b ? a : b)", "elementwise_floordiv": "a / b",
    "elementwise_mod": "a % b",
}  # fmt: skip
"""Of whole numbers; of divisors above 0 quotients are cut towards zero, and what is left has the sign of a."""
DOWN = {"elementwise_floordiv": ((2, 5), "(a - (a % b + b) % b) / b"), "elementwise_mod": ((2, 0), "(a % b + b) % b")}
"""From which version of Paddle on quotients are rounded down, for divisors above 0."""
QUOTIENT, REST = "(b == -1 ? (whole)(0ull - (unsigned long long)a) : a / b)", "(b == -1 ? 0 : a % b)"
IS_UNEVEN = f"({REST} != 0 && ({REST} < 0) != (b < 0))"
BY_ANY = {
    ("elementwise_div", False): QUOTIENT,
    ("elementwise_floordiv", False): QUOTIENT,
    ("elementwise_floordiv", True): f"({QUOTIENT} - {IS_UNEVEN})",
    ("elementwise_mod", False): REST,
    ("elementwise_mod", True): f"({IS_UNEVEN} ? {REST} + b : {REST})",
}
"""By any divisor but 0, and whether quotients are rounded down; the lowest number by -1 is itself, where processors give up."""


@imports("elementwise_floordiv", "elementwise_mod")
def _divide(r: GraphBuilder, op: Operator, attrs: dict[str, Any]) -> None:
    x, y = (r.get(op, slot, integer=True) for slot in "XY")
    need(x.short == y.short, "numbers of two types")
    add_whole(r, op, attrs, x, y)


def add_whole(r: GraphBuilder, op: Operator, attrs: dict[str, Any], x: Value, y: Value) -> None:
    """Arithmetic on whole numbers, which kernels for GPUs do; zeros that divide are found, unless they are constants."""
    need(len(y.shape) <= len(x.shape), "broadcasting of X")
    y_shape = aligned(x.shape, y.shape, int(attrs.get("axis", -1)))
    need(all(b in (1, a) for a, b in zip(x.shape, y_shape, strict=True)), "broadcasting of X")
    version, down = DOWN.get(op.type, ((0, 0), ""))
    is_down = bool(down) and saved_by(op.block.program, *version)
    text, checks = down if is_down else WHOLE_OPERATIONS[op.type], tuple[Bound, ...]()
    if (op.type, is_down) in BY_ANY and (y.array is None or not (np.asarray(y.array) > 0).all()):
        need(y.array is None or np.asarray(y.array).all(), "a constant that divides and is 0")
        text = BY_ANY[op.type, is_down]
        y, checks = r.divisor(y) if y.array is None else (y, ())
    put_whole(r, op, text, (x, y), (x.shape, y_shape), checks)


def put_whole(
    r: GraphBuilder,
    op: Operator,
    text: str,
    inputs: Sequence[Value],
    shapes: Sequence[Shape],
    checks: Sequence[Bound] = (),
) -> None:
    """A formula of whole numbers a, b, broadcast from `shapes`, as the operator's output; those of 32 bits begin again.

    checks: of b, which divides, for the kernel to mark.
    """
    short = inputs[0].short
    node_attrs: dict[str, Any] = {"text": f"(whole)(int)({text})" if short else text, "checks": tuple(checks)}
    r.add("whole", inputs, op, "Out", shapes[0], integer=True, short=short, shapes=tuple(shapes), **node_attrs)


def aligned(x: Shape, y: Shape, axis: int) -> Shape:
    """The shape of Y padded with ones, so that it broadcasts to X (Paddle 1.8 elementwise_op_function.h)."""
    if len(x) == len(y):
        return y
    start = len(x) - len(y) if axis == -1 else axis
    while len(y) + start > len(x) and y[-1] == 1:
        y = y[:-1]
    need(0 <= start <= len(x) - len(y), "shapes that do not broadcast")
    return (1,) * start + y + (1,) * (len(x) - start - len(y))


@imports(*ACTIVATIONS)
def _activation(r: GraphBuilder, op: Operator, attrs: dict[str, Any]) -> None:
    x = r.get(op, "X")
    need(not x.integer, "integers")
    r.add("unary", [x], op, "Out", x.shape, ACTIVATIONS[op.type](attrs))


@imports("clip")
def _clip(r: GraphBuilder, op: Operator, attrs: dict[str, Any]) -> None:
    x = r.get(op, "X")
    need(not op.inputs.get("Min") and not op.inputs.get("Max"), "computed bounds")
    low, high = float(attrs["min"]), float(attrs["max"])
    need(low <= high, "bounds in the wrong order")
    r.add("unary", [x], op, "Out", x.shape, Activation(CLIP, (low, high)))


@imports("prelu")
def _prelu(r: GraphBuilder, op: Operator, attrs: dict[str, Any]) -> None:
    x, slopes = r.get(op, "X"), r.constant(op, "Alpha")
    y_shape = shape_of_slopes(attrs, x.shape, slopes.size)
    need(slopes.dtype == np.float32, "slopes of another type than float32")
    other = Value(op.inputs["Alpha"][0], y_shape, slopes.reshape(y_shape))
    r.add("binary", [x, other], op, "Out", x.shape, operation=PRELU, y_shape=y_shape)


def shape_of_slopes(attrs: Mapping[str, Any], shape: Shape, count: int) -> Shape:
    """The shape in which so many slopes of a prelu broadcast to X. Raises UnsupportedError if they do not."""
    shapes = {
        "all": (1,) * len(shape),
        "channel": (1, *shape[1:2], *(1 for _ in shape[2:])),
        "element": (1, *shape[1:]),
    }
    found = shapes.get(attrs["mode"], ())
    need(attrs.get("data_format", "NCHW") in ("NCHW", "AnyLayout"), "slopes of the last dimension")
    need(found and count == prod(found), "slopes of an unexpected shape")
    return found


@imports("sum")
def _sum(r: GraphBuilder, op: Operator, attrs: dict[str, Any]) -> None:
    parts = [r.values[name] for name in op.inputs["X"] if name in r.values]
    need(len(parts) == len(op.inputs["X"]) and not any(part.integer for part in parts), "missing parts")
    need(len({part.shape for part in parts}) == 1, "parts of different shapes")
    total = parts[0]
    for part in parts[1:]:
        total = r.add("binary", [total, part], op, "Out", total.shape, operation=ADD, y_shape=part.shape)
    if len(parts) == 1:
        r.alias(total, op, "Out")


@imports("scale")
def _scale(r: GraphBuilder, op: Operator, attrs: dict[str, Any]) -> None:
    x = r.either(op, "X")
    need(not op.inputs.get("ScaleTensor"), "a computed scale")
    factor, bias = float(attrs["scale"]), float(attrs["bias"])
    if x.integer:
        need(max(abs(factor), abs(bias)) < (1 << (31 if x.short else 63)), "a scale beyond whole numbers")
        first = bias and not attrs.get("bias_after_scale", True)
        text = f"(a + {int(bias)}ll) * {int(factor)}ll" if first else f"a * {int(factor)}ll + {int(bias)}ll"
        put_whole(r, op, text, (x,), (x.shape,))
        return
    bias = bias if attrs.get("bias_after_scale", True) else bias * factor
    if (factor, bias) == (1.0, 0.0):
        r.alias(x, op, "Out")
    else:
        r.add("unary", [x], op, "Out", x.shape, Activation(AFFINE, (factor, bias)))


@imports("dropout")
def _dropout(r: GraphBuilder, op: Operator, attrs: dict[str, Any]) -> None:
    x = r.get(op, "X")
    need(attrs.get("is_test"), "dropout in training mode")
    if attrs.get("dropout_implementation") == "upscale_in_train":
        r.alias(x, op, "Out")
    else:
        factor = float(np.float32(1.0) - np.float32(attrs["dropout_prob"]))
        r.add("unary", [x], op, "Out", x.shape, Activation(AFFINE, (factor, 0.0)))


@imports("assign")
def _assign(r: GraphBuilder, op: Operator, attrs: dict[str, Any]) -> None:
    condition = next((r.conditions[name] for name in op.inputs.get("X", ()) if name in r.conditions), None)
    if condition is not None:
        r.put_condition(op, "Out", condition)
    else:
        r.alias(r.either(op, "X"), op, "Out")
