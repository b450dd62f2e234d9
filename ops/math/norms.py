"""Norms along one dimension or over several: norm (which normalizes), renorm, p_norm, frobenius_norm, logsumexp."""

from __future__ import annotations

import math
from typing import Any

from fluidtool.ops.context import InferContext, OpContext
from fluidtool.ops.math.reduce_common import (
    ATTRS,
    keep_lod,
    reduced_axes,
    reduced_meta,
    reduced_shape,
    require_elements,
    spread,
)
from fluidtool.ops.math.versions import later_attr
from fluidtool.ops.registry import op
from fluidtool.ops.schema import FLOAT, INT, TensorMeta, ints, required


@op("norm", inputs="X", outputs="Norm~ Out", attrs={"axis": required(INT), "epsilon": 1e-10})
def norm(ctx: OpContext, X: Any, *, axis: int, epsilon: float) -> dict[str, Any]:
    """Out = X / Norm, Norm = sqrt(sum(X²) + epsilon) along `axis`, which Norm keeps with size 1 (norm_op.h)."""
    _check_axis(ctx, X.ndim, axis)
    size = ctx.xp.sqrt((X * X).sum(axis=axis, keepdims=True, dtype=X.dtype) + X.dtype.type(epsilon))
    return {"Norm": size, "Out": X / size}


@norm.infer
def _(ctx: InferContext, X: TensorMeta, *, axis: int) -> dict[str, TensorMeta]:
    _check_axis(ctx, X.rank, axis)
    shape = [1 if i == axis % X.rank else size for i, size in enumerate(X.shape)]
    return {"Out": X.with_lod_level(0), "Norm": TensorMeta(tuple(shape), X.dtype)}


@norm.grad(inputs="X Norm Out@GRAD", outputs="X@GRAD")
def norm_grad(ctx: OpContext, X: Any, Norm: Any, Out_grad: Any, *, axis: int) -> Any:
    """dX = (dOut - X * sum(dOut * X) / Norm²) / Norm."""
    along = (Out_grad * X).sum(axis=axis, keepdims=True, dtype=X.dtype)
    return (Out_grad - X * along / (Norm * Norm)) / Norm


def _check_axis(ctx: OpContext | InferContext, rank: int, axis: int) -> None:
    if not -rank <= axis < rank:
        raise ctx.error(f"axis {axis} is out of range for an X of {rank} dimensions")


@op(
    "p_norm",
    inputs="X",
    outputs="Out",
    attrs={"porder": 2.0, "axis": -1, "epsilon": 1e-12, "keepdim": False},
)
def p_norm(ctx: OpContext, X: Any, *, porder: float, axis: int, keepdim: bool) -> Any:
    """sum(|X|^porder)^(1 / porder) along `axis`; the greatest or smallest |X| for ±inf, the count of X != 0 for 0.

    Paddle 1.8.5 takes porder > 0 only; `asvector` of Paddle 2.x means the whole of X (p_norm_op.h).
    """
    axes = _p_norm_axes(ctx, X.shape, axis)
    size = abs(X)
    if porder == 0:
        out = (X != 0).sum(axis=axes).astype(X.dtype)
    elif math.isinf(porder):
        require_elements(ctx, X, axes, "norm")
        out = size.max(axis=axes) if porder > 0 else size.min(axis=axes)
    elif porder == 1:
        out = size.sum(axis=axes, dtype=X.dtype)
    elif porder == 2:
        out = ctx.xp.sqrt((X * X).sum(axis=axes, dtype=X.dtype))
    else:
        total = ctx.xp.power(size, X.dtype.type(porder)).sum(axis=axes, dtype=X.dtype)
        out = ctx.xp.power(total, X.dtype.type(1 / porder))
    return out.reshape(_p_norm_shape(ctx, X.shape, axes, keepdim))


@p_norm.infer
def _(ctx: InferContext, X: TensorMeta, *, axis: int, keepdim: bool) -> TensorMeta:
    return TensorMeta(_p_norm_shape(ctx, X.shape, _p_norm_axes(ctx, X.shape, axis), keepdim), X.dtype)


@p_norm.grad(inputs="X Out Out@GRAD", outputs="X@GRAD")
def p_norm_grad(ctx: OpContext, X: Any, Out: Any, Out_grad: Any, *, porder: float, axis: int, epsilon: float) -> Any:
    """dX = dOut * sign(X) * |X|^(porder - 1) / (Out^(porder - 1) + epsilon); dOut * sign(X) at the extremes for ±inf."""
    axes = _p_norm_axes(ctx, X.shape, axis)
    out, grad = spread(ctx, Out, X.shape, axes), spread(ctx, Out_grad, X.shape, axes)
    signed = grad * ctx.xp.sign(X)
    if porder == 0:
        return ctx.xp.zeros_like(X)
    if math.isinf(porder):
        return signed * (abs(X) == out)
    below = ctx.xp.power(out, X.dtype.type(porder - 1)) + X.dtype.type(epsilon)
    slope = ctx.xp.power(abs(X), X.dtype.type(porder - 1)) / below
    return ctx.xp.where(X == 0, X.dtype.type(0), signed * slope)


def _p_norm_axes(ctx: OpContext | InferContext, shape: tuple[int, ...], axis: int) -> tuple[int, ...]:
    if later_attr(ctx, "asvector", False):
        return tuple(range(len(shape)))
    return reduced_axes(ctx, shape, axis, False)


def _p_norm_shape(
    ctx: OpContext | InferContext, shape: tuple[int, ...], axes: tuple[int, ...], keepdim: bool
) -> tuple[int, ...]:
    """Unlike other reductions p_norm leaves no dimension of a vector, in every version."""
    if keepdim:
        return tuple(1 if i in axes else size for i, size in enumerate(shape))
    return tuple(size for i, size in enumerate(shape) if i not in axes)


@op("frobenius_norm", inputs="X", outputs="Out", attrs=ATTRS)
def frobenius_norm(ctx: OpContext, X: Any, *, dim: list[int], keep_dim: bool, reduce_all: bool) -> Any:
    """sqrt(sum(X²)) over the dimensions `dim`, or over all."""
    axes = reduced_axes(ctx, X.shape, dim, reduce_all)
    keep_lod(ctx, axes)
    out = ctx.xp.sqrt((X * X).sum(axis=axes, dtype=X.dtype))
    return out.reshape(reduced_shape(ctx, X.shape, axes, keep_dim))


frobenius_norm.infer(reduced_meta)


@frobenius_norm.grad(inputs="X Out Out@GRAD", outputs="X@GRAD", lod="X")
def frobenius_norm_grad(ctx: OpContext, X: Any, Out: Any, Out_grad: Any, *, dim: list[int], reduce_all: bool) -> Any:
    """dX = dOut * X / Out, 0 where the norm is 0."""
    axes = reduced_axes(ctx, X.shape, dim, reduce_all)
    out = spread(ctx, Out, X.shape, axes)
    return spread(ctx, Out_grad, X.shape, axes) * X / ctx.xp.where(out == 0, X.dtype.type(1), out)


@op("logsumexp", inputs="X", outputs="Out", attrs={"axis": ints(0), "keepdim": False, "reduce_all": False})
def logsumexp(ctx: OpContext, X: Any, *, axis: list[int], keepdim: bool, reduce_all: bool) -> Any:
    """log(sum(exp(X))) over the dimensions `axis`, or over all (Paddle 2.x)."""
    axes = reduced_axes(ctx, X.shape, axis, reduce_all)
    require_elements(ctx, X, axes, "logarithm of the sum")
    top = X.max(axis=axes, keepdims=True)
    top = ctx.xp.where(ctx.xp.isfinite(top), top, X.dtype.type(0))
    out = ctx.xp.log(ctx.xp.exp(X - top).sum(axis=axes, keepdims=True, dtype=X.dtype)) + top
    return out.reshape(reduced_shape(ctx, X.shape, axes, keepdim))


@logsumexp.infer
def _(ctx: InferContext, X: TensorMeta, *, axis: list[int], keepdim: bool, reduce_all: bool) -> TensorMeta:
    return TensorMeta(reduced_shape(ctx, X.shape, reduced_axes(ctx, X.shape, axis, reduce_all), keepdim), X.dtype)


@logsumexp.grad(inputs="X Out Out@GRAD", outputs="X@GRAD")
def logsumexp_grad(ctx: OpContext, X: Any, Out: Any, Out_grad: Any, *, axis: list[int], reduce_all: bool) -> Any:
    """dX = dOut * exp(X - Out)."""
    axes = reduced_axes(ctx, X.shape, axis, reduce_all)
    return spread(ctx, Out_grad, X.shape, axes) * ctx.xp.exp(X - spread(ctx, Out, X.shape, axes))


RENORM: dict[str, Any] = {"p": required(FLOAT), "axis": required(INT), "max_norm": required(FLOAT)}


@op("renorm", inputs="X", outputs="Out", attrs=RENORM)
def renorm(ctx: OpContext, X: Any, *, p: float, axis: int, max_norm: float) -> Any:
    """X with every part along `axis` whose p-norm is above max_norm scaled down to it (Paddle 2.6.2 renorm_impl.h)."""
    _check_axis(ctx, X.ndim, axis)
    return X * _shrinking(ctx, X, p, axis, max_norm)[0]


@renorm.infer
def _(ctx: InferContext, X: TensorMeta, *, axis: int) -> TensorMeta:
    _check_axis(ctx, X.rank, axis)
    return X


@renorm.grad(inputs="X Out@GRAD", outputs="X@GRAD")
def renorm_grad(ctx: OpContext, X: Any, Out_grad: Any, *, p: float, axis: int, max_norm: float) -> Any:
    """dX = dOut * scale + X's part of the scale's own gradient, where it is below 1."""
    xp = ctx.xp
    scale, size = _shrinking(ctx, X, p, axis, max_norm)
    others = tuple(i for i in range(X.ndim) if i != axis % X.ndim)
    along = (Out_grad * X).sum(axis=others, keepdims=True, dtype=X.dtype)
    slope = xp.sign(X) * xp.abs(X) ** X.dtype.type(p - 1) * size ** X.dtype.type(1 - p)
    below = xp.where(scale < 1, -max_norm / (size + _TINY) ** 2, 0).astype(X.dtype)
    return Out_grad * scale + along * below * slope


_TINY = 1e-7


def _shrinking(ctx: OpContext, x: Any, p: float, axis: int, max_norm: float) -> tuple[Any, Any]:
    """(what each part along `axis` is multiplied with, its p-norm), spread over x."""
    xp = ctx.xp
    others = tuple(i for i in range(x.ndim) if i != axis % x.ndim)
    size = (xp.abs(x) ** x.dtype.type(p)).sum(axis=others, keepdims=True, dtype=x.dtype) ** x.dtype.type(1 / p)
    return xp.where(size > max_norm, max_norm / (size + _TINY), 1).astype(x.dtype), size
