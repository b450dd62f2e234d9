"""Sums, means, products, extremes and truth over dimensions of a tensor."""

from __future__ import annotations

from math import prod
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
from fluidtool.ops.math.versions import saved_since
from fluidtool.ops.math.wiring import wired
from fluidtool.ops.registry import op
from fluidtool.ops.schema import TensorMeta
from fluidtool.ops.traits import Traits
from fluidtool.proto.enums import VarType

FROM_X: dict[str, Any] = {"inputs": "X Out@GRAD", "outputs": "X@GRAD", "lod": "X"}
FROM_BOTH: dict[str, Any] = {"inputs": "X Out Out@GRAD", "outputs": "X@GRAD", "lod": "X"}


def _converted(ctx: OpContext, x: Any, dtype: int) -> Any:
    """x in the data type that an attribute asks for; -1 leaves it as it is."""
    return x.astype(ctx.dtype(dtype), copy=False) if dtype >= 0 else x


def _total(X: Any, axes: tuple[int, ...]) -> Any:
    """The sum in the data type of X; two-byte floats are added up in float32."""
    if X.dtype.itemsize == 2 and X.dtype.kind not in "iu":
        return X.astype("float32").sum(axis=axes, keepdims=True).astype(X.dtype)
    return X.sum(axis=axes, dtype=X.dtype, keepdims=True)


@op("reduce_sum", inputs="X", outputs="Out", attrs=ATTRS)
def reduce_sum(ctx: OpContext, X: Any, *, dim: list[int], keep_dim: bool, reduce_all: bool, out_dtype: int) -> Any:
    """The sum over the dimensions `dim`, or over all (reduce_op.h).

    Out is of X's data type, or `out_dtype`; from Paddle 2.3 on int64 for int32 and bool.
    """
    axes = reduced_axes(ctx, X.shape, dim, reduce_all)
    keep_lod(ctx, axes)
    x = _converted(ctx, X, out_dtype)
    if out_dtype < 0 and X.dtype in ("int32", "bool") and saved_since(ctx, 2, 3):
        x = X.astype("int64")
    return _total(x, axes).reshape(reduced_shape(ctx, X.shape, axes, keep_dim))


@reduce_sum.grad(**FROM_X, traits=Traits(shapes=("X",)))
def reduce_sum_grad(ctx: OpContext, X: Any, Out_grad: Any, *, dim: list[int], reduce_all: bool, in_dtype: int) -> Any:
    """dX = dOut, repeated over the reduced dimensions, in X's data type or `in_dtype`."""
    axes = reduced_axes(ctx, X.shape, dim, reduce_all)
    grad = _converted(ctx, spread(ctx, Out_grad, X.shape, axes).astype(X.dtype, copy=False), in_dtype)
    return ctx.xp.broadcast_to(grad, X.shape).copy()


reduce_sum_grad.grad_maker(wired("reduce_sum", "X=X@GRAD@GRAD", "Out=Out@GRAD@GRAD"))


@op("reduce_mean", inputs="X", outputs="Out", attrs=ATTRS)
def reduce_mean(ctx: OpContext, X: Any, *, dim: list[int], keep_dim: bool, reduce_all: bool, out_dtype: int) -> Any:
    """The mean over the dimensions `dim`, or over all; integers are cut towards zero."""
    axes = reduced_axes(ctx, X.shape, dim, reduce_all)
    keep_lod(ctx, axes)
    require_elements(ctx, X, axes, "mean")
    x = _converted(ctx, X, out_dtype)
    count = prod(X.shape[axis] for axis in axes)
    if x.dtype.kind in "iu":
        mean = ctx.xp.trunc(x.sum(axis=axes) / count).astype(x.dtype)
    elif x.dtype.itemsize == 2:
        mean = (x.astype("float32").sum(axis=axes) / count).astype(x.dtype)
    else:
        mean = x.mean(axis=axes)
    return mean.reshape(reduced_shape(ctx, X.shape, axes, keep_dim))


@reduce_mean.grad(**FROM_X, traits=Traits(shapes=("X",)))
def reduce_mean_grad(ctx: OpContext, X: Any, Out_grad: Any, *, dim: list[int], reduce_all: bool, in_dtype: int) -> Any:
    """dX = dOut / count, repeated over the reduced dimensions, in X's data type or `in_dtype`."""
    axes = reduced_axes(ctx, X.shape, dim, reduce_all)
    count = X.dtype.type(prod(X.shape[axis] for axis in axes) or 1)
    grad = spread(ctx, Out_grad, X.shape, axes).astype(X.dtype, copy=False) / count
    return ctx.xp.broadcast_to(_converted(ctx, grad, in_dtype), X.shape).copy()


reduce_mean_grad.grad_maker(wired("reduce_mean", "X=X@GRAD@GRAD", "Out=Out@GRAD@GRAD"))


@op("reduce_max", inputs="X", outputs="Out", attrs=ATTRS)
def reduce_max(ctx: OpContext, X: Any, *, dim: list[int], keep_dim: bool, reduce_all: bool, out_dtype: int) -> Any:
    """The greatest element over the dimensions `dim`, or over all."""
    axes = reduced_axes(ctx, X.shape, dim, reduce_all)
    keep_lod(ctx, axes)
    require_elements(ctx, X, axes, "maximum")
    return _converted(ctx, X, out_dtype).max(axis=axes).reshape(reduced_shape(ctx, X.shape, axes, keep_dim))


@op("reduce_min", inputs="X", outputs="Out", attrs=ATTRS)
def reduce_min(ctx: OpContext, X: Any, *, dim: list[int], keep_dim: bool, reduce_all: bool, out_dtype: int) -> Any:
    """The smallest element over the dimensions `dim`, or over all."""
    axes = reduced_axes(ctx, X.shape, dim, reduce_all)
    keep_lod(ctx, axes)
    require_elements(ctx, X, axes, "minimum")
    return _converted(ctx, X, out_dtype).min(axis=axes).reshape(reduced_shape(ctx, X.shape, axes, keep_dim))


@op("reduce_amax", inputs="X", outputs="Out", attrs=ATTRS)
def reduce_amax(ctx: OpContext, X: Any, *, dim: list[int], keep_dim: bool, reduce_all: bool, out_dtype: int) -> Any:
    """The greatest element over the dimensions `dim`; equal ones share the gradient (Paddle 2.x)."""
    axes = reduced_axes(ctx, X.shape, dim, reduce_all)
    require_elements(ctx, X, axes, "maximum")
    return _converted(ctx, X, out_dtype).max(axis=axes).reshape(reduced_shape(ctx, X.shape, axes, keep_dim))


@op("reduce_amin", inputs="X", outputs="Out", attrs=ATTRS)
def reduce_amin(ctx: OpContext, X: Any, *, dim: list[int], keep_dim: bool, reduce_all: bool, out_dtype: int) -> Any:
    """The smallest element over the dimensions `dim`; equal ones share the gradient (Paddle 2.x)."""
    axes = reduced_axes(ctx, X.shape, dim, reduce_all)
    require_elements(ctx, X, axes, "minimum")
    return _converted(ctx, X, out_dtype).min(axis=axes).reshape(reduced_shape(ctx, X.shape, axes, keep_dim))


def _extreme_grad(ctx: OpContext, X: Any, Out: Any, Out_grad: Any, *, dim: list[int], reduce_all: bool) -> Any:
    """dX = dOut wherever X reaches the extreme."""
    axes = reduced_axes(ctx, X.shape, dim, reduce_all)
    return spread(ctx, Out_grad, X.shape, axes) * (spread(ctx, Out, X.shape, axes) == X)


def _shared_extreme_grad(ctx: OpContext, X: Any, Out: Any, Out_grad: Any, *, dim: list[int], reduce_all: bool) -> Any:
    """dX = dOut wherever X reaches the extreme, divided by how often it does."""
    axes = reduced_axes(ctx, X.shape, dim, reduce_all)
    reached = (spread(ctx, Out, X.shape, axes) == X).astype(X.dtype)
    return spread(ctx, Out_grad, X.shape, axes) * reached / reached.sum(axis=axes, keepdims=True, dtype=X.dtype)


for _info in (reduce_max, reduce_min):
    _info.grad(**FROM_BOTH)(_extreme_grad)
for _info in (reduce_amax, reduce_amin):
    _info.grad(**FROM_BOTH)(_shared_extreme_grad)


@op("reduce_prod", inputs="X", outputs="Out", attrs=ATTRS)
def reduce_prod(ctx: OpContext, X: Any, *, dim: list[int], keep_dim: bool, reduce_all: bool, out_dtype: int) -> Any:
    """The product over the dimensions `dim`, or over all."""
    axes = reduced_axes(ctx, X.shape, dim, reduce_all)
    keep_lod(ctx, axes)
    x = _converted(ctx, X, out_dtype)
    return x.prod(axis=axes, dtype=x.dtype).reshape(reduced_shape(ctx, X.shape, axes, keep_dim))


@reduce_prod.grad(**FROM_BOTH)
def reduce_prod_grad(ctx: OpContext, X: Any, Out: Any, Out_grad: Any, *, dim: list[int], reduce_all: bool) -> Any:
    """dX = dOut * the product of the other elements, also where one is zero (reduce_prod_op.h divides by it)."""
    axes = reduced_axes(ctx, X.shape, dim, reduce_all)
    is_zero = X == 0
    zeros = is_zero.sum(axis=axes, keepdims=True)
    filled = ctx.xp.where(is_zero, X.dtype.type(1), X)
    product = filled.prod(axis=axes, keepdims=True, dtype=X.dtype)
    others = ctx.xp.where(is_zero, product * (zeros == 1), product / filled * (zeros == 0))
    return spread(ctx, Out_grad, X.shape, axes) * others


@op("reduce_all", inputs="X", outputs="Out", attrs=ATTRS)
def reduce_all(ctx: OpContext, X: Any, *, dim: list[int], keep_dim: bool, reduce_all: bool) -> Any:
    """Whether all are true over the dimensions `dim`, or over all, as bool."""
    axes = reduced_axes(ctx, X.shape, dim, reduce_all)
    keep_lod(ctx, axes)
    return X.astype(bool, copy=False).all(axis=axes).reshape(reduced_shape(ctx, X.shape, axes, keep_dim))


@op("reduce_any", inputs="X", outputs="Out", attrs=ATTRS)
def reduce_any(ctx: OpContext, X: Any, *, dim: list[int], keep_dim: bool, reduce_all: bool) -> Any:
    """Whether any is true over the dimensions `dim`, or over all, as bool."""
    axes = reduced_axes(ctx, X.shape, dim, reduce_all)
    keep_lod(ctx, axes)
    return X.astype(bool, copy=False).any(axis=axes).reshape(reduced_shape(ctx, X.shape, axes, keep_dim))


def _truth_meta(
    ctx: InferContext, X: TensorMeta, *, dim: list[int], keep_dim: bool, reduce_all: bool, out_dtype: int
) -> TensorMeta:
    meta = reduced_meta(ctx, X, dim=dim, keep_dim=keep_dim, reduce_all=reduce_all, out_dtype=out_dtype)
    return meta.with_dtype(VarType.BOOL)


@reduce_sum.infer
def _(
    ctx: InferContext, X: TensorMeta, *, dim: list[int], keep_dim: bool, reduce_all: bool, out_dtype: int
) -> TensorMeta:
    meta = reduced_meta(ctx, X, dim=dim, keep_dim=keep_dim, reduce_all=reduce_all, out_dtype=out_dtype)
    widens = out_dtype < 0 and X.dtype in (VarType.INT32, VarType.BOOL) and saved_since(ctx, 2, 3)
    return meta.with_dtype(VarType.INT64) if widens else meta


for _info in (reduce_mean, reduce_max, reduce_min, reduce_amax, reduce_amin, reduce_prod):
    _info.infer(reduced_meta)
for _info in (reduce_all, reduce_any):
    _info.infer(_truth_meta)
