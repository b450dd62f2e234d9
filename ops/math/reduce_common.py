"""What the reductions share: which dimensions go, what shape stays, how a gradient spreads back."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from fluidtool.ops.context import InferContext, OpContext
from fluidtool.ops.math.versions import scalar_shape
from fluidtool.ops.schema import TensorMeta, ints, or_variable
from fluidtool.proto.enums import VarType
from fluidtool.shapes import shape_text

ATTRS: dict[str, Any] = {
    "dim": or_variable(ints(0)),
    "keep_dim": False,
    "reduce_all": False,
    "in_dtype": -1,
    "out_dtype": -1,
}
Shape = tuple[int, ...]


def reduced_axes(
    ctx: OpContext | InferContext, shape: Shape, dim: Sequence[int] | int, reduce_all: bool
) -> tuple[int, ...]:
    """The dimensions to reduce, ascending: those in `dim`, or all; raises OperatorError when one is out of range."""
    dims = [dim] if isinstance(dim, int) else dim
    rank = len(shape)
    if reduce_all or not dims or not rank:
        return tuple(range(rank))
    for d in dims:
        if not -rank <= d < rank:
            raise ctx.error(f"dim {list(dims)} is out of range for X of shape {shape_text(shape)}")
    return tuple(sorted({d % rank for d in dims}))


def reduced_shape(ctx: OpContext | InferContext, shape: Shape, axes: Sequence[int], keep_dim: bool) -> Shape:
    """The shape after reducing `axes`; where nothing is left it is that of a single number."""
    if keep_dim:
        return tuple(1 if i in axes else size for i, size in enumerate(shape))
    return tuple(size for i, size in enumerate(shape) if i not in axes) or scalar_shape(ctx)


def spread(ctx: OpContext, reduced: Any, shape: Shape, axes: Sequence[int]) -> Any:
    """A reduced value as a view that broadcasts to `shape`; raises OperatorError when it holds another number."""
    kept = tuple(1 if i in axes else size for i, size in enumerate(shape))
    if reduced.size != prod(kept):
        raise ctx.error(
            f"a value of shape {shape_text(reduced.shape)} does not belong "
            f"to X of shape {shape_text(shape)} reduced over {list(axes)}"
        )
    return reduced.reshape(kept)


def reduced_meta(
    ctx: InferContext, X: TensorMeta, *, dim: Sequence[int], keep_dim: bool, reduce_all: bool, out_dtype: int
) -> TensorMeta:
    """Inference of a reduction: the LoD stays where dimension 0 does."""
    axes = reduced_axes(ctx, X.shape, dim, reduce_all)
    shape = reduced_shape(ctx, X.shape, axes, keep_dim)
    return TensorMeta(shape, X.dtype if out_dtype < 0 else VarType(out_dtype), 0 if 0 in axes else X.lod_level)


def keep_lod(ctx: OpContext, axes: Sequence[int]) -> None:
    """Give Out the LoD of X unless its rows were reduced."""
    if 0 not in axes:
        ctx.set_lod("Out", ctx.lod("X"))


def require_elements(ctx: OpContext, X: Any, axes: Sequence[int], what: str) -> None:
    """Raise OperatorError where an empty dimension is to be reduced by an operation that has no neutral value."""
    if not all(X.shape[axis] for axis in axes):
        raise ctx.error(f"X of shape {shape_text(X.shape)} has no elements to take the {what} of")
