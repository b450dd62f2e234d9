"""Special functions: erf, its inverse, the logarithm of the gamma function and its derivative."""

from __future__ import annotations

import math
from typing import Any

from fluidtool.ops.activation.unary import FROM_OUT, FROM_X, activation
from fluidtool.ops.context import OpContext


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
