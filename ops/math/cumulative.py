"""Running sums, products and logarithms of sums along one dimension, and increment."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from fluidtool.ops.context import InferContext, OpContext
from fluidtool.ops.gradient import GradMakerContext, OpDescription
from fluidtool.ops.math.versions import later_attr
from fluidtool.ops.registry import op
from fluidtool.ops.schema import INT, TensorMeta, or_variable, required
from fluidtool.ops.traits import Traits
from fluidtool.shapes import shape_text

CUMSUM_ATTRS: dict[str, Any] = {"axis": or_variable(-1), "exclusive": False, "reverse": False}


@op("cumsum", inputs="X", outputs="Out", attrs=CUMSUM_ATTRS, lod="X", traits=Traits(gradient_scope=False))
def cumsum(ctx: OpContext, X: Any, *, axis: int, exclusive: bool, reverse: bool) -> Any:
    """The running sum along `axis`; exclusive leaves out the element itself, reverse starts at the end (cum_op.h).

    `flatten` of Paddle 2.x makes X one vector first.
    """
    if later_attr(ctx, "flatten", False):
        X, axis = X.reshape(-1), 0
    return _running_sum(ctx, X, axis, exclusive, reverse)


@cumsum.infer
def _(ctx: InferContext, X: TensorMeta, *, axis: int) -> TensorMeta:
    if later_attr(ctx, "flatten", False):
        size = 1
        for d in X.shape:
            size = -1 if -1 in (size, d) else size * d
        return X.with_shape((size,))
    _check_axis(ctx, X.shape, axis)
    return X


@cumsum.grad_maker
def _(context: GradMakerContext) -> list[OpDescription]:
    """The running sum of the gradient from the other end."""
    given, wanted = {"X": context.output_grad("Out")}, {"Out": context.input_grad("X")}
    reverse = bool(context.attrs().get("reverse", False))
    return [context.describe("cumsum", given, wanted, reverse=not reverse)]


def _check_axis(ctx: OpContext | InferContext, shape: Sequence[int], axis: int) -> None:
    rank = max(len(shape), 1)
    if not -rank <= axis < rank:
        raise ctx.error(f"axis {axis} is out of range for X of shape {shape_text(shape)}")


def _running_sum(ctx: OpContext, x: Any, axis: int, exclusive: bool, reverse: bool) -> Any:
    _check_axis(ctx, x.shape, axis)
    values = x.reshape(x.shape or (1,))
    values = ctx.xp.flip(values, axis) if reverse else values
    out = values.cumsum(axis=axis, dtype=x.dtype)
    if exclusive:
        out = ctx.xp.concatenate([ctx.xp.zeros_like(_part(out, axis, 0, 1)), _part(out, axis, 0, -1)], axis=axis)
    return (ctx.xp.flip(out, axis) if reverse else out).reshape(x.shape)


def _part(x: Any, axis: int, start: int, stop: int) -> Any:
    return x[(slice(None),) * (axis % x.ndim) + (slice(start, stop),)]


@op("cumsum_grad", inputs="X Out@GRAD", outputs="X@GRAD", attrs=CUMSUM_ATTRS)
def cumsum_grad(ctx: OpContext, X: Any, Out_grad: Any, *, axis: int, exclusive: bool, reverse: bool) -> Any:
    """The running sum of dOut from the other end (Paddle 2.x)."""
    if later_attr(ctx, "flatten", False):
        return _running_sum(ctx, Out_grad.reshape(-1), 0, exclusive, not reverse).reshape(X.shape)
    return _running_sum(ctx, Out_grad, axis, exclusive, not reverse)


LOGCUMSUMEXP: dict[str, Any] = {"axis": -1, "flatten": False, "exclusive": False, "reverse": False}


@op("logcumsumexp", inputs="X", outputs="Out", attrs=LOGCUMSUMEXP)
def logcumsumexp(ctx: OpContext, X: Any, *, axis: int, flatten: bool, exclusive: bool, reverse: bool) -> Any:
    """The logarithm of the running sum of exp(X) along `axis`, without overflow (Paddle 2.6.2 cum_kernel.cc).

    exclusive leaves out the element itself: the first is then the lowest finite number.
    """
    x, axis = (X.reshape(-1), 0) if flatten else (X, axis)
    if x.ndim and not -x.ndim <= axis < x.ndim:
        raise ctx.error(f"axis {axis} is out of range for X of shape {shape_text(x.shape)}")
    if X.dtype.kind != "f":
        raise ctx.error(f"X must be floating point, found {X.dtype}; insert a cast")
    out = _running_logarithm(ctx.np, ctx.host(x), axis, reverse)
    if exclusive:
        out = _without_own(ctx.np, out, axis, reverse, ctx.np.finfo(out.dtype).min)
    return ctx.array(out)


def _running_logarithm(np: Any, x: Any, axis: int, reverse: bool) -> Any:
    values = x.reshape(x.shape or (1,))
    values = np.flip(values, axis) if reverse else values
    out = np.logaddexp.accumulate(values, axis=axis, dtype=x.dtype)
    return np.ascontiguousarray(np.flip(out, axis) if reverse else out).reshape(x.shape)


def _without_own(np: Any, sums: Any, axis: int, reverse: bool, first: Any) -> Any:
    """Running results moved on by one place; `first` takes the place that has nothing before it."""
    if not sums.ndim:
        return np.full_like(sums, first)
    ends = (1, None) if reverse else (None, -1)
    rest = sums[(slice(None),) * (axis % sums.ndim) + (slice(*ends),)]
    edge = np.full_like(_part(sums, axis, 0, 1), first)
    return np.concatenate([rest, edge] if reverse else [edge, rest], axis=axis)


@logcumsumexp.infer
def _(ctx: InferContext, X: TensorMeta, *, flatten: bool) -> TensorMeta:
    if not flatten:
        return X.with_lod_level(0)
    return X.with_shape((-1 if -1 in X.shape else prod(X.shape),)).with_lod_level(0)


@logcumsumexp.grad(inputs="X Out Out@GRAD", outputs="X@GRAD")
def logcumsumexp_grad(
    ctx: OpContext, X: Any, Out: Any, Out_grad: Any, *, axis: int, flatten: bool, exclusive: bool, reverse: bool
) -> Any:
    """dX = sum over what follows of dOut * exp(X - Out), positive and negative dOut each by logarithms."""
    np = ctx.np
    host, axis = (ctx.host(X).reshape(-1), 0) if flatten else (ctx.host(X), axis)
    grad, out = ctx.host(Out_grad).reshape(host.shape), ctx.host(Out).reshape(host.shape)
    total = np.zeros_like(host)
    for sign in (1, -1):
        with np.errstate(divide="ignore", over="ignore"):
            logarithms = np.log(np.maximum(sign * grad, 0))
            sums = _running_logarithm(np, logarithms - out, axis, not reverse)
        sums = _without_own(np, sums, axis, not reverse, -np.inf) if exclusive else sums
        total += sign * np.exp(host + sums)
    return ctx.array(total.reshape(X.shape))


@op("cumprod", inputs="X", outputs="Out", attrs={"dim": required(INT), "exclusive": False, "reverse": False})
def cumprod(ctx: OpContext, X: Any, *, dim: int, exclusive: bool, reverse: bool) -> Any:
    """The running product along `dim` (Paddle 2.x); exclusive and reverse as in cumsum."""
    if not -X.ndim <= dim < max(X.ndim, 1):
        raise ctx.error(f"dim {dim} is out of range for X of shape {shape_text(X.shape)}")
    if not X.ndim:
        return ctx.xp.ones_like(X) if exclusive else X
    values = ctx.xp.flip(X, dim) if reverse else X
    out = values.cumprod(axis=dim, dtype=X.dtype)
    if exclusive:
        out = ctx.xp.concatenate([ctx.xp.ones_like(_part(out, dim, 0, 1)), _part(out, dim, 0, -1)], axis=dim)
    return ctx.xp.flip(out, dim) if reverse else out


@cumprod.infer
def _(ctx: InferContext, X: TensorMeta) -> TensorMeta:
    return X


@cumprod.grad(inputs="X Out Out@GRAD", outputs="X@GRAD")
def cumprod_grad(ctx: OpContext, X: Any, Out: Any, Out_grad: Any, *, dim: int, exclusive: bool, reverse: bool) -> Any:
    """dX[i] = the sum over k of dOut[k] * the product of the factors of Out[k] other than X[i].

    Each position is computed from the products before and after it, so that zeros in X are no problem.
    """
    if not X.ndim:
        return ctx.xp.zeros_like(X) if exclusive else Out_grad
    x, grad = ctx.xp.moveaxis(X, dim, 0), ctx.xp.moveaxis(Out_grad, dim, 0)
    if reverse:
        x, grad = ctx.xp.flip(x, 0), ctx.xp.flip(grad, 0)
    if exclusive:
        grad = ctx.xp.concatenate([grad[1:], ctx.xp.zeros_like(grad[:1])])
    before = ctx.xp.concatenate([ctx.xp.ones_like(x[:1]), x[:-1].cumprod(axis=0, dtype=x.dtype)])
    after, parts = ctx.xp.zeros_like(x[0]), []
    for i in range(len(x) - 1, -1, -1):
        after = grad[i] + (after * x[i + 1] if i + 1 < len(x) else 0)
        parts.append(before[i] * after)
    stacked = ctx.xp.stack(parts if reverse else parts[::-1])
    return ctx.xp.moveaxis(stacked, 0, dim)


@op("increment", inputs="X", outputs="Out", attrs={"step": 1.0}, lod="X", traits=Traits(gradient_scope=False))
def increment(ctx: OpContext, X: Any, *, step: float) -> Any:
    """The one number in X plus `step`, taken in the data type of X (increment_op.h)."""
    if X.size != 1:
        raise ctx.error(f"X must hold one number, found shape {shape_text(X.shape)}")
    return X + X.dtype.type(step)


@increment.infer
def _(ctx: InferContext, X: TensorMeta) -> TensorMeta:
    if any(size > 1 for size in X.shape):
        raise ctx.error(f"X must hold one number, found shape {shape_text(X.shape)}")
    return X


@increment.grad_maker
def _(context: GradMakerContext) -> list[OpDescription]:
    """Counts back: X becomes Out less `step`."""
    step = float(context.attrs().get("step", 1.0))
    return [context.describe("increment", {"X": context.output("Out")}, {"Out": context.input("X")}, step=-step)]
