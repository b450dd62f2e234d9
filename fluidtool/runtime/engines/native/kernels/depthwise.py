"""depthwise_conv2d and its gradients, plane by plane in place."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from fluidtool.ops.context import OpContext
from fluidtool.ops.nn.conv_common import Convolution, plan_convolution, require_like_output
from fluidtool.runtime.engines.native import abi
from fluidtool.runtime.engines.native.kernels.convolution import is_fused, suits
from fluidtool.runtime.engines.native.kernels.direct import Array, are_floats, in_rows, run_call
from fluidtool.runtime.engines.native.library import Library

GRAIN = 1 << 12  # floats worth a thread


def depthwise_conv2d(library: Library, ctx: OpContext, Input: Any, Filter: Any, Bias: Any, ResidualData: Any) -> Any:
    """fluidtool.ops.nn.conv.depthwise_conv2d with one filter per channel and no extras."""
    if not are_floats(Input, Filter) or Bias is not None or ResidualData is not None or is_fused(ctx):
        return NotImplemented
    plan = plan_convolution(ctx, Input.shape, Filter.shape)
    if not by_channel(plan, Input):
        return NotImplemented
    planes = Planes(library, plan, Input)
    out = np.empty(plan.output_shape, np.float32)
    tasks = planes.task_count(prod(out.shape[:2]))
    size = planes.size + planes.reach + planes.size
    arguments = abi.DepthwisePlanes(
        source=in_rows(Input), filters=in_rows(Filter), out=out, scratch=planes.memory(tasks, size),
        offsets=planes.offsets, task_scratch=size, **planes.sizes(),
    )  # fmt: skip
    run_call(library, arguments, tasks)
    return out


def depthwise_conv2d_gradient(
    library: Library, ctx: OpContext, Input: Any, Filter: Any, Bias: Any, Output_grad: Any
) -> Any:
    """fluidtool.ops.nn.conv.depthwise_conv2d_grad with one filter per channel and no bias."""
    if not are_floats(Input, Filter, Output_grad) or is_fused(ctx) or ctx.wants("Bias@GRAD"):
        return NotImplemented
    plan = plan_convolution(ctx, Input.shape, Filter.shape)
    require_like_output(ctx, "Output@GRAD", Output_grad, plan.output_shape)
    if not by_channel(plan, Input):
        return NotImplemented
    planes = Planes(library, plan, Input)
    by_input = np.empty(Input.shape, np.float32) if ctx.wants("Input@GRAD") else None
    by_filter = np.empty(Filter.shape, np.float32) if ctx.wants("Filter@GRAD") else None
    tasks = planes.task_count(Input.shape[1])
    size = 3 * planes.size + 2 * planes.reach
    arguments = abi.DepthwisePlanesGradient(
        source=in_rows(Input), filters=in_rows(Filter), grad=in_rows(Output_grad), source_grad=by_input,
        filters_grad=by_filter, scratch=planes.memory(tasks, size), offsets=planes.offsets, task_scratch=size,
        **planes.sizes(),
    )  # fmt: skip
    run_call(library, arguments, tasks)
    return {"Input@GRAD": by_input, "Filter@GRAD": by_filter}


def by_channel(plan: Convolution, x: Array) -> bool:
    """Whether the kernels apply: images with the channels first, one filter per channel."""
    return suits(plan, x) and plan.groups == x.shape[1] == plan.filter_shape[0]


class Planes:
    """The sizes of a call (src/planes.c): a padded plane, and the other memory of a task."""

    def __init__(self, library: Library, plan: Convolution, x: Array) -> None:
        self.library, self.plan, self.shape = library, plan, x.shape
        windows = plan.windows
        self.rows, self.columns = (
            max(before + size, (count - 1) * stride + extent)
            for size, count, stride, extent, (before, _) in zip(
                plan.sizes, plan.counts, windows.strides, windows.extents, windows.paddings, strict=True
            )
        )
        down, right = (np.arange(taps) * step for taps, step in zip(windows.kernel, windows.dilations, strict=True))
        self.offsets = np.ascontiguousarray((down[:, None] * self.columns + right).reshape(-1), np.int64)

    @property
    def reach(self) -> int:
        """The distance of a window's last cell from its first."""
        return int(self.offsets[-1])

    @property
    def size(self) -> int:
        """Floats of a padded plane, plus some for vectors that extend beyond it."""
        return self.rows * self.columns + 4 * self.library.width

    def task_count(self, most: int) -> int:
        """The number of tasks."""
        return max(1, min(most, 4 * self.library.threads, prod(self.shape) // GRAIN))

    def memory(self, tasks: int, floats: int) -> Array:
        """This many floats for each task."""
        return np.empty(tasks * floats, np.float32)

    def sizes(self) -> dict[str, int]:
        """The common arguments of both kernels."""
        (images, channels, height, width), (rows, columns) = self.shape, self.plan.counts
        (top, _), (left, _) = self.plan.windows.paddings
        down, right = self.plan.windows.strides
        return {
            "images": images, "channels": channels, "source_height": height, "source_width": width, "rows": rows,
            "columns": columns, "stride_h": down, "stride_w": right, "pad_top": top, "pad_left": left,
            "padded_rows": self.rows, "padded_columns": self.columns, "taps": self.offsets.size, "reach": self.reach,
        }  # fmt: skip
