"""instance_norm: normalization of every channel of every image separately."""

from __future__ import annotations

from typing import Any

from fluidtool.ops.context import InferContext, OpContext
from fluidtool.ops.gradient import GradMakerContext, OpDescription
from fluidtool.ops.nn.normalization import center, input_grad, second_gradients
from fluidtool.ops.nn.precision import require_floating, require_rank, require_shape, widened
from fluidtool.ops.registry import op
from fluidtool.ops.schema import TensorMeta, limited

INSTANCE_NORM: dict[str, Any] = {"epsilon": limited(1e-05, 0.0, 0.001)}


def _optional(ctx: OpContext, slot: str) -> Any:
    """An input or None: programs of Paddle 2.x may leave Scale and Bias out, which 1.8.5's schema requires."""
    return ctx.value(slot).array if ctx.has(slot) else None


def _axes(x: Any) -> tuple[int, ...]:
    return tuple(range(2, x.ndim))


def _along_channels(values: Any, like: Any) -> Any:
    """[C] or [N * C] -> an array that broadcasts against [N, C, ...]; 16-bit values become float32."""
    rows = values.size // like.shape[1] if like.shape[1] else 1
    return widened(values).reshape(rows, like.shape[1], *[1] * (like.ndim - 2))


@op(
    "instance_norm",
    inputs="X Scale Bias",
    outputs="Y SavedMean~ SavedVariance~",
    attrs=INSTANCE_NORM,
    lod="X->Y",
    raw=True,
)
def instance_norm(ctx: OpContext, *, epsilon: float) -> dict[str, Any]:
    """Y = Scale * (X - mean) / sqrt(variance + epsilon) + Bias, statistics by image and channel, X [N, C, ...] of 2 to 5
    dimensions. SavedVariance is 1 / sqrt(variance + epsilon); both are [N * C] (Paddle 1.8.5 instance_norm_op.cc).
    """
    X, Scale, Bias = (_optional(ctx, slot) for slot in ("X", "Scale", "Bias"))
    if X is None:
        raise ctx.error("input X holds no value: feed it or load it into the scope")
    require_floating(ctx, "X", X)
    require_rank(ctx, "X", X, 2, 3, 4, 5)
    for slot, value in {"Scale": Scale, "Bias": Bias}.items():
        if value is not None:
            require_shape(ctx, slot, value, (X.shape[1],), f"the channels of X {X.shape}")
    out, mean, variance = center(ctx.xp, widened(X), _axes(X))
    inverse_std = 1 / ctx.xp.sqrt(variance + epsilon)
    out = out * (inverse_std if Scale is None else inverse_std * _along_channels(Scale, X))
    if Bias is not None:
        out += _along_channels(Bias, X)
    return {
        "Y": out.astype(X.dtype, copy=False),
        "SavedMean": mean.reshape(-1),
        "SavedVariance": inverse_std.reshape(-1),
    }


@instance_norm.infer
def _(ctx: InferContext) -> dict[str, TensorMeta] | None:
    X: TensorMeta | None = ctx.meta(ctx.op.input("X")[0])
    if X is None:
        return None
    if not 2 <= X.rank <= 5:
        raise ctx.error(f"input X must have 2 to 5 dimensions, found shape {X.shape}")
    batch, channels = X.shape[:2]
    statistic = X.with_shape([batch * channels if min(batch, channels) >= 0 else -1]).with_lod_level(0)
    return {"Y": X, "SavedMean": statistic, "SavedVariance": statistic}


@instance_norm.grad(
    inputs="X Scale? SavedMean SavedVariance Y@GRAD", outputs="X@GRAD Scale@GRAD Bias@GRAD", attrs=INSTANCE_NORM
)
def instance_norm_grad(
    ctx: OpContext, X: Any, Scale: Any, SavedMean: Any, SavedVariance: Any, Y_grad: Any
) -> dict[str, Any]:
    """Gradients by X, Scale and Bias."""
    require_shape(ctx, "Y@GRAD", Y_grad, X.shape, "the shape of X")
    inverse_std = _along_channels(SavedVariance, X)
    normalized = (widened(X) - _along_channels(SavedMean, X)) * inverse_std
    grad, axes = widened(Y_grad), _axes(X)
    scale = 1 if Scale is None else _along_channels(Scale, X)
    dtype = grad.dtype if Scale is None else Scale.dtype
    x_grad = input_grad(grad, normalized, scale * inverse_std, axes)
    return {
        "X@GRAD": x_grad.astype(X.dtype, copy=False),
        "Scale@GRAD": (grad * normalized).sum(axis=(0, *axes)).astype(dtype, copy=False),
        "Bias@GRAD": grad.sum(axis=(0, *axes)).astype(dtype, copy=False),
    }


@instance_norm_grad.grad_maker
def _(context: GradMakerContext) -> list[OpDescription]:
    """instance_norm_grad -> instance_norm_grad_grad, wired as Paddle's InstanceNormDoubleGradMaker does."""
    inputs = {slot: context.input(slot) for slot in ("X", "Scale", "SavedMean", "SavedVariance")}
    inputs["DY"] = context.input("Y@GRAD")
    inputs |= {"DD" + slot: context.output_grad(slot + "@GRAD") for slot in ("X", "Scale", "Bias")}
    outputs = {
        slot: context.input_grad(source) for slot, source in {"DX": "X", "DScale": "Scale", "DDY": "Y@GRAD"}.items()
    }
    return [context.describe("instance_norm_grad_grad", inputs, outputs)]


@op(
    "instance_norm_grad_grad",
    inputs="X Scale? SavedMean SavedVariance DDX? DDScale? DDBias? DY",
    outputs="DX DScale DDY",
    attrs=INSTANCE_NORM,
)
def instance_norm_grad_grad(
    ctx: OpContext,
    X: Any,
    Scale: Any,
    SavedMean: Any,
    SavedVariance: Any,
    DDX: Any,
    DDScale: Any,
    DDBias: Any,
    DY: Any,
) -> dict[str, Any]:
    """Second gradients (formulas: `second_gradients`)."""
    inverse_std = _along_channels(SavedVariance, X)
    normalized = (widened(X) - _along_channels(SavedMean, X)) * inverse_std
    axes = _axes(X)
    ddy, dx, dscale = second_gradients(
        widened(DY),
        normalized,
        inverse_std,
        1 if Scale is None else _along_channels(Scale, X),
        axes,
        (0, *axes),
        None if DDX is None else widened(DDX),
        None if DDScale is None else _along_channels(DDScale, X),
        None if DDBias is None else _along_channels(DDBias, X),
    )
    zeros = ctx.xp.zeros(X.shape, dtype=normalized.dtype)
    return {
        "DX": (zeros + dx).astype(X.dtype, copy=False),
        "DDY": (zeros + ddy).astype(X.dtype, copy=False),
        "DScale": ctx.xp.zeros(X.shape[1], dtype=normalized.dtype) if dscale is None else dscale,
    }


@instance_norm_grad_grad.infer
def _(
    ctx: InferContext,
    X: TensorMeta,
    Scale: TensorMeta | None,
    SavedMean: TensorMeta,
    SavedVariance: TensorMeta,
    DDX: TensorMeta | None,
    DDScale: TensorMeta | None,
    DDBias: TensorMeta | None,
    DY: TensorMeta,
) -> dict[str, TensorMeta]:
    return {"DX": X, "DDY": DY, "DScale": X.with_shape([X.shape[1]]).with_lod_level(0)}
