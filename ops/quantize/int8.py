"""quantize, dequantize, requantize: numbers to 8 bits and back around oneDNN's 8-bit kernels."""

from __future__ import annotations

from typing import Any

from fluidtool.ops.context import InferContext, OpContext
from fluidtool.ops.math.versions import later_attr
from fluidtool.ops.quantize.eight_bits import is_8_bits, saturated
from fluidtool.ops.registry import op
from fluidtool.ops.schema import TensorMeta
from fluidtool.proto.enums import VarType


def _kind(ctx: OpContext | InferContext, is_negative_input: bool) -> str:
    """Signed numbers stay unsigned when a Shift (Paddle 2.x) moves them."""
    return "int8" if is_negative_input and not later_attr(ctx, "Shift", 0.0) else "uint8"


def _factor(ctx: OpContext, name: str, Input: Any, scale: float) -> Any:
    if scale == 0:
        raise ctx.error(f"attribute {name} must not be 0")
    return Input.dtype.type(scale) if Input.dtype.kind == "f" else ctx.np.float32(scale)


def _require_8_bits(ctx: OpContext, Input: Any) -> None:
    if not is_8_bits(Input):
        raise ctx.error(f"input Input must be int8 or uint8, found {Input.dtype}")


@op(
    "quantize",
    inputs="Input",
    outputs="Output",
    attrs={"is_negative_input": False, "Scale": 1.0, "output_format": "NHWC"},
    lod="Input",
)
def quantize(ctx: OpContext, Input: Any, *, is_negative_input: bool, Scale: float) -> Any:
    """Output = Input * Scale (+ Shift), rounded and saturated: int8 if is_negative_input, else uint8.

    float32 (Paddle 1.8.5 mkldnn/quantize_mkldnn_op.cc, Shift of 2.6.2). `output_format` affects only the memory layout.
    numbers are where.
    """
    if Input.dtype.name != "float32":
        raise ctx.error(f"input Input must be float32, found {Input.dtype}")
    if later_attr(ctx, "bfloat16", False):
        raise ctx.error("bfloat16 is not supported: quantize to 8 bits, or save the program without this pass")
    values = Input * _factor(ctx, "Scale", Input, Scale) + Input.dtype.type(later_attr(ctx, "Shift", 0.0))
    return saturated(ctx.xp, values, _kind(ctx, is_negative_input))


@quantize.infer
def _(ctx: InferContext, Input: TensorMeta, *, is_negative_input: bool) -> TensorMeta:
    return Input.with_dtype(VarType.INT8 if _kind(ctx, is_negative_input) == "int8" else VarType.UINT8)


@op("dequantize", inputs="Input", outputs="Output", attrs={"Scale": 1.0}, lod="Input")
def dequantize(ctx: OpContext, Input: Any, *, Scale: float) -> Any:
    """Output = (Input - Shift) * (1 / Scale) as float32; int8 or uint8 (Paddle 1.8.5 mkldnn/dequantize_mkldnn_op.cc)."""
    _require_8_bits(ctx, Input)
    factor = 1 / _factor(ctx, "Scale", Input, Scale)
    return (Input.astype("float32") - ctx.np.float32(later_attr(ctx, "Shift", 0.0))) * factor


@dequantize.infer
def _(ctx: InferContext, Input: TensorMeta) -> TensorMeta:
    return Input.with_dtype(VarType.FP32)


@op("requantize", inputs="Input", outputs="Output", attrs={"Scale_in": 1.0, "Scale_out": 1.0}, lod="Input")
def requantize(ctx: OpContext, Input: Any, *, Scale_in: float, Scale_out: float) -> Any:
    """Output = Input * (Scale_out / Scale_in) in the same 8 bits (Paddle 1.8.5 mkldnn/requantize_mkldnn_op.cc)."""
    _require_8_bits(ctx, Input)
    shifts = later_attr(ctx, "Shift_in", 0.0), later_attr(ctx, "Shift_out", 0.0)
    if any(shifts):
        raise ctx.error(f"Shift_in and Shift_out are not supported, found {shifts}")
    factor = _factor(ctx, "Scale_out", Input, Scale_out) / _factor(ctx, "Scale_in", Input, Scale_in)
    return saturated(ctx.xp, Input.astype("float32") * factor, Input.dtype.name)


@requantize.infer
def _(ctx: InferContext, Input: TensorMeta) -> TensorMeta:
    return Input
