"""maxout: the greatest of each group of channels."""

from __future__ import annotations

from typing import Any

from fluidtool.ops.context import InferContext, OpContext
from fluidtool.ops.registry import op
from fluidtool.ops.schema import INT, TensorMeta, required
from fluidtool.shapes import shape_text


@op("maxout", inputs="X", outputs="Out", attrs={"groups": required(INT), "axis": 1})
def maxout(ctx: OpContext, X: Any, *, groups: int, axis: int) -> Any:
    """The maximum over each `groups` neighboring channels of a 4-D X, channels along `axis` 1, 3 or -1 (maxout_op.cc)."""
    return X.reshape(_grouped(ctx, X.shape, groups, axis)).max(axis=axis % 4 + 1)


@maxout.infer
def _(ctx: InferContext, X: TensorMeta, *, groups: int, axis: int) -> TensorMeta:
    shape = _grouped(ctx, X.shape, groups, axis)
    return TensorMeta(shape[: axis % 4 + 1] + shape[axis % 4 + 2 :], X.dtype)


@maxout.grad(inputs="X Out Out@GRAD", outputs="X@GRAD")
def maxout_grad(ctx: OpContext, X: Any, Out: Any, Out_grad: Any, *, groups: int, axis: int) -> Any:
    """dX = dOut at the first channel of each group that reaches the maximum."""
    shape, inner = _grouped(ctx, X.shape, groups, axis), axis % 4 + 1
    grouped = X.reshape(shape)
    first = ctx.xp.expand_dims(grouped.argmax(axis=inner), inner)
    places = ctx.xp.arange(groups).reshape([-1 if i == inner else 1 for i in range(5)])
    return (ctx.xp.expand_dims(Out_grad, inner) * (places == first)).reshape(X.shape)


def _grouped(ctx: OpContext | InferContext, shape: tuple[int, ...], groups: int, axis: int) -> tuple[int, ...]:
    """The shape with the channels split into groups."""
    if len(shape) != 4:
        raise ctx.error(f"X must have 4 dimensions, found shape {shape_text(shape)}")
    if axis not in (1, 3, -1):
        raise ctx.error(f"axis must be 1, 3 or -1, found {axis}")
    channels = shape[axis]
    if groups <= 1:
        raise ctx.error(f"groups must be greater than 1, found {groups}")
    if not (channels < 0 or channels % groups == 0):
        raise ctx.error(f"{channels} channels cannot be split into groups of {groups}")
    split = (channels // groups if channels > 0 else channels, groups)
    return shape[: axis % 4] + split + shape[axis % 4 + 1 :]
