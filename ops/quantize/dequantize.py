"""Operators that bring quantized numbers back: fake_dequantize_*, dequantize_abs_max, dequantize_log, *_linear."""

from __future__ import annotations

from typing import Any

from fluidtool.ops.context import InferContext, OpContext
from fluidtool.ops.quantize.common import along, check_axis, largest, levels, quantized
from fluidtool.ops.registry import op
from fluidtool.ops.schema import FLOAT, TensorMeta, ints, required
from fluidtool.proto.enums import VarType


@op(
    "fake_dequantize_max_abs",
    inputs="X Scale",
    outputs="Out",
    attrs={"max_range": required(FLOAT)},
    lod="X",
)
def fake_dequantize_max_abs(ctx: OpContext, X: Any, Scale: Any, *, max_range: float) -> Any:
    """Out = X * scale / max_range; Scale [1] (Paddle 1.8.5 fake_dequantize_op.h)."""
    if Scale.size < 1 or max_range == 0:
        raise ctx.error(f"needs a scale, and max_range must not be 0, found {max_range}")
    return X * Scale.reshape(-1)[0] / X.dtype.type(max_range)


@fake_dequantize_max_abs.infer
def _(ctx: InferContext, X: TensorMeta, Scale: TensorMeta) -> TensorMeta:
    return X


@op(
    "fake_channel_wise_dequantize_max_abs",
    inputs="X Scales*",
    outputs="Out",
    attrs={"quant_bits": ints(8)},
    lod="X",
)
def fake_channel_wise_dequantize_max_abs(ctx: OpContext, X: Any, Scales: list[Any], *, quant_bits: list[int]) -> Any:
    """Out = X * scale / (2^(bits - 1) - 1) for a scale per channel, times a second factor of the same kind if given.

    Scales[0] runs along dimension 0 (quant_axis of Paddle 2.x), or along dimension 1 (x_num_col_dims) when there is a
    Scales[1] of one number (Paddle 1.8.5 fake_dequantize_op.cc).
    """
    if len(Scales) not in (1, 2) or len(quant_bits) < len(Scales):
        raise ctx.error(
            f"takes one or two Scales and one quant_bits for each, found {len(Scales)} and {list(quant_bits)}"
        )
    attr, default = ("quant_axis", 0) if len(Scales) == 1 else ("x_num_col_dims", 1)
    axis = int(ctx.op.attr(attr)) if ctx.op.has_attr(attr) else default
    if not 0 <= axis < X.ndim:
        raise ctx.error(f"{attr} {axis} is out of range for X of shape {X.shape}")
    if Scales[0].size != X.shape[axis]:
        raise ctx.error(
            f"Scales[0] must hold {X.shape[axis]} numbers, one per channel of X (dimension {axis} of {X.shape}), "
            f"found shape {Scales[0].shape}"
        )
    out, range_ = X * along(Scales[0], X, axis), 1
    for bits in quant_bits[: len(Scales)]:
        range_ *= levels(ctx, bits)
    if len(Scales) == 2:
        if Scales[1].size != 1:
            raise ctx.error(f"Scales[1] must hold one number, found shape {Scales[1].shape}")
        out = out * Scales[1].reshape(-1)[0]
    return out / X.dtype.type(range_)


@fake_channel_wise_dequantize_max_abs.infer
def _(ctx: InferContext, X: TensorMeta, Scales: list[TensorMeta]) -> TensorMeta:
    return X


@op("dequantize_abs_max", inputs="X Scale", outputs="Out", attrs={"max_range": required(FLOAT)}, lod="X")
def dequantize_abs_max(ctx: OpContext, X: Any, Scale: Any, *, max_range: float) -> Any:
    """Out (float32) = scale * X / max_range; X int8 or int16, Scale [1] (Paddle 1.8.5 dequantize_abs_max_op.cc)."""
    if max_range == 0:
        raise ctx.error("attribute max_range must not be 0")
    single = ctx.xp.float32
    return Scale.reshape(-1)[0].astype(single) * X.astype(single) / single(max_range)


@dequantize_abs_max.infer
def _(ctx: InferContext, X: TensorMeta, Scale: TensorMeta) -> TensorMeta:
    return X.with_dtype(VarType.FP32)


@op("dequantize_log", inputs="X Dict", outputs="Out", lod="X")
def dequantize_log(ctx: OpContext, X: Any, Dict: Any) -> Any:
    """Out = Dict[x], or -Dict[x + 128] for negative x; X int8, Dict [128] float32 (Paddle 1.8.5 dequantize_log_op.cc)."""
    if Dict.size < 128:
        raise ctx.error(f"input Dict must hold 128 numbers, found shape {Dict.shape}")
    codes, table = X.astype(ctx.xp.int64), Dict.reshape(-1)
    return ctx.xp.where(codes < 0, -table[codes & 127], table[codes & 127])


@dequantize_log.infer
def _(ctx: InferContext, X: TensorMeta, Dict: TensorMeta) -> TensorMeta:
    return X.with_dtype(VarType.FP32)


_LINEAR: dict[str, Any] = {
    "inputs": "X Scale ZeroPoint InAccum? InState?",
    "outputs": "Y OutState? OutAccum? OutScale?",
    "attrs": {"quant_axis": 0, "bit_length": 8, "round_type": 0, "is_test": True, "only_observer": False},
    "lod": "X->Y",
}


def _linear_axis(ctx: OpContext, X: Any, quant_axis: int) -> int | None:
    if quant_axis == -1:
        return None
    check_axis(ctx, X, quant_axis)
    return quant_axis


@op("quantize_linear", **_LINEAR)
def quantize_linear(
    ctx: OpContext,
    X: Any,
    Scale: Any,
    ZeroPoint: Any,
    InAccum: Any,
    InState: Any,
    *,
    quant_axis: int,
    bit_length: int,
    round_type: int,
    is_test: bool,
    only_observer: bool,
) -> Any:
    """Y = round(x / scale * (2^(bits - 1) - 1)) in the data type of X; ZeroPoint is not used (Paddle 2.6.2).

    Scale [channels] runs along quant_axis, or is one number for -1. only_observer passes X on. Training (is_test=False)
    takes max |x| of each channel, or its moving average for -1.
    """
    axis = _linear_axis(ctx, X, quant_axis)
    outputs: dict[str, Any] = {"OutScale": Scale}
    if not is_test and axis is not None:
        outputs["OutScale"] = largest(ctx, X, axis)
    elif not is_test:
        rate = ctx.op.attr("moving_rate") if ctx.op.has_attr("moving_rate") else 0.9
        if InAccum is None or InState is None:
            raise ctx.error("training needs the inputs InAccum and InState")
        state, accum = rate * InState.reshape(-1)[:1] + 1, rate * InAccum.reshape(-1)[:1] + largest(ctx, X)
        outputs = {"OutScale": accum / state, "OutState": state, "OutAccum": accum}
    scale = along(outputs["OutScale"], X, axis)
    return outputs | {"Y": X if only_observer else quantized(ctx, X, scale, levels(ctx, bit_length), round_type)}


@op("dequantize_linear", **_LINEAR)
def dequantize_linear(
    ctx: OpContext,
    X: Any,
    Scale: Any,
    ZeroPoint: Any,
    InAccum: Any,
    InState: Any,
    *,
    quant_axis: int,
    bit_length: int,
    only_observer: bool,
) -> Any:
    """Y = x * scale / (2^(bits - 1) - 1) in the data type of Scale; X may be int8 (Paddle 2.6.2)."""
    values = X.astype(Scale.dtype, copy=False)
    if only_observer:
        return {"Y": values}
    scale = along(Scale, X, _linear_axis(ctx, X, quant_axis))
    return {"Y": values * scale / Scale.dtype.type(levels(ctx, bit_length))}


def _infer_linear(
    ctx: InferContext,
    X: TensorMeta,
    Scale: TensorMeta,
    ZeroPoint: TensorMeta,
    InAccum: TensorMeta | None,
    InState: TensorMeta | None,
    *,
    quant_axis: int,
) -> dict[str, TensorMeta]:
    one = TensorMeta((1,), Scale.dtype)
    scale = one if quant_axis < 0 else one.with_shape((X.shape[quant_axis],))
    return {"Y": X.with_dtype(Scale.dtype), "OutScale": scale, "OutState": one, "OutAccum": one}


quantize_linear.infer(_infer_linear)
dequantize_linear.infer(_infer_linear)
