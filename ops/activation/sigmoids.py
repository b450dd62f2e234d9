"""Activations based on exp: sigmoid, tanh, gated ones (swish, mish, gelu) and piecewise linear approximations."""

from __future__ import annotations

import math
from typing import Any

from fluidtool.ops.activation.unary import FROM_OUT, FROM_X, LIBRARIES, activation, clipped
from fluidtool.ops.context import OpContext
from fluidtool.ops.math.versions import later_attr
from fluidtool.ops.schema import USE_MKLDNN


def sigmoid_of(ctx: OpContext, x: Any) -> Any:
    """1 / (1 + exp(-x)) in the data type of x."""
    return 1 / (1 + ctx.xp.exp(-x))


def softplus_of(ctx: OpContext, x: Any) -> Any:
    """log(1 + exp(x)), without overflow for large x."""
    return ctx.xp.maximum(x, x.dtype.type(0)) + ctx.xp.log1p(ctx.xp.exp(-abs(x)))


@activation("sigmoid", LIBRARIES)
def sigmoid(ctx: OpContext, X: Any) -> Any:
    """1 / (1 + exp(-X))."""
    return sigmoid_of(ctx, X)


@sigmoid.grad(**FROM_OUT)
def sigmoid_grad(ctx: OpContext, Out: Any, Out_grad: Any) -> Any:
    """dX = dOut * Out * (1 - Out)."""
    return Out_grad * Out * (1 - Out)


@activation("logsigmoid", LIBRARIES)
def logsigmoid(ctx: OpContext, X: Any) -> Any:
    """log(1 / (1 + exp(-X)))."""
    return -softplus_of(ctx, -X)


@logsigmoid.grad(**FROM_X)
def logsigmoid_grad(ctx: OpContext, X: Any, Out_grad: Any) -> Any:
    """dX = dOut / (1 + exp(X))."""
    return Out_grad * sigmoid_of(ctx, -X)


@activation("tanh", LIBRARIES)
def tanh(ctx: OpContext, X: Any) -> Any:
    """The hyperbolic tangent."""
    return ctx.xp.tanh(X)


@tanh.grad(**FROM_OUT)
def tanh_grad(ctx: OpContext, Out: Any, Out_grad: Any) -> Any:
    """dX = dOut * (1 - Out²)."""
    return Out_grad * (1 - Out * Out)


@activation("stanh", {"scale_a": 0.67, "scale_b": 1.7159})
def stanh(ctx: OpContext, X: Any, *, scale_a: float, scale_b: float) -> Any:
    """scale_b * tanh(scale_a * X)."""
    return X.dtype.type(scale_b) * ctx.xp.tanh(X.dtype.type(scale_a) * X)


@stanh.grad(**FROM_X)
def stanh_grad(ctx: OpContext, X: Any, Out_grad: Any, *, scale_a: float, scale_b: float) -> Any:
    """dX = dOut * scale_a * scale_b * (1 - tanh(scale_a * X)²)."""
    inner = ctx.xp.tanh(X.dtype.type(scale_a) * X)
    return Out_grad * X.dtype.type(scale_a * scale_b) * (1 - inner * inner)


@activation("tanh_shrink", LIBRARIES)
def tanh_shrink(ctx: OpContext, X: Any) -> Any:
    """X - tanh(X)."""
    return X - ctx.xp.tanh(X)


@tanh_shrink.grad(**FROM_X)
def tanh_shrink_grad(ctx: OpContext, X: Any, Out_grad: Any) -> Any:
    """dX = dOut * tanh(X)²."""
    inner = ctx.xp.tanh(X)
    return Out_grad * (inner * inner)


@activation("softsign", LIBRARIES)
def softsign(ctx: OpContext, X: Any) -> Any:
    """X / (1 + |X|)."""
    return X / (1 + abs(X))


@softsign.grad(**FROM_X)
def softsign_grad(ctx: OpContext, X: Any, Out_grad: Any) -> Any:
    """dX = dOut / (1 + |X|)²."""
    below = 1 + abs(X)
    return Out_grad / (below * below)


@activation("softplus", LIBRARIES)
def softplus(ctx: OpContext, X: Any) -> Any:
    """log(1 + exp(X)); Paddle 2.x adds beta and threshold: log(1 + exp(beta * X)) / beta, X where beta * X > threshold."""
    beta, threshold = later_attr(ctx, "beta", 1.0), later_attr(ctx, "threshold", None)
    if threshold is None:
        return softplus_of(ctx, X)
    scaled = X * X.dtype.type(beta)
    return ctx.xp.where(scaled > threshold, X, softplus_of(ctx, scaled) / X.dtype.type(beta))


@softplus.grad(**FROM_X)
def softplus_grad(ctx: OpContext, X: Any, Out_grad: Any) -> Any:
    """dX = dOut / (1 + exp(-beta * X)), dOut above the threshold."""
    beta, threshold = later_attr(ctx, "beta", 1.0), later_attr(ctx, "threshold", None)
    scaled = X if threshold is None else X * X.dtype.type(beta)
    inside = Out_grad * sigmoid_of(ctx, scaled)
    return inside if threshold is None else ctx.xp.where(scaled > threshold, Out_grad, inside)


@activation("soft_relu", {"threshold": 40.0})
def soft_relu(ctx: OpContext, X: Any, *, threshold: float) -> Any:
    """log(1 + exp(X)), X clipped to ±threshold first."""
    return ctx.xp.log1p(ctx.xp.exp(clipped(ctx, X, -threshold, threshold)))


@soft_relu.grad(**FROM_OUT)
def soft_relu_grad(ctx: OpContext, Out: Any, Out_grad: Any, *, threshold: float) -> Any:
    """dX = dOut * (1 - exp(-Out)) where |Out| < threshold."""
    return Out_grad * -ctx.xp.expm1(-Out) * ((-threshold < Out) & (threshold > Out))


@activation("hard_sigmoid", {"slope": 0.2, "offset": 0.5})
def hard_sigmoid(ctx: OpContext, X: Any, *, slope: float, offset: float) -> Any:
    """slope * X + offset, clipped to [0, 1]."""
    return clipped(ctx, X * X.dtype.type(slope) + X.dtype.type(offset), 0, 1)


@hard_sigmoid.grad(**FROM_OUT)
def hard_sigmoid_grad(ctx: OpContext, Out: Any, Out_grad: Any, *, slope: float) -> Any:
    """dX = dOut * slope where 0 < Out < 1."""
    return Out_grad * ((Out > 0) & (Out < 1)) * Out.dtype.type(slope)


@activation("hard_swish", {"threshold": 6.0, "scale": 6.0, "offset": 3.0})
def hard_swish(ctx: OpContext, X: Any, *, threshold: float, scale: float, offset: float) -> Any:
    """X * min(max(X + offset, 0), threshold) / scale."""
    if not scale:
        raise ctx.error("scale must not be 0")
    return X * clipped(ctx, X + X.dtype.type(offset), 0, threshold) / X.dtype.type(scale)


@hard_swish.grad(**FROM_X)
def hard_swish_grad(ctx: OpContext, X: Any, Out_grad: Any, *, threshold: float, scale: float, offset: float) -> Any:
    """dX = dOut * (2 X + offset) / scale between the bends, 0 below, dOut above (as activation_op.h has it)."""
    moved = X + X.dtype.type(offset)
    slope = (moved > 0) * (X + moved) / X.dtype.type(scale)
    return Out_grad * ctx.xp.where(moved < threshold, slope, X.dtype.type(1))


@activation("swish", {"beta": 1.0, **USE_MKLDNN})
def swish(ctx: OpContext, X: Any, *, beta: float) -> Any:
    """X / (1 + exp(-beta * X))."""
    return X / (1 + ctx.xp.exp(X * X.dtype.type(-beta)))


@swish.grad(**FROM_X)
def swish_grad(ctx: OpContext, X: Any, Out_grad: Any, *, beta: float) -> Any:
    """dX = dOut * s * (1 + beta * X * (1 - s)), s = 1 / (1 + exp(-beta * X))."""
    gate = sigmoid_of(ctx, X * X.dtype.type(beta))
    return Out_grad * gate * (1 + X * X.dtype.type(beta) * (1 - gate))


@activation("silu", LIBRARIES)
def silu(ctx: OpContext, X: Any) -> Any:
    """X / (1 + exp(-X)) (Paddle 2.x)."""
    return X / (1 + ctx.xp.exp(-X))


@silu.grad(**FROM_X)
def silu_grad(ctx: OpContext, X: Any, Out_grad: Any) -> Any:
    """dX = dOut * s * (1 + X * (1 - s)), s = 1 / (1 + exp(-X))."""
    gate = sigmoid_of(ctx, X)
    return Out_grad * gate * (1 + X * (1 - gate))


@activation("mish", {"threshold": 20.0})
def mish(ctx: OpContext, X: Any, *, threshold: float) -> Any:
    """X * tanh(log(1 + exp(X))), the logarithm taken as X above threshold, as exp(X) below -threshold (mish_op.h)."""
    return X * ctx.xp.tanh(_mish_softplus(ctx, X, threshold))


@mish.grad(inputs="X Out@GRAD", outputs="X@GRAD")
def mish_grad(ctx: OpContext, X: Any, Out_grad: Any, *, threshold: float) -> Any:
    """dX = dOut * (t + X * (1 - t²) * (1 - exp(-p))), p the softplus and t = tanh(p)."""
    plus = _mish_softplus(ctx, X, threshold)
    inner = ctx.xp.tanh(plus)
    return Out_grad * (inner - X * (1 - inner * inner) * ctx.xp.expm1(-plus))


def _mish_softplus(ctx: OpContext, X: Any, threshold: float) -> Any:
    below = ctx.xp.where(-threshold > X, ctx.xp.exp(X), softplus_of(ctx, X))
    return ctx.xp.where(threshold < X, X, below)


@activation("gelu", {"approximate": False, **LIBRARIES})
def gelu(ctx: OpContext, X: Any, *, approximate: bool) -> Any:
    """X * Φ(X), Φ the normal distribution function, or its tanh approximation (gelu_op.h)."""
    if approximate:
        out = ctx.xp.tanh(_gelu_inner(X))
    else:
        out = ctx.special.erf(X * X.dtype.type(math.sqrt(0.5)))
    out += 1
    out *= X
    out *= 0.5
    return out


@gelu.grad(inputs="X Out@GRAD", outputs="X@GRAD", lod="X")
def gelu_grad(ctx: OpContext, X: Any, Out_grad: Any, *, approximate: bool) -> Any:
    """dX = dOut * (Φ(X) + X * φ(X)), or the derivative of the tanh approximation."""
    if approximate:
        inner = ctx.xp.tanh(_gelu_inner(X))
        slope = X.dtype.type(math.sqrt(2 / math.pi)) * (1 + X.dtype.type(3 * 0.044715) * X * X)
        return Out_grad * 0.5 * (1 + inner + X * (1 - inner * inner) * slope)
    cumulative = (1 + ctx.special.erf(X * X.dtype.type(math.sqrt(0.5)))) * 0.5
    density = ctx.xp.exp(X * X * -0.5) * X.dtype.type(1 / math.sqrt(2 * math.pi))
    return Out_grad * (cumulative + X * density)


def _gelu_inner(X: Any) -> Any:
    return X.dtype.type(math.sqrt(2 / math.pi)) * X * (1 + X.dtype.type(0.044715) * X * X)
