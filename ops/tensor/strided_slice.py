"""strided_slice: ranges of some axes, with steps."""

from __future__ import annotations

from typing import Any

from fluidtool.ops.context import InferContext, OpContext
from fluidtool.ops.math.versions import saved_since
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
from fluidtool.ops.tensor.slicing import without_axes

SLOTS = "Input StartsTensor? EndsTensor? StridesTensor? StartsTensorList*? EndsTensorList*? StridesTensorList*?"


def strided_range(ctx: Context, start: int, end: int, stride: int, size: int) -> slice:
    """The Python slice of start:end:stride within `size`.

    Negative ends count from the back; -1 with a negative stride means "past the first one". Going down, Paddle 1.8.5
    counts its steps from the lower end (4:0:-2 gives 3, 1), Paddle 2 from the start (4, 2) but never past element 1 for
    ends below -size. Both as measured.
    """
    later = saved_since(ctx, 2, 0)
    text = f"the range {start}:{end}:{stride} of an axis of size {size}"
    if stride == 0:
        raise ctx.error(f"{text} has the stride 0")
    begin = start + size if start < 0 else start
    if end < 0 and not (end == -1 and stride < 0):
        end = max(end + size, 0) if later else end + size
    forward = begin < end if stride > 0 else begin > end
    if not (forward or (later and begin == end)):
        raise ctx.error(f"{text} is empty: its end is not in the stride's direction")
    low, high = (max(begin, 0), min(end, size)) if stride > 0 else (max(end + 1, 0), min(begin + 1, size))
    if not (low < high or later):
        raise ctx.error(f"{text} is empty")
    if low >= high:
        return slice(0, 0)
    if stride > 0:
        return slice(low, high, stride)
    first = high - 1 if later else low + (high - low - 1) // -stride * -stride
    return slice(first, low - 1 if low else None, stride)


def _slices(
    ctx: OpContext, shape: tuple[int, ...], axes: list[int], starts: list[int], ends: list[int], strides: list[int]
) -> tuple[slice, ...]:
    one_length(ctx, axes=axes, starts=starts, ends=ends, strides=strides)
    cut = [slice(None)] * len(shape)
    for axis, start, end, stride in zip(axes, starts, ends, strides, strict=True):
        place = axis_in(ctx, axis, len(shape), "every axis of axes")
        cut[place] = strided_range(ctx, start, end, stride, shape[place])
    return tuple(cut)


@op(
    "strided_slice",
    inputs=SLOTS,
    outputs="Out",
    attrs={
        "axes": required(INTS),
        "starts": ints(),
        "ends": ints(),
        "strides": ints(),
        "infer_flags": ints(),
        "decrease_axis": ints(),
    },
)
def strided_slice(
    ctx: OpContext,
    Input: Any,
    StartsTensor: Any,
    EndsTensor: Any,
    StridesTensor: Any,
    StartsTensorList: list[Any],
    EndsTensorList: list[Any],
    StridesTensorList: list[Any],
    *,
    axes: list[int],
    starts: list[int],
    ends: list[int],
    strides: list[int],
    decrease_axis: list[int],
) -> Any:
    """Input[..., start:end:stride, ...] for every axis of `axes` (Paddle 1.8.5 strided_slice_op.h)."""
    cut = _slices(
        ctx,
        Input.shape,
        axes,
        integers(ctx, StartsTensor, StartsTensorList, starts),
        integers(ctx, EndsTensor, EndsTensorList, ends),
        integers(ctx, StridesTensor, StridesTensorList, strides),
    )
    out = Input[cut]
    if decrease_axis:
        out = out.reshape(without_axes(ctx, out.shape, decrease_axis, (1,)))
    lod_of_same_rows(ctx, Input, out, "Input")
    return out


@strided_slice.infer
def _(
    ctx: InferContext,
    Input: TensorMeta,
    StartsTensor: TensorMeta | None,
    EndsTensor: TensorMeta | None,
    StridesTensor: TensorMeta | None,
    StartsTensorList: list[TensorMeta],
    EndsTensorList: list[TensorMeta],
    StridesTensorList: list[TensorMeta],
    *,
    axes: list[int],
    starts: list[int],
    ends: list[int],
    strides: list[int],
    infer_flags: list[int],
    decrease_axis: list[int],
) -> TensorMeta:
    low = inferred_integers(StartsTensor, StartsTensorList, starts)
    high = inferred_integers(EndsTensor, EndsTensorList, ends)
    step = inferred_integers(StridesTensor, StridesTensorList, strides)
    told = bool(starts and ends and strides)
    if told:
        one_length(ctx, axes=axes, starts=starts, ends=ends, strides=strides)
    shape = list(Input.shape)
    for i, axis in enumerate(axes):
        place = axis_in(ctx, axis, Input.rank, "every axis of axes")
        if axis in decrease_axis:
            shape[place] = 1
        elif told and infer_flags[i : i + 1] != [-1] and low and high and step and Input.shape[place] >= 0:
            size = Input.shape[place]  # of an axis that is named twice, the later range counts
            shape[place] = len(range(size)[strided_range(ctx, low[i], high[i], step[i], size)])
        else:
            shape[place] = -1
    return meta_of_same_rows(Input, without_axes(ctx, shape, decrease_axis, (1,)) if decrease_axis else shape)


@strided_slice.grad(inputs=SLOTS + " Out@GRAD", outputs="Input@GRAD")
def strided_slice_grad(
    ctx: OpContext,
    Input: Any,
    StartsTensor: Any,
    EndsTensor: Any,
    StridesTensor: Any,
    StartsTensorList: list[Any],
    EndsTensorList: list[Any],
    StridesTensorList: list[Any],
    Out_grad: Any,
    *,
    axes: list[int],
    starts: list[int],
    ends: list[int],
    strides: list[int],
) -> Any:
    """dOut at its places within zeros."""
    cut = _slices(
        ctx,
        Input.shape,
        axes,
        integers(ctx, StartsTensor, StartsTensorList, starts),
        integers(ctx, EndsTensor, EndsTensorList, ends),
        integers(ctx, StridesTensor, StridesTensorList, strides),
    )
    out = ctx.xp.zeros(Input.shape, Out_grad.dtype)
    out[cut] = Out_grad.reshape(out[cut].shape)
    return out
