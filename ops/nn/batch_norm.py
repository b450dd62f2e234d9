"""batch_norm and sync_batch_norm: normalization per channel over a batch, or by running statistics."""

from __future__ import annotations

from typing import Any

from fluidtool.ops.context import InferContext, OpContext
from fluidtool.ops.gradient import GradMakerContext, OpDescription
from fluidtool.ops.math.rectified import rectified
from fluidtool.ops.math.repeated import repeated
from fluidtool.ops.nn.normalization import center, input_grad
from fluidtool.ops.nn.precision import require_floating, require_rank, require_shape, widened
from fluidtool.ops.nn.windows import CHANNELS_LAST, UNKNOWN
from fluidtool.ops.registry import op
from fluidtool.ops.schema import USE_MKLDNN, TensorMeta, limited
from fluidtool.records import dataclass

BATCH_NORM: dict[str, Any] = {
    "is_test": False,
    "momentum": 0.9,
    "epsilon": limited(1e-05, 0.0, 0.001),
    "data_layout": "NCHW",
    "fuse_with_relu": False,
    "use_global_stats": False,
    "trainable_statistics": False,
    **USE_MKLDNN,
}
BATCH_NORM_INPUTS = "X Scale/? Bias/? Mean Variance MomentumTensor?"
BATCH_NORM_OUTPUTS = "Y MeanOut VarianceOut SavedMean~ SavedVariance~ ReserveSpace?"
BATCH_NORM_GRAD_INPUTS = "X Scale/? Bias/? SavedMean SavedVariance ReserveSpace? Y@GRAD Mean? Variance?"


@dataclass(frozen=True, slots=True)
class Channels:
    """Where the channels of X are: the axes to average over, and the shape that broadcasts along them."""

    axes: tuple[int, ...]
    shape: tuple[int, ...]
    count: int

    def spread(self, values: Any) -> Any:
        """[C] -> an array that broadcasts against X; 16-bit values become float32."""
        return widened(values).reshape(self.shape)


def channels_of(ctx: OpContext, X: Any) -> Channels:
    """Find the channels by data_layout; X has 2 to 5 dimensions."""
    require_floating(ctx, "X", X)
    require_rank(ctx, "X", X, 2, 3, 4, 5)
    axis = X.ndim - 1 if ctx.attr("data_layout") in CHANNELS_LAST else 1
    others = tuple(a for a in range(X.ndim) if a != axis)
    return Channels(others, tuple(X.shape[axis] if a == axis else 1 for a in range(X.ndim)), X.shape[axis])


def uses_running_statistics(ctx: OpContext) -> bool:
    """Whether Mean and Variance normalize instead of the batch's own."""
    return bool(ctx.attr("use_global_stats") or (ctx.attr("is_test") and not ctx.attr("trainable_statistics")))


def channels_with(ctx: OpContext, X: Any, Scale: Any, Bias: Any, Mean: Any, Variance: Any) -> Channels:
    """The channels of X, for each of which Scale, Bias, Mean and Variance must hold a number."""
    channels = channels_of(ctx, X)
    for slot, value in {"Scale": Scale, "Bias": Bias, "Mean": Mean, "Variance": Variance}.items():
        require_shape(ctx, slot, value, (channels.count,), f"the channels of X {X.shape} in {ctx.attr('data_layout')}")
    return channels


def scale_and_bias(ctx: OpContext, X: Any, Scale: Any, Bias: Any) -> tuple[Any, Any]:
    """Scale and Bias, ones and zeros where Paddle 2.x leaves them out."""
    xp, like = ctx.xp, {"shape": channels_of(ctx, X).count, "dtype": widened(X).dtype}
    return xp.ones(**like) if Scale is None else Scale, xp.zeros(**like) if Bias is None else Bias


def running_line(
    ctx: OpContext, channels: Channels, Scale: Any, Bias: Any, Mean: Any, Variance: Any
) -> tuple[Any, Any]:
    """Factor and shift by channel that normalize by the running statistics."""
    inverse_std = 1 / ctx.xp.sqrt(channels.spread(Variance) + ctx.attr("epsilon"))
    scale, bias = channels.spread(Scale), channels.spread(Bias)
    # in Paddle's order: its last bits
    return inverse_std * scale, bias - channels.spread(Mean) * inverse_std * scale


def normalize(
    ctx: OpContext, X: Any, Scale: Any, Bias: Any, Mean: Any, Variance: Any, MomentumTensor: Any
) -> dict[str, Any]:
    """Y and the statistics; SavedVariance is 1 / sqrt(variance + epsilon), as Paddle's CPU kernel saves it."""
    Scale, Bias = scale_and_bias(ctx, X, Scale, Bias)
    channels, xp = channels_with(ctx, X, Scale, Bias, Mean, Variance), ctx.xp
    scale, bias = channels.spread(Scale), channels.spread(Bias)
    zeros = xp.zeros(channels.count, dtype=widened(Mean).dtype)
    results = {"MeanOut": Mean, "VarianceOut": Variance, "SavedMean": zeros, "SavedVariance": zeros}
    if uses_running_statistics(ctx):
        factor, shift = running_line(ctx, channels, Scale, Bias, Mean, Variance)
        out = repeated(xp, xp.multiply, widened(X), factor)
        repeated(xp, xp.add, out, shift, out=out)
    elif X.size == channels.count:
        out = X
    else:
        if X.size <= 0:
            raise ctx.error(f"X {X.shape} is empty; a batch without elements has no mean and variance to train on")
        momentum = ctx.attr("momentum") if MomentumTensor is None else float(ctx.host(MomentumTensor).reshape(-1)[0])
        out, mean, variance = center(xp, widened(X), channels.axes)
        inverse_std = 1 / xp.sqrt(variance + ctx.attr("epsilon"))
        repeated(xp, xp.multiply, out, scale * inverse_std, out=out)
        repeated(xp, xp.add, out, bias, out=out)
        results = {
            "MeanOut": _running(Mean, mean, momentum),
            "VarianceOut": _running(Variance, variance, momentum),
            "SavedMean": mean.reshape(-1),
            "SavedVariance": inverse_std.reshape(-1),
        }
    if ctx.attr("fuse_with_relu"):
        out = rectified(xp, out)
    return {"Y": out.astype(X.dtype, copy=False), **results}


def _running(old: Any, new: Any, momentum: float) -> Any:
    return (widened(old) * momentum + new.reshape(-1) * (1 - momentum)).astype(old.dtype, copy=False)


def normalize_grad(
    ctx: OpContext,
    X: Any,
    Scale: Any,
    statistics: tuple[Any, Any],
    out_grad: Any,
    Mean: Any,
    Variance: Any,
) -> dict[str, Any]:
    """Gradients by X, Scale and Bias; `statistics` are SavedMean and SavedVariance."""
    channels, xp = channels_of(ctx, X), ctx.xp
    require_shape(ctx, "Y@GRAD", out_grad, X.shape, "the shape of X")
    Scale, _ = scale_and_bias(ctx, X, Scale, None)
    grad, scale = widened(out_grad), channels.spread(Scale)
    if X.size == channels.count:
        zeros = xp.zeros_like(Scale)
        return {"X@GRAD": out_grad, "Scale@GRAD": zeros, "Bias@GRAD": zeros}
    if uses_running_statistics(ctx):
        if Mean is None or Variance is None:
            raise ctx.error(
                "it needs Mean and Variance, as is_test or use_global_stats is set; rebuild the backward pass with use_global_stats"
            )
        inverse_std = 1 / xp.sqrt(channels.spread(Variance) + ctx.attr("epsilon"))
        normalized = (widened(X) - channels.spread(Mean)) * inverse_std
        x_grad = grad * (scale * inverse_std)
    else:
        mean, inverse_std = map(channels.spread, statistics)
        normalized = (widened(X) - mean) * inverse_std
        x_grad = input_grad(grad, normalized, scale * inverse_std, channels.axes)
    return {
        "X@GRAD": x_grad.astype(X.dtype, copy=False),
        "Scale@GRAD": (grad * normalized).sum(axis=channels.axes).astype(Scale.dtype, copy=False),
        "Bias@GRAD": grad.sum(axis=channels.axes).astype(Scale.dtype, copy=False),
    }


def infer_normalize(
    ctx: InferContext, X: TensorMeta, Scale: TensorMeta | None, Mean: TensorMeta
) -> dict[str, TensorMeta]:
    """Y is like X, every statistic like Scale, or like Mean without one."""
    Scale = Scale or Mean
    if not 2 <= X.rank <= 5:
        raise ctx.error(f"input X must have 2 to 5 dimensions, found shape {X.shape}")
    count = X.shape[-1] if ctx.attr("data_layout") in CHANNELS_LAST else X.shape[1]
    if not (Scale.rank == 1 and (UNKNOWN in (count, Scale.shape[0]) or Scale.shape[0] == count)):
        raise ctx.error(
            f"input Scale must have shape ({count},) as X {X.shape} has channels in {ctx.attr('data_layout')}, found {Scale.shape}"
        )
    statistic = Scale.with_shape([count]).with_lod_level(0)
    return {
        "Y": X,
        "MeanOut": statistic,
        "VarianceOut": statistic,
        "SavedMean": statistic,
        "SavedVariance": statistic,
    }


def make_grad(context: GradMakerContext) -> list[OpDescription]:
    """xxx_norm -> xxx_norm_grad; the running statistics come along when they were what normalized."""
    inputs = {slot: context.input(slot) for slot in ("X", "Scale", "Bias")}
    inputs |= {slot: context.output(slot) for slot in ("SavedMean", "SavedVariance")}
    if context.op.output("ReserveSpace"):
        inputs["ReserveSpace"] = context.output("ReserveSpace")
    if context.op.has_attr("use_global_stats") and context.op.attr("use_global_stats"):
        inputs |= {"Mean": context.output("MeanOut"), "Variance": context.output("VarianceOut")}
    inputs["Y@GRAD"] = context.output_grad("Y")
    outputs = {slot + "@GRAD": context.input_grad(slot) for slot in ("X", "Scale", "Bias")}
    return [context.describe(context.op.type + "_grad", inputs, outputs)]


@op("batch_norm", inputs=BATCH_NORM_INPUTS, outputs=BATCH_NORM_OUTPUTS, attrs=BATCH_NORM, lod="X->Y")
def batch_norm(
    ctx: OpContext, X: Any, Scale: Any, Bias: Any, Mean: Any, Variance: Any, MomentumTensor: Any
) -> dict[str, Any]:
    """Y = Scale * (X - mean) / sqrt(variance + epsilon) + Bias per channel, X of 2 to 5 dimensions (batch_norm_op.cc).

    One element per channel is copied, as Paddle does. An empty batch to train on raises OperatorError.
    """
    return normalize(ctx, X, Scale, Bias, Mean, Variance, MomentumTensor)


@batch_norm.infer
def _(
    ctx: InferContext,
    X: TensorMeta,
    Scale: TensorMeta | None,
    Bias: TensorMeta | None,
    Mean: TensorMeta,
    Variance: TensorMeta,
    MomentumTensor: TensorMeta | None,
) -> dict[str, TensorMeta]:
    return infer_normalize(ctx, X, Scale, Mean)


batch_norm.grad_maker(make_grad)


@op("batch_norm_grad", inputs=BATCH_NORM_GRAD_INPUTS, outputs="X@GRAD Scale@GRAD Bias@GRAD", attrs=BATCH_NORM)
def batch_norm_grad(
    ctx: OpContext,
    X: Any,
    Scale: Any,
    Bias: Any,
    SavedMean: Any,
    SavedVariance: Any,
    ReserveSpace: Any,
    Y_grad: Any,
    Mean: Any,
    Variance: Any,
) -> dict[str, Any]:
    """Gradients by X, Scale and Bias."""
    return normalize_grad(ctx, X, Scale, (SavedMean, SavedVariance), Y_grad, Mean, Variance)


@op("sync_batch_norm", inputs=BATCH_NORM_INPUTS, outputs=BATCH_NORM_OUTPUTS, attrs=BATCH_NORM, lod="X->Y")
def sync_batch_norm(
    ctx: OpContext, X: Any, Scale: Any, Bias: Any, Mean: Any, Variance: Any, MomentumTensor: Any
) -> dict[str, Any]:
    """batch_norm; one process has no others to share statistics with (sync_batch_norm_op.cu)."""
    return normalize(ctx, X, Scale, Bias, Mean, Variance, MomentumTensor)


@sync_batch_norm.infer
def _(
    ctx: InferContext,
    X: TensorMeta,
    Scale: TensorMeta | None,
    Bias: TensorMeta | None,
    Mean: TensorMeta,
    Variance: TensorMeta,
    MomentumTensor: TensorMeta | None,
) -> dict[str, TensorMeta]:
    return infer_normalize(ctx, X, Scale, Mean)


sync_batch_norm.grad_maker(make_grad)


@op("sync_batch_norm_grad", inputs=BATCH_NORM_GRAD_INPUTS, outputs="X@GRAD Scale@GRAD Bias@GRAD", attrs=BATCH_NORM)
def sync_batch_norm_grad(
    ctx: OpContext,
    X: Any,
    Scale: Any,
    Bias: Any,
    SavedMean: Any,
    SavedVariance: Any,
    ReserveSpace: Any,
    Y_grad: Any,
    Mean: Any,
    Variance: Any,
) -> dict[str, Any]:
    """Gradients by X, Scale and Bias."""
    return normalize_grad(ctx, X, Scale, (SavedMean, SavedVariance), Y_grad, Mean, Variance)
