"""reshape, reshape2, flatten_contiguous_range and flatten: the same numbers in another shape."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from fluidtool.ops.context import InferContext, OpContext
from fluidtool.ops.math.wiring import wired
from fluidtool.ops.registry import op
from fluidtool.ops.schema import TensorMeta, ints
from fluidtool.ops.tensor.arguments import (
    Context,
    axis_in,
    from_x_shape,
    inferred_integers,
    integers,
    lod_of_same_rows,
    meta_of_same_rows,
    numbers,
    x_shape,
    x_shape_meta,
)
from fluidtool.shapes import shape_text

RESHAPE2 = {"shape": ints(), "use_quantizer": False}


def resolved_shape(ctx: Context, shape: Sequence[int], x: Sequence[int]) -> tuple[int, ...]:
    """`shape` with 0 (the size of x there) and one -1 (whatever is left) filled in (Paddle 1.8.5 reshape_op.cc).

    Sizes of x may be -1 when they are not known yet.
    """
    where = f"shape {shape_text(shape)} for X of shape {shape_text(x)}"
    if sum(size == -1 for size in shape) > 1:
        raise ctx.error(f"only one size of shape can be -1, found {shape_text(shape)}")
    if not all(size >= -1 for size in shape):
        raise ctx.error(f"sizes of shape must be at least -1, found {shape_text(shape)}")
    copied = [i for i, size in enumerate(shape) if size == 0]
    if copied and copied[-1] >= len(x):
        if 0 not in x:
            raise ctx.error(f"{where}: 0 stands for the size of X at index {copied[-1]}, which X does not have")
        copied = [i for i in copied if i < len(x)]
    out = [x[i] if i in copied else size for i, size in enumerate(shape)]
    if any(size < 0 for size in x):
        return _left_unknown(shape, out, x)
    size, known = prod(x), prod(s for s in out if s != -1)
    if -1 in out:
        if not known:
            raise ctx.error(f"{where}: -1 beside a size of 0 could stand for any size")
        if size % known != 0:
            raise ctx.error(f"{where}: {size} elements cannot be divided by {known}")
        out[out.index(-1)] = size // known
    else:
        if known != size:
            raise ctx.error(f"{where}: {known} elements requested, but X has {size}")
    return tuple(out)


def _left_unknown(shape: Sequence[int], out: list[int], x: Sequence[int]) -> tuple[int, ...]:
    """Fill in -1 when the unknown sizes of x all stand in `out` too, at places that 0 copies."""
    kept = [i for i, size in enumerate(shape) if size == 0 and i < len(x)]
    if -1 in shape and all(size >= 0 or i in kept for i, size in enumerate(x)):
        left = prod(size for i, size in enumerate(x) if i not in kept)
        asked = prod(size for size in shape if size > 0)
        if asked and left % asked == 0:
            out[list(shape).index(-1)] = left // asked
    return tuple(out)


def _target(ctx: OpContext, X: Any, Shape: Any, ShapeTensor: list[Any], shape: list[int]) -> tuple[int, ...]:
    asked = integers(ctx, None, ShapeTensor, shape) if ShapeTensor or Shape is None else numbers(ctx, Shape)
    return resolved_shape(ctx, asked, X.shape)


def _infer(
    ctx: InferContext, X: TensorMeta, Shape: TensorMeta | None, ShapeTensor: list[TensorMeta], shape: list[int]
) -> TensorMeta | None:
    asked = inferred_integers(Shape, ShapeTensor, shape)
    if asked is None:
        return None
    if Shape is None and not ShapeTensor:
        return meta_of_same_rows(X, resolved_shape(ctx, asked, X.shape))
    known = [X.shape[i] if size == 0 and i < X.rank else size for i, size in enumerate(asked)]
    return X.with_shape(known) if Shape is not None and not ShapeTensor else meta_of_same_rows(X, known)


@op("reshape", inputs="X Shape? ShapeTensor*?", outputs="Out", attrs={"shape": ints()})
def reshape(ctx: OpContext, X: Any, Shape: Any, ShapeTensor: list[Any], *, shape: list[int]) -> Any:
    """X in the shape of the list ShapeTensor, of the tensor Shape, or of `shape`: 0 copies a size of X, -1 is the rest."""
    out = X.reshape(_target(ctx, X, Shape, ShapeTensor, shape))
    lod_of_same_rows(ctx, X, out)
    return out


@reshape.infer
def _(
    ctx: InferContext, X: TensorMeta, Shape: TensorMeta | None, ShapeTensor: list[TensorMeta], *, shape: list[int]
) -> TensorMeta | None:
    return _infer(ctx, X, Shape, ShapeTensor, shape)


@reshape.grad(
    inputs="X Shape? ShapeTensor*? Out? Out@GRAD", outputs="X@GRAD Shape@GRAD? ShapeTensor@GRAD*?", lod="X->X@GRAD"
)
def reshape_grad(ctx: OpContext, X: Any, Shape: Any, ShapeTensor: list[Any], Out: Any, Out_grad: Any) -> Any:
    """dOut in the shape of X; sizes have no gradient."""
    return Out_grad.reshape(X.shape)


@op("reshape2", inputs="X Shape? ShapeTensor*?", outputs="Out XShape~", attrs=RESHAPE2)
def reshape2(ctx: OpContext, X: Any, Shape: Any, ShapeTensor: list[Any], *, shape: list[int]) -> Any:
    """reshape, keeping the dimensions of X in XShape."""
    out = X.reshape(_target(ctx, X, Shape, ShapeTensor, shape))
    lod_of_same_rows(ctx, X, out)
    return {"Out": out, "XShape": x_shape(ctx, X)}


@reshape2.infer
def _(
    ctx: InferContext, X: TensorMeta, Shape: TensorMeta | None, ShapeTensor: list[TensorMeta], *, shape: list[int]
) -> dict[str, TensorMeta | None]:
    return {"Out": _infer(ctx, X, Shape, ShapeTensor, shape), "XShape": x_shape_meta(X)}


@reshape2.grad(inputs="XShape? Out@GRAD", outputs="X@GRAD", lod="XShape")
def reshape2_grad(ctx: OpContext, XShape: Any, Out_grad: Any) -> Any:
    """dOut in the shape of X."""
    return from_x_shape(Out_grad, XShape)


@op("reshape2_grad_grad", inputs="DOut DDX", outputs="DDOut", attrs=RESHAPE2)
def reshape2_grad_grad(ctx: OpContext, DOut: Any, DDX: Any) -> Any:
    """ddX in the shape of dOut."""
    return DDX.reshape(DOut.shape)


reshape2_grad.grad_maker(wired("reshape2_grad_grad", "DOut=Out@GRAD DDX=X@GRAD@GRAD", "DDOut=Out@GRAD@GRAD"))


@reshape2_grad_grad.infer
def _(ctx: InferContext, DOut: TensorMeta, DDX: TensorMeta) -> TensorMeta:
    return DOut


def _flat(ctx: Context, shape: Sequence[int], axis: int) -> tuple[int, ...]:
    rank = len(shape)
    if not 0 <= axis <= rank:
        raise ctx.error(f"axis must be in [0, {rank}] for X of shape {shape_text(shape)}, found {axis}")
    if not rank:
        return (1,)  # a single number, in Paddle 2.6
    outer, inner = shape[:axis], shape[axis:]
    return _product(outer), _product(inner)


def _product(sizes: Sequence[int]) -> int:
    return -1 if any(size < 0 for size in sizes) else prod(sizes)


@op("flatten", inputs="X", outputs="Out", attrs={"axis": 1})
def flatten(ctx: OpContext, X: Any, *, axis: int) -> Any:
    """X as a matrix: the dimensions before `axis` become its rows (Paddle 1.8.5 flatten_op.cc)."""
    out = X.reshape(_flat(ctx, X.shape, axis))
    lod_of_same_rows(ctx, X, out)
    return out


@flatten.infer
def _(ctx: InferContext, X: TensorMeta, *, axis: int) -> TensorMeta:
    return meta_of_same_rows(X, _flat(ctx, X.shape, axis))


@flatten.grad(inputs="X Out@GRAD", outputs="X@GRAD", lod="X")
def flatten_grad(ctx: OpContext, X: Any, Out_grad: Any) -> Any:
    """dOut in the shape of X."""
    return Out_grad.reshape(X.shape)


@op("flatten2", inputs="X", outputs="Out XShape~", attrs={"axis": 1})
def flatten2(ctx: OpContext, X: Any, *, axis: int) -> Any:
    """flatten, keeping the dimensions of X in XShape."""
    out = X.reshape(_flat(ctx, X.shape, axis))
    lod_of_same_rows(ctx, X, out)
    return {"Out": out, "XShape": x_shape(ctx, X)}


@flatten2.infer
def _(ctx: InferContext, X: TensorMeta, *, axis: int) -> dict[str, TensorMeta]:
    return {"Out": meta_of_same_rows(X, _flat(ctx, X.shape, axis)), "XShape": x_shape_meta(X)}


@flatten2.grad(inputs="XShape? Out@GRAD", outputs="X@GRAD", lod="XShape")
def flatten2_grad(ctx: OpContext, XShape: Any, Out_grad: Any) -> Any:
    """dOut in the shape of X."""
    return from_x_shape(Out_grad, XShape)


def _contiguous(ctx: Context, shape: Sequence[int], start: int, stop: int) -> tuple[int, ...]:
    if not shape:
        return (1,)
    first, last = axis_in(ctx, start, len(shape), "start_axis"), axis_in(ctx, stop, len(shape), "stop_axis")
    if first > last:
        raise ctx.error(f"stop_axis must not lie before start_axis, found {start} to {stop}")
    return (*shape[:first], _product(shape[first : last + 1]), *shape[last + 1 :])


@op(
    "flatten_contiguous_range",
    inputs="X",
    outputs="Out XShape~",
    attrs={"start_axis": 1, "stop_axis": 1},
)
def flatten_contiguous_range(ctx: OpContext, X: Any, *, start_axis: int, stop_axis: int) -> Any:
    """X with the dimensions from start_axis to stop_axis made one (Paddle 2.6.2 FlattenInferMeta)."""
    out = X.reshape(_contiguous(ctx, X.shape, start_axis, stop_axis))
    lod_of_same_rows(ctx, X, out)
    return {"Out": out, "XShape": x_shape(ctx, X)}


@flatten_contiguous_range.infer
def _(ctx: InferContext, X: TensorMeta, *, start_axis: int, stop_axis: int) -> dict[str, TensorMeta]:
    shape = _contiguous(ctx, X.shape, start_axis, stop_axis)
    return {"Out": meta_of_same_rows(X, shape), "XShape": x_shape_meta(X)}


@flatten_contiguous_range.grad(inputs="XShape? Out@GRAD", outputs="X@GRAD", lod="XShape")
def flatten_contiguous_range_grad(ctx: OpContext, XShape: Any, Out_grad: Any) -> Any:
    """dOut in the shape of X."""
    return from_x_shape(Out_grad, XShape)
