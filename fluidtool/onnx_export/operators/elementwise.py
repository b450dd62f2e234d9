"""Two values number by number: arithmetic, comparisons, logic; scale, clip, cast."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fluidtool.onnx_export.graph import BOOL, Graph, Shape, Value
from fluidtool.onnx_export.operation import Operation
from fluidtool.onnx_export.registry import RENDERINGS, Rendering, need, renders
from fluidtool.tensor import numpy_dtype

ARITHMETIC = {
    "elementwise_add": "Add",
    "elementwise_sub": "Sub",
    "elementwise_mul": "Mul",
    "elementwise_max": "Max",
    "elementwise_min": "Min",
    "grad_add": "Add",
}
COMPARISONS = {
    "greater_equal": "GreaterOrEqual",
    "greater_than": "Greater",
    "less_equal": "LessOrEqual",
    "less_than": "Less",
}
LOGICAL = {"logical_and": "And", "logical_or": "Or", "logical_xor": "Xor"}
BITS = {"BitwiseAnd": "And", "BitwiseOr": "Or", "BitwiseXor": "Xor"}
BITWISE = {"bitwise_and": "BitwiseAnd", "bitwise_or": "BitwiseOr", "bitwise_xor": "BitwiseXor"}


def aligned(x: Value, y: Value, axis: int) -> tuple[Value, Value]:
    """Both so that they broadcast by the usual rules; `axis`: where the shorter shape starts in the longer one."""
    if x.shape == y.shape:
        return x, y
    if x.rank < y.rank:
        y, x = aligned(y, x, axis)
        return x, y
    if x.rank == y.rank:
        return x, y
    shape: Shape = y.shape or ()
    start = x.rank - y.rank if axis == -1 else axis
    extra = start + len(shape) - x.rank
    if extra > 0:
        need(all(n == 1 for n in shape[len(shape) - extra :]), f"axis {axis} does not fit the shapes of X and Y")
        y = y.squeeze(*range(y.rank - extra, y.rank))
    after = x.rank - start - y.rank
    return x, y.unsqueeze(*range(y.rank, y.rank + after)) if after > 0 else y


def operands(op: Operation) -> tuple[Value, Value]:
    """X and Y of an elementwise operator."""
    x, y = op["X"], op["Y"]
    return aligned(x, y, op.attr("axis", -1))


def _binary(kind: str) -> Rendering:
    def render(g: Graph, op: Operation) -> Value:
        x, y = operands(op)
        return arithmetic(g, kind, x, y)

    return render


def arithmetic(g: Graph, kind: str, x: Value, y: Value) -> Value:
    """x and y together; truth values are added and multiplied as such."""
    if x.dtype == BOOL:
        logical = {"Add": "Or", "Max": "Or", "Mul": "And", "Min": "And"}
        need(kind in logical, f"{kind} of truth values")
        return g.binary(logical[kind], x, y)
    if x.dtype.itemsize < 4 and not x.floating:
        return g.binary(kind, x.cast(np.int32), y.cast(np.int32)).cast(x.dtype)
    return g.binary(kind, x, y)


def _comparison(kind: str) -> Rendering:
    def render(g: Graph, op: Operation) -> Value:
        x, y = operands(op)
        if x.dtype == BOOL:
            x, y = x.cast(np.int32), y.cast(np.int32)
        if x.dtype.itemsize < 4 and not x.floating and x.dtype != BOOL:
            x, y = x.cast(np.int32), y.cast(np.int32)
        return g.binary(kind, x, y, BOOL)

    return render


def _logical(kind: str) -> Rendering:
    def render(g: Graph, op: Operation) -> Value:
        x, y = operands(op)
        return g.binary(kind, x.cast(BOOL), y.cast(BOOL))

    return render


def _bitwise(kind: str) -> Rendering:
    def render(g: Graph, op: Operation) -> Value:
        x, y = operands(op)
        if x.dtype == BOOL:
            return g.binary(kind.removeprefix("Bitwise"), x, y)
        return g.binary(kind, x, y) if g.opset >= 18 else _bit_by_bit(g, BITS[kind], x, y)

    return render


def _bit_by_bit(g: Graph, kind: str, x: Value, y: Value) -> Value:
    """For opsets without operations on bits: those of both numbers as truth values, and their sum by worth."""
    width = 8 * x.dtype.itemsize
    found = g.binary(kind, _bits(g, x, width), _bits(g, y, width), BOOL)
    bits = found.cast(np.int64)
    halves = [bits.part(-1, start, start + 32) if width > 32 else bits for start in range(0, width, 32)]
    low, *high = [(half * g.constant([1 << bit for bit in range(min(width, 32))], np.int64)).sum(-1) for half in halves]
    # ONNX Runtime's sums of int64 are exact below 2 ** 53.
    return (low + high[0] * (1 << 32) if high else low).cast(x.dtype)


def _bits(g: Graph, x: Value, width: int) -> Value:
    """[..., width] truth values, the lowest bit first."""
    places = g.constant(np.arange(width), np.uint64)
    shifted = g.op("BitShift", x.cast(np.int64).cast(np.uint64).unsqueeze(-1), places, direction="RIGHT")
    shape = None if x.shape is None else (*x.shape, width)
    return g.binary("Mod", shifted.shaped(shape), 2).cast(BOOL)


for _type, _kind in ARITHMETIC.items():
    RENDERINGS[_type] = _binary(_kind)
for _type, _kind in COMPARISONS.items():
    RENDERINGS[_type] = _comparison(_kind)
for _type, _kind in LOGICAL.items():
    RENDERINGS[_type] = _logical(_kind)
for _type, _kind in BITWISE.items():
    RENDERINGS[_type] = _bitwise(_kind)


@renders("equal", "not_equal")
def equal(g: Graph, op: Operation) -> Value:
    """Floats closer than 1e-8 count as equal; in Paddle 1.x an infinity does not equal itself."""
    x, y = operands(op)
    if x.dtype.itemsize < 4 and not x.floating and x.dtype != BOOL:
        x, y = x.cast(np.int32), y.cast(np.int32)
    found = (x - y).apply("Abs") < 1e-8 if x.floating else x.equals(y)
    if x.floating and op.saved_since(2, 0):
        found = found | x.equals(y)
    return found if op.type == "equal" else ~found


@renders("equal_all", "equal_reduce")
def equal_all(g: Graph, op: Operation) -> Value:
    x, y = op["X"], op["Y"]
    if op.type == "equal_reduce":
        x, y = operands(op)
    elif x.rank != y.rank or any(a != b and min(a, b) >= 0 for a, b in zip(x.shape or (), y.shape or (), strict=True)):
        return g.constant(np.zeros(op.shape(), np.bool_))
    return x.equals(y).cast(np.int32).reduce("Min", []).cast(BOOL).reshape(list(op.shape()))


@renders("logical_not")
def logical_not(g: Graph, op: Operation) -> Value:
    return ~op["X"].cast(BOOL)


@renders("bitwise_not")
def bitwise_not(g: Graph, op: Operation) -> Value:
    x = op["X"]
    if x.dtype == BOOL:
        return ~x
    return -x - 1 if x.dtype.kind == "i" and x.dtype.itemsize >= 4 else (-x.cast(np.int32) - 1).cast(x.dtype)


@renders("elementwise_div")
def divide(g: Graph, op: Operation) -> Value:
    x, y = operands(op)
    return quotient(g, x, y)


def quotient(g: Graph, x: Value, y: Value) -> Value:
    """x / y; of integers, cut towards zero, in a data type that there is a kernel for."""
    if x.dtype.itemsize < 4 and not x.floating:
        return g.binary("Div", x.cast(np.int32), y.cast(np.int32)).cast(x.dtype)
    return x / y


@renders("elementwise_floordiv")
def floor_divide(g: Graph, op: Operation) -> Value:
    x, y = operands(op)
    if x.floating:
        return (x / y).apply("Floor")
    whole = quotient(g, x, y)
    if not op.saved_since(2, 5) or x.dtype.kind == "u":
        return whole  # cut towards zero
    rest = x - whole * y
    return g.where(~rest.equals(0) & g.binary("Xor", rest < 0, y < 0), whole - 1, whole)


@renders("elementwise_mod")
def modulo(g: Graph, op: Operation) -> Value:
    x, y = operands(op)
    if x.floating:
        return x - (x / y).apply("Floor") * y
    return g.binary("Mod", x, y)


@renders("elementwise_pow")
def power(g: Graph, op: Operation) -> Value:
    x, y = operands(op)
    return g.binary("Pow", x, y)


@renders("elementwise_fmax", "elementwise_fmin")
def without_nan(g: Graph, op: Operation) -> Value:
    x, y = operands(op)
    found = g.maximum(x, y) if op.type == "elementwise_fmax" else g.minimum(x, y)
    if not x.floating:
        return found
    return g.where(
        x.graph.op("IsNaN", x, dtype=BOOL, shape=x.shape),
        y,
        g.where(y.graph.op("IsNaN", y, dtype=BOOL, shape=y.shape), x, found),
    )


@renders("elementwise_heaviside")
def heaviside(g: Graph, op: Operation) -> Value:
    x, y = operands(op)
    return g.where(x.equals(0), y, (x > 0).cast(x.dtype))


@renders("atan2")
def atan2(g: Graph, op: Operation) -> Value:
    y, x = op["X1"], op["X2"]
    need(x.floating, "atan2 of integers")
    from fluidtool.onnx_export.operators.activation import function

    angle = function(y / x, "Atan")
    turned = g.where(y < 0, angle - np.pi, angle + np.pi)
    quarter = y.apply("Sign") * (np.pi / 2)
    return g.where(x > 0, angle, g.where(x < 0, turned, quarter))


@renders("minus")
def minus(g: Graph, op: Operation) -> Value:
    return op["X"] - op["Y"]


@renders("sum")
def total(g: Graph, op: Operation) -> Value:
    parts = op.all("X")
    need(parts, "it has nothing to add up")
    return added(g, parts)


def added(g: Graph, parts: Sequence[Value]) -> Value:
    """The sum of values of one shape; ONNX has Sum for floats alone."""
    found = parts[0]
    if len(parts) > 1 and found.dtype.kind == "f":
        return g.op("Sum", *parts, shape=found.shape)
    for part in parts[1:]:
        found = found + part
    return found


@renders("scale")
def scale(g: Graph, op: Operation) -> Value:
    x, bias = op["X"], op.attr("bias")
    tensor = op.get("ScaleTensor")
    if tensor is None:
        factor = op.attr("scale")
        if factor == 1.0 and bias == 0.0:
            return x
        if not x.floating:  # integers cut what they are scaled by
            factor, bias = float(int(factor)), float(int(bias))
        return _scaled(x, factor, bias, op.attr("bias_after_scale"))
    return _scaled(x, tensor.cast(x.dtype).scalar(), bias, op.attr("bias_after_scale"))


def _scaled(x: Value, factor: float | Value, bias: float, after: bool) -> Value:
    plain = not isinstance(factor, Value) and factor == 1.0
    if not after:
        moved = x + bias if bias else x
        return moved if plain else moved * factor
    scaled = x if plain else x * factor
    return scaled + bias if bias else scaled


@renders("pow")
def power_of(g: Graph, op: Operation) -> Value:
    x, factor = op["X"], op.get("FactorTensor")
    exponent = g.like(op.attr("factor"), x) if factor is None else factor.cast(x.dtype).scalar()
    return g.binary("Pow", x, exponent).shaped(x.shape)


@renders("clip")
def clip(g: Graph, op: Operation) -> Value:
    x = op["X"]
    low, high = op.get("Min"), op.get("Max")
    bottom = g.like(op.attr("min"), x) if low is None else low.cast(x.dtype).scalar()
    top = g.like(op.attr("max"), x) if high is None else high.cast(x.dtype).scalar()
    return g.same("Clip", x, bottom, top)


@renders("clip_by_norm")
def clip_by_norm(g: Graph, op: Operation) -> Value:
    x, limit = op["X"], op.attr("max_norm")
    norm = (x * x).sum().apply("Sqrt")
    return g.where(norm > limit, x * (limit / norm), x)


@renders("cast")
def cast(g: Graph, op: Operation) -> Value:
    x, dtype = op["X"], numpy_dtype(op.attr("out_dtype"))
    need(dtype.kind != "c", "ONNX Runtime computes no complex numbers")
    return x.cast(dtype) if x.dtype != BOOL or dtype != BOOL else x


@renders("isnan", "isinf", "isfinite")
def any_such(g: Graph, op: Operation) -> Value:
    """Whether one (or, of isfinite, every) number is such."""
    found = _such(g, op["X"], op.type)
    kind = "Min" if op.type == "isfinite" else "Max"
    whole = found.cast(np.int32).reduce(kind, []).cast(op.dtype(default=BOOL))
    return whole.reshape(list(op.shape()))


@renders("isnan_v2", "isinf_v2", "isfinite_v2")
def each_such(g: Graph, op: Operation) -> Value:
    return _such(g, op["X"], op.type.removesuffix("_v2"))


def _such(g: Graph, x: Value, type: str) -> Value:
    if not x.floating:
        return g.full(x.dims(), type == "isfinite", BOOL)
    if type != "isfinite":
        return g.op("IsNaN" if type == "isnan" else "IsInf", _single(x), dtype=BOOL, shape=x.shape)
    return (x - x).equals(0)


def _single(x: Value) -> Value:
    return x.cast(np.float32) if x.dtype == np.float16 else x


@renders("allclose", "isclose")
def close(g: Graph, op: Operation) -> Value:
    x, y = op["Input"], op["Other"]
    rtol, atol = (float(op.attr(name)) for name in ("rtol", "atol"))
    same = x.equals(y)
    x, y = x.cast(np.float64), y.cast(np.float64)
    near = same | ((x - y).apply("Abs") <= y.apply("Abs") * rtol + atol)
    if op.attr("equal_nan"):
        near = near | (g.op("IsNaN", x, dtype=BOOL) & g.op("IsNaN", y, dtype=BOOL))
    if op.type == "isclose":
        return near
    return near.cast(np.int32).reduce("Min", []).cast(BOOL).reshape(list(op.shape()))


@renders("lerp")
def lerp(g: Graph, op: Operation) -> Value:
    return op["X"] + op["Weight"] * (op["Y"] - op["X"])


@renders("assign", "share_data", "memcpy", "memcpy_d2h", "memcpy_h2d", "print", "rnn_memory_helper")
def assign(g: Graph, op: Operation) -> Any:
    slot = "In" if op.type == "print" else "X"
    return op.exporter.find(g, op.names(slot)[0])


@renders("share_buffer")
def share_buffer(g: Graph, op: Operation) -> dict[str, list[Value]]:
    return {"Out": op.all("X")}


@renders("dropout", "dropout_nd")
def dropout(g: Graph, op: Operation) -> Value:
    x, probability = op["X"], op.number("dropout_prob")
    if not op.attr("is_test"):
        op.exporter.notes[f"{op.type}: exported as for inference; the program draws random numbers"] = None
    if op.attr("dropout_implementation") == "upscale_in_train" or probability == 0.0:
        return x
    kept = 1 - probability
    return x * (kept.cast(x.dtype) if isinstance(kept, Value) else kept)
