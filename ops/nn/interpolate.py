"""bilinear_interp, nearest_interp, bicubic_interp, trilinear_interp, linear_interp and their successors *_interp_v2.

The attribute interp_method and the rank of X decide what is computed, not the operator's name, as in Paddle.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from fluidtool.ops.context import InferContext, OpContext
from fluidtool.ops.nn.interpolation import METHODS, AxisTaps, axis_ratio, axis_taps, resample, resample_grad
from fluidtool.ops.nn.precision import require_shape, widened
from fluidtool.ops.nn.windows import UNKNOWN, channels_back, channels_first, join_shape, split_shape
from fluidtool.ops.registry import OpInfo, op
from fluidtool.ops.schema import TensorMeta, floats
from fluidtool.shapes import shape_text

INPUTS = "X OutSize? SizeTensor*? Scale?"
INTERPOLATE: dict[str, Any] = {
    "data_layout": "NCHW",
    "out_d": 0,
    "out_h": 0,
    "out_w": 0,
    "scale": 0.0,
    "interp_method": "bilinear",
    "align_corners": True,
    "align_mode": 1,
}
INTERPOLATE_V2: dict[str, Any] = {**INTERPOLATE, "scale": floats()}
Sizes = tuple[list[int], list[float]]


def _check(ctx: OpContext | InferContext, shape: Sequence[int]) -> tuple[int, ...]:
    """The spatial sizes of X, once its rank and the method fit."""
    methods = METHODS.get(len(shape))
    if methods is None:
        raise ctx.error(f"input X must have 3 to 5 dimensions, found shape {shape_text(shape)}")
        return ()
    method = ctx.attr("interp_method")
    if method not in methods:
        raise ctx.error(
            f"attribute interp_method must be {' or '.join(methods)} for X of shape {shape_text(shape)}, found {method!r}"
        )
    return split_shape(shape, ctx.attr("data_layout"))[2]


def _attr_sizes(ctx: OpContext | InferContext, rank: int) -> list[int]:
    return [ctx.attr(name) for name in ("out_d", "out_h", "out_w")[3 - rank :]]


def _scales(ctx: OpContext, rank: int, scale: Any) -> list[float]:
    """One factor per axis; 0 where there is none. A v2 operator takes a list attribute, of which one entry counts as none."""
    if scale is not None:
        values = [float(value) for value in ctx.host(scale).reshape(-1)]
        values = values if len(values) > 1 else values * rank
        if not (len(values) >= rank and min(values) > 0):
            raise ctx.error(f"input Scale must hold 1 or {rank} positive numbers, found {values}")
        return values[:rank]
    declared = ctx.attr("scale")
    if not isinstance(declared, list):
        return [declared] * rank
    if not (len(declared) <= 1 or (len(declared) >= rank and min(declared) > 0)):
        raise ctx.error(f"attribute scale must be {rank} positive numbers, found {declared}")
    return declared[:rank] if len(declared) > 1 or (rank == 1 and declared) else [0.0] * rank


def _run_sizes(ctx: OpContext, X: Any, OutSize: Any, SizeTensor: list[Any], Scale: Any) -> Sizes:
    """(output sizes, factors that fix the ratio): SizeTensor, else OutSize, else the factors, else the attributes."""
    sizes = _check(ctx, X.shape)
    rank = len(sizes)
    if SizeTensor:
        if len(SizeTensor) != rank:
            raise ctx.error(f"input SizeTensor must be {rank} tensors, found {len(SizeTensor)}")
        outputs, scales = [int(ctx.host(value).reshape(-1)[0]) for value in SizeTensor], [0.0] * rank
    else:
        outputs, scales = _attr_sizes(ctx, rank), _scales(ctx, rank, Scale)
        if min(scales) > 0:
            outputs = [int(ctx.np.float32(size) * ctx.np.float32(s)) for size, s in zip(sizes, scales, strict=True)]
        if OutSize is not None:
            if OutSize.size != rank:
                raise ctx.error(f"input OutSize must hold {rank} numbers, found shape {OutSize.shape}")
            outputs = [int(value) for value in ctx.host(OutSize).reshape(-1)]
            ctx.set_lod("Out", ctx.lod("X"))
    if min(outputs) <= 0:
        raise ctx.error(
            f"the output sizes must be positive, found {outputs}; set out_h and out_w, scale, OutSize or SizeTensor"
        )
    if min(sizes) <= 0:
        raise ctx.error(f"input X of shape {X.shape} has no cells to interpolate between")
    by_factor = isinstance(ctx.attr("scale"), list)
    return outputs, scales if by_factor else [0.0] * rank


def _taps(ctx: OpContext, sizes: Sequence[int], outputs: list[int], scales: list[float]) -> list[AxisTaps]:
    corners, mode, method = ctx.attr("align_corners"), ctx.attr("align_mode"), ctx.attr("interp_method")
    return [
        axis_taps(ctx.np, method, size, count, axis_ratio(ctx.np, size, count, scale, corners), corners, mode)
        for size, count, scale in zip(sizes, outputs, scales, strict=True)
    ]


def interpolate(ctx: OpContext, X: Any, OutSize: Any, SizeTensor: list[Any], Scale: Any) -> Any:
    """X resampled to the asked sizes; X itself when it has them already."""
    outputs, scales = _run_sizes(ctx, X, OutSize, SizeTensor, Scale)
    layout = ctx.attr("data_layout")
    sizes = split_shape(X.shape, layout)[2]
    if list(sizes) == outputs:
        return X
    out = resample(ctx.xp, widened(channels_first(X, layout)), _taps(ctx, sizes, outputs, scales))
    return channels_back(out.astype(X.dtype, copy=False), layout)


def interpolate_grad(ctx: OpContext, X: Any, OutSize: Any, SizeTensor: list[Any], Scale: Any, out_grad: Any) -> Any:
    """Every input cell gets what the output cells took of it."""
    outputs, scales = _run_sizes(ctx, X, OutSize, SizeTensor, Scale)
    layout = ctx.attr("data_layout")
    batch, channels, sizes = split_shape(X.shape, layout)
    require_shape(ctx, "Out@GRAD", out_grad, join_shape(batch, channels, outputs, layout), "the shape of Out")
    if list(sizes) == outputs:
        return out_grad
    grad = widened(channels_first(out_grad, layout))
    grad = resample_grad(ctx.np, ctx.xp, grad, _taps(ctx, sizes, outputs, scales))
    return channels_back(grad.astype(X.dtype, copy=False), layout)


def infer_interpolate(
    ctx: InferContext, X: TensorMeta, OutSize: Any, SizeTensor: list[TensorMeta], Scale: TensorMeta | None
) -> TensorMeta:
    """The sizes that attributes tell, as Paddle does: only a Scale leaves them open, OutSize does not."""
    sizes = _check(ctx, X.shape)
    layout = ctx.attr("data_layout")
    batch, channels, _ = split_shape(X.shape, layout)
    outputs = [size if size > 0 else UNKNOWN for size in _attr_sizes(ctx, len(sizes))]
    declared = ctx.attr("scale")
    scales = [declared] * len(sizes) if not isinstance(declared, list) else declared
    if not SizeTensor and Scale is not None:
        outputs = [UNKNOWN] * len(sizes)
    elif not SizeTensor and len(scales) == len(sizes) and min(scales) > 0:
        outputs = [int(size * s) if size > 0 else UNKNOWN for size, s in zip(sizes, scales, strict=True)]
    return X.with_shape(join_shape(batch, channels, outputs, layout)).with_lod_level(0)


def _register(name: str, attrs: dict[str, Any]) -> OpInfo:
    """One interpolation operator and its gradient."""

    def kernel(ctx: OpContext, X: Any, OutSize: Any, SizeTensor: list[Any], Scale: Any) -> Any:
        return interpolate(ctx, X, OutSize, SizeTensor, Scale)

    def grad(ctx: OpContext, X: Any, OutSize: Any, SizeTensor: list[Any], Scale: Any, Out_grad: Any) -> Any:
        return interpolate_grad(ctx, X, OutSize, SizeTensor, Scale, Out_grad)

    decorate: Callable[..., OpInfo] = op(name, inputs=INPUTS, outputs="Out", attrs=attrs)
    info = decorate(kernel)
    info.infer(infer_interpolate)
    info.grad(inputs=INPUTS + " Out@GRAD", outputs="X@GRAD")(grad)
    return info


for _method in ("bilinear", "nearest", "bicubic", "trilinear", "linear"):
    _register(f"{_method}_interp", INTERPOLATE)
    _register(f"{_method}_interp_v2", INTERPOLATE_V2)
