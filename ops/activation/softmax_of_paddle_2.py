"""Softmaxes of Paddle 2.x: with a mask, of a triangle, and with noise of Gumbel."""

from __future__ import annotations

from typing import Any

from fluidtool.ops.activation.unary import like_x
from fluidtool.ops.context import InferContext, OpContext
from fluidtool.ops.nn.precision import widened
from fluidtool.ops.registry import op
from fluidtool.ops.schema import TensorMeta
from fluidtool.shapes import shape_text


def _softmax(ctx: OpContext, scores: Any, axis: int, dtype: Any) -> Any:
    wide = widened(scores)
    weights = ctx.xp.exp(wide - wide.max(axis=axis, keepdims=True))
    return (weights / weights.sum(axis=axis, keepdims=True)).astype(dtype, copy=False)


def _softmax_grad(out: Any, grad: Any, axis: int) -> Any:
    return out * (grad - (out * grad).sum(axis=axis, keepdims=True))


@op("fused_softmax_mask", inputs="X Mask", outputs="Out")
def fused_softmax_mask(ctx: OpContext, X: Any, Mask: Any) -> Any:
    """softmax(X + Mask) along the last axis: X [N, heads, m, n], Mask [N, 1, m, n] (Paddle 2.6.2, there on GPUs only)."""
    _check_mask(ctx, X.shape, Mask.shape)
    return _softmax(ctx, widened(X) + widened(Mask), -1, X.dtype)


@fused_softmax_mask.infer
def _(ctx: InferContext, X: TensorMeta, Mask: TensorMeta) -> TensorMeta:
    _check_mask(ctx, X.shape, Mask.shape)
    return X


def _check_mask(ctx: OpContext | InferContext, x: tuple[int, ...], mask: tuple[int, ...]) -> None:
    expected = (*x[:1], 1, *x[2:])
    fits = len(x) == len(mask) == 4 and all(a == b or -1 in (a, b) for a, b in zip(mask, expected, strict=True))
    if not fits:
        raise ctx.error(
            f"X must be (N, heads, m, n) and Mask (N, 1, m, n), found {shape_text(x)} and {shape_text(mask)}"
        )


@fused_softmax_mask.grad(inputs="Out Out@GRAD", outputs="X@GRAD")
def fused_softmax_mask_grad(ctx: OpContext, Out: Any, Out_grad: Any) -> Any:
    """dX = Out * (dOut - sum(Out * dOut))."""
    return _softmax_grad(Out, Out_grad, -1)


@op("fused_softmax_mask_upper_triangle", inputs="X", outputs="Out")
def fused_softmax_mask_upper_triangle(ctx: OpContext, X: Any) -> Any:
    """softmax of X [N, heads, n, n] along the last axis, where row i sees columns up to i (Paddle 2.6.2, GPUs only there)."""
    _check_square(ctx, X.shape)
    hidden = ctx.xp.triu(ctx.xp.ones(X.shape[-2:], dtype=bool), 1)
    return _softmax(ctx, ctx.xp.where(hidden, -ctx.np.inf, widened(X)), -1, X.dtype)


@fused_softmax_mask_upper_triangle.infer
def _(ctx: InferContext, X: TensorMeta) -> TensorMeta:
    _check_square(ctx, X.shape)
    return X


def _check_square(ctx: OpContext | InferContext, x: tuple[int, ...]) -> None:
    if len(x) != 4 or (x[2] != x[3] and -1 not in x[2:]):
        raise ctx.error(f"X must be (N, heads, n, n), found shape {shape_text(x)}")


@fused_softmax_mask_upper_triangle.grad(inputs="Out Out@GRAD", outputs="X@GRAD")
def fused_softmax_mask_upper_triangle_grad(ctx: OpContext, Out: Any, Out_grad: Any) -> Any:
    """dX = Out * (dOut - sum(Out * dOut))."""
    return _softmax_grad(Out, Out_grad, -1)


@op(
    "gumbel_softmax",
    inputs="X",
    outputs="Out",
    attrs={"temperature": 1.0, "hard": False, "axis": -1},
    random=True,
)
def gumbel_softmax(ctx: OpContext, X: Any, *, temperature: float, hard: bool, axis: int) -> Any:
    """softmax((X + noise) / temperature) along `axis`, noise of Gumbel's distribution (Paddle 2.6.2 gumbel_softmax_kernel.cc).

    hard: 1 where it is largest and 0 elsewhere, with the same gradient.
    """
    if not -max(X.ndim, 1) <= axis < max(X.ndim, 1):
        raise ctx.error(f"axis {axis} is out of range for X of shape {shape_text(X.shape)}")
    if not temperature > 0:
        raise ctx.error(f"temperature must be positive, found {temperature}")
    x = X.reshape(X.shape or (1,))
    even = ctx.random(x.shape, "float64" if X.dtype == "float64" else "float32", 0)
    noise = -ctx.xp.log(-ctx.xp.log(ctx.xp.maximum(even, 1e-20)) + 1e-20)
    out = _softmax(ctx, (widened(x) + noise) / temperature, axis, X.dtype)
    if hard:
        places = ctx.xp.expand_dims(out.argmax(axis=axis), axis)
        size = out.shape[axis]
        line = ctx.xp.arange(size).reshape([size if i == axis % out.ndim else 1 for i in range(out.ndim)])
        out = (line == places).astype(X.dtype)
    return out.reshape(X.shape)


gumbel_softmax.infer(like_x)


@gumbel_softmax.grad(inputs="Out Out@GRAD", outputs="X@GRAD")
def gumbel_softmax_grad(ctx: OpContext, Out: Any, Out_grad: Any, *, temperature: float, hard: bool, axis: int) -> Any:
    """dX = Out * (dOut - sum(Out * dOut)), as Paddle 2.6.2 has it: without the temperature."""
    return _softmax_grad(Out, Out_grad, axis) if Out.ndim else ctx.xp.zeros_like(Out)
