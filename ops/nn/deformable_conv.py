"""deformable_conv and deformable_conv_v1: convolution whose kernel positions are moved by learned offsets."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

from fluidtool.ops.context import InferContext, OpContext
from fluidtool.ops.multiply_adds import convolution_multiply_adds
from fluidtool.ops.nn.precision import require_floating, require_shape, widened
from fluidtool.ops.nn.sampling import sample, sample_grad
from fluidtool.ops.nn.windows import UNKNOWN, Windows, lay_windows, require_outputs
from fluidtool.ops.registry import op
from fluidtool.ops.schema import TensorMeta, ints
from fluidtool.records import dataclass
from fluidtool.shapes import shape_text

DEFORMABLE: dict[str, Any] = {
    "strides": ints(1, 1),
    "paddings": ints(0, 0),
    "dilations": ints(1, 1),
    "groups": 1,
    "deformable_groups": 1,
    "im2col_step": 64,
}


@dataclass(frozen=True, slots=True)
class Deformable:
    """One deformable convolution, checked against the shapes; taps = kernel cells, windows = outputs of one channel."""

    layout: Windows
    groups: int
    deformable_groups: int
    counts: tuple[int, ...]
    input_shape: tuple[int, ...]
    filter_shape: tuple[int, ...]

    @property
    def taps(self) -> int:
        """The cells of the kernel."""
        return prod(self.layout.kernel)

    @property
    def output_shape(self) -> tuple[int, ...]:
        """[N, O, windows down, windows across]."""
        return (self.input_shape[0], self.filter_shape[0], *self.counts)

    def planes(self, x: Any) -> Any:
        """[N, C, H, W] -> one row per image and deformable group: [N * deformable groups, C / deformable groups, H, W]."""
        return widened(x).reshape(-1, self.input_shape[1] // self.deformable_groups, *self.input_shape[2:])

    def positions(self, xp: Any, offset: Any) -> list[Any]:
        """Rows and columns [N * deformable groups, taps * windows] that the moved kernels read."""
        moved = widened(offset).reshape(-1, self.taps, 2, *self.counts)
        positions = []
        for axis in (0, 1):
            start, stride = -self.layout.paddings[axis][0], self.layout.strides[axis]
            tap = xp.arange(self.layout.kernel[axis]) * self.layout.dilations[axis] + start
            tap_shape, window_shape = [1, 1, 1, 1], [1, 1, 1, 1]
            tap_shape[axis] = window_shape[2 + axis] = -1
            grid = tap.reshape(tap_shape) + (xp.arange(self.counts[axis]) * stride).reshape(window_shape)
            grid = xp.broadcast_to(grid, (*self.layout.kernel, *self.counts)).reshape(self.taps, *self.counts)
            positions.append((moved[:, :, axis] + grid.astype(moved.dtype)).reshape(len(moved), -1))
        return positions

    def grouped(self, columns: Any) -> Any:
        """Samples -> the right side of the matrix product: [N, groups, C / groups * taps, windows]."""
        return columns.reshape(self.input_shape[0], self.groups, -1, prod(self.counts))

    def matrix(self, weight: Any) -> Any:
        """The filter as [groups, O / groups, C / groups * taps]."""
        return widened(weight).reshape(self.groups, self.filter_shape[0] // self.groups, -1)


def _plan(ctx: OpContext | InferContext, shape: Sequence[int], filter_shape: Sequence[int]) -> Deformable:
    if len(shape) != 4 or len(filter_shape) != 4:
        raise ctx.error(
            f"Input and Filter must have 4 dimensions, found {shape_text(shape)} and {shape_text(filter_shape)}"
        )
    sizes = shape[2:]
    windows = lay_windows(
        ctx, sizes, filter_shape[2:], ctx.attr("strides"), ctx.attr("paddings"), dilations=ctx.attr("dilations")
    )
    groups, deformable_groups = ctx.attr("groups"), ctx.attr("deformable_groups")
    if not (groups > 0 and deformable_groups > 0):
        raise ctx.error(
            f"attributes groups and deformable_groups must be positive, found {groups} and {deformable_groups}"
        )
    if not (shape[1] == UNKNOWN or (shape[1] == filter_shape[1] * groups and shape[1] % deformable_groups == 0)):
        raise ctx.error(
            f"Input {shape_text(shape)} has {shape[1]} channels; Filter {shape_text(filter_shape)} with groups {groups} expects "
            f"{filter_shape[1] * groups}, and deformable_groups {deformable_groups} must divide them"
        )
    if filter_shape[0] % groups != 0:
        raise ctx.error(
            f"Filter {shape_text(filter_shape)} has {filter_shape[0]} output channels, not a multiple of groups {groups}"
        )
    counts = windows.output_sizes(sizes)
    require_outputs(ctx, sizes, windows, counts)
    return Deformable(windows, groups, deformable_groups, counts, tuple(shape), tuple(filter_shape))


def _checked_plan(ctx: OpContext, Input: Any, Offset: Any, Filter: Any, Mask: Any) -> Deformable:
    require_floating(ctx, "Input", Input)
    plan = _plan(ctx, Input.shape, Filter.shape)
    cells = plan.deformable_groups * plan.taps
    why = "deformable_groups, the kernel and the output's sizes"
    require_shape(ctx, "Offset", Offset, (len(Input), 2 * cells, *plan.counts), why)
    if Mask is not None:
        require_shape(ctx, "Mask", Mask, (len(Input), cells, *plan.counts), why)
    return plan


Gather = Callable[[Any, Any, list[Any], Any], Any]
"""Like `gather`."""


def gather(xp: Any, planes: Any, positions: list[Any], mask: Any) -> Any:
    """Samples [planes, channels, places] of planes [planes, channels, H, W], times the mask [planes, places] or None."""
    samples = sample(xp, planes, positions)
    if mask is not None:
        samples *= mask[:, None]
    return samples


def convolve(ctx: OpContext, Input: Any, Offset: Any, Filter: Any, Mask: Any, gather: Gather = gather) -> Any:
    """Filter times the samples at the moved positions, each weighted by its mask."""
    plan, xp = _checked_plan(ctx, Input, Offset, Filter, Mask), ctx.xp
    if not Input.size:
        return xp.zeros(plan.output_shape, dtype=Input.dtype)
    planes = plan.planes(Input)
    mask = None if Mask is None else widened(Mask).reshape(len(planes), -1)
    samples = gather(xp, planes, plan.positions(xp, Offset), mask)
    out = xp.matmul(plan.matrix(Filter), plan.grouped(samples))
    return out.reshape(plan.output_shape).astype(Input.dtype, copy=False)


def _convolve_grad(ctx: OpContext, Input: Any, Offset: Any, Filter: Any, Mask: Any, out_grad: Any) -> dict[str, Any]:
    """Gradients by Input, Offset, Mask and Filter; a position outside the image gives its offset none."""
    plan, xp = _checked_plan(ctx, Input, Offset, Filter, Mask), ctx.xp
    require_shape(ctx, "Output@GRAD", out_grad, plan.output_shape, "the shape of Output")
    planes, positions = plan.planes(Input), plan.positions(xp, Offset)
    samples = sample(xp, planes, positions)
    mask = 1 if Mask is None else widened(Mask).reshape(len(samples), 1, -1)
    rows = widened(out_grad).reshape(len(Input), plan.groups, -1, prod(plan.counts))
    pulled = xp.matmul(plan.matrix(Filter).swapaxes(1, 2), rows).reshape(samples.shape)
    filter_grad = xp.matmul(rows, plan.grouped(samples * mask).swapaxes(2, 3)).sum(axis=0)
    input_grad, slopes = sample_grad(ctx, planes, positions, pulled * mask)
    inside = True
    for position, size in zip(positions, Input.shape[2:], strict=True):
        inside = inside & (position > -1) & (position < size)
    moved = [(slope * inside).reshape(len(samples), plan.taps, 1, *plan.counts) for slope in slopes]
    grads = {
        "Input@GRAD": input_grad.reshape(Input.shape),
        "Offset@GRAD": xp.concatenate(moved, axis=2).reshape(Offset.shape),
        "Filter@GRAD": filter_grad.reshape(Filter.shape),
    }
    if Mask is not None:
        grads["Mask@GRAD"] = (pulled * samples).sum(axis=1).reshape(Mask.shape)
    return {slot: grad.astype(Input.dtype, copy=False) for slot, grad in grads.items()}


@op(
    "deformable_conv",
    inputs="Input Offset Mask Filter",
    outputs="Output",
    attrs=DEFORMABLE,
    multiply_adds=convolution_multiply_adds,
)
def deformable_conv(ctx: OpContext, Input: Any, Offset: Any, Mask: Any, Filter: Any) -> Any:
    """Deformable convolution v2, NCHW: Offset [N, 2 * deformable_groups * taps, H', W'] holds (row, column) moves by kernel
    cell, Mask [N, deformable_groups * taps, H', W'] weights (Paddle 1.8.5 deformable_conv_op.h).
    """
    return convolve(ctx, Input, Offset, Filter, Mask)


@deformable_conv.infer
def _(ctx: InferContext, Input: TensorMeta, Offset: TensorMeta, Mask: TensorMeta, Filter: TensorMeta) -> TensorMeta:
    return Input.with_shape(_plan(ctx, Input.shape, Filter.shape).output_shape).with_lod_level(0)


@deformable_conv.grad(
    inputs="Input Offset Mask Filter Output@GRAD",
    outputs="Input@GRAD Offset@GRAD Mask@GRAD Filter@GRAD",
)
def deformable_conv_grad(
    ctx: OpContext, Input: Any, Offset: Any, Mask: Any, Filter: Any, Output_grad: Any
) -> dict[str, Any]:
    """Gradients by Input, Offset, Mask and Filter."""
    return _convolve_grad(ctx, Input, Offset, Filter, Mask, Output_grad)


@op(
    "deformable_conv_v1",
    inputs="Input Offset Filter",
    outputs="Output",
    attrs=DEFORMABLE,
    multiply_adds=convolution_multiply_adds,
)
def deformable_conv_v1(ctx: OpContext, Input: Any, Offset: Any, Filter: Any) -> Any:
    """Deformable convolution v1: as deformable_conv, without a mask (Paddle 1.8.5 deformable_conv_v1_op.h)."""
    return convolve(ctx, Input, Offset, Filter, None)


@deformable_conv_v1.infer
def _(ctx: InferContext, Input: TensorMeta, Offset: TensorMeta, Filter: TensorMeta) -> TensorMeta:
    return Input.with_shape(_plan(ctx, Input.shape, Filter.shape).output_shape).with_lod_level(0)


@deformable_conv_v1.grad(
    inputs="Input Offset Filter Output@GRAD",
    outputs="Input@GRAD Offset@GRAD Filter@GRAD",
)
def deformable_conv_v1_grad(ctx: OpContext, Input: Any, Offset: Any, Filter: Any, Output_grad: Any) -> dict[str, Any]:
    """Gradients by Input, Offset and Filter."""
    return _convolve_grad(ctx, Input, Offset, Filter, None, Output_grad)
