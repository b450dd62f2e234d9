"""flip, reverse and roll: the same numbers in another order along some axes."""

from __future__ import annotations

from typing import Any

from fluidtool.ops.context import InferContext, OpContext
from fluidtool.ops.math.versions import later_attr
from fluidtool.ops.math.wiring import wired
from fluidtool.ops.registry import op
from fluidtool.ops.schema import INTS, TensorMeta, longs, or_variable, required
from fluidtool.ops.tensor.arguments import Context, axis_in, numbers
from fluidtool.ops.traits import Traits
from fluidtool.proto.enums import VarType
from fluidtool.tensor import LoDTensorArray


def _axes(ctx: Context, axes: list[int], rank: int, name: str) -> list[int]:
    places = [axis_in(ctx, axis, rank, f"every axis of {name}") for axis in axes]
    if len(set(places)) != len(places):
        raise ctx.error(f"{name} must name every axis once, found {list(axes)}")
    return places


@op("flip", inputs="X", outputs="Out", attrs={"dims": required(INTS, renamed="axis")}, raw=True)
def flip(ctx: OpContext) -> Any:
    """X backwards along the axes `dims` (Paddle 1.8.5 flip_op.h), which 2.x programs call `axis`."""
    x = ctx.value("X").array
    ctx.set_lod("Out", ctx.lod("X"))
    return ctx.xp.flip(x, tuple(_flipped(ctx, x.ndim)))


def _flipped(ctx: Context, rank: int) -> list[int]:
    name = "axis" if ctx.op.has_attr("axis") else "dims"
    if not ctx.op.has_attr(name):
        raise ctx.error("the required attribute dims (INTS) is missing")
    return _axes(ctx, ctx.op.attr(name), rank, name)


@flip.infer
def _(ctx: InferContext) -> TensorMeta | None:
    x: TensorMeta | None = ctx.meta(ctx.op.input("X")[0])
    if x is not None:
        _flipped(ctx, x.rank)
    return x


flip.grad_maker(wired("flip", "X=Out@GRAD", "Out=X@GRAD"))


@op(
    "reverse",
    inputs="X",
    outputs="Out",
    attrs={"axis": or_variable(required(INTS))},
    traits=Traits(gradient_scope=False),
)
def reverse(ctx: OpContext, X: Any, *, axis: list[int]) -> Any:
    """X backwards along the axes; of a LoDTensorArray the items (Paddle 1.8.5 reverse_op.h, arrays from 2.0 on)."""
    if isinstance(X, LoDTensorArray):
        if list(axis) not in ([0], [-1]):
            raise ctx.error(f"the items of a LoDTensorArray lie along axis 0, found axis {list(axis)}")
        return LoDTensorArray(reversed(X))
    return ctx.xp.flip(X, tuple(_reversed_axes(ctx, axis, X.ndim)))


def _reversed_axes(ctx: Context, axis: list[int], rank: int) -> list[int]:
    if not axis:
        raise ctx.error("axis must name at least one axis, found []")
    return _axes(ctx, axis, rank, "axis")


@reverse.infer
def _(ctx: InferContext, X: TensorMeta, *, axis: list[int]) -> TensorMeta:
    if X.kind != VarType.LOD_TENSOR_ARRAY:
        _reversed_axes(ctx, axis, X.rank)
    return X.with_lod_level(0)


reverse.grad_maker(wired("reverse", "X=Out@GRAD", "Out=X@GRAD"))


def _rolled(ctx: OpContext, X: Any, shifts: list[int], dims: list[int], sign: int) -> Any:
    if ctx.has("ShiftsTensor"):
        shifts = numbers(ctx, ctx.value("ShiftsTensor").array)
    axes = later_attr(ctx, "axis", dims)
    places = _rolled_axes(ctx, X.ndim, shifts, axes)
    if not axes:
        return ctx.xp.roll(X, sign * shifts[0])
    return ctx.xp.roll(X, tuple(sign * shift for shift in shifts), axis=tuple(places))


def _rolled_axes(ctx: Context, rank: int, shifts: list[int], axes: list[int]) -> list[int]:
    """The axes counted from the front; none at all: the flat tensor is rolled. Fails unless each has a shift."""
    if len(axes) != len(shifts) and not (not axes and len(shifts) == 1):
        raise ctx.error(f"dims {list(axes)} and shifts {list(shifts)} must be of one length")
    return [axis_in(ctx, axis, rank, "every axis of dims") for axis in axes]


@op("roll", inputs="X", outputs="Out", attrs={"shifts": longs(), "dims": longs()}, lod="X")
def roll(ctx: OpContext, X: Any, *, shifts: list[int], dims: list[int]) -> Any:
    """X moved by `shifts` along the axes `dims`; what leaves at the end comes in at the front.

    Paddle 1.8.5 roll_op.h. 2.x programs call the axes `axis`, may give the shifts as ShiftsTensor, and without axes roll
    the flat tensor.
    """
    return _rolled(ctx, X, shifts, dims, 1)


@roll.infer
def _(ctx: InferContext, X: TensorMeta, *, shifts: list[int], dims: list[int]) -> TensorMeta:
    if not ctx.op.input("ShiftsTensor"):
        _rolled_axes(ctx, X.rank, shifts, later_attr(ctx, "axis", dims))
    return X


@roll.grad(inputs="X Out@GRAD", outputs="X@GRAD", lod="X")
def roll_grad(ctx: OpContext, X: Any, Out_grad: Any, *, shifts: list[int], dims: list[int]) -> Any:
    """dOut moved back."""
    return _rolled(ctx, Out_grad, shifts, dims, -1)
