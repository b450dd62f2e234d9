"""lrn and affine_channel: small normalizations."""

from __future__ import annotations

from typing import Any

from fluidtool.ops.context import InferContext, OpContext
from fluidtool.ops.nn.precision import require_floating, require_rank, require_shape
from fluidtool.ops.nn.windows import CHANNELS_LAST, channels_back, channels_first, join_shape, pad
from fluidtool.ops.registry import op
from fluidtool.ops.schema import USE_MKLDNN, TensorMeta, limited
from fluidtool.ops.tensor.arguments import may_be_same
from fluidtool.shapes import shape_text


def _sum_neighbors(xp: Any, x: Any, count: int) -> Any:
    """At every channel the sum over the `count` channels around it."""
    half = (count - 1) // 2
    padded = pad(xp, x, [(half, half), (0, 0), (0, 0)])
    total = padded[:, : x.shape[1]].copy()
    for offset in range(1, count):
        total += padded[:, offset : offset + x.shape[1]]
    return total


@op(
    "lrn",
    inputs="X",
    outputs="Out MidOut",
    attrs={
        "n": limited(5, 0, beyond=True),
        "k": limited(2.0, 0.0, beyond=True),
        "alpha": limited(0.0001, 0.0, beyond=True),
        "beta": limited(0.75, 0.0, beyond=True),
        "data_format": "AnyLayout",
        "is_test": False,
        **USE_MKLDNN,
    },
    lod="X->Out",
)
def lrn(ctx: OpContext, X: Any, *, n: int, k: float, alpha: float, beta: float, data_format: str) -> dict[str, Any]:
    """Out = X / MidOut^beta, MidOut = k + alpha * sum of X² over the n channels around, NCHW or NHWC (lrn_op.cc)."""
    require_floating(ctx, "X", X)
    require_rank(ctx, "X", X, 4)
    _check_window(ctx, n)
    x, number = channels_first(X, data_format), X.dtype.type
    middle = _sum_neighbors(ctx.xp, x * x, n) * number(alpha) + number(k)
    out = x * middle ** number(-beta)
    return {"Out": channels_back(out, data_format), "MidOut": channels_back(middle, data_format)}


def _check_window(ctx: OpContext | InferContext, n: int) -> None:
    if not (n > 0 and n % 2 == 1):
        raise ctx.error(f"attribute n must be an odd positive number, found {n}")


@lrn.infer
def _(ctx: InferContext, X: TensorMeta, *, n: int) -> dict[str, TensorMeta]:
    _check_window(ctx, n)
    if X.rank != 4:
        raise ctx.error(f"input X must have 4 dimensions, found shape {X.shape}")
    return {"Out": X, "MidOut": X.with_lod_level(0)}


@lrn.grad(inputs="X Out MidOut Out@GRAD", outputs="X@GRAD")
def lrn_grad(
    ctx: OpContext,
    X: Any,
    Out: Any,
    MidOut: Any,
    Out_grad: Any,
    *,
    n: int,
    alpha: float,
    beta: float,
    data_format: str,
) -> Any:
    """dX = dOut * MidOut^-beta - 2 * alpha * beta * X * sum of dOut * Out / MidOut over the channels around."""
    x, out, middle, grad = (channels_first(value, data_format) for value in (X, Out, MidOut, Out_grad))
    number = X.dtype.type
    around = _sum_neighbors(ctx.xp, grad * out / middle, n)
    return channels_back(grad * middle ** number(-beta) - x * around * number(2 * alpha * beta), data_format)


@op("affine_channel", inputs="X Scale Bias", outputs="Out", attrs={"data_layout": "AnyLayout"}, lod="X")
def affine_channel(ctx: OpContext, X: Any, Scale: Any, Bias: Any, *, data_layout: str) -> Any:
    """Out = X * Scale + Bias per channel, X of 2 or 4 dimensions (Paddle 1.8.5 affine_channel_op.cc)."""
    require_rank(ctx, "X", X, 2, 4)
    channels = X.shape[-1] if data_layout in CHANNELS_LAST else X.shape[1]
    for slot, value in {"Scale": Scale, "Bias": Bias}.items():
        require_shape(ctx, slot, value, (channels,), f"the channels of X {X.shape} in {data_layout}")
    shape = join_shape(1, channels, [1] * (X.ndim - 2), data_layout)
    return X * Scale.reshape(shape) + Bias.reshape(shape)


@affine_channel.infer
def _(ctx: InferContext, X: TensorMeta, Scale: TensorMeta, Bias: TensorMeta, *, data_layout: str) -> TensorMeta:
    if X.rank not in (2, 4):
        raise ctx.error(f"input X must have 2 or 4 dimensions, found shape {shape_text(X.shape)}")
    channels = X.shape[-1] if data_layout in CHANNELS_LAST else X.shape[1]
    for slot, value in {"Scale": Scale, "Bias": Bias}.items():
        if not may_be_same(value.shape, (channels,)):
            raise ctx.error(f"input {slot} must have the shape ({channels},), found {shape_text(value.shape)}")
    return X


@affine_channel.grad(inputs="X Scale Out@GRAD", outputs="X@GRAD Scale@GRAD Bias@GRAD")
def affine_channel_grad(ctx: OpContext, X: Any, Scale: Any, Out_grad: Any, *, data_layout: str) -> dict[str, Any]:
    """Gradients by X, Scale and Bias."""
    x, grad = channels_first(X, data_layout), channels_first(Out_grad, data_layout)
    axes = (0, *range(2, X.ndim))
    shape = join_shape(1, Scale.size, [1] * (X.ndim - 2), data_layout)
    grads = {"X@GRAD": Out_grad * Scale.reshape(shape)}
    if ctx.wants("Scale@GRAD"):
        grads["Scale@GRAD"] = (grad * x).sum(axis=axes)
    if ctx.wants("Bias@GRAD"):
        grads["Bias@GRAD"] = grad.sum(axis=axes)
    return grads
