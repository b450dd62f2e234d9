"""slice: ranges of some axes of a tensor, or of the items of a LoDTensorArray."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fluidtool.ops.context import InferContext, OpContext
from fluidtool.ops.math.versions import saved_since, scalar_shape
from fluidtool.ops.math.wiring import wired
from fluidtool.ops.registry import op
from fluidtool.ops.schema import INTS, TensorMeta, ints, required
from fluidtool.ops.tensor.arguments import (
    Context,
    axis_in,
    inferred_integers,
    integers,
    lod_of_same_rows,
    meta_of_same_rows,
    one_length,
)
from fluidtool.proto.enums import VarType
from fluidtool.tensor import LoDTensor, LoDTensorArray

SLOTS = "Input StartsTensor? EndsTensor? StartsTensorList*? EndsTensorList*?"


def bounds(ctx: Context, start: int, end: int, size: int, axis: int, decreased: bool) -> tuple[int, int]:
    """The range start:end within `size`; negative ends count from the back (Paddle 1.8.5 slice_op.cc).

    -1:0 of an axis that is dropped means its last element. Empty ranges are refused; from Paddle 2.0 on only those whose
    end lies before their start.
    """
    if decreased and start == -1 and end == 0:
        end = size
    low = min(max(start + size if start < 0 else start, 0), size)
    high = min(max(end + size if end < 0 else end, 0), size)
    empty_allowed = saved_since(ctx, 2, 0) and not decreased
    if not (low < high or (low == high and empty_allowed)):
        raise ctx.error(
            f"the range {start}:{end} of axis {axis} of size {size} is empty; its end must be after its start"
        )
    return low, high


def without_axes(
    ctx: Context, shape: Sequence[int], dropped: Sequence[int], if_nothing_is_left: tuple[int, ...]
) -> tuple[int, ...]:
    """`shape` without these axes, each of size 1."""
    places = {axis_in(ctx, axis, len(shape), "every axis of decrease_axis") for axis in dropped}
    for place in places:
        if shape[place] not in (1, -1):
            raise ctx.error(f"axis {place} of decrease_axis must be cut to size 1, found {shape[place]}")
    kept = tuple(size for place, size in enumerate(shape) if place not in places)
    return kept or if_nothing_is_left


def slices(
    ctx: OpContext, shape: Sequence[int], axes: list[int], starts: list[int], ends: list[int], dropped: list[int]
) -> tuple[Any, ...]:
    """One Python slice per axis."""
    one_length(ctx, axes=axes, starts=starts, ends=ends)
    cut = [slice(None)] * len(shape)
    for axis, start, end in zip(axes, starts, ends, strict=True):
        place = axis_in(ctx, axis, len(shape), "every axis of axes")
        cut[place] = slice(*bounds(ctx, start, end, shape[place], axis, axis in dropped))
    return tuple(cut)


def starts_with_rows(axes: Sequence[int], rank: int) -> bool:
    """Whether the first of `axes` is that of the rows: no LoD passes then, even of all rows (Paddle 1.8.5 slice_op.cc)."""
    return bool(axes) and axes[0] in (0, -rank)


def _range_of_items(ctx: OpContext, Input: LoDTensorArray, starts: list[int], ends: list[int]) -> tuple[int, int]:
    if not len(starts) == len(ends) == 1:
        raise ctx.error("a LoDTensorArray is sliced along its one axis: starts and ends must have one number")
    size = len(Input)
    low = max(starts[0] + size if starts[0] < 0 else starts[0], 0)
    high = min(max(ends[0] + size if ends[0] < 0 else ends[0], 0), size)
    if not low < high:
        raise ctx.error(f"the range {starts[0]}:{ends[0]} of a LoDTensorArray of {size} items is empty")
    return low, high


@op(
    "slice",
    inputs=SLOTS,
    outputs="Out",
    attrs={"axes": required(INTS), "starts": ints(), "ends": ints(), "infer_flags": ints(), "decrease_axis": ints()},
)
def slice_(
    ctx: OpContext,
    Input: Any,
    StartsTensor: Any,
    EndsTensor: Any,
    StartsTensorList: list[Any],
    EndsTensorList: list[Any],
    *,
    axes: list[int],
    starts: list[int],
    ends: list[int],
    decrease_axis: list[int],
) -> Any:
    """Input[..., start:end, ...] for every axis of `axes`; the axes of decrease_axis are dropped from the shape."""
    low, high = integers(ctx, StartsTensor, StartsTensorList, starts), integers(ctx, EndsTensor, EndsTensorList, ends)
    if isinstance(Input, LoDTensorArray):
        first, last = _range_of_items(ctx, Input, low, high)
        return Input[first] if decrease_axis else LoDTensorArray(Input[first:last])
    out = Input[slices(ctx, Input.shape, axes, low, high, decrease_axis)]
    out = out.reshape(without_axes(ctx, out.shape, decrease_axis, scalar_shape(ctx))) if decrease_axis else out
    if not starts_with_rows(axes, Input.ndim):
        lod_of_same_rows(ctx, Input, out, "Input")
    return out


@slice_.infer
def _(
    ctx: InferContext,
    Input: TensorMeta,
    StartsTensor: TensorMeta | None,
    EndsTensor: TensorMeta | None,
    StartsTensorList: list[TensorMeta],
    EndsTensorList: list[TensorMeta],
    *,
    axes: list[int],
    starts: list[int],
    ends: list[int],
    infer_flags: list[int],
    decrease_axis: list[int],
) -> TensorMeta:
    if Input.kind == VarType.LOD_TENSOR_ARRAY:
        kind = VarType.LOD_TENSOR if decrease_axis else VarType.LOD_TENSOR_ARRAY
        return TensorMeta(Input.shape, Input.dtype, Input.lod_level, kind)
    low = inferred_integers(StartsTensor, StartsTensorList, starts) or [-1] * len(axes)
    high = inferred_integers(EndsTensor, EndsTensorList, ends) or [-1] * len(axes)
    told_by_inputs = not starts or not ends
    if not told_by_inputs:
        one_length(ctx, axes=axes, starts=starts, ends=ends)
    shape = list(Input.shape)
    for i, axis in enumerate(axes):
        place = axis_in(ctx, axis, Input.rank, "every axis of axes")
        if told_by_inputs or infer_flags[i : i + 1] == [-1] or Input.shape[place] < 0:
            shape[place] = 1 if axis in decrease_axis else -1
        else:
            first, last = bounds(ctx, low[i], high[i], Input.shape[place], axis, axis in decrease_axis)
            shape[place] = last - first
    out = meta_of_same_rows(
        Input, without_axes(ctx, shape, decrease_axis, scalar_shape(ctx)) if decrease_axis else shape
    )
    return out.with_lod_level(0) if starts_with_rows(axes, Input.rank) else out


def _array_grad(ctx: OpContext, Input: LoDTensorArray, grad: Any, starts: list[int], ends: list[int]) -> LoDTensorArray:
    first, last = _range_of_items(ctx, Input, starts, ends)
    given = grad if isinstance(grad, LoDTensorArray) else [LoDTensor(grad)]
    return LoDTensorArray(
        LoDTensor(
            given[i - first].array if first <= i < last and i - first < len(given) else ctx.xp.zeros_like(item.array)
        )
        for i, item in enumerate(Input)
    )


@slice_.grad(inputs=SLOTS + " Out@GRAD", outputs="Input@GRAD")
def slice_grad(
    ctx: OpContext,
    Input: Any,
    StartsTensor: Any,
    EndsTensor: Any,
    StartsTensorList: list[Any],
    EndsTensorList: list[Any],
    Out_grad: Any,
    *,
    axes: list[int],
    starts: list[int],
    ends: list[int],
    decrease_axis: list[int],
) -> Any:
    """dOut at its place within zeros."""
    low, high = integers(ctx, StartsTensor, StartsTensorList, starts), integers(ctx, EndsTensor, EndsTensorList, ends)
    if isinstance(Input, LoDTensorArray):
        return _array_grad(ctx, Input, Out_grad, low, high)
    cut = slices(ctx, Input.shape, axes, low, high, decrease_axis)
    out = ctx.xp.zeros(Input.shape, Out_grad.dtype)
    out[cut] = Out_grad.reshape(out[cut].shape)
    return out


slice_grad.grad_maker(
    wired(
        "slice",
        "Input=Input@GRAD@GRAD StartsTensor EndsTensor StartsTensorList EndsTensorList",
        "Out=Out@GRAD@GRAD",
    )
)
