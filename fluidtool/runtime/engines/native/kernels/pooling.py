"""Pooling where the channels are last, and its gradient; that of a maximum where they are first."""

from __future__ import annotations

from typing import Any

import numpy as np

from fluidtool.ops.context import OpContext
from fluidtool.ops.math.versions import saved_since
from fluidtool.ops.nn.conv_common import require_like_output
from fluidtool.ops.nn.pool import Pooling, plan_pooling
from fluidtool.ops.nn.windows import CHANNELS_LAST
from fluidtool.runtime.engines.native import abi
from fluidtool.runtime.engines.native.kernels.direct import Array, are_floats, have_shape, in_rows, run_call
from fluidtool.runtime.engines.native.kernels.last import empty_last, is_only_last, memory_of
from fluidtool.runtime.engines.native.library import Library

MAXIMUM, AVERAGE, INCLUSIVE = 0, 1, 2  # modes of src/training.c


def pool2d(library: Library, ctx: OpContext, X: Any) -> Any:
    """fluidtool.ops.nn.pool.pool2d for NCHW whose channels are last in memory."""
    if not are_floats(X) or X.size == 0 or not is_only_last(X):
        return NotImplemented
    plan = plan_pooling(ctx, X.shape)
    if not suits_last(ctx, plan):
        return NotImplemented
    out = empty_last(plan.output_shape)
    arguments = abi.PoolLast(source=memory_of(X), out=memory_of(out), **sizes_of(plan), mode=mode_of(ctx, plan))
    run_call(library, arguments, min(plan.batch * plan.counts[0], 4 * library.threads))
    return out


def pool2d_gradient(library: Library, ctx: OpContext, X: Any, Out: Any, Out_grad: Any) -> Any:
    """fluidtool.ops.nn.pool.pool2d_grad for NCHW: the first cell of a window that equals a maximum gets the whole gradient.
    Averages only where the channels are last in memory.
    """
    if not are_floats(X, Out, Out_grad) or X.size == 0:
        return NotImplemented
    plan = plan_pooling(ctx, X.shape)
    require_like_output(ctx, "Out@GRAD", Out_grad, plan.output_shape)
    if plan.data_format in CHANNELS_LAST or not have_shape(plan.output_shape, Out):
        return NotImplemented
    if is_only_last(X) and suits_last(ctx, plan):
        return gradient_last(library, plan, mode_of(ctx, plan), X, Out, Out_grad)
    return first_maxima(library, plan, X, Out, Out_grad) if plan.maximum else NotImplemented


def suits_last(ctx: OpContext, plan: Pooling) -> bool:
    """Whether the kernels with the channels last apply: windows of one size, each with a cell of the image."""
    if plan.data_format in CHANNELS_LAST or (plan.adaptive and not plan.maximum):
        return False
    if not (plan.maximum or ctx.attr("exclusive")) and saved_since(ctx, 2, 0):
        return False
    windows = plan.windows
    return all(
        0 <= before < window and (count - 1) * stride - before < size
        for size, count, window, stride, (before, _) in zip(
            plan.sizes, plan.counts, windows.kernel, windows.strides, windows.paddings, strict=True
        )
    )


def mode_of(ctx: OpContext, plan: Pooling) -> int:
    """What the kernels call it."""
    return MAXIMUM if plan.maximum else AVERAGE if ctx.attr("exclusive") else INCLUSIVE


def sizes_of(plan: Pooling) -> dict[str, int]:
    """The arguments of both kernels."""
    (height, width), (rows, columns), (window_h, window_w) = plan.sizes, plan.counts, plan.windows.kernel
    (stride_h, stride_w), ((top, _), (left, _)) = plan.windows.strides, plan.windows.paddings
    return {
        "images": plan.batch, "channels": plan.channels, "source_height": height, "source_width": width, "rows": rows,
        "columns": columns, "window_h": window_h, "window_w": window_w, "stride_h": stride_h, "stride_w": stride_w,
        "pad_top": top, "pad_left": left,
    }  # fmt: skip


def gradient_last(library: Library, plan: Pooling, mode: int, x: Array, out: Array, out_grad: Array) -> Array:
    """The gradient where the channels are last."""
    grad = empty_last(x.shape)
    source, maxima = (None, None) if mode else (memory_of(x), memory_of(out))
    arguments = abi.PoolLastGradient(
        source=source, maxima=maxima, grad=memory_of(out_grad), out=memory_of(grad), **sizes_of(plan), mode=mode
    )
    run_call(library, arguments, min(plan.batch, 4 * library.threads))
    return grad


def first_maxima(library: Library, plan: Pooling, X: Array, Out: Array, Out_grad: Array) -> Array:
    """The gradient of a maximum over planes."""
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
