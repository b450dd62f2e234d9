"""The fake_quantize_* operators: quantized numbers in floating point, as quantization-aware training needs them."""

from __future__ import annotations

from typing import Any

from fluidtool.ops.context import InferContext, OpContext
from fluidtool.ops.gradient import GradMakerContext, OpDescription
from fluidtool.ops.math.versions import saved_since
from fluidtool.ops.quantize.common import (
    TIES_AWAY_FROM_ZERO,
    along,
    check_axis,
    kept,
    largest,
    levels,
    quantized,
    untouched,
)
from fluidtool.ops.registry import OpInfo, op
from fluidtool.ops.schema import TensorMeta


def _quantized(
    ctx: OpContext, X: Any, scale: Any, bit_length: int, axis: int | None = None, round_type: int | None = None
) -> Any:
    if ctx.op.has_attr("round_type"):
        round_type = int(ctx.op.attr("round_type"))
    return quantized(ctx, X, along(scale, X, axis), levels(ctx, bit_length), round_type)


def _axis(ctx: OpContext | InferContext, X: Any) -> int:
    """The dimension of the channels: 0, or what Paddle 2.x says."""
    axis = int(ctx.op.attr("quant_axis")) if ctx.op.has_attr("quant_axis") else 0
    check_axis(ctx, X, axis)
    return axis


@op("fake_quantize_abs_max", inputs="X", outputs="Out OutScale", attrs={"bit_length": 8}, lod="X->Out")
def fake_quantize_abs_max(ctx: OpContext, X: Any, *, bit_length: int) -> Any:
    """Out = round(x / scale * (2^(bits - 1) - 1)), OutScale [1] = max |x| (Paddle 1.8.5 fake_quantize_op.h)."""
    scale = largest(ctx, X)
    return {"Out": _quantized(ctx, X, scale, bit_length), "OutScale": scale}


@fake_quantize_abs_max.infer
def _(ctx: InferContext, X: TensorMeta, *, bit_length: int) -> dict[str, TensorMeta]:
    levels(ctx, bit_length)
    return {"Out": X, "OutScale": TensorMeta((1,), X.dtype)}


@op("fake_quantize_dequantize_abs_max", inputs="X", outputs="Out OutScale", attrs={"bit_length": 8}, lod="X->Out")
def fake_quantize_dequantize_abs_max(ctx: OpContext, X: Any, *, bit_length: int) -> Any:
    """Out = X rounded to the steps of fake_quantize_abs_max, OutScale [1] = max |x| (Paddle 2.6.2)."""
    scale = largest(ctx, X)
    steps = _quantized(ctx, X, scale, bit_length, None, TIES_AWAY_FROM_ZERO)
    return {"Out": steps * scale / X.dtype.type(levels(ctx, bit_length)), "OutScale": scale}


@fake_quantize_dequantize_abs_max.infer
def _(ctx: InferContext, X: TensorMeta, *, bit_length: int) -> dict[str, TensorMeta]:
    levels(ctx, bit_length)
    return {"Out": X, "OutScale": TensorMeta((1,), X.dtype)}


def _channel_scale(ctx: OpContext, X: Any, axis: int) -> Any:
    """max |x| per channel; with is_test (Paddle 2.x) what OutScale holds already."""
    if ctx.op.has_attr("is_test") and ctx.op.attr("is_test"):
        scale = kept(ctx, "OutScale")
        if scale is None:
            raise ctx.error("is_test=True takes the scales from variable OutScale, which holds no value")
        return scale
    return largest(ctx, X, axis)


@op("fake_channel_wise_quantize_abs_max", inputs="X", outputs="Out OutScale", attrs={"bit_length": 8}, lod="X->Out")
def fake_channel_wise_quantize_abs_max(ctx: OpContext, X: Any, *, bit_length: int) -> Any:
    """fake_quantize_abs_max with a scale per channel (dimension 0, or quant_axis of Paddle 2.x); OutScale [channels]."""
    axis = _axis(ctx, X)
    scale = _channel_scale(ctx, X, axis)
    return {"Out": _quantized(ctx, X, scale, bit_length, axis), "OutScale": scale}


@fake_channel_wise_quantize_abs_max.infer
def _(ctx: InferContext, X: TensorMeta, *, bit_length: int) -> dict[str, TensorMeta]:
    levels(ctx, bit_length)
    return {"Out": X, "OutScale": TensorMeta((X.shape[_axis(ctx, X)],), X.dtype)}


@op(
    "fake_channel_wise_quantize_dequantize_abs_max",
    inputs="X",
    outputs="Out OutScale",
    attrs={"quant_axis": 0, "bit_length": 8},
    lod="X->Out",
)
def fake_channel_wise_quantize_dequantize_abs_max(ctx: OpContext, X: Any, *, bit_length: int) -> Any:
    """X rounded to the steps of fake_channel_wise_quantize_abs_max; OutScale [channels] (Paddle 2.6.2)."""
    axis = _axis(ctx, X)
    scale = largest(ctx, X, axis)
    steps = _quantized(ctx, X, scale, bit_length, axis, TIES_AWAY_FROM_ZERO)
    return {"Out": steps * along(scale, X, axis) / X.dtype.type(levels(ctx, bit_length)), "OutScale": scale}


@fake_channel_wise_quantize_dequantize_abs_max.infer
def _(ctx: InferContext, X: TensorMeta, *, bit_length: int) -> dict[str, TensorMeta]:
    levels(ctx, bit_length)
    return {"Out": X, "OutScale": TensorMeta((X.shape[_axis(ctx, X)],), X.dtype)}


@op(
    "fake_quantize_range_abs_max",
    inputs="X InScale Iter?",
    outputs="Out OutScale OutScales?",
    attrs={"window_size": 10000, "bit_length": 8, "is_test": False},
    lod="X->Out",
)
def fake_quantize_range_abs_max(
    ctx: OpContext, X: Any, InScale: Any, Iter: Any, *, window_size: int, bit_length: int, is_test: bool
) -> Any:
    """fake_quantize_abs_max with the largest scale of the last window_size runs, or with InScale when is_test.

    OutScales [window_size] keeps those scales from run to run, Iter [1] counts the runs (Paddle 1.8.5 fake_quantize_op.cc).
    """
    if is_test:
        return {"Out": _quantized(ctx, X, InScale, bit_length)} | untouched(ctx, OutScale=1, OutScales=window_size)
    if Iter is None:
        raise ctx.error("training needs the input Iter, the number of runs so far; pass it or set is_test")
    scales, scale = _range_scale(ctx, largest(ctx, X), InScale, int(ctx.host(Iter).reshape(-1)[0]), window_size)
    return {"Out": _quantized(ctx, X, scale, bit_length), "OutScale": scale, "OutScales": scales}


def _range_scale(ctx: OpContext, now: Any, last: Any, run: int, window_size: int) -> tuple[Any, Any]:
    """The window's scales with this run's, and the largest: searched again if the old largest leaves the window."""
    earlier = kept(ctx, "OutScales")
    scales = ctx.xp.zeros(window_size, now.dtype) if earlier is None or earlier.size != window_size else earlier.copy()
    place = run % window_size
    removed = float(scales[place])
    scales[place] = now[0]
    largest_yet = last.reshape(-1)[:1]
    if float(largest_yet[0]) < float(now[0]):
        return scales, now
    if abs(removed - float(largest_yet[0])) < 1e-6:
        return scales, largest(ctx, scales[: max(min(run, window_size), 1)])
    return scales, largest_yet


@fake_quantize_range_abs_max.infer
def _(
    ctx: InferContext, X: TensorMeta, InScale: TensorMeta, Iter: TensorMeta | None, *, window_size: int, bit_length: int
) -> dict[str, TensorMeta]:
    levels(ctx, bit_length)
    return {
        "Out": X,
        "OutScale": TensorMeta((1,), X.dtype),
        "OutScales": TensorMeta((window_size,), X.dtype),
    }


def _moving_average(ctx: OpContext, X: Any, InAccum: Any, InState: Any, moving_rate: float) -> dict[str, Any]:
    """state = rate * state + 1; accum = rate * accum + max |x|; scale = accum / state."""
    if InAccum is None or InState is None:
        raise ctx.error("training needs the inputs InAccum and InState; pass them or set is_test")
    state = moving_rate * InState.reshape(-1)[:1] + 1
    accum = moving_rate * InAccum.reshape(-1)[:1] + largest(ctx, X)
    return {"OutScale": accum / state, "OutState": state, "OutAccum": accum}


def _untouched(ctx: OpContext) -> dict[str, Any]:
    return untouched(ctx, OutScale=1, OutState=1, OutAccum=1)


@op(
    "moving_average_abs_max_scale",
    inputs="X InAccum? InState?",
    outputs="Out/? OutScale OutState? OutAccum?",
    attrs={"moving_rate": 0.9, "is_test": False},
    lod="X->Out",
)
def moving_average_abs_max_scale(
    ctx: OpContext, X: Any, InAccum: Any, InState: Any, *, moving_rate: float, is_test: bool
) -> Any:
    """Out = X; unless is_test, OutScale [1] = the moving average of max |x| (Paddle 1.8.5 fake_quantize_op.h)."""
    return {"Out": X} | (_untouched(ctx) if is_test else _moving_average(ctx, X, InAccum, InState, moving_rate))


@moving_average_abs_max_scale.infer
def _(
    ctx: InferContext, X: TensorMeta, InAccum: TensorMeta | None, InState: TensorMeta | None
) -> dict[str, TensorMeta]:
    one = TensorMeta((1,), X.dtype)
    return {"Out": X, "OutScale": one, "OutState": one, "OutAccum": one}


_MOVING: dict[str, Any] = {
    "inputs": "X InScale InAccum? InState?",
    "outputs": "Out OutScale OutState? OutAccum?",
    "attrs": {"moving_rate": 0.9, "bit_length": 8, "is_test": False},
    "lod": "X->Out",
}


@op("fake_quantize_moving_average_abs_max", **_MOVING)
def fake_quantize_moving_average_abs_max(
    ctx: OpContext,
    X: Any,
    InScale: Any,
    InAccum: Any,
    InState: Any,
    *,
    moving_rate: float,
    bit_length: int,
    is_test: bool,
) -> Any:
    """X quantized with the moving average of max |x|, or with InScale when is_test (Paddle 1.8.5 fake_quantize_op.h)."""
    moved = _untouched(ctx) if is_test else _moving_average(ctx, X, InAccum, InState, moving_rate)
    return moved | {"Out": _quantized(ctx, X, InScale if is_test else moved["OutScale"], bit_length)}


@op("fake_quantize_dequantize_moving_average_abs_max", **_MOVING)
def fake_quantize_dequantize_moving_average_abs_max(
    ctx: OpContext,
    X: Any,
    InScale: Any,
    InAccum: Any,
    InState: Any,
    *,
    moving_rate: float,
    bit_length: int,
    is_test: bool,
) -> Any:
    """X rounded to the steps of fake_quantize_moving_average_abs_max (Paddle 1.8.5 fake_quantize_op.h).

    Paddle 2.x multiplies by the scale before it divides by the number of steps: other last bits, which decide ties later.
    """
    moved = _untouched(ctx) if is_test else _moving_average(ctx, X, InAccum, InState, moving_rate)
    scale = (InScale if is_test else moved["OutScale"]).reshape(-1)[0]
    count = X.dtype.type(levels(ctx, bit_length))
    if saved_since(ctx, 2, 0):
        return moved | {"Out": _quantized(ctx, X, scale, bit_length, None, TIES_AWAY_FROM_ZERO) * scale / count}
    return moved | {"Out": scale / count * _quantized(ctx, X, scale, bit_length)}


def _infer_moving(
    ctx: InferContext,
    X: TensorMeta,
    InScale: TensorMeta,
    InAccum: TensorMeta | None,
    InState: TensorMeta | None,
    *,
    bit_length: int,
) -> dict[str, TensorMeta]:
    levels(ctx, bit_length)
    one = TensorMeta((1,), X.dtype)
    return {"Out": X, "OutScale": one, "OutState": one, "OutAccum": one}


fake_quantize_moving_average_abs_max.infer(_infer_moving)
fake_quantize_dequantize_moving_average_abs_max.infer(_infer_moving)


@op("stright_throuth_estimator_grad", inputs="Out@GRAD", outputs="X@GRAD")
def straight_through_estimator_grad(ctx: OpContext, Out_grad: Any) -> Any:
    """X@GRAD = Out@GRAD: rounding has the gradient of the identity (Paddle 2.x, in its spelling)."""
    return Out_grad


def _straight_through(info: OpInfo) -> None:
    def maker(ctx: GradMakerContext) -> list[OpDescription]:
        outputs = {"X@GRAD": ctx.input_grad("X")}
        return [ctx.describe("stright_throuth_estimator_grad", {"Out@GRAD": ctx.output_grad("Out")}, outputs)]

    info.grad_maker(maker)


_straight_through(fake_quantize_dequantize_abs_max)
_straight_through(fake_channel_wise_quantize_dequantize_abs_max)
