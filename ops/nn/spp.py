"""spp: spatial pyramid pooling, pooling at several grid sizes side by side."""

from __future__ import annotations

from typing import Any

from fluidtool.ops.context import InferContext, OpContext
from fluidtool.ops.nn.pooling import (
    AxisBins,
    first_maximum_grad,
    max_bins,
    outer_product,
    single_share,
    spread_bins,
    sum_bins,
)
from fluidtool.ops.nn.precision import require_floating, require_rank, require_shape
from fluidtool.ops.nn.windows import UNKNOWN
from fluidtool.ops.registry import op
from fluidtool.ops.schema import INT, STRING, TensorMeta, required


def _levels(sizes: tuple[int, ...], pyramid_height: int) -> list[list[AxisBins]]:
    """The bins of every level: level p has 2^p of them on each axis, of equal size, centered over the input."""
    levels = []
    for count in (2**level for level in range(pyramid_height)):
        kernels = [-(-size // count) for size in sizes]
        levels.append(
            [
                AxisBins(size, count, kernel, kernel, (kernel * count - size + 1) // 2)
                for size, kernel in zip(sizes, kernels, strict=True)
            ]
        )
    return levels


def _width(channels: int, pyramid_height: int) -> int:
    return channels * ((1 << 2 * pyramid_height) - 1) // 3


def _check(ctx: OpContext, X: Any, pyramid_height: int, pooling_type: str) -> None:
    require_floating(ctx, "X", X)
    require_rank(ctx, "X", X, 4)
    if X.shape[2] * X.shape[3] <= 0:
        raise ctx.error(f"input X {X.shape} has no cells to pool")
    if pyramid_height <= 0:
        raise ctx.error(f"attribute pyramid_height must be positive, found {pyramid_height}")
    if pooling_type not in ("max", "avg"):
        raise ctx.error(f"attribute pooling_type must be 'max' or 'avg', found {pooling_type!r}")


def _lengths(ctx: OpContext, bins: list[AxisBins], dtype: Any) -> Any:
    return outer_product(ctx.xp, [axis.lengths() for axis in bins], dtype)


@op(
    "spp",
    inputs="X",
    outputs="Out",
    attrs={"pyramid_height": required(INT), "pooling_type": required(STRING)},
)
def spp(ctx: OpContext, X: Any, *, pyramid_height: int, pooling_type: str) -> Any:
    """[N, C, H, W] -> [N, C * (1 + 4 + ... + 4^(pyramid_height - 1))], maximum or average (Paddle 1.8.5 spp_op.h)."""
    _check(ctx, X, pyramid_height, pooling_type)
    parts = []
    for bins in _levels(X.shape[2:], pyramid_height):
        if pooling_type == "max":
            pooled = max_bins(ctx.xp, X, bins)
        else:
            pooled = sum_bins(ctx.xp, X, bins) / _lengths(ctx, bins, X.dtype)
        parts.append(pooled.reshape(len(X), -1))
    return ctx.xp.concatenate(parts, axis=1)


@spp.infer
def _(ctx: InferContext, X: TensorMeta, *, pyramid_height: int) -> TensorMeta:
    if X.rank != 4:
        raise ctx.error(f"input X must have 4 dimensions, found shape {X.shape}")
    width = UNKNOWN if X.shape[1] == UNKNOWN else _width(X.shape[1], pyramid_height)
    return X.with_shape([X.shape[0], width]).with_lod_level(0)


@spp.grad(inputs="X Out Out@GRAD", outputs="X@GRAD")
def spp_grad(ctx: OpContext, X: Any, Out: Any, Out_grad: Any, *, pyramid_height: int, pooling_type: str) -> Any:
    """The sum of the gradients of every level's pooling."""
    _check(ctx, X, pyramid_height, pooling_type)
    require_shape(ctx, "Out@GRAD", Out_grad, (len(X), _width(X.shape[1], pyramid_height)), "the shape of Out")
    grad, start = ctx.xp.zeros(X.shape, dtype=X.dtype), 0
    for bins in _levels(X.shape[2:], pyramid_height):
        shape = (*X.shape[:2], *(axis.count for axis in bins))
        part = slice(start, start + shape[1] * shape[2] * shape[3])
        out, out_grad = Out[:, part].reshape(shape), Out_grad[:, part].reshape(shape)
        if pooling_type == "max":
            grad += first_maximum_grad(ctx.xp, X, out, out_grad, bins)
        else:
            grad += spread_bins(ctx.xp, out_grad * single_share(_lengths(ctx, bins, X.dtype)), bins)
        start = part.stop
    return grad
