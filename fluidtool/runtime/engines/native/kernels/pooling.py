"""The gradient of maximum pooling."""

from __future__ import annotations

from typing import Any

import numpy as np

from fluidtool.ops.context import OpContext
from fluidtool.ops.nn.conv_common import require_like_output
from fluidtool.ops.nn.pool import plan_pooling
from fluidtool.ops.nn.windows import CHANNELS_LAST
from fluidtool.runtime.engines.native.calls import Kind
from fluidtool.runtime.engines.native.kernels.direct import are_floats, have_shape, in_rows, run_step
from fluidtool.runtime.engines.native.library import Library


def pool2d_gradient(library: Library, ctx: OpContext, X: Any, Out: Any, Out_grad: Any) -> Any:
    """What fluidtool.ops.nn.pool.pool2d_grad does with a maximum over NCHW: the first cell that equals it gets all."""
    if not are_floats(X, Out, Out_grad) or X.size == 0 or ctx.attr("pooling_type") != "max":
        return NotImplemented
    plan = plan_pooling(ctx, X.shape)
    require_like_output(ctx, "Out@GRAD", Out_grad, plan.output_shape)
    if plan.data_format in CHANNELS_LAST or not have_shape(plan.output_shape, Out):
        return NotImplemented
    windows, grad = plan.windows, np.empty(X.shape, np.float32)
    planes = plan.batch * plan.channels
    before = [pad for pad, _ in windows.paddings]
    sizes = (planes, *plan.sizes, *plan.counts, *windows.kernel, *windows.strides, *before)
    arrays = (in_rows(X), in_rows(Out), in_rows(Out_grad), grad)
    tasks = min(planes, 4 * library.threads)
    run_step(library, Kind.MAXIMUM_GRADIENT, arrays, dict(enumerate(sizes)), tasks)
    return grad
