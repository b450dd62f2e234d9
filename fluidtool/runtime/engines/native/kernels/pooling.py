"""The gradient of maximum pooling."""

from __future__ import annotations

from typing import Any

import numpy as np

from fluidtool.ops.context import OpContext
from fluidtool.ops.nn.conv_common import require_like_output
from fluidtool.ops.nn.pool import plan_pooling
from fluidtool.ops.nn.windows import CHANNELS_LAST
from fluidtool.runtime.engines.native import abi
from fluidtool.runtime.engines.native.kernels.direct import are_floats, have_shape, in_rows, run_call
from fluidtool.runtime.engines.native.library import Library


def pool2d_gradient(library: Library, ctx: OpContext, X: Any, Out: Any, Out_grad: Any) -> Any:
    """fluidtool.ops.nn.pool.pool2d_grad for a maximum over NCHW: the first cell that equals it gets the whole gradient."""
    if not are_floats(X, Out, Out_grad) or X.size == 0 or ctx.attr("pooling_type") != "max":
        return NotImplemented
    plan = plan_pooling(ctx, X.shape)
    require_like_output(ctx, "Out@GRAD", Out_grad, plan.output_shape)
    if plan.data_format in CHANNELS_LAST or not have_shape(plan.output_shape, Out):
        return NotImplemented
    windows, grad = plan.windows, np.empty(X.shape, np.float32)
    planes = plan.batch * plan.channels
    (height, width), (rows, columns), (window_h, window_w) = plan.sizes, plan.counts, windows.kernel
    (stride_h, stride_w), ((top, _), (left, _)) = windows.strides, windows.paddings
    arguments = abi.MaximumGradient(
        source=in_rows(X), maxima=in_rows(Out), grad=in_rows(Out_grad), out=grad, planes=planes, source_height=height,
        source_width=width, rows=rows, columns=columns, window_h=window_h, window_w=window_w, stride_h=stride_h,
        stride_w=stride_w, pad_top=top, pad_left=left,
    )  # fmt: skip
    run_call(library, arguments, min(planes, 4 * library.threads))
    return grad
