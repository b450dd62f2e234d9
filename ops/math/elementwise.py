"""Elementwise sums, differences, products and quotients, with first and second gradients."""

from __future__ import annotations

from typing import Any

from fluidtool.ops.context import InferContext, OpContext
from fluidtool.ops.math.elementwise_common import (
    ATTRS,
    GRAD_LOD,
    aligned,
    broadcast_meta,
    grad_lod,
    quotient,
    summed_to,
)
from fluidtool.ops.math.repeated import repeated
from fluidtool.ops.math.wiring import wired
from fluidtool.ops.registry import op
from fluidtool.ops.schema import TensorMeta
from fluidtool.ops.traits import Traits
from fluidtool.shapes import shape_text
from fluidtool.tensor import SelectedRows

SHAPES = Traits(shapes=("X", "Y"))


@op("elementwise_add", inputs="X Y", outputs="Out", attrs=ATTRS, lod="X")
def elementwise_add(ctx: OpContext, X: Any, Y: Any, *, axis: int) -> Any:
    """X + Y, Y broadcast from dimension `axis` of X on (Paddle 1.8.5 elementwise_op_function.h)."""
    x, y = aligned(ctx, X, Y, axis)
    return repeated(ctx.xp, ctx.xp.add, x, y)


@elementwise_add.grad(inputs="X Y Out@GRAD", outputs="X@GRAD Y@GRAD", lod=GRAD_LOD, traits=SHAPES)
def elementwise_add_grad(ctx: OpContext, X: Any, Y: Any, Out_grad: Any, *, axis: int) -> dict[str, Any]:
    """dX = dOut, dY = dOut, each summed over the dimensions along which it was repeated."""
    grad_lod(ctx)
    return {
        "X@GRAD": summed_to(ctx, Out_grad, X, Y, axis) if ctx.wants("X@GRAD") else None,
        "Y@GRAD": summed_to(ctx, Out_grad, Y, X, axis) if ctx.wants("Y@GRAD") else None,
    }


@op("elementwise_add_grad_grad", inputs="Y DOut DDX? DDY?", outputs="DDOut", attrs=ATTRS, lod="DOut")
def elementwise_add_grad_grad(ctx: OpContext, Y: Any, DOut: Any, DDX: Any, DDY: Any, *, axis: int) -> Any:
    """ddOut = ddX + ddY."""
    return _spread_sum(ctx, DOut, DDX, DDY, axis)


@elementwise_add_grad_grad.infer
def _(ctx: InferContext, Y: TensorMeta, DOut: TensorMeta, DDX: TensorMeta | None, DDY: TensorMeta | None) -> TensorMeta:
    return DOut


@op("elementwise_sub", inputs="X Y", outputs="Out", attrs=ATTRS, lod="X")
def elementwise_sub(ctx: OpContext, X: Any, Y: Any, *, axis: int) -> Any:
    """X - Y, Y broadcast from dimension `axis` of X on."""
    x, y = aligned(ctx, X, Y, axis)
    return repeated(ctx.xp, ctx.xp.subtract, x, y)


@elementwise_sub.grad(inputs="X Y Out@GRAD", outputs="X@GRAD Y@GRAD", lod=GRAD_LOD, traits=SHAPES)
def elementwise_sub_grad(ctx: OpContext, X: Any, Y: Any, Out_grad: Any, *, axis: int) -> dict[str, Any]:
    """dX = dOut, dY = -dOut, each summed over the dimensions along which it was repeated."""
    grad_lod(ctx)
    return {
        "X@GRAD": summed_to(ctx, Out_grad, X, Y, axis) if ctx.wants("X@GRAD") else None,
        "Y@GRAD": -summed_to(ctx, Out_grad, Y, X, axis) if ctx.wants("Y@GRAD") else None,
    }


@op("elementwise_sub_grad_grad", inputs="Y DOut DDX? DDY?", outputs="DDOut", attrs=ATTRS, lod="DOut")
def elementwise_sub_grad_grad(ctx: OpContext, Y: Any, DOut: Any, DDX: Any, DDY: Any, *, axis: int) -> Any:
    """ddOut = ddX - ddY."""
    return _spread_sum(ctx, DOut, DDX, None if DDY is None else -DDY, axis)


@elementwise_sub_grad_grad.infer
def _(ctx: InferContext, Y: TensorMeta, DOut: TensorMeta, DDX: TensorMeta | None, DDY: TensorMeta | None) -> TensorMeta:
    return DOut


@op("elementwise_mul", inputs="X Y", outputs="Out", attrs=ATTRS, lod="X")
def elementwise_mul(ctx: OpContext, X: Any, Y: Any, *, axis: int) -> Any:
    """X * Y, Y broadcast from dimension `axis` of X on; sparse rows X may be multiplied by one number Y."""
    if isinstance(X, SelectedRows):
        if Y.size != 1:
            raise ctx.error(f"Y must hold one number when X is SelectedRows, found shape {shape_text(Y.shape)}")
        return SelectedRows(X.row_ids, X.table_height, X.value * Y.reshape(()).astype(X.value.dtype))
    x, y = aligned(ctx, X, Y, axis)
    return x & y if x.dtype == bool else repeated(ctx.xp, ctx.xp.multiply, x, y)


@elementwise_mul.grad(inputs="X Y Out@GRAD", outputs="X@GRAD Y@GRAD", lod=GRAD_LOD)
def elementwise_mul_grad(ctx: OpContext, X: Any, Y: Any, Out_grad: Any, *, axis: int) -> dict[str, Any]:
    """dX = dOut * Y, dY = dOut * X, each summed over the dimensions along which it was repeated."""
    grad_lod(ctx)
    x, y = aligned(ctx, X, Y, axis)
    return {
        "X@GRAD": summed_to(ctx, Out_grad * y, X, Y, axis) if ctx.wants("X@GRAD") else None,
        "Y@GRAD": summed_to(ctx, Out_grad * x, Y, X, axis) if ctx.wants("Y@GRAD") else None,
    }


@op(
    "elementwise_mul_grad_grad",
    inputs="X Y DOut DDX? DDY?",
    outputs="DDOut X@GRAD Y@GRAD",
    attrs=ATTRS,
    lod="DOut->DDOut X->X@GRAD Y->Y@GRAD",
)
def elementwise_mul_grad_grad(
    ctx: OpContext, X: Any, Y: Any, DOut: Any, DDX: Any, DDY: Any, *, axis: int
) -> dict[str, Any]:
    """ddOut = ddX * Y + X * ddY, dX = dOut * ddY, dY = dOut * ddX; an absent second gradient counts as zeros."""
    x, y = aligned(ctx, X, Y, axis)
    ddx = ctx.xp.zeros_like(x) if DDX is None else DDX.reshape(x.shape)
    ddy = ctx.xp.zeros_like(y) if DDY is None else DDY.reshape(y.shape)
    return {
        "DDOut": ddx * y + x * ddy,
        "X@GRAD": summed_to(ctx, DOut * ddy, X, Y, axis),
        "Y@GRAD": summed_to(ctx, DOut * ddx, Y, X, axis),
    }


@elementwise_mul_grad_grad.infer
def _(
    ctx: InferContext,
    X: TensorMeta,
    Y: TensorMeta,
    DOut: TensorMeta,
    DDX: TensorMeta | None,
    DDY: TensorMeta | None,
) -> dict[str, TensorMeta]:
    return {"DDOut": DOut, "X@GRAD": X, "Y@GRAD": Y}


@op("elementwise_div", inputs="X Y", outputs="Out", attrs=ATTRS, lod="X")
def elementwise_div(ctx: OpContext, X: Any, Y: Any, *, axis: int) -> Any:
    """X / Y, Y broadcast from dimension `axis` of X on; integers are cut towards zero and refuse a zero in Y."""
    x, y = aligned(ctx, X, Y, axis)
    return quotient(ctx, x, y) if x.dtype.kind in "iu" else repeated(ctx.xp, ctx.xp.true_divide, x, y)


@elementwise_div.grad(inputs="X Y Out Out@GRAD", outputs="X@GRAD Y@GRAD", lod=GRAD_LOD)
def elementwise_div_grad(ctx: OpContext, X: Any, Y: Any, Out: Any, Out_grad: Any, *, axis: int) -> dict[str, Any]:
    """dX = dOut / Y, dY = -dOut * Out / Y, each summed over the dimensions along which it was repeated."""
    grad_lod(ctx)
    _, y = aligned(ctx, X, Y, axis)
    scaled = Out_grad / y
    return {
        "X@GRAD": summed_to(ctx, scaled, X, Y, axis) if ctx.wants("X@GRAD") else None,
        "Y@GRAD": summed_to(ctx, -scaled * Out, Y, X, axis) if ctx.wants("Y@GRAD") else None,
    }


@op(
    "elementwise_div_grad_grad",
    inputs="Y Out DX DDX? DDY?",
    outputs="Y@GRAD DDOut DOut",
    attrs=ATTRS,
    lod="Y->Y@GRAD Out->DDOut Out->DOut",
)
def elementwise_div_grad_grad(
    ctx: OpContext, Y: Any, Out: Any, DX: Any, DDX: Any, DDY: Any, *, axis: int
) -> dict[str, Any]:
    """ddOut = (ddX - Out * ddY) / Y, dOut = -dX * ddY, dY = dX * (Out * ddY - ddX) / Y."""
    out, y = aligned(ctx, Out, Y, axis)
    dx = DX.reshape(aligned(ctx, DX, Y, axis)[0].shape)
    ddx = ctx.xp.zeros_like(dx) if DDX is None else DDX.reshape(dx.shape)
    ddy = ctx.xp.zeros_like(y) if DDY is None else DDY.reshape(y.shape)
    second = (ddx - out * ddy) / y
    return {
        "Y@GRAD": summed_to(ctx, -dx * second, Y, Out, axis),
        "DDOut": second,
        "DOut": ctx.xp.broadcast_to(-dx * ddy, out.shape),
    }


@elementwise_div_grad_grad.infer
def _(
    ctx: InferContext,
    Y: TensorMeta,
    Out: TensorMeta,
    DX: TensorMeta,
    DDX: TensorMeta | None,
    DDY: TensorMeta | None,
) -> dict[str, TensorMeta]:
    return {"Y@GRAD": Y, "DDOut": Out, "DOut": Out}


def _spread_sum(ctx: OpContext, DOut: Any, DDX: Any, DDY: Any, axis: int) -> Any:
    """ddX + ddY in the shape of dOut; an absent one counts as zeros."""
    total = ctx.xp.zeros_like(DOut)
    for part in (DDX, DDY):
        if part is not None:
            total = total + aligned(ctx, DOut, part, axis)[1]
    return total


for _info in (elementwise_add, elementwise_sub, elementwise_mul, elementwise_div):
    _info.infer(broadcast_meta)
for _info, _type in (
    (elementwise_add_grad, "elementwise_add_grad_grad"),
    (elementwise_sub_grad, "elementwise_sub_grad_grad"),
):
    _info.grad_maker(wired(_type, "Y DOut=Out@GRAD DDX=X@GRAD@GRAD DDY=Y@GRAD@GRAD", "DDOut=Out@GRAD@GRAD"))
elementwise_mul_grad.grad_maker(
    wired(
        "elementwise_mul_grad_grad",
        "X Y DOut=Out@GRAD DDX=X@GRAD@GRAD DDY=Y@GRAD@GRAD",
        "DDOut=Out@GRAD@GRAD X@GRAD Y@GRAD",
    )
)
elementwise_div_grad.grad_maker(
    wired(
        "elementwise_div_grad_grad",
        "Y Out DX=X@GRAD DDX=X@GRAD@GRAD DDY=Y@GRAD@GRAD",
        "DDOut=Out@GRAD@GRAD DOut=Out@GRAD Y@GRAD",
    )
)
