"""Fake quantization: activations rounded to steps of scales that are parameters, and weights, which are rounded here.

Convolutions and products of activations by weights that both have 8 bits become nodes `conv_int8` and `product_int8`, whose
attrs have, besides those of `conv` and `product`, the whole weights (`whole`) and the factor of each channel's sums (`steps`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import prod
from types import SimpleNamespace
from typing import Any, NoReturn, cast

import numpy as np

from fluidtool.errors import OperatorError
from fluidtool.ir import Operator
from fluidtool.ops.quantize.common import TIES_AWAY_FROM_ZERO, TIES_TO_EVEN, along, inverse, largest, levels, quantized
from fluidtool.runtime.graph.importers.registry import MULTIPLY, GraphBuilder, imports, need
from fluidtool.runtime.graph.ir import Value
from fluidtool.runtime.graph.quantization import MOST, Quantizer, RoundedWeights, WholeWeights, whole_numbers

BY_TENSOR = ("fake_quantize_abs_max", "fake_quantize_dequantize_abs_max")
BY_CHANNEL = ("fake_channel_wise_quantize_abs_max", "fake_channel_wise_quantize_dequantize_abs_max")
KEPT_SCALE = (
    "fake_quantize_range_abs_max", "fake_quantize_moving_average_abs_max", "fake_quantize_dequantize_moving_average_abs_max",
)  # fmt: skip
LINEAR = ("quantize_linear", "dequantize_linear")
DEQUANTIZERS = ("fake_dequantize_max_abs", "fake_channel_wise_dequantize_max_abs")
OPERATORS = frozenset({*BY_TENSOR, *BY_CHANNEL, *KEPT_SCALE, *LINEAR, *DEQUANTIZERS})
MOST_TERMS = 2**31 // (255 * MOST)  # of a sum of products of 8 bits that fits in 32


def _refused(message: str) -> NoReturn:
    raise OperatorError(message)


_NUMPY = cast(Any, SimpleNamespace(xp=np, error=_refused))


# ---------------------------------------------------------------- activations
def _quantize(
    r: GraphBuilder, op: Operator, x: Value, scale: Any, bits: int, round_type: int | None, back: tuple[float, float]
) -> None:
    """A node that rounds x to steps of a scale; `back`: what whole numbers are multiplied with, and divided by."""
    need(scale.size == 1 and scale.dtype == np.float32, "a scale for each channel of an activation")
    limit, count = np.float32(scale.reshape(-1)[0]), levels(_NUMPY, bits)
    need(0 < limit < np.inf and count > 0, "a scale that is not positive")
    factor = np.float32(count) * inverse(_NUMPY, limit)
    need(np.isfinite(factor) and not x.integer, "a scale that is too small")
    at_end = round_type == TIES_TO_EVEN  # the result is clipped, not x
    quantizer = Quantizer(
        float(factor), np.inf if at_end else float(limit), -count - at_end, count, round_type == TIES_AWAY_FROM_ZERO, *back
    )  # fmt: skip
    slot = "Y" if op.type in LINEAR else "Out"
    r.quantizers[r.add("quantize", [x], op, slot, x.shape, quantizer=quantizer)] = quantizer


def _round_type(attrs: dict[str, Any], otherwise: int | None) -> int | None:
    return int(attrs["round_type"]) if "round_type" in attrs else otherwise


@imports(*KEPT_SCALE)
def _kept_scale(r: GraphBuilder, op: Operator, attrs: dict[str, Any]) -> None:
    need(attrs["is_test"], "quantization that still learns its scale")
    x, scale, bits = r.get(op, "X"), r.constant(op, "InScale"), int(attrs["bit_length"])
    need(scale.size == 1 and scale.dtype == np.float32, "a scale of several numbers")
    since_2 = (op.block.program.version or 0) >= 2_000_000
    if op.type != "fake_quantize_dequantize_moving_average_abs_max":
        _quantize(r, op, x, scale, bits, _round_type(attrs, None), (1.0, 1.0))
        return
    one, count = scale.reshape(-1)[0], np.float32(levels(_NUMPY, bits))
    back = (float(one), float(count)) if since_2 else (float(one / count), 1.0)
    _quantize(r, op, x, scale, bits, _round_type(attrs, TIES_AWAY_FROM_ZERO if since_2 else None), back)


# ---------------------------------------------------------------- weights
def _fold(r: GraphBuilder, op: Operator, slot: str, values: Any, whole: WholeWeights | None) -> None:
    """Make numbers that are known now the operator's output."""
    name = op.outputs[slot][0]
    r.values[name] = Value(name, values.shape, values)
    if whole is not None:
        r.whole[r.values[name]] = whole


def _weights(
    r: GraphBuilder, op: Operator, attrs: dict[str, Any], axis: int | None, scale_of: Callable[[Any], Any]
) -> Any:
    """Weights rounded to steps of a scale, which is returned: whole numbers, or floats where the operator brings them back."""
    x, bits = r.constant(op, "X"), int(attrs["bit_length"])
    back = "dequantize" in op.type
    count, otherwise = levels(_NUMPY, bits), TIES_AWAY_FROM_ZERO if back else None
    if op.type in LINEAR:
        otherwise = TIES_TO_EVEN
    known = r.rounded.get(op)
    scale = scale_of(x) if known is None else known.scale
    if known is None or known.whole is None:
        numbers = quantized(_NUMPY, x, along(scale, x, axis), count, _round_type(attrs, otherwise))
        kept = whole_numbers(numbers)
    else:
        kept = known.whole.numbers
        numbers = kept.astype(x.dtype)
    steps = np.ones(1)
    if back:
        numbers = numbers * along(scale, x, axis) / x.dtype.type(count)
        steps = scale.reshape(-1).astype(np.float64) / count
    slot = "Y" if op.type in LINEAR else "Out"
    whole = None if kept is None else WholeWeights(kept, steps, axis if back else None)
    r.rounded[op] = RoundedWeights(scale, whole)
    _fold(r, op, slot, numbers, whole)
    return scale


@imports(*BY_TENSOR[:1], *BY_CHANNEL[:1], results=("Out", "OutScale"))
@imports(*BY_TENSOR[1:], *BY_CHANNEL[1:])
def _of_weights(r: GraphBuilder, op: Operator, attrs: dict[str, Any]) -> None:
    x = r.get(op, "X")
    need(x.array is not None and x.array.dtype == np.float32, "a scale that is computed in every run")
    need(not attrs.get("is_test"), "a scale that an earlier run has computed")
    axis = int(attrs.get("quant_axis", 0)) if op.type in BY_CHANNEL else None
    scale = _weights(r, op, attrs, axis, lambda numbers: largest(_NUMPY, numbers, axis))
    if op.type in (BY_TENSOR[0], BY_CHANNEL[0]):
        _fold(r, op, "OutScale", scale, None)


# ---------------------------------------------------------------- quantize_linear, dequantize_linear
@imports(*LINEAR)
def _linear(r: GraphBuilder, op: Operator, attrs: dict[str, Any]) -> None:
    x = r.values.get(op.inputs["X"][0])
    scale, axis = r.constant(op, "Scale"), int(attrs["quant_axis"])
    need(x is not None and scale.dtype == np.float32, "a scale of another type than float32")
    assert x is not None
    need(attrs.get("is_test", True), "quantization that still learns its scale")
    if attrs.get("only_observer"):
        need(not x.integer, "integers")
        r.alias(x, op, "Y")
    elif op.type == LINEAR[1]:
        _bring_back(r, op, "Y", x, scale, levels(_NUMPY, int(attrs["bit_length"])), None if axis < 0 else axis)
    elif x.array is not None:
        need(x.array.dtype == np.float32, "weights of another type than float32")
        _weights(r, op, attrs, None if axis < 0 else axis, lambda _: scale)
    else:
        _quantize(r, op, x, scale, int(attrs["bit_length"]), int(attrs["round_type"]), (1.0, 1.0))


# ---------------------------------------------------------------- back to floats
def _bring_back(
    r: GraphBuilder, op: Operator, slot: str, x: Value, scale: Any, divisor: float, axis: int | None
) -> None:  # fmt: skip
    """Whole numbers times scale, by divisor: of weights, of what a quantizer made, or of sums of products of 8 bits."""
    if x.array is not None:
        values = x.array.astype(np.float32, copy=False)
        need(axis is not None or scale.size == 1, "a scale of several numbers")
        back = values * along(scale, values, axis) / np.float32(divisor)
        steps = scale.reshape(-1).astype(np.float64) / divisor
        _fold(r, op, slot, back, _kept(r, op, x.array, steps, axis))
        return
    quantizer = r.quantizers.get(x)
    if quantizer is not None and quantizer.step == 1:
        need(scale.size == 1 and axis is None, "a scale for each channel of an activation")
        back_again = replace(quantizer, multiplier=float(scale.reshape(-1)[0]), divisor=float(np.float32(divisor)))
        maker = next(node for node in r.nodes if node.output is x)
        r.quantizers[r.add("quantize", maker.inputs, op, slot, x.shape, quantizer=back_again)] = back_again
        return
    made = next((node for node in r.nodes if node.output is x), None)
    need(made is not None and made.kind in ("conv_int8", "product_int8"), "sums that are not of 8-bit numbers")
    _scale_sums(r, op, slot, x, scale.reshape(-1).astype(np.float64) / divisor)


def _scale_sums(r: GraphBuilder, op: Operator, slot: str, x: Value, factors: Any) -> None:
    channel = 1 if len(x.shape) == 4 else len(x.shape) - 1
    need(factors.size in (1, x.shape[channel]), "a scale that does not run along the channels")
    factors = np.broadcast_to(factors, (x.shape[channel],))
    if len(x.shape) == 4:
        r.add("affine", [x], op, slot, x.shape, scale=factors, shift=np.zeros_like(factors))
        return
    shape = (1,) * channel + factors.shape
    other = Value("", shape, factors.astype(np.float32).reshape(shape))
    r.add("binary", [x, other], op, slot, x.shape, operation=MULTIPLY, y_shape=shape)


@imports("fake_dequantize_max_abs")
def _by_tensor(r: GraphBuilder, op: Operator, attrs: dict[str, Any]) -> None:
    scale = r.constant(op, "Scale")
    need(scale.size >= 1 and attrs["max_range"] != 0, "no scale")
    _bring_back(r, op, "Out", r.get(op, "X"), scale.reshape(-1)[:1], float(np.float32(attrs["max_range"])), None)


@imports("fake_channel_wise_dequantize_max_abs")
def _by_channel(r: GraphBuilder, op: Operator, attrs: dict[str, Any]) -> None:
    x, values = r.get(op, "X"), [r.values.get(name) for name in op.inputs["Scales"]]
    scales = [value.array for value in values if value is not None and value.array is not None]
    need(len(scales) == len(values) in (1, 2), "scales that are computed")
    ranges = [levels(_NUMPY, int(bits)) for bits in attrs["quant_bits"][: len(scales)]]
    if len(scales) == 1:
        axis = int(attrs.get("quant_axis", 0))
        need(x.array is not None, "a scale for each channel of an activation")
        _bring_back(r, op, "Out", x, scales[0], ranges[0], axis)
        return
    axis = int(attrs.get("x_num_col_dims", 1))
    need(x.array is None and axis == (1 if len(x.shape) == 4 else len(x.shape) - 1), "scales of another axis")
    _bring_back(r, op, "Out", x, scales[0] * scales[1].reshape(-1)[0], float(prod(ranges)), axis)


# ---------------------------------------------------------------- products of 8 bits
def use_8_bits(r: GraphBuilder, op: Operator, slot: str, axis: int, factor: float = 1.0, swapped: bool = False) -> None:
    """Make the node that was added last one of whole numbers, if what it multiplies has 8 bits.

    slot: that of the weights, whose outputs run along `axis`; `swapped`: the node has them transposed; factor: on the weights.
    """
    node, filters = r.nodes[-1], r.values[op.inputs[slot][0]]
    quantizer = r.quantizers.get(node.inputs[0])
    if quantizer is None or not quantizer.has_8_bits:
        return
    whole = r.whole.get(filters) or (_frozen(r, op, filters) if quantizer.step == 1 else None)
    steps = None if whole is None else whole.by(axis)
    if whole is None or steps is None:
        return
    shape = node.attrs["weights"].shape
    numbers = whole.numbers.T if swapped else whole.numbers.reshape(shape)
    terms = prod(shape[1:]) if node.kind == "conv" else shape[0]
    groups = node.attrs.get("groups", 1)
    if terms > MOST_TERMS or (groups > 1 and not (shape[1] == 1 and groups == shape[0] == node.inputs[0].shape[1])):
        return
    attrs = {**node.attrs, "whole": numbers, "steps": steps * (quantizer.step * factor), "scale": None}
    r.nodes[-1] = replace(node, kind=f"{node.kind}_int8", attrs=attrs)


def _frozen(r: GraphBuilder, op: Operator, filters: Value) -> WholeWeights | None:
    """Weights that lie in the file as whole numbers."""
    if filters.array is None:
        return None
    return _kept(r, op, filters.array, np.ones(1), None)


def _kept(r: GraphBuilder, op: Operator, values: Any, steps: Any, axis: int | None) -> WholeWeights | None:
    """Numbers of a parameter in 8 bits, found once for all inputs."""
    if op not in r.rounded:
        numbers = whole_numbers(values)
        r.rounded[op] = RoundedWeights(None, None if numbers is None else WholeWeights(numbers, steps, axis))
    return r.rounded[op].whole
