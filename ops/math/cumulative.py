"""Running sums and products along one dimension, and increment."""

from __future__ import annotations

from typing import Any

from fluidtool.ops.context import InferContext, OpContext
from fluidtool.ops.gradient import GradMakerContext, OpDescription
from fluidtool.ops.math.versions import later_attr
from fluidtool.ops.registry import op
from fluidtool.ops.schema import INT, TensorMeta, or_variable, required
from fluidtool.ops.traits import Traits

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
def _(ctx: InferContext, X: TensorMeta) -> TensorMeta:
    if later_attr(ctx, "flatten", False):
        size = 1
        for d in X.shape:
            size = -1 if -1 in (size, d) else size * d
        return X.with_shape((size,))
    return X


@cumsum.grad_maker
def _(context: GradMakerContext) -> list[OpDescription]:
    """The running sum of the gradient from the other end."""
    given, wanted = {"X": context.output_grad("Out")}, {"Out": context.input_grad("X")}
    reverse = bool(context.attrs().get("reverse", False))
    return [context.describe("cumsum", given, wanted, reverse=not reverse)]


def _running_sum(ctx: OpContext, x: Any, axis: int, exclusive: bool, reverse: bool) -> Any:
    rank = max(x.ndim, 1)
    if not -rank <= axis < rank:
        raise ctx.error(f"axis {axis} is out of range for X of shape {list(x.shape)}")
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


@op("cumprod", inputs="X", outputs="Out", attrs={"dim": required(INT), "exclusive": False, "reverse": False})
def cumprod(ctx: OpContext, X: Any, *, dim: int, exclusive: bool, reverse: bool) -> Any:
    """The running product along `dim` (Paddle 2.x); exclusive and reverse as in cumsum."""
    if not -X.ndim <= dim < max(X.ndim, 1):
        raise ctx.error(f"dim {dim} is out of range for X of shape {list(X.shape)}")
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
        raise ctx.error(f"X must hold one number, found shape {list(X.shape)}")
    return X + X.dtype.type(step)


@increment.infer
def _(ctx: InferContext, X: TensorMeta) -> TensorMeta:
    return X


@increment.grad_maker
def _(context: GradMakerContext) -> list[OpDescription]:
    """Counts back: X becomes Out less `step`."""
    step = float(context.attrs().get("step", 1.0))
    return [context.describe("increment", {"X": context.output("Out")}, {"Out": context.input("X")}, step=-step)]
