"""set_value: x[...] = value, as exported programs of Paddle 2 write it."""

from __future__ import annotations

from math import prod
from typing import Any

from fluidtool.ops.context import InferContext, OpContext
from fluidtool.ops.math.versions import later_attr
from fluidtool.ops.registry import op
from fluidtool.ops.schema import AttrSpec, TensorMeta, longs
from fluidtool.ops.tensor.arguments import axis_in, integers
from fluidtool.ops.tensor.expand import summed_to
from fluidtool.shapes import shape_text

VALUES = ("values", "bool_values", "fp32_values", "int32_values", "int64_values", "fp64_values", "fp16_values")
SLOTS = "StartsTensorList*? EndsTensorList*? StepsTensorList*?"
ATTRS: dict[str, AttrSpec | int] = {
    "dtype": 5,
    "axes": longs(),
    "starts": longs(),
    "ends": longs(),
    "steps": longs(),
    "decrease_axes": longs(),
    "none_axes": longs(),
    "shape": longs(),
}


def _places(
    ctx: OpContext, shape: tuple[int, ...], axes: list[int], starts: list[int], ends: list[int], steps: list[int]
) -> tuple[slice, ...]:
    if not len(axes) == len(starts) == len(ends) == len(steps):
        raise ctx.error(
            f"axes, starts, ends and steps must be of one length, found {[len(v) for v in (axes, starts, ends, steps)]}"
        )
    cut = [slice(None)] * len(shape)
    for axis, start, end, step in zip(axes, starts, ends, steps, strict=True):
        if step == 0:
            raise ctx.error(f"the step of axis {axis} is 0")
        cut[axis_in(ctx, axis, len(shape), "every axis of axes")] = slice(start, end, step)
    return tuple(cut)


def _value_shape(ctx: OpContext, region: tuple[int, ...], dropped: list[int], added: list[int]) -> tuple[int, ...]:
    """The shape that a value for this region has: without the axes of an index, with the axes of None."""
    places = {axis_in(ctx, axis, len(region), "every axis of decrease_axes") for axis in dropped}
    if not all(region[p] == 1 for p in places):
        raise ctx.error(f"decrease_axes {dropped} must have size 1 in {shape_text(region)}")
    shape = [size for axis, size in enumerate(region) if axis not in places]
    for axis in added:
        shape.insert(axis, 1)
    return tuple(shape)


def _given(ctx: OpContext, ValueTensor: Any, shape: list[int], dtype: Any) -> Any:
    """The value: ValueTensor, or the numbers of whichever attribute holds some."""
    if ValueTensor is not None:
        return ValueTensor
    for name in VALUES:
        numbers = later_attr(ctx, name, [])
        if len(numbers):
            if len(numbers) != prod(shape):
                raise ctx.error(f"{name} holds {len(numbers)} numbers for the shape {shape_text(shape)}")
            return ctx.array(numbers).reshape(shape).astype(dtype)
    raise ctx.error("neither ValueTensor nor an attribute holds a value")


@op("set_value", inputs="Input ValueTensor? " + SLOTS, outputs="Out", attrs=ATTRS, lod="Input")
def set_value(
    ctx: OpContext,
    Input: Any,
    ValueTensor: Any,
    StartsTensorList: list[Any],
    EndsTensorList: list[Any],
    StepsTensorList: list[Any],
    *,
    axes: list[int],
    starts: list[int],
    ends: list[int],
    steps: list[int],
    decrease_axes: list[int],
    none_axes: list[int],
    shape: list[int],
) -> Any:
    """Input with a region of it set to a value that is broadcast to it (Paddle 2.6.2 set_value_kernel_impl.h).

    The numbers stand in `values` (2.6) or, by type, in fp32_values and its like (2.0 to 2.4).
    """
    cut = _places(
        ctx,
        Input.shape,
        axes,
        integers(ctx, None, StartsTensorList, starts),
        integers(ctx, None, EndsTensorList, ends),
        integers(ctx, None, StepsTensorList, steps),
    )
    region = tuple(Input[cut].shape)
    wanted = _value_shape(ctx, region, decrease_axes, none_axes)
    value = _given(ctx, ValueTensor, shape, Input.dtype)
    extra = value.ndim - len(wanted)
    if extra > 0 and set(value.shape[:extra]) == {1}:
        value = value.reshape(value.shape[extra:])
    fits = len(value.shape) <= len(wanted) and all(
        have in (1, want) for have, want in zip(value.shape[::-1], wanted[::-1], strict=False)
    )
    if not fits:
        raise ctx.error(
            f"a value of shape {shape_text(value.shape)} cannot be broadcast to the region {shape_text(wanted)}"
        )
    out = Input.copy()
    out[cut] = ctx.xp.broadcast_to(value, wanted).reshape(region)
    return out


@set_value.infer
def _(
    ctx: InferContext,
    Input: TensorMeta,
    ValueTensor: TensorMeta | None,
    StartsTensorList: list[TensorMeta],
    EndsTensorList: list[TensorMeta],
    StepsTensorList: list[TensorMeta],
) -> TensorMeta:
    return Input


@set_value.grad(
    inputs="Out@GRAD ValueTensor? " + SLOTS, outputs="Input@GRAD? ValueTensor@GRAD?", lod="Out@GRAD->Input@GRAD"
)
def set_value_grad(
    ctx: OpContext,
    Out_grad: Any,
    ValueTensor: Any,
    StartsTensorList: list[Any],
    EndsTensorList: list[Any],
    StepsTensorList: list[Any],
    *,
    axes: list[int],
    starts: list[int],
    ends: list[int],
    steps: list[int],
    decrease_axes: list[int],
    none_axes: list[int],
) -> dict[str, Any]:
    """dInput is dOut with zeros in the region; dValueTensor the sum of dOut there over what was broadcast."""
    cut = _places(
        ctx,
        Out_grad.shape,
        axes,
        integers(ctx, None, StartsTensorList, starts),
        integers(ctx, None, EndsTensorList, ends),
        integers(ctx, None, StepsTensorList, steps),
    )
    rest = Out_grad.copy()
    rest[cut] = 0
    if ValueTensor is None:
        return {"Input@GRAD": rest}
    region = Out_grad[cut]
    region = region.reshape(_value_shape(ctx, tuple(region.shape), decrease_axes, none_axes))
    lead = max(ValueTensor.ndim - region.ndim, 0)
    return {
        "Input@GRAD": rest,
        "ValueTensor@GRAD": summed_to(region, ValueTensor.shape[lead:]).reshape(ValueTensor.shape),
    }
