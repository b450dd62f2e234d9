"""Rounding to whole numbers; the gradient is zero everywhere."""

from __future__ import annotations

from typing import Any

from fluidtool.ops.activation.unary import FROM_GRAD, LIBRARIES, activation
from fluidtool.ops.context import OpContext


@activation("floor", LIBRARIES)
def floor(ctx: OpContext, X: Any) -> Any:
    """The greatest whole number that is not above X."""
    return ctx.xp.floor(X)


@floor.grad(**FROM_GRAD)
def floor_grad(ctx: OpContext, Out_grad: Any) -> Any:
    """dX = 0."""
    return ctx.xp.zeros_like(Out_grad)


@activation("ceil", LIBRARIES)
def ceil(ctx: OpContext, X: Any) -> Any:
    """The least whole number that is not below X."""
    return ctx.xp.ceil(X)


@ceil.grad(**FROM_GRAD)
def ceil_grad(ctx: OpContext, Out_grad: Any) -> Any:
    """dX = 0."""
    return ctx.xp.zeros_like(Out_grad)


@activation("round", LIBRARIES)
def round(ctx: OpContext, X: Any) -> Any:
    """The nearest whole number.

    Halves go where Paddle 1.8.5's CPU kernel sends them: to the even neighbor in whole vector registers of 32 bytes,
    away from zero in the elements that are left over.
    """
    flat = X.reshape(-1)
    registers = X.size - X.size % (32 // X.dtype.itemsize)
    rest = flat[registers:]
    whole = ctx.xp.trunc(rest)
    away = whole + ctx.xp.copysign(abs(rest - whole) >= 0.5, rest).astype(X.dtype)
    return ctx.xp.concatenate([ctx.xp.rint(flat[:registers]), away]).reshape(X.shape)


@round.grad(**FROM_GRAD)
def round_grad(ctx: OpContext, Out_grad: Any) -> Any:
    """dX = 0."""
    return ctx.xp.zeros_like(Out_grad)


@activation("trunc", LIBRARIES, integers=True)
def trunc(ctx: OpContext, X: Any) -> Any:
    """X without its fraction (Paddle 2.x)."""
    return X if X.dtype.kind in "iu" else ctx.xp.trunc(X)


@trunc.grad(**FROM_GRAD)
def trunc_grad(ctx: OpContext, Out_grad: Any) -> Any:
    """dX = 0."""
    return ctx.xp.zeros_like(Out_grad)
