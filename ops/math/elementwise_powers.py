"""Elementwise powers, remainders and whole quotients, and the step function."""

from __future__ import annotations

from typing import Any

from fluidtool.ops.context import OpContext
from fluidtool.ops.math.elementwise_common import (
    ATTRS,
    GRAD_LOD,
    aligned,
    broadcast_meta,
    grad_lod,
    quotient,
    refuse_zero,
    summed_to,
)
from fluidtool.ops.math.versions import saved_since
from fluidtool.ops.registry import op


@op("elementwise_pow", inputs="X Y", outputs="Out", attrs=ATTRS, lod="X")
def elementwise_pow(ctx: OpContext, X: Any, Y: Any, *, axis: int) -> Any:
    """X to the power Y, Y broadcast from dimension `axis` of X on; integers cut fractions (elementwise_pow_op.h)."""
    x, y = aligned(ctx, X, Y, axis)
    if x.dtype.kind not in "iu":
        return ctx.xp.power(x, y)
    whole = ctx.xp.power(x, ctx.xp.maximum(y, 0))
    below_one = ctx.xp.where(abs(x) == 1, ctx.xp.where(y % 2 == 0, 1, x), 0)
    return ctx.xp.where(y < 0, below_one, whole).astype(x.dtype)


@elementwise_pow.grad(inputs="X Y Out@GRAD", outputs="X@GRAD Y@GRAD", lod=GRAD_LOD)
def elementwise_pow_grad(ctx: OpContext, X: Any, Y: Any, Out_grad: Any, *, axis: int) -> dict[str, Any]:
    """dX = dOut * Y * X^(Y - 1), dY = dOut * log(X) * X^Y."""
    grad_lod(ctx)
    x, y = aligned(ctx, X, Y, axis)
    grads: dict[str, Any] = {}
    if ctx.wants("X@GRAD"):
        grads["X@GRAD"] = summed_to(ctx, Out_grad * y * ctx.xp.power(x, y - 1), X, Y, axis)
    if ctx.wants("Y@GRAD"):
        grads["Y@GRAD"] = summed_to(ctx, Out_grad * ctx.xp.log(x) * ctx.xp.power(x, y), Y, X, axis)
    return grads


@op("elementwise_mod", inputs="X Y", outputs="Out", attrs=ATTRS, lod="X")
def elementwise_mod(ctx: OpContext, X: Any, Y: Any, *, axis: int) -> Any:
    """The remainder of X / Y, with the sign of Y; integers of programs older than Paddle 2.0: with the sign of X."""
    x, y = aligned(ctx, X, Y, axis)
    if x.dtype.kind not in "iu":
        return ctx.xp.mod(x, y)
    refuse_zero(ctx, y)
    return ctx.xp.mod(x, y) if saved_since(ctx, 2, 0) else ctx.xp.fmod(x, y)


@op("elementwise_floordiv", inputs="X Y", outputs="Out", attrs=ATTRS, lod="X")
def elementwise_floordiv(ctx: OpContext, X: Any, Y: Any, *, axis: int) -> Any:
    """The whole part of X / Y, cut towards zero; from Paddle 2.5 on rounded down."""
    x, y = aligned(ctx, X, Y, axis)
    down = saved_since(ctx, 2, 5)
    if x.dtype.kind not in "iu":
        return ctx.xp.floor(x / y) if down else ctx.xp.trunc(x / y)
    refuse_zero(ctx, y)
    return x // y if down else quotient(ctx, x, y)


@op("elementwise_heaviside", inputs="X Y", outputs="Out", attrs={"axis": -1}, lod="X")
def elementwise_heaviside(ctx: OpContext, X: Any, Y: Any, *, axis: int) -> Any:
    """0 where X < 0, Y where X is 0, 1 where X > 0 (Paddle 2.x)."""
    x, y = aligned(ctx, X, Y, axis)
    return ctx.xp.where(x == 0, y, (x > 0).astype(x.dtype))


@elementwise_heaviside.grad(inputs="X Y Out@GRAD", outputs="X@GRAD Y@GRAD", lod=GRAD_LOD)
def elementwise_heaviside_grad(ctx: OpContext, X: Any, Y: Any, Out_grad: Any, *, axis: int) -> dict[str, Any]:
    """dX = 0, dY = dOut where X is 0."""
    grad_lod(ctx)
    x, _ = aligned(ctx, X, Y, axis)
    return {"X@GRAD": ctx.xp.zeros_like(X), "Y@GRAD": summed_to(ctx, Out_grad * (x == 0), Y, X, axis)}


for _info in (elementwise_pow, elementwise_mod, elementwise_floordiv, elementwise_heaviside):
    _info.infer(broadcast_meta)
