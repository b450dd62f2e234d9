"""unpool and unpool3d: put pooled values back to where their maxima were."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from fluidtool.ops.context import InferContext, OpContext
from fluidtool.ops.math.versions import later_attr
from fluidtool.ops.nn.precision import require_rank, require_shape
from fluidtool.ops.nn.windows import UNKNOWN
from fluidtool.ops.registry import op
from fluidtool.ops.schema import INTS, STRING, TensorMeta, ints, required


def _sizes(ctx: OpContext | InferContext, sizes: Sequence[int]) -> tuple[int, ...]:
    """The spatial sizes of Out: output_size where a program of Paddle 2.x gives one, else what pooling undid."""
    asked = later_attr(ctx, "output_size", [])
    if asked and min(asked) > 0:
        return tuple(asked)
    kernel, strides, paddings = ctx.attr("ksize"), ctx.attr("strides"), ctx.attr("paddings")
    if not len(kernel) == len(strides) == len(paddings) == len(sizes):
        raise ctx.error(
            f"attributes ksize, strides and paddings must have {len(sizes)} numbers, found {kernel}, {strides}, {paddings}"
        )
    return tuple(
        (size - 1) * stride - 2 * padding + k if size > 0 else UNKNOWN
        for size, k, stride, padding in zip(sizes, kernel, strides, paddings, strict=True)
    )


def _positions(ctx: OpContext, Indices: Any, cells: int) -> Any:
    """Flat positions in Out of every value of X."""
    ctx.require_within(
        Indices,
        cells,
        lambda found: (
            f"input Indices must be positions from 0 to {cells - 1}, the cells of a plane of Out; found {found}"
        ),
    )
    planes = ctx.xp.arange(prod(Indices.shape[:2])).reshape(*Indices.shape[:2], *[1] * (Indices.ndim - 2))
    return planes * cells + Indices


def _unpool(ctx: OpContext, X: Any, Indices: Any, rank: int) -> Any:
    require_rank(ctx, "X", X, rank + 2)
    require_shape(ctx, "Indices", Indices, X.shape, "the shape of X")
    sizes = _sizes(ctx, X.shape[2:])
    if min(sizes) <= 0:
        raise ctx.error(f"the output would have sizes {sizes}; check ksize, strides and paddings")
    out = ctx.xp.zeros(prod(X.shape[:2]) * prod(sizes), dtype=X.dtype)
    ctx.replace_rows(out, _positions(ctx, Indices, prod(sizes)).reshape(-1), X.reshape(-1))
    return out.reshape(*X.shape[:2], *sizes)


def _unpool_grad(ctx: OpContext, X: Any, Indices: Any, out_grad: Any) -> Any:
    positions = _positions(ctx, Indices, prod(out_grad.shape[2:]))
    return out_grad.reshape(-1)[positions].reshape(X.shape)


def _infer(ctx: InferContext, X: TensorMeta, rank: int) -> TensorMeta:
    if X.rank != rank + 2:
        raise ctx.error(f"input X must have {rank + 2} dimensions, found shape {X.shape}")
    return X.with_shape([*X.shape[:2], *_sizes(ctx, X.shape[2:])]).with_lod_level(0)


@op(
    "unpool",
    inputs="X Indices",
    outputs="Out",
    attrs={"ksize": required(INTS), "strides": ints(1, 1), "paddings": ints(0, 0), "unpooling_type": required(STRING)},
)
def unpool(ctx: OpContext, X: Any, Indices: Any, *, unpooling_type: str) -> Any:
    """Out = zeros with X at Indices (h * W + w in a plane of Out), NCHW (Paddle 1.8.5 unpool_op.h)."""
    if unpooling_type != "max":
        raise ctx.error(f"attribute unpooling_type must be 'max', found {unpooling_type!r}")
    return _unpool(ctx, X, Indices, 2)


@unpool.infer
def _(ctx: InferContext, X: TensorMeta, Indices: TensorMeta) -> TensorMeta:
    return _infer(ctx, X, 2)


@unpool.grad(inputs="X Indices Out Out@GRAD", outputs="X@GRAD")
def unpool_grad(ctx: OpContext, X: Any, Indices: Any, Out: Any, Out_grad: Any) -> Any:
    """dX = dOut at Indices."""
    return _unpool_grad(ctx, X, Indices, Out_grad)


@op(
    "unpool3d",
    inputs="X Indices",
    outputs="Out",
    attrs={
        "ksize": required(INTS),
        "strides": ints(1, 1, 1),
        "paddings": ints(0, 0, 0),
        "output_size": ints(0, 0, 0),
        "data_format": "NCDHW",
    },
)
def unpool3d(ctx: OpContext, X: Any, Indices: Any) -> Any:
    """Out = zeros with X at Indices ((d * H + h) * W + w in a volume of Out), NCDHW (Paddle 2.6 unpool3d)."""
    return _unpool(ctx, X, Indices, 3)


@unpool3d.infer
def _(ctx: InferContext, X: TensorMeta, Indices: TensorMeta) -> TensorMeta:
    return _infer(ctx, X, 3)


@unpool3d.grad(inputs="X Indices Out Out@GRAD", outputs="X@GRAD")
def unpool3d_grad(ctx: OpContext, X: Any, Indices: Any, Out: Any, Out_grad: Any) -> Any:
    """dX = dOut at Indices."""
    return _unpool_grad(ctx, X, Indices, Out_grad)
