"""Comparison of two tensors, elementwise or as a whole."""

from __future__ import annotations

from typing import Any

from fluidtool.ops.context import InferContext, OpContext
from fluidtool.ops.math.elementwise_common import aligned, broadcast_meta
from fluidtool.ops.math.versions import saved_since, scalar_shape
from fluidtool.ops.registry import op
from fluidtool.ops.schema import FLOAT, STRING, AttrSpec, TensorMeta
from fluidtool.ops.tensor.arguments import may_be_same
from fluidtool.proto.enums import VarType
from fluidtool.shapes import shape_text

ATTRS: dict[str, Any] = {"axis": -1, "force_cpu": False}


@op("equal", inputs="X Y", outputs="Out", attrs=ATTRS, lod="X")
def equal(ctx: OpContext, X: Any, Y: Any, *, axis: int) -> Any:
    """X == Y as bool; floating-point numbers closer than 1e-8 count as equal (compare_op.cc)."""
    return _equal(ctx, *aligned(ctx, X, Y, axis))


@op("not_equal", inputs="X Y", outputs="Out", attrs=ATTRS, lod="X")
def not_equal(ctx: OpContext, X: Any, Y: Any, *, axis: int) -> Any:
    """X != Y as bool; floating-point numbers closer than 1e-8 count as equal."""
    return ~_equal(ctx, *aligned(ctx, X, Y, axis))


def _equal(ctx: OpContext, x: Any, y: Any) -> Any:
    """Paddle 1.8.5 subtracts, so that an infinity does not equal itself; later versions fixed that."""
    if x.dtype.kind in "iub":
        return x == y
    near = abs(x - y) < 1e-8
    return near | (x == y) if saved_since(ctx, 2, 0) else near


@op("less_than", inputs="X Y", outputs="Out", attrs=ATTRS, lod="X")
def less_than(ctx: OpContext, X: Any, Y: Any, *, axis: int) -> Any:
    """X < Y as bool."""
    x, y = aligned(ctx, X, Y, axis)
    return x < y


@op("less_equal", inputs="X Y", outputs="Out", attrs=ATTRS, lod="X")
def less_equal(ctx: OpContext, X: Any, Y: Any, *, axis: int) -> Any:
    """X <= Y as bool."""
    x, y = aligned(ctx, X, Y, axis)
    return x <= y


@op("greater_than", inputs="X Y", outputs="Out", attrs=ATTRS, lod="X")
def greater_than(ctx: OpContext, X: Any, Y: Any, *, axis: int) -> Any:
    """X > Y as bool."""
    x, y = aligned(ctx, X, Y, axis)
    return x > y


@op("greater_equal", inputs="X Y", outputs="Out", attrs=ATTRS, lod="X")
def greater_equal(ctx: OpContext, X: Any, Y: Any, *, axis: int) -> Any:
    """X >= Y as bool."""
    x, y = aligned(ctx, X, Y, axis)
    return x >= y


def _compared(ctx: InferContext, X: TensorMeta, Y: TensorMeta, *, axis: int) -> TensorMeta:
    """Paddle 1.8.5 declares Out like X (compare_op.cc); later versions broadcast."""
    out = broadcast_meta(ctx, X, Y, axis=axis) if X.rank < Y.rank or saved_since(ctx, 2, 0) else X
    return out.with_dtype(VarType.BOOL)


for _info in (equal, not_equal, less_than, less_equal, greater_than, greater_equal):
    _info.infer(_compared)


@op("equal_reduce", inputs="X Y", outputs="Out", attrs={"axis": -1})
def equal_reduce(ctx: OpContext, X: Any, Y: Any, *, axis: int) -> Any:
    """Whether X equals Y everywhere, Y broadcast from dimension `axis` of X on; one bool, False if shapes differ."""
    if X.ndim == Y.ndim and X.shape != Y.shape:
        return ctx.xp.zeros(scalar_shape(ctx), bool)
    return _equal(ctx, *aligned(ctx, X, Y, axis)).all().reshape(scalar_shape(ctx))


@op("equal_all", inputs="X Y", outputs="Out", attrs={"axis": -1})
def equal_all(ctx: OpContext, X: Any, Y: Any) -> Any:
    """Whether X and Y have one shape and equal elements; one bool (Paddle 2.x)."""
    if X.shape != Y.shape:
        return ctx.xp.zeros(scalar_shape(ctx), bool)
    return _equal(ctx, X, Y).all().reshape(scalar_shape(ctx))


@equal_reduce.infer
@equal_all.infer
def _(ctx: InferContext, X: TensorMeta, Y: TensorMeta) -> TensorMeta:
    return TensorMeta(scalar_shape(ctx), VarType.BOOL)


@op(
    "allclose",
    inputs="Input Other",
    outputs="Out",
    attrs={
        "rtol": AttrSpec(FLOAT, 1e-05, also=STRING),
        "atol": AttrSpec(FLOAT, 1e-08, also=STRING),
        "equal_nan": False,
    },
)
def allclose(ctx: OpContext, Input: Any, Other: Any) -> Any:
    """Whether |Input - Other| <= atol + rtol * |Other| everywhere; one bool (allclose_op.h).

    Programs of Paddle 2.x give the tolerances as text or as tensors, and let equal infinities pass.
    """
    return _close(ctx, Input, Other).all().reshape(scalar_shape(ctx))


@allclose.infer
def _(ctx: InferContext, Input: TensorMeta, Other: TensorMeta) -> TensorMeta:
    if not may_be_same(Input.shape, Other.shape):
        raise ctx.error(f"Input {shape_text(Input.shape)} and Other {shape_text(Other.shape)} must have the same shape")
    return TensorMeta(scalar_shape(ctx), VarType.BOOL)


@op("isclose", inputs="Input Other", outputs="Out", attrs={"rtol": "1e-5", "atol": "1e-8", "equal_nan": False})
def isclose(ctx: OpContext, Input: Any, Other: Any) -> Any:
    """|Input - Other| <= atol + rtol * |Other| as bool, elementwise (Paddle 2.x)."""
    return _close(ctx, Input, Other)


@isclose.infer
def _(ctx: InferContext, Input: TensorMeta, Other: TensorMeta) -> TensorMeta:
    return Input.with_dtype(VarType.BOOL)


def _close(ctx: OpContext, Input: Any, Other: Any) -> Any:
    if Input.size != Other.size or Input.dtype != Other.dtype:
        raise ctx.error(
            f"Input {shape_text(Input.shape)} {Input.dtype} and Other {shape_text(Other.shape)} {Other.dtype} "
            "must have the same size and data type"
        )
    absolute, relative = _tolerance(ctx, "Atol"), _tolerance(ctx, "Rtol")
    x, y = Input.astype("float64"), Other.astype("float64").reshape(Input.shape)
    close = abs(x - y) <= absolute + relative * abs(y)
    if ctx.attr("equal_nan"):
        close = close | ((x != x) & (y != y))
    return close | (x == y) if saved_since(ctx, 2, 0) else close


def _tolerance(ctx: OpContext, slot: str) -> float:
    if ctx.has(slot):
        return float(ctx.host(ctx.value(slot).array).reshape(()))
    return float(ctx.attr(slot.lower()))
