"""Circular and hyperbolic functions and their inverses."""

from __future__ import annotations

from typing import Any

from fluidtool.ops.activation.unary import FROM_X, LIBRARIES, activation
from fluidtool.ops.context import OpContext


@activation("sin", LIBRARIES)
def sin(ctx: OpContext, X: Any) -> Any:
    """The sine."""
    return ctx.xp.sin(X)


@sin.grad(**FROM_X)
def sin_grad(ctx: OpContext, X: Any, Out_grad: Any) -> Any:
    """dX = dOut * cos(X)."""
    return Out_grad * ctx.xp.cos(X)


@activation("cos", LIBRARIES)
def cos(ctx: OpContext, X: Any) -> Any:
    """The cosine."""
    return ctx.xp.cos(X)


@cos.grad(**FROM_X)
def cos_grad(ctx: OpContext, X: Any, Out_grad: Any) -> Any:
    """dX = -dOut * sin(X)."""
    return -Out_grad * ctx.xp.sin(X)


@activation("tan", LIBRARIES)
def tan(ctx: OpContext, X: Any) -> Any:
    """The tangent (Paddle 2.x)."""
    return ctx.xp.tan(X)


@tan.grad(**FROM_X)
def tan_grad(ctx: OpContext, X: Any, Out_grad: Any) -> Any:
    """dX = dOut / cos(X)²."""
    cosine = ctx.xp.cos(X)
    return Out_grad / (cosine * cosine)


@activation("asin")
def asin(ctx: OpContext, X: Any) -> Any:
    """The inverse sine."""
    return ctx.xp.arcsin(X)


@asin.grad(**FROM_X)
def asin_grad(ctx: OpContext, X: Any, Out_grad: Any) -> Any:
    """dX = dOut / sqrt(1 - X²)."""
    return Out_grad / ctx.xp.sqrt(1 - X * X)


@activation("acos")
def acos(ctx: OpContext, X: Any) -> Any:
    """The inverse cosine."""
    return ctx.xp.arccos(X)


@acos.grad(**FROM_X)
def acos_grad(ctx: OpContext, X: Any, Out_grad: Any) -> Any:
    """dX = -dOut / sqrt(1 - X²)."""
    return -Out_grad / ctx.xp.sqrt(1 - X * X)


@activation("atan")
def atan(ctx: OpContext, X: Any) -> Any:
    """The inverse tangent."""
    return ctx.xp.arctan(X)


@atan.grad(**FROM_X)
def atan_grad(ctx: OpContext, X: Any, Out_grad: Any) -> Any:
    """dX = dOut / (1 + X²)."""
    return Out_grad / (1 + X * X)


@activation("sinh", LIBRARIES)
def sinh(ctx: OpContext, X: Any) -> Any:
    """The hyperbolic sine (Paddle 2.x)."""
    return ctx.xp.sinh(X)


@sinh.grad(**FROM_X)
def sinh_grad(ctx: OpContext, X: Any, Out_grad: Any) -> Any:
    """dX = dOut * cosh(X)."""
    return Out_grad * ctx.xp.cosh(X)


@activation("cosh", LIBRARIES)
def cosh(ctx: OpContext, X: Any) -> Any:
    """The hyperbolic cosine (Paddle 2.x)."""
    return ctx.xp.cosh(X)


@cosh.grad(**FROM_X)
def cosh_grad(ctx: OpContext, X: Any, Out_grad: Any) -> Any:
    """dX = dOut * sinh(X)."""
    return Out_grad * ctx.xp.sinh(X)


@activation("asinh", LIBRARIES)
def asinh(ctx: OpContext, X: Any) -> Any:
    """The inverse hyperbolic sine (Paddle 2.x)."""
    return ctx.xp.arcsinh(X)


@asinh.grad(**FROM_X)
def asinh_grad(ctx: OpContext, X: Any, Out_grad: Any) -> Any:
    """dX = dOut / sqrt(X² + 1)."""
    return Out_grad / ctx.xp.sqrt(X * X + 1)


@activation("acosh", LIBRARIES)
def acosh(ctx: OpContext, X: Any) -> Any:
    """The inverse hyperbolic cosine (Paddle 2.x)."""
    return ctx.xp.arccosh(X)


@acosh.grad(**FROM_X)
def acosh_grad(ctx: OpContext, X: Any, Out_grad: Any) -> Any:
    """dX = dOut / sqrt(X² - 1)."""
    return Out_grad / ctx.xp.sqrt(X * X - 1)


@activation("atanh", LIBRARIES)
def atanh(ctx: OpContext, X: Any) -> Any:
    """The inverse hyperbolic tangent (Paddle 2.x)."""
    return ctx.xp.arctanh(X)


@atanh.grad(**FROM_X)
def atanh_grad(ctx: OpContext, X: Any, Out_grad: Any) -> Any:
    """dX = dOut / (1 - X²)."""
    return Out_grad / (1 - X * X)
