"""How elementwise operators line up two shapes: `axis` says where the shorter one starts in the longer one."""

from __future__ import annotations

from typing import Any

from fluidtool.ops.context import InferContext, OpContext
from fluidtool.ops.math.values import require_tensor
from fluidtool.ops.schema import USE_MKLDNN, TensorMeta, limited
from fluidtool.shapes import shape_text

ATTRS: dict[str, Any] = {"axis": limited(-1, -1), "x_data_format": "", "y_data_format": "", **USE_MKLDNN}
GRAD_LOD = "X->X@GRAD Y->Y@GRAD"
Shape = tuple[int, ...]


def aligned_shapes(ctx: OpContext | InferContext, x: Shape, y: Shape, axis: int) -> tuple[Shape, Shape]:
    """Both shapes with as many dimensions as the longer one, filled up with ones (elementwise_op_function.h).

    Trailing ones of the shorter shape that would stick out are dropped. Raises OperatorError when `axis` is out of
    range or sizes differ and neither is 1.
    """
    rank = max(len(x), len(y))
    if len(x) != len(y):
        start = abs(len(x) - len(y)) if axis == -1 else axis
        if not 0 <= start < rank and x and y:
            raise ctx.error(
                f"axis {axis} is out of range for shapes {shape_text(x)} and {shape_text(y)}: expected -1, or 0 to {rank - 1}"
            )
        x, y = (x, _placed(y, start, rank)) if len(x) > len(y) else (_placed(x, start, rank), y)
    fits = len(x) == len(y) and all(a == b or 1 in (a, b) or -1 in (a, b) for a, b in zip(x, y, strict=True))
    if not fits:
        raise ctx.error(
            f"shapes {shape_text(x)} of X and {shape_text(y)} of Y do not broadcast together with axis {axis}"
        )
    return x, y


def _placed(shape: Shape, start: int, rank: int) -> Shape:
    while len(shape) + start > rank and shape[-1] == 1:
        shape = shape[:-1]
    return (1,) * start + shape + (1,) * (rank - start - len(shape))


def aligned(ctx: OpContext, X: Any, Y: Any, axis: int) -> tuple[Any, Any]:
    """X and Y as views that broadcast by the usual rules; raises OperatorError when dtypes or shapes do not fit."""
    require_tensor(ctx, "X", X)
    require_tensor(ctx, "Y", Y)
    if X.dtype != Y.dtype:
        raise ctx.error(f"X is {X.dtype} and Y is {Y.dtype}; both must be of one data type: insert a cast")
    if X.shape == Y.shape:
        return X, Y
    x, y = aligned_shapes(ctx, X.shape, Y.shape, axis)
    return X.reshape(x), Y.reshape(y)


def broadcast_meta(ctx: InferContext, X: TensorMeta, Y: TensorMeta, *, axis: int) -> TensorMeta:
    """Like X, in the shape that X and Y broadcast to; -1 where neither side tells the size."""
    if X.shape == Y.shape:
        return X
    x, y = aligned_shapes(ctx, X.shape, Y.shape, axis)
    return X.with_shape(
        [max(a, b) if a > 1 or b > 1 or (a, b) == (1, 1) else min(a, b) for a, b in zip(x, y, strict=True)]
    )


def summed_to(ctx: OpContext, grad: Any, like: Any, other: Any, axis: int) -> Any:
    """`grad` of the broadcast shape, summed over the dimensions along which `like` was repeated."""
    if grad.shape == like.shape:
        return grad
    shape, _ = aligned_shapes(ctx, like.shape, other.shape, axis)
    repeated = tuple(i for i, size in enumerate(shape) if size == 1 and grad.shape[i] != 1)
    if repeated:
        grad = grad.sum(axis=repeated, keepdims=True, dtype=grad.dtype)
    return grad.reshape(like.shape)


def quotient(ctx: OpContext, x: Any, y: Any) -> Any:
    """x / y of integers, cut towards zero; raises OperatorError for a zero in y."""
    refuse_zero(ctx, y)
    whole = x // y
    return whole + ((whole < 0) & (whole * y != x)).astype(x.dtype)


def refuse_zero(ctx: OpContext, y: Any) -> None:
    """Raise OperatorError when the divisor Y, of an integer type, holds a zero."""
    if not bool((y != 0).all()):
        raise ctx.error(
            f"Y ({y.dtype}) holds a zero: integers cannot be divided by it; cast to a floating type, or mask it"
        )


def grad_lod(ctx: OpContext) -> None:
    """Give X@GRAD the LoD that Out@GRAD has when running; GRAD_LOD says what Paddle declares when it builds."""
    ctx.set_lod("X@GRAD", ctx.lod("Out@GRAD"))
