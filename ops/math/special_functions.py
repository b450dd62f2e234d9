"""Special functions: erf, its inverse, the logarithm of the gamma function, its derivatives, and Bessel functions."""

from __future__ import annotations

import math
from typing import Any

from fluidtool.ops.activation.unary import FROM_OUT, FROM_X, activation
from fluidtool.ops.context import InferContext, OpContext
from fluidtool.ops.registry import op
from fluidtool.ops.schema import TensorMeta


@activation("erf")
def erf(ctx: OpContext, X: Any) -> Any:
    """The error function (erf_op.h)."""
    return ctx.special.erf(X)


@erf.grad(inputs="X Out@GRAD", outputs="X@GRAD", lod="X")
def erf_grad(ctx: OpContext, X: Any, Out_grad: Any) -> Any:
    """dX = dOut * 2 / sqrt(π) * exp(-X²)."""
    return Out_grad * X.dtype.type(2 / math.sqrt(math.pi)) * ctx.xp.exp(-(X * X))


@activation("erfinv")
def erfinv(ctx: OpContext, X: Any) -> Any:
    """The inverse of the error function on -1 … 1 (Paddle 2.x)."""
    return ctx.special.erfinv(X).astype(X.dtype, copy=False)


@erfinv.grad(**FROM_OUT)
def erfinv_grad(ctx: OpContext, Out: Any, Out_grad: Any) -> Any:
    """dX = dOut * sqrt(π) / 2 * exp(Out²)."""
    return Out_grad * Out.dtype.type(math.sqrt(math.pi) / 2) * ctx.xp.exp(Out * Out)


@activation("lgamma")
def lgamma(ctx: OpContext, X: Any) -> Any:
    """log |Γ(X)| (Paddle 2.x)."""
    return ctx.special.gammaln(X).astype(X.dtype, copy=False)


@lgamma.grad(**FROM_X)
def lgamma_grad(ctx: OpContext, X: Any, Out_grad: Any) -> Any:
    """dX = dOut * Γ'(X) / Γ(X)."""
    return Out_grad * ctx.special.digamma(X).astype(X.dtype, copy=False)


@activation("digamma")
def digamma(ctx: OpContext, X: Any) -> Any:
    """Γ'(X) / Γ(X) (Paddle 2.x)."""
    return ctx.special.digamma(X).astype(X.dtype, copy=False)


@digamma.grad(**FROM_X)
def digamma_grad(ctx: OpContext, X: Any, Out_grad: Any) -> Any:
    """dX = dOut * the trigamma function of X."""
    return Out_grad * ctx.special.polygamma(ctx.array(1), X).astype(X.dtype, copy=False)


@op("polygamma", inputs="x", outputs="out", attrs={"n": 0})
def polygamma(ctx: OpContext, x: Any, *, n: int) -> Any:
    """The n-th derivative of digamma, n >= 0 (Paddle 2.6.2 polygamma_kernel.h)."""
    if n < 0:
        raise ctx.error(f"n must not be negative, found {n}")
    _check_floating(ctx, x)
    return ctx.special.digamma(x) if n == 0 else ctx.special.polygamma(ctx.array(n), x).astype(x.dtype, copy=False)


@polygamma.grad(inputs="x out@GRAD", outputs="x@GRAD")
def polygamma_grad(ctx: OpContext, x: Any, out_grad: Any, *, n: int) -> Any:
    """dx = dout times the next derivative."""
    return out_grad * ctx.special.polygamma(ctx.array(n + 1), x).astype(x.dtype, copy=False)


@op("i0", inputs="x", outputs="out")
def i0(ctx: OpContext, x: Any) -> Any:
    """The modified Bessel function of the first kind, of order 0 (Paddle 2.6.2)."""
    return _of(ctx, "i0", x)


@i0.grad(inputs="x out@GRAD", outputs="x@GRAD")
def i0_grad(ctx: OpContext, x: Any, out_grad: Any) -> Any:
    """dx = dout * i1(x)."""
    return out_grad * _of(ctx, "i1", x)


@op("i0e", inputs="x", outputs="out")
def i0e(ctx: OpContext, x: Any) -> Any:
    """exp(-|x|) times the modified Bessel function of order 0 (Paddle 2.6.2)."""
    return _of(ctx, "i0e", x)


@i0e.grad(inputs="x out out@GRAD", outputs="x@GRAD")
def i0e_grad(ctx: OpContext, x: Any, out: Any, out_grad: Any) -> Any:
    """dx = dout * (i1e(x) - sign(x) * out)."""
    return out_grad * (_of(ctx, "i1e", x) - ctx.xp.sign(x) * out)


@op("i1", inputs="x", outputs="out")
def i1(ctx: OpContext, x: Any) -> Any:
    """The modified Bessel function of the first kind, of order 1 (Paddle 2.6.2)."""
    return _of(ctx, "i1", x)


@i1.grad(inputs="x out out@GRAD", outputs="x@GRAD")
def i1_grad(ctx: OpContext, x: Any, out: Any, out_grad: Any) -> Any:
    """dx = dout * (i0(x) - out / x), half of it at 0."""
    return out_grad * (_of(ctx, "i0", x) - _per(ctx, out, x))


@op("i1e", inputs="x", outputs="out")
def i1e(ctx: OpContext, x: Any) -> Any:
    """exp(-|x|) times the modified Bessel function of order 1 (Paddle 2.6.2)."""
    return _of(ctx, "i1e", x)


@i1e.grad(inputs="x out out@GRAD", outputs="x@GRAD")
def i1e_grad(ctx: OpContext, x: Any, out: Any, out_grad: Any) -> Any:
    """dx = dout * (i0e(x) - sign(x) * out - out / x), half at 0."""
    return out_grad * (_of(ctx, "i0e", x) - ctx.xp.sign(x) * out - _per(ctx, out, x))


def _of(ctx: OpContext, name: str, x: Any) -> Any:
    _check_floating(ctx, x)
    return getattr(ctx.special, name)(x).astype(x.dtype, copy=False)


def _per(ctx: OpContext, out: Any, x: Any) -> Any:
    """out / x, with its limit 1/2 at 0."""
    zero = x == 0
    return ctx.xp.where(zero, x.dtype.type(0.5), out / ctx.xp.where(zero, x.dtype.type(1), x))


def _check_floating(ctx: OpContext, x: Any) -> None:
    if x.dtype.kind != "f":
        raise ctx.error(f"x must be floating point, found {x.dtype}; insert a cast")


def _like_x(ctx: InferContext, x: TensorMeta) -> TensorMeta:
    return x.with_lod_level(0)


for _info in (polygamma, i0, i0e, i1, i1e):
    _info.infer(_like_x)
