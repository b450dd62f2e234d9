"""Piecewise linear activations, and related exponential ones: relu, elu, …"""

from __future__ import annotations

from typing import Any

from fluidtool.ops.activation.unary import FROM_OUT, FROM_X, LIBRARIES, activation, clipped
from fluidtool.ops.context import InferContext, OpContext
from fluidtool.ops.math.rectified import rectified
from fluidtool.ops.math.versions import saved_since
from fluidtool.ops.math.wiring import wired
from fluidtool.ops.registry import op
from fluidtool.ops.schema import USE_MKLDNN, TensorMeta


@activation("relu", LIBRARIES, integers=True)
def relu(ctx: OpContext, X: Any) -> Any:
    """max(X, 0)."""
    return rectified(ctx.xp, X)


@relu.grad(**FROM_OUT)
def relu_grad(ctx: OpContext, Out: Any, Out_grad: Any) -> Any:
    """dX = dOut where Out > 0."""
    return Out_grad * (Out > 0)


relu_grad.grad_maker(wired("relu_grad_grad", "Out DDX=X@GRAD@GRAD", "DDOut=Out@GRAD@GRAD"))


@op("relu_grad_grad", inputs="Out DDX", outputs="DDOut", attrs=LIBRARIES, lod="Out")
def relu_grad_grad(ctx: OpContext, Out: Any, DDX: Any) -> Any:
    """ddOut = ddX where Out > 0."""
    return DDX * (Out > 0)


@relu_grad_grad.infer
def _(ctx: InferContext, Out: TensorMeta, DDX: TensorMeta) -> TensorMeta:
    return Out


@activation("relu6", {"threshold": 6.0})
def relu6(ctx: OpContext, X: Any, *, threshold: float) -> Any:
    """min(max(X, 0), threshold)."""
    return clipped(ctx, X, 0, threshold)


@relu6.grad(**FROM_OUT)
def relu6_grad(ctx: OpContext, Out: Any, Out_grad: Any, *, threshold: float) -> Any:
    """dX = dOut where 0 < Out < threshold."""
    return Out_grad * ((Out > 0) & (threshold > Out))


@activation("brelu", {"t_min": 0.0, "t_max": 24.0})
def brelu(ctx: OpContext, X: Any, *, t_min: float, t_max: float) -> Any:
    """min(max(X, t_min), t_max)."""
    return clipped(ctx, X, t_min, t_max)


@brelu.grad(**FROM_X)
def brelu_grad(ctx: OpContext, X: Any, Out_grad: Any, *, t_min: float, t_max: float) -> Any:
    """dX = dOut where t_min < X < t_max."""
    return Out_grad * ((t_min < X) & (t_max > X))


@activation("leaky_relu", {"alpha": 0.02, **USE_MKLDNN})
def leaky_relu(ctx: OpContext, X: Any, *, alpha: float) -> Any:
    """max(X, alpha * X); from Paddle 2.0 on alpha * X for every negative X, also where alpha > 1."""
    scaled = X * X.dtype.type(alpha)
    if alpha > 1 and saved_since(ctx, 2, 0):
        return ctx.xp.minimum(X, scaled)
    return ctx.xp.maximum(X, scaled)


@leaky_relu.grad(**FROM_OUT)
def leaky_relu_grad(ctx: OpContext, Out: Any, Out_grad: Any, *, alpha: float) -> Any:
    """dX = dOut where Out > 0, else alpha * dOut."""
    return _leaky(ctx, Out, Out_grad, alpha)


leaky_relu_grad.grad_maker(wired("leaky_relu_grad_grad", "Out DDX=X@GRAD@GRAD", "DDOut=Out@GRAD@GRAD"))


@op("leaky_relu_grad_grad", inputs="Out DDX", outputs="DDOut", attrs={"alpha": 0.02, **USE_MKLDNN}, lod="Out")
def leaky_relu_grad_grad(ctx: OpContext, Out: Any, DDX: Any, *, alpha: float) -> Any:
    """ddOut = ddX where Out > 0, else alpha * ddX."""
    return _leaky(ctx, Out, DDX, alpha)


@leaky_relu_grad_grad.infer
def _(ctx: InferContext, Out: TensorMeta, DDX: TensorMeta) -> TensorMeta:
    return Out


def _leaky(ctx: OpContext, Out: Any, grad: Any, alpha: float) -> Any:
    return ctx.xp.where(Out > 0, grad, grad * grad.dtype.type(alpha))


@activation("thresholded_relu", {"threshold": 1.0})
def thresholded_relu(ctx: OpContext, X: Any, *, threshold: float) -> Any:
    """X where X > threshold, else 0."""
    return X * (threshold < X)


@thresholded_relu.grad(**FROM_X)
def thresholded_relu_grad(ctx: OpContext, X: Any, Out_grad: Any, *, threshold: float) -> Any:
    """dX = dOut where X > threshold."""
    return Out_grad * (threshold < X)


@activation("hard_shrink", {"threshold": 0.5})
def hard_shrink(ctx: OpContext, X: Any, *, threshold: float) -> Any:
    """X where |X| > threshold, else 0."""
    return X * ((threshold < X) | (-threshold > X))


@hard_shrink.grad(**FROM_X)
def hard_shrink_grad(ctx: OpContext, X: Any, Out_grad: Any, *, threshold: float) -> Any:
    """dX = dOut where |X| > threshold."""
    return Out_grad * ((threshold < X) | (-threshold > X))


@activation("softshrink", {"lambda": 0.5})
def softshrink(ctx: OpContext, X: Any) -> Any:
    """X moved towards 0 by lambda, 0 where |X| <= lambda."""
    width = ctx.attr("lambda")
    return (X - X.dtype.type(width)) * (width < X) + (X + X.dtype.type(width)) * (-width > X)


@softshrink.grad(**FROM_X)
def softshrink_grad(ctx: OpContext, X: Any, Out_grad: Any) -> Any:
    """dX = dOut where |X| > lambda."""
    width = ctx.attr("lambda")
    return Out_grad * ((width < X) | (-width > X))


@activation("elu", {"alpha": 1.0})
def elu(ctx: OpContext, X: Any, *, alpha: float) -> Any:
    """max(X, 0) + min(0, alpha * (exp(X) - 1)); from Paddle 2.3 on the second term wherever X < 0."""
    negative = X.dtype.type(alpha) * ctx.xp.expm1(ctx.xp.minimum(X, X.dtype.type(0)))
    if alpha < 0 and not saved_since(ctx, 2, 3):
        negative = ctx.xp.minimum(X.dtype.type(alpha) * ctx.xp.expm1(X), X.dtype.type(0))
    return ctx.xp.maximum(X, X.dtype.type(0)) + negative


@elu.grad(**FROM_X)
def elu_grad(ctx: OpContext, X: Any, Out_grad: Any, *, alpha: float) -> Any:
    """dX = dOut where X > 0, else dOut * alpha * exp(X)."""
    return Out_grad * _elu_slope(ctx, X, alpha)


elu_grad.grad_maker(wired("elu_grad_grad", "X DOut=Out@GRAD DDX=X@GRAD@GRAD", "DDOut=Out@GRAD@GRAD DX=X@GRAD"))


@op("elu_grad_grad", inputs="X DOut DDX", outputs="DX DDOut", attrs={"alpha": 1.0}, lod="X")
def elu_grad_grad(ctx: OpContext, X: Any, DOut: Any, DDX: Any, *, alpha: float) -> dict[str, Any]:
    """ddOut = ddX * slope, dX = dOut * ddX * alpha * exp(X) where X <= 0."""
    slope = _elu_slope(ctx, X, alpha)
    return {"DX": DOut * DDX * slope * (X <= 0), "DDOut": DDX * slope}


@elu_grad_grad.infer
def _(ctx: InferContext, X: TensorMeta, DOut: TensorMeta, DDX: TensorMeta) -> dict[str, TensorMeta]:
    return {"DX": X, "DDOut": X}


def _elu_slope(ctx: OpContext, X: Any, alpha: float) -> Any:
    one, zero = X.dtype.type(1), X.dtype.type(0)
    return ctx.xp.where(X > 0, one, X.dtype.type(alpha) * ctx.xp.exp(ctx.xp.minimum(X, zero)))


@activation("selu", {"scale": 1.0507009873554804934193349852946, "alpha": 1.6732632423543772848170429916717})
def selu(ctx: OpContext, X: Any, *, scale: float, alpha: float) -> Any:
    """scale * X where X > 0, else scale * alpha * (exp(X) - 1)."""
    below = X.dtype.type(scale * alpha) * ctx.xp.expm1(ctx.xp.minimum(X, X.dtype.type(0)))
    return ctx.xp.where(X > 0, X * X.dtype.type(scale), below)


@selu.grad(inputs="Out Out@GRAD", outputs="X@GRAD")
def selu_grad(ctx: OpContext, Out: Any, Out_grad: Any, *, scale: float, alpha: float) -> Any:
    """dX = dOut * scale where Out > 0, else dOut * (Out + scale * alpha)."""
    return Out_grad * ctx.xp.where(Out > 0, Out.dtype.type(scale), Out + Out.dtype.type(scale * alpha))


@activation("celu", {"alpha": 1.0})
def celu(ctx: OpContext, X: Any, *, alpha: float) -> Any:
    """max(X, 0) + min(0, alpha * (exp(X / alpha) - 1)) (Paddle 2.6 celu)."""
    if not alpha:
        raise ctx.error("alpha must not be 0")
    negative = X.dtype.type(alpha) * ctx.xp.expm1(X / X.dtype.type(alpha))
    return ctx.xp.maximum(X, X.dtype.type(0)) + ctx.xp.minimum(negative, X.dtype.type(0))


@celu.grad(**FROM_X)
def celu_grad(ctx: OpContext, X: Any, Out_grad: Any, *, alpha: float) -> Any:
    """dX = dOut where X > 0, else dOut * exp(X / alpha)."""
    one = X.dtype.type(1)
    return Out_grad * ctx.xp.where(X > 0, one, ctx.xp.exp(X / X.dtype.type(alpha)))


RRELU: dict[str, Any] = {"lower": 1.0 / 8, "upper": 1.0 / 3, "is_test": False}


@op("rrelu", inputs="X", outputs="Out Noise~", attrs=RRELU, random=True)
def rrelu(ctx: OpContext, X: Any, *, lower: float, upper: float, is_test: bool) -> dict[str, Any]:
    """X, where negative times a slope: drawn from lower … upper, or their middle if `is_test` (Paddle 2.6.2 rrelu_kernel.cc).

    Noise: the slopes, 1 where X is not negative.
    """
    if not 0 <= lower <= upper <= 1:
        raise ctx.error(f"lower and upper must be 0 <= lower <= upper <= 1, found {lower} and {upper}")
    if X.dtype.kind != "f":
        raise ctx.error(f"X must be floating point, found {X.dtype}; insert a cast")
    slope = (lower + upper) / 2 if is_test else lower + (upper - lower) * ctx.random(X.shape, "float32", 0)
    noise = ctx.xp.where(X < 0, slope, 1).astype(X.dtype)
    return {"Out": X * noise, "Noise": noise}


@rrelu.infer
def _(ctx: InferContext, X: TensorMeta) -> dict[str, TensorMeta]:
    return {"Out": X, "Noise": X}


@rrelu.grad(inputs="Noise Out@GRAD", outputs="X@GRAD")
def rrelu_grad(ctx: OpContext, Noise: Any, Out_grad: Any) -> Any:
    """dX = dOut * Noise."""
    return Out_grad * Noise
