"""Elementwise maximum and minimum, and those that leave NaN out."""

from __future__ import annotations

from typing import Any

from fluidtool.ops.context import OpContext
from fluidtool.ops.math.elementwise_common import ATTRS, GRAD_LOD, aligned, broadcast_meta, grad_lod, summed_to
from fluidtool.ops.registry import op


@op("elementwise_max", inputs="X Y", outputs="Out", attrs=ATTRS, lod="X")
def elementwise_max(ctx: OpContext, X: Any, Y: Any, *, axis: int) -> Any:
    """The greater of X and Y, Y broadcast from dimension `axis` of X on."""
    return ctx.xp.maximum(*aligned(ctx, X, Y, axis))


@elementwise_max.grad(inputs="X Y Out@GRAD", outputs="X@GRAD Y@GRAD", lod=GRAD_LOD)
def elementwise_max_grad(ctx: OpContext, X: Any, Y: Any, Out_grad: Any, *, axis: int) -> dict[str, Any]:
    """dX = dOut where X > Y, dY = dOut elsewhere."""
    grad_lod(ctx)
    x, y = aligned(ctx, X, Y, axis)
    return _shared_out(ctx, X, Y, Out_grad, x > y, axis)


@op("elementwise_min", inputs="X Y", outputs="Out", attrs=ATTRS, lod="X")
def elementwise_min(ctx: OpContext, X: Any, Y: Any, *, axis: int) -> Any:
    """The smaller of X and Y, Y broadcast from dimension `axis` of X on."""
    return ctx.xp.minimum(*aligned(ctx, X, Y, axis))


@elementwise_min.grad(inputs="X Y Out@GRAD", outputs="X@GRAD Y@GRAD", lod=GRAD_LOD)
def elementwise_min_grad(ctx: OpContext, X: Any, Y: Any, Out_grad: Any, *, axis: int) -> dict[str, Any]:
    """dX = dOut where X < Y, dY = dOut elsewhere."""
    grad_lod(ctx)
    x, y = aligned(ctx, X, Y, axis)
    return _shared_out(ctx, X, Y, Out_grad, x < y, axis)


@op("elementwise_fmax", inputs="X Y", outputs="Out", attrs={"axis": -1}, lod="X")
def elementwise_fmax(ctx: OpContext, X: Any, Y: Any, *, axis: int) -> Any:
    """The greater of X and Y, the other one where one is NaN (Paddle 2.x)."""
    return ctx.xp.fmax(*aligned(ctx, X, Y, axis))


@elementwise_fmax.grad(inputs="X Y Out@GRAD", outputs="X@GRAD Y@GRAD", lod=GRAD_LOD)
def elementwise_fmax_grad(ctx: OpContext, X: Any, Y: Any, Out_grad: Any, *, axis: int) -> dict[str, Any]:
    """dX = dOut where X >= Y or Y is NaN, dY = dOut elsewhere."""
    grad_lod(ctx)
    x, y = aligned(ctx, X, Y, axis)
    return _shared_out(ctx, X, Y, Out_grad, (x >= y) | (y != y), axis)


@op("elementwise_fmin", inputs="X Y", outputs="Out", attrs={"axis": -1}, lod="X")
def elementwise_fmin(ctx: OpContext, X: Any, Y: Any, *, axis: int) -> Any:
    """The smaller of X and Y, the other one where one is NaN (Paddle 2.x)."""
    return ctx.xp.fmin(*aligned(ctx, X, Y, axis))


@elementwise_fmin.grad(inputs="X Y Out@GRAD", outputs="X@GRAD Y@GRAD", lod=GRAD_LOD)
def elementwise_fmin_grad(ctx: OpContext, X: Any, Y: Any, Out_grad: Any, *, axis: int) -> dict[str, Any]:
    """dX = dOut where X <= Y or Y is NaN, dY = dOut elsewhere."""
    grad_lod(ctx)
    x, y = aligned(ctx, X, Y, axis)
    return _shared_out(ctx, X, Y, Out_grad, (x <= y) | (y != y), axis)


def _shared_out(ctx: OpContext, X: Any, Y: Any, Out_grad: Any, of_x: Any, axis: int) -> dict[str, Any]:
    """dOut to X where `of_x` holds, to Y elsewhere."""
    return {
        "X@GRAD": summed_to(ctx, Out_grad * of_x, X, Y, axis) if ctx.wants("X@GRAD") else None,
        "Y@GRAD": summed_to(ctx, Out_grad * ~of_x, Y, X, axis) if ctx.wants("Y@GRAD") else None,
    }


for _info in (elementwise_max, elementwise_min, elementwise_fmax, elementwise_fmin):
    _info.infer(broadcast_meta)
