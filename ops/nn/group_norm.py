"""group_norm: normalization over groups of channels of each image."""

from __future__ import annotations

from typing import Any

from fluidtool.ops.context import InferContext, OpContext
from fluidtool.ops.nn.normalization import center, input_grad
from fluidtool.ops.nn.precision import require_floating, require_shape, widened
from fluidtool.ops.nn.windows import UNKNOWN, channels_back, channels_first, split_shape
from fluidtool.ops.registry import op
from fluidtool.ops.schema import INT, TensorMeta, limited, required
from fluidtool.shapes import shape_text

GROUP_NORM: dict[str, Any] = {"epsilon": limited(1e-05, 0.0, 1.0), "groups": required(INT), "data_layout": "NCHW"}


def _require_groups(ctx: OpContext | InferContext, shape: tuple[int, ...], groups: int) -> None:
    if len(shape) < 2:
        raise ctx.error(f"input X must have at least 2 dimensions, found shape {shape_text(shape)}")
    channels = split_shape(shape, ctx.attr("data_layout"))[1]
    size = -(-channels // max(groups, 1))
    if not (channels == UNKNOWN or (0 < groups <= channels and (groups - 1) * size < channels)):
        raise ctx.error(
            f"attribute groups must split the {channels} channels of X {shape_text(shape)} ({ctx.attr('data_layout')}) into groups "
            f"that are not empty, found {groups}"
        )


def _blocks(channels: int, groups: int) -> list[tuple[slice, int]]:
    """(channels, groups among them): one block when groups are equal; else each on its own, the last one smaller."""
    if channels % groups == 0:
        return [(slice(0, channels), groups)]
    size = -(-channels // groups)
    return [(slice(start, min(start + size, channels)), 1) for start in range(0, channels, size)]


def _per_channel(values: Any) -> Any:
    """[C] -> [C, 1]."""
    return widened(values).reshape(-1, 1)


@op("group_norm", inputs="X Scale? Bias?", outputs="Y Mean~ Variance~", attrs=GROUP_NORM, lod="X->Y")
def group_norm(
    ctx: OpContext, X: Any, Scale: Any, Bias: Any, *, epsilon: float, groups: int, data_layout: str
) -> dict[str, Any]:
    """Y = Scale * (X - mean) / sqrt(variance + epsilon) + Bias, statistics by image and group (Paddle 1.8.5 group_norm_op.h).

    X is [N, C, ...] or channels last; Mean and Variance are [N, groups]. When groups do not divide C, the last is smaller.
    """
    require_floating(ctx, "X", X)
    _require_groups(ctx, X.shape, groups)
    x = widened(channels_first(X, data_layout))
    channels, xp = x.shape[1], ctx.xp
    for slot, value in {"Scale": Scale, "Bias": Bias}.items():
        if value is not None:
            require_shape(ctx, slot, value, (channels,), f"the channels of X {X.shape} in {data_layout}")
    out = xp.empty((x.shape[0], channels, x[0, 0].size if len(x) else 0), dtype=x.dtype)
    means, variances = [], []
    for part, count in _blocks(channels, groups):
        centered, mean, variance = center(ctx.xp, x[:, part].reshape(len(x), count, -1), (2,))
        centered *= 1 / xp.sqrt(variance + epsilon)
        out[:, part] = centered.reshape(len(x), -1, out.shape[2])
        means.append(mean[..., 0])
        variances.append(variance[..., 0])
    if Scale is not None:
        out *= _per_channel(Scale)
    if Bias is not None:
        out += _per_channel(Bias)
    return {
        "Y": channels_back(out.reshape(x.shape).astype(X.dtype, copy=False), data_layout),
        "Mean": xp.concatenate(means, axis=1),
        "Variance": xp.concatenate(variances, axis=1),
    }


@group_norm.infer
def _(
    ctx: InferContext, X: TensorMeta, Scale: TensorMeta | None, Bias: TensorMeta | None, *, groups: int
) -> dict[str, TensorMeta]:
    _require_groups(ctx, X.shape, groups)
    statistic = X.with_shape([X.shape[0], groups]).with_lod_level(0)
    return {"Y": X, "Mean": statistic, "Variance": statistic}


@group_norm.grad(inputs="Scale? Bias? Y Variance Y@GRAD", outputs="X@GRAD Scale@GRAD? Bias@GRAD?")
def group_norm_grad(
    ctx: OpContext,
    Scale: Any,
    Bias: Any,
    Y: Any,
    Variance: Any,
    Y_grad: Any,
    *,
    epsilon: float,
    groups: int,
    data_layout: str,
) -> dict[str, Any]:
    """Gradients by X, Scale and Bias, from Y: x̂ = (Y - Bias) / Scale.

    Without Scale, Paddle's gradient by X lacks the mean of dY (group_norm_op.h); so does this one.
    """
    xp = ctx.xp
    y, grad = (widened(channels_first(value, data_layout)) for value in (Y, Y_grad))
    shape, channels = y.shape, y.shape[1]
    y, grad = (value.reshape(len(value), channels, -1) for value in (y, grad))
    normalized = y if Bias is None else y - _per_channel(Bias)
    if Scale is not None:
        scale = _per_channel(Scale)
        normalized = normalized / xp.where(scale == 0, 1, scale)
    grads: dict[str, Any] = {}
    if Scale is not None:
        grads["Scale@GRAD"] = (grad * normalized).sum(axis=(0, 2)).astype(Scale.dtype, copy=False)
    if Bias is not None:
        grads["Bias@GRAD"] = grad.sum(axis=(0, 2)).astype(Bias.dtype, copy=False)
    if ctx.wants("X@GRAD"):
        by_normalized = grad if Scale is None else grad * scale
        inverse_std = 1 / xp.sqrt(widened(Variance) + epsilon)
        out, group = xp.empty_like(grad), 0
        for part, count in _blocks(channels, groups):
            by, hat = (value[:, part].reshape(len(y), count, -1) for value in (by_normalized, normalized))
            spread = inverse_std[:, group : group + count, None]
            if Scale is None:
                x_grad = (by - hat * (by * hat).mean(axis=2, keepdims=True)) * spread
            else:
                x_grad = input_grad(by, hat, spread, (2,))
            out[:, part] = x_grad.reshape(out[:, part].shape)
            group += count
        grads["X@GRAD"] = channels_back(out.reshape(shape).astype(Y.dtype, copy=False), data_layout)
    return grads
