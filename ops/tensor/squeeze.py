"""squeeze and unsqueeze: dimensions of size 1 removed and put in."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fluidtool.ops.context import InferContext, OpContext
from fluidtool.ops.math.versions import saved_since
from fluidtool.ops.registry import op
from fluidtool.ops.schema import TensorMeta, ints, or_variable
from fluidtool.ops.tensor.arguments import (
    Context,
    axis_in,
    from_x_shape,
    integers,
    lod_of_same_rows,
    meta_of_same_rows,
    x_shape,
    x_shape_meta,
)
from fluidtool.shapes import shape_text

AXES = {"axes": or_variable(ints())}


def squeezed(ctx: Context, shape: Sequence[int], axes: Sequence[int]) -> tuple[int, ...]:
    """`shape` without these axes, or without every size 1 when none is named.

    Paddle 1.8.5 refuses an axis of another size, Paddle 2 leaves it.
    """
    if not axes:
        return tuple(size for size in shape if size != 1)
    removed = set()
    for axis in axes:
        place = axis_in(ctx, axis, len(shape), "every axis of axes")
        if place < len(shape) and shape[place] in (
            1,
            -1,
        ):  # a size known only at run time is assumed to be 1, as in Paddle
            removed.add(place)
        elif place < len(shape) and shape[place] >= 0 and not saved_since(ctx, 2, 0):
            raise ctx.error(
                f"axis {axis} to be squeezed must have size 1, found {shape[place]} in X of shape {shape_text(shape)}"
            )
    return tuple(size for place, size in enumerate(shape) if place not in removed)


def unsqueezed(ctx: Context, shape: Sequence[int], axes: Sequence[int]) -> tuple[int, ...]:
    """`shape` with a 1 put in at each axis, one after the other."""
    out = list(shape)
    for axis in axes:
        place = axis + len(out) + 1 if axis < 0 else axis
        if not 0 <= place <= len(out):
            raise ctx.error(
                f"every axis of axes must be in [{-len(out) - 1}, {len(out)}] for a shape {shape_text(out)}, found {axis}"
            )
        out.insert(place, 1)
    return tuple(out)


@op("squeeze", inputs="X", outputs="Out", attrs=AXES)
def squeeze(ctx: OpContext, X: Any, *, axes: list[int]) -> Any:
    """X without the dimensions `axes` of size 1, or without all of size 1 (Paddle 1.8.5 squeeze_op.cc)."""
    out = X.reshape(squeezed(ctx, X.shape, axes))
    lod_of_same_rows(ctx, X, out)
    return out


@squeeze.infer
def _(ctx: InferContext, X: TensorMeta, *, axes: list[int]) -> TensorMeta:
    return meta_of_same_rows(X, squeezed(ctx, X.shape, axes))


@squeeze.grad(inputs="X Out@GRAD", outputs="X@GRAD", lod="X")
def squeeze_grad(ctx: OpContext, X: Any, Out_grad: Any) -> Any:
    """dOut in the shape of X."""
    return Out_grad.reshape(X.shape)


@op("squeeze2", inputs="X", outputs="Out XShape~", attrs=AXES)
def squeeze2(ctx: OpContext, X: Any, *, axes: list[int]) -> Any:
    """squeeze, keeping the dimensions of X in XShape."""
    out = X.reshape(squeezed(ctx, X.shape, axes))
    lod_of_same_rows(ctx, X, out)
    return {"Out": out, "XShape": x_shape(ctx, X)}


@squeeze2.infer
def _(ctx: InferContext, X: TensorMeta, *, axes: list[int]) -> dict[str, TensorMeta]:
    return {"Out": meta_of_same_rows(X, squeezed(ctx, X.shape, axes)), "XShape": x_shape_meta(X)}


@squeeze2.grad(inputs="XShape? Out@GRAD", outputs="X@GRAD", lod="XShape")
def squeeze2_grad(ctx: OpContext, XShape: Any, Out_grad: Any) -> Any:
    """dOut in the shape of X."""
    return from_x_shape(Out_grad, XShape)


def _axes(ctx: OpContext, tensor: Any, tensors: list[Any], axes: list[int]) -> list[int]:
    return integers(ctx, None if tensors else tensor, tensors, axes)


def _unsqueezed_meta(
    ctx: InferContext, X: TensorMeta, tensor: TensorMeta | None, tensors: list[TensorMeta], axes: list[int]
) -> TensorMeta | None:
    if not tensors and tensor is None:
        return meta_of_same_rows(X, unsqueezed(ctx, X.shape, axes))
    added = len(tensors) if tensors else (tensor.shape[0] if tensor is not None and tensor.rank == 1 else 1)
    return None if added < 0 else X.with_shape((-1,) * (X.rank + added)).with_lod_level(0)


@op("unsqueeze", inputs="X AxesTensor? AxesTensorList*?", outputs="Out", attrs=AXES)
def unsqueeze(ctx: OpContext, X: Any, AxesTensor: Any, AxesTensorList: list[Any], *, axes: list[int]) -> Any:
    """X with dimensions of size 1 put in at `axes`, in that order (Paddle 1.8.5 unsqueeze_op.cc)."""
    out = X.reshape(unsqueezed(ctx, X.shape, _axes(ctx, AxesTensor, AxesTensorList, axes)))
    lod_of_same_rows(ctx, X, out)
    return out


@unsqueeze.infer
def _(
    ctx: InferContext,
    X: TensorMeta,
    AxesTensor: TensorMeta | None,
    AxesTensorList: list[TensorMeta],
    *,
    axes: list[int],
) -> TensorMeta | None:
    return _unsqueezed_meta(ctx, X, AxesTensor, AxesTensorList, axes)


@unsqueeze.grad(inputs="X Out@GRAD", outputs="X@GRAD", lod="X")
def unsqueeze_grad(ctx: OpContext, X: Any, Out_grad: Any) -> Any:
    """dOut in the shape of X."""
    return Out_grad.reshape(X.shape)


@op("unsqueeze2", inputs="X AxesTensor? AxesTensorList*?", outputs="Out XShape~", attrs=AXES)
def unsqueeze2(ctx: OpContext, X: Any, AxesTensor: Any, AxesTensorList: list[Any], *, axes: list[int]) -> Any:
    """unsqueeze, keeping the dimensions of X in XShape."""
    out = X.reshape(unsqueezed(ctx, X.shape, _axes(ctx, AxesTensor, AxesTensorList, axes)))
    lod_of_same_rows(ctx, X, out)
    return {"Out": out, "XShape": x_shape(ctx, X)}


@unsqueeze2.infer
def _(
    ctx: InferContext,
    X: TensorMeta,
    AxesTensor: TensorMeta | None,
    AxesTensorList: list[TensorMeta],
    *,
    axes: list[int],
) -> dict[str, TensorMeta | None]:
    return {"Out": _unsqueezed_meta(ctx, X, AxesTensor, AxesTensorList, axes), "XShape": x_shape_meta(X)}


@unsqueeze2.grad(inputs="XShape? Out@GRAD", outputs="X@GRAD", lod="XShape")
def unsqueeze2_grad(ctx: OpContext, XShape: Any, Out_grad: Any) -> Any:
    """dOut in the shape of X."""
    return from_x_shape(Out_grad, XShape)
