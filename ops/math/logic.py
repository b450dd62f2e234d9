"""Logic on truth values and on bits."""

from __future__ import annotations

from typing import Any

from fluidtool.ops.context import InferContext, OpContext
from fluidtool.ops.math.elementwise_common import aligned_shapes, broadcast_meta
from fluidtool.ops.registry import op
from fluidtool.ops.schema import TensorMeta
from fluidtool.proto.enums import VarType


@op("logical_and", inputs="X Y", outputs="Out", lod="X")
def logical_and(ctx: OpContext, X: Any, Y: Any) -> Any:
    """X and Y as bool; numbers count as true when they are not 0."""
    return ctx.xp.logical_and(*_fitting(ctx, X, Y))


@op("logical_or", inputs="X Y", outputs="Out", lod="X")
def logical_or(ctx: OpContext, X: Any, Y: Any) -> Any:
    """X or Y as bool; numbers count as true when they are not 0."""
    return ctx.xp.logical_or(*_fitting(ctx, X, Y))


@op("logical_xor", inputs="X Y", outputs="Out", lod="X")
def logical_xor(ctx: OpContext, X: Any, Y: Any) -> Any:
    """Whether exactly one of X and Y is true, as bool; numbers count as true when they are not 0."""
    return ctx.xp.logical_xor(*_fitting(ctx, X, Y))


@op("logical_not", inputs="X", outputs="Out", lod="X")
def logical_not(ctx: OpContext, X: Any) -> Any:
    """Whether X is false, as bool; numbers count as true when they are not 0."""
    return ctx.xp.logical_not(X)


@logical_not.infer
def _(ctx: InferContext, X: TensorMeta) -> TensorMeta:
    return X.with_dtype(VarType.BOOL)


@op("bitwise_and", inputs="X Y", outputs="Out", lod="X")
def bitwise_and(ctx: OpContext, X: Any, Y: Any) -> Any:
    """Bits set in both X and Y, of integers or bool (Paddle 2.x)."""
    return ctx.xp.bitwise_and(*_fitting(ctx, X, Y, whole=True))


@op("bitwise_or", inputs="X Y", outputs="Out", lod="X")
def bitwise_or(ctx: OpContext, X: Any, Y: Any) -> Any:
    """Bits set in X or Y, of integers or bool (Paddle 2.x)."""
    return ctx.xp.bitwise_or(*_fitting(ctx, X, Y, whole=True))


@op("bitwise_xor", inputs="X Y", outputs="Out", lod="X")
def bitwise_xor(ctx: OpContext, X: Any, Y: Any) -> Any:
    """Bits set in exactly one of X and Y, of integers or bool (Paddle 2.x)."""
    return ctx.xp.bitwise_xor(*_fitting(ctx, X, Y, whole=True))


@op("bitwise_not", inputs="X", outputs="Out", lod="X")
def bitwise_not(ctx: OpContext, X: Any) -> Any:
    """Every bit of X turned over, of integers or bool (Paddle 2.x)."""
    if X.dtype.kind not in "iub":
        raise ctx.error(f"X must be of an integer type or bool, found {X.dtype}")
    return ctx.xp.invert(X)


@bitwise_not.infer
def _(ctx: InferContext, X: TensorMeta) -> TensorMeta:
    return X


def _fitting(ctx: OpContext, X: Any, Y: Any, whole: bool = False) -> tuple[Any, Any]:
    if whole:
        fits = X.dtype == Y.dtype and X.dtype.kind in "iub"
        if not fits:
            raise ctx.error(f"X and Y must be of one integer type or bool, found {X.dtype} and {Y.dtype}")
    if X.shape == Y.shape:
        return X, Y
    x, y = aligned_shapes(ctx, X.shape, Y.shape, -1)
    return X.reshape(x), Y.reshape(y)


def _logical(ctx: InferContext, X: TensorMeta, Y: TensorMeta) -> TensorMeta:
    return broadcast_meta(ctx, X, Y, axis=-1).with_dtype(VarType.BOOL)


def _bitwise(ctx: InferContext, X: TensorMeta, Y: TensorMeta) -> TensorMeta:
    return broadcast_meta(ctx, X, Y, axis=-1)


for _info in (logical_and, logical_or, logical_xor):
    _info.infer(_logical)
for _info in (bitwise_and, bitwise_or, bitwise_xor):
    _info.infer(_bitwise)
