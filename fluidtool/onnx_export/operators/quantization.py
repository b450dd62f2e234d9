"""Fake quantization as QuantizeLinear and DequantizeLinear where its rounding is theirs, else step by step."""

from __future__ import annotations

import numpy as np

from fluidtool.onnx_export.graph import Array, Graph, Value
from fluidtool.onnx_export.operation import Operation
from fluidtool.onnx_export.registry import need, renders
from fluidtool.ops.quantize.common import SMALLEST_SCALE, TIES_TO_EVEN

AWAY = 1


def _levels(op: Operation) -> int:
    return int(2 ** (op.attr("bit_length") - 1) - 1)


def _along(scale: Value, x: Value, axis: int | None) -> Value:
    if axis is None:
        return scale.reshape([])
    return scale.reshape([-1 if i == axis else 1 for i in range(x.rank)])


def _largest(x: Value, axis: int | None) -> Value:
    size = x.apply("Abs")
    if axis is None:
        return size.reduce("Max", []).reshape([1])
    return size.reduce("Max", [i for i in range(x.rank) if i != axis])


def _axis(op: Operation) -> int:
    return int(op.attr("quant_axis", 0) or 0)


def _steps(g: Graph, op: Operation, x: Value, scale: Value, round_type: int | None) -> Value:
    """Whole numbers in the data type of x; scale broadcasts to it."""
    round_type = int(op.attr("round_type")) if op.has_attr("round_type") else round_type
    count = _levels(op)
    small = g.where(scale <= SMALLEST_SCALE, scale + SMALLEST_SCALE, scale)
    factor = count / small
    if round_type == TIES_TO_EVEN:
        return (x * factor).apply("Round").clip(-count - 1, count)
    steps = g.maximum(g.minimum(x, scale), -scale) * factor
    if round_type is None:
        return steps.apply("Round")
    size = steps.apply("Abs")
    whole = size.apply("Floor")
    return steps.apply("Sign") * (whole + (size - whole >= 0.5).cast(x.dtype))


def _rounded(g: Graph, op: Operation, x: Value, scale: Value, axis: int | None, round_type: int | None) -> Value:
    """x rounded to the steps of a scale. Constants are kept as int8; other values go through both nodes."""
    count = _levels(op)
    plain = op.attr("bit_length") == 8 and scale.array is not None and x.dtype == np.float32
    if plain and scale.array is not None and float(np.min(scale.array)) > SMALLEST_SCALE:
        steps = (scale.array.reshape(-1).astype(np.float64) / count).astype(np.float32)
        step = g.constant(steps[0] if axis is None else steps)
        place = None if axis is None else axis
        if x.array is not None:
            numbers = g.constant(_whole(op, x.array, scale.array, axis, round_type), name=f"{x.wanted}.quantized")
            return g.op("DequantizeLinear", numbers, step, None, axis=place, dtype=np.float32, shape=x.shape)
        zero = g.constant(np.zeros(steps.shape if axis is not None else (), np.int8))
        limit = _along(scale, x, axis)
        inside = g.maximum(g.minimum(x, limit), -limit) if round_type != TIES_TO_EVEN else x
        numbers = g.op("QuantizeLinear", inside, step, zero, axis=place, dtype=np.int8, shape=x.shape)
        return g.op("DequantizeLinear", numbers, step, zero, axis=place, dtype=np.float32, shape=x.shape)
    limit = _along(scale, x, axis)
    return _steps(g, op, x, limit, round_type) * limit / count


def _whole(op: Operation, x: Array, scale: Array, axis: int | None, round_type: int | None) -> Array:
    count = np.float32(_levels(op))
    limit = scale.reshape([-1 if i == axis else 1 for i in range(x.ndim)]) if axis is not None else scale.reshape(())
    steps = np.clip(x, -limit, limit) * (count * (np.float32(1) / limit))
    if round_type == AWAY:
        whole = np.trunc(steps)
        steps = whole + np.where(abs(steps - whole) >= 0.5, np.sign(steps), 0)
    return np.rint(steps).astype(np.int8)


@renders("fake_quantize_abs_max", "fake_channel_wise_quantize_abs_max")
def quantize(g: Graph, op: Operation) -> dict[str, Value]:
    x = op["X"]
    axis = None if op.type == "fake_quantize_abs_max" else _axis(op)
    need(not op.attr("is_test", False), "scales that it computes")
    scale = _largest(x, axis)
    return {"Out": _steps(g, op, x, _along(scale, x, axis), None), "OutScale": scale}


@renders("fake_quantize_dequantize_abs_max", "fake_channel_wise_quantize_dequantize_abs_max")
def quantize_dequantize(g: Graph, op: Operation) -> dict[str, Value]:
    x = op["X"]
    axis = None if op.type == "fake_quantize_dequantize_abs_max" else _axis(op)
    if x.array is not None:
        sizes = np.abs(x.array)
        others = None if axis is None else tuple(i for i in range(x.rank) if i != axis)
        scale = g.constant(np.atleast_1d(sizes.max(axis=others)))
    else:
        scale = _largest(x, axis)
    return {"Out": _rounded(g, op, x, scale, axis, AWAY), "OutScale": scale}


MOVING = (
    "fake_quantize_moving_average_abs_max",
    "fake_quantize_dequantize_moving_average_abs_max",
    "fake_quantize_range_abs_max",
)


@renders(*MOVING)
def moving(g: Graph, op: Operation) -> dict[str, Value]:
    need(op.attr("is_test"), "it adjusts its scale at every run; save the program for inference (is_test)")
    x, scale = op["X"], op["InScale"]
    if "dequantize" not in op.type:
        return {"Out": _steps(g, op, x, scale.reshape([]), None), "OutScale": scale}
    way = AWAY if op.saved_since(2, 0) else None
    return {"Out": _rounded(g, op, x, scale, None, way), "OutScale": scale}


@renders("moving_average_abs_max_scale")
def observed(g: Graph, op: Operation) -> Value:
    return op["X"]


@renders("fake_dequantize_max_abs")
def dequantize(g: Graph, op: Operation) -> Value:
    return op["X"] * op["Scale"].reshape([]) / op.attr("max_range")


@renders("fake_channel_wise_dequantize_max_abs")
def dequantize_channels(g: Graph, op: Operation) -> Value:
    x, scales, bits = op["X"], op.all("Scales"), op.attr("quant_bits")
    limits = [2 ** (n - 1) - 1 for n in bits]
    if len(scales) == 1:
        return x * _along(scales[0], x, _axis(op)) / limits[0]
    return (
        x
        * _along(scales[0], x, int(op.attr("x_num_col_dims", 1) or 1))
        * scales[1].reshape([])
        / float(limits[0] * limits[1])
    )


def _linear_axis(op: Operation) -> int | None:
    axis = op.attr("quant_axis")
    return (
        None
        if axis < 0 or ((op["Scale"].shape or ())[-1:] == (1,) and op["X"].shape is not None and axis < 0)
        else axis
    )


@renders("quantize_linear")
def quantize_linear(g: Graph, op: Operation) -> dict[str, Value]:
    x, scale = op["X"], op["Scale"]
    if op.attr("only_observer"):
        return {"Y": x}
    axis = _linear_axis(op)
    return {"Y": _steps(g, op, x, _along(scale, x, axis), op.attr("round_type")), "OutScale": scale}


@renders("dequantize_linear")
def dequantize_linear(g: Graph, op: Operation) -> dict[str, Value]:
    x, scale = op["X"], op["Scale"]
    values = x.cast(scale.dtype)
    if op.attr("only_observer"):
        return {"Y": values}
    return {"Y": values * _along(scale, x, _linear_axis(op)) / _levels(op)}


@renders("dequantize_abs_max")
def dequantize_table(g: Graph, op: Operation) -> Value:
    return op["X"].cast(np.float32) * (op["Scale"].reshape([]) / op.attr("max_range"))
