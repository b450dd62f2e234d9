"""crop and crop_tensor: a box cut out of a tensor."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fluidtool.ops.context import InferContext, OpContext
from fluidtool.ops.registry import op
from fluidtool.ops.schema import TensorMeta, ints
from fluidtool.ops.tensor.arguments import inferred_integers, integers, lod_of_same_rows, meta_of_same_rows
from fluidtool.shapes import shape_text


def _box(ctx: OpContext, whole: Sequence[int], offsets: Sequence[int], shape: Sequence[int]) -> tuple[slice, ...]:
    """The slices of a box; fails unless it lies within `whole`."""
    rank = len(whole)
    if len(offsets) != rank:
        raise ctx.error(f"offsets must hold one number per dimension of X, {rank}, found {list(offsets)}")
    if len(shape) != rank:
        raise ctx.error(f"shape must hold one number per dimension of X, {rank}, found {shape_text(shape)}")
    for axis, (offset, size, limit) in enumerate(zip(offsets, shape, whole, strict=True)):
        if not (offset >= 0 and size >= 0 and offset + size <= limit):
            raise ctx.error(
                f"offsets {list(offsets)} and shape {shape_text(shape)} exceed X of shape {shape_text(whole)} at axis {axis}"
            )
    return tuple(slice(offset, offset + size) for offset, size in zip(offsets, shape, strict=True))


@op("crop", inputs="X Y? Offsets?", outputs="Out", attrs={"offsets": ints(), "shape": ints()})
def crop(ctx: OpContext, X: Any, Y: Any, Offsets: Any, *, offsets: list[int], shape: list[int]) -> Any:
    """The box of `shape`, or of Y's shape, at `offsets` or Offsets in X; -1 is the size of X (Paddle 1.8.5 crop_op.h)."""
    asked = Y.shape if Y is not None else [X.shape[i] if s == -1 and i < X.ndim else s for i, s in enumerate(shape)]
    return X[_box(ctx, X.shape, integers(ctx, Offsets, None, offsets), asked)]


@crop.infer
def _(
    ctx: InferContext, X: TensorMeta, Y: TensorMeta | None, Offsets: TensorMeta | None, *, shape: list[int]
) -> TensorMeta:
    sizes = tuple(shape) if Y is None else Y.shape
    if len(sizes) != X.rank:
        raise ctx.error(f"shape must hold one number per dimension of X, {X.rank}, found {shape_text(sizes)}")
    return X.with_shape(sizes).with_lod_level(0)


@crop.grad(inputs="X Offsets? Out@GRAD", outputs="X@GRAD")
def crop_grad(ctx: OpContext, X: Any, Offsets: Any, Out_grad: Any, *, offsets: list[int]) -> Any:
    """dOut at its place within zeros."""
    out = ctx.xp.zeros(X.shape, Out_grad.dtype)
    out[_box(ctx, X.shape, integers(ctx, Offsets, None, offsets), Out_grad.shape)] = Out_grad
    return out


def _rest(whole: Sequence[int], offsets: Sequence[int], shape: Sequence[int]) -> list[int]:
    """`shape` with -1 and 0 standing for whatever is left behind the offset."""
    return [
        limit - offset if size in (-1, 0) and limit >= 0 else size
        for limit, offset, size in zip(whole, offsets, shape, strict=False)
    ]


@op(
    "crop_tensor",
    inputs="X Shape? Offsets? ShapeTensor*? OffsetsTensor*?",
    outputs="Out",
    attrs={"offsets": ints(), "shape": ints()},
)
def crop_tensor(
    ctx: OpContext,
    X: Any,
    Shape: Any,
    Offsets: Any,
    ShapeTensor: list[Any],
    OffsetsTensor: list[Any],
    *,
    offsets: list[int],
    shape: list[int],
) -> Any:
    """The box at `offsets` in X; a size -1 or 0 is whatever is left (Paddle 1.8.5 crop_tensor_op.h)."""
    sizes = integers(ctx, None if ShapeTensor else Shape, ShapeTensor, shape)
    begin = integers(ctx, None if OffsetsTensor else Offsets, OffsetsTensor, offsets)
    if not len(begin) == len(sizes) == X.ndim:
        raise ctx.error(
            f"offsets {begin} and shape {shape_text(sizes)} must hold one number per dimension of X, {X.ndim}"
        )
    out = X[_box(ctx, X.shape, begin, _rest(X.shape, begin, sizes))]
    lod_of_same_rows(ctx, X, out)
    return out


@crop_tensor.infer
def _(
    ctx: InferContext,
    X: TensorMeta,
    Shape: TensorMeta | None,
    Offsets: TensorMeta | None,
    ShapeTensor: list[TensorMeta],
    OffsetsTensor: list[TensorMeta],
    *,
    offsets: list[int],
    shape: list[int],
) -> TensorMeta:
    sizes = inferred_integers(Shape, ShapeTensor, shape)
    if sizes is None:
        sizes = [-1] * X.rank
    if len(sizes) != X.rank:
        raise ctx.error(f"shape must hold one number per dimension of X, {X.rank}, found {shape_text(sizes)}")
    known = Shape is None and not ShapeTensor and Offsets is None and not OffsetsTensor and len(offsets) == X.rank
    return meta_of_same_rows(X, _rest(X.shape, offsets, sizes) if known else [-1 if s == 0 else s for s in sizes])


@crop_tensor.grad(inputs="X Offsets? OffsetsTensor*? Out@GRAD", outputs="X@GRAD", lod="X")
def crop_tensor_grad(
    ctx: OpContext, X: Any, Offsets: Any, OffsetsTensor: list[Any], Out_grad: Any, *, offsets: list[int]
) -> Any:
    """dOut at its place within zeros."""
    begin = integers(ctx, None if OffsetsTensor else Offsets, OffsetsTensor, offsets)
    out = ctx.xp.zeros(X.shape, Out_grad.dtype)
    out[_box(ctx, X.shape, begin, Out_grad.shape)] = Out_grad
    return out
