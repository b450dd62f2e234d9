"""Large conv2d and its gradient by the input, on blocked layouts; the filter is packed on every call."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fluidtool.ops.context import OpContext
from fluidtool.ops.nn.conv_common import Convolution, bias_grad, plan_convolution, require_like_output
from fluidtool.ops.nn.windows import CHANNELS_LAST
from fluidtool.runtime.engines.native.arena import lay_out
from fluidtool.runtime.engines.native.bodies.calls import Array, are_floats, in_rows
from fluidtool.runtime.engines.native.graph import Graph, Node, NotNativeError, Shape, Value
from fluidtool.runtime.engines.native.library import Library
from fluidtool.runtime.engines.native.lowering import lower
from fluidtool.runtime.engines.native.steps import Buffer, aligned_floats, finish

WORTH = 1 << 24
"""Multiplications from which on packing filters and images pays; numpy's products are as fast below."""
DEPTH, PIXELS = 64, 16
"""The same for the numbers that make up one result, and for the pixels of all images, for each filter."""
FUSED = ("fuse_relu", "fuse_activation", "fuse_brelu", "fuse_relu_before_depthwise_conv")


def conv2d(library: Library, ctx: OpContext, Input: Any, Filter: Any, Bias: Any, ResidualData: Any) -> Any:
    """What fluidtool.ops.nn.conv.conv2d does without bias, residual data and fused activations."""
    if not are_floats(Input, Filter) or Bias is not None or ResidualData is not None or is_fused(ctx):
        return NotImplemented
    plan = plan_convolution(ctx, Input.shape, Filter.shape)
    if not suits(plan, Input):
        return NotImplemented
    windows = plan.windows
    try:
        return convolve(
            library, Input, Filter, windows.paddings, windows.strides, windows.dilations, plan.groups, plan.output_shape
        )
    except NotNativeError:
        return NotImplemented


def conv2d_gradient(library: Library, ctx: OpContext, Input: Any, Filter: Any, Bias: Any, Output_grad: Any) -> Any:
    """What fluidtool.ops.nn.conv.conv2d_grad does where windows move by one: dInput is a convolution of dOutput."""
    if not are_floats(Input, Filter, Output_grad) or is_fused(ctx) or not ctx.wants("Input@GRAD"):
        return NotImplemented
    plan = plan_convolution(ctx, Input.shape, Filter.shape)
    require_like_output(ctx, "Output@GRAD", Output_grad, plan.output_shape)
    if not suits(plan, Input) or not plan.windows.unit_strides:
        return NotImplemented
    try:
        grads = {"Input@GRAD": input_gradient(library, plan, Input.shape, Filter, Output_grad)}
    except NotNativeError:
        return NotImplemented
    if ctx.wants("Filter@GRAD"):
        grads["Filter@GRAD"] = plan.filter_grad(np, Input, Output_grad)
    if ctx.wants("Bias@GRAD"):
        grads["Bias@GRAD"] = bias_grad(Output_grad, plan.data_format)
    return grads


def is_fused(ctx: OpContext) -> bool:
    """Whether the operator does more than convolve."""
    return any(ctx.attr(name) for name in FUSED)


def suits(plan: Convolution, x: Array) -> bool:
    """Whether the kernels are for it: images with the channels first, windows of more than one cell that fit."""
    windows = plan.windows
    if x.ndim != 4 or plan.data_format in CHANNELS_LAST or prod(windows.kernel) == 1 or x.size == 0:
        return False
    return all(
        before >= 0 and after >= 0 and size + before + after >= extent
        for size, extent, (before, after) in zip(plan.sizes, windows.extents, windows.paddings, strict=True)
    )


def input_gradient(library: Library, plan: Convolution, shape: Shape, weights: Array, out_grad: Array) -> Array:
    """dInput: dOutput convolved with the filters turned round, their inputs and outputs exchanged."""
    windows = plan.windows
    pads = tuple(
        (extent - 1 - before, size + before - count)
        for extent, (before, _), size, count in zip(
            windows.extents, windows.paddings, plan.sizes, out_grad.shape[2:], strict=True
        )
    )
    if min(min(pair) for pair in pads) < 0:
        raise NotNativeError("padding of more than a window")
    count, inner, *kernel = weights.shape
    groups = weights.reshape(plan.groups, count // plan.groups, inner, *kernel)
    turned = groups.swapaxes(1, 2)[..., ::-1, ::-1].reshape(plan.groups * inner, -1, *kernel)
    return convolve(library, out_grad, turned, pads, (1, 1), windows.dilations, plan.groups, shape)


def pays(filters: Shape, output: Shape) -> bool:
    """Whether the native kernel is the faster one."""
    depth, pixels = prod(filters[1:]), output[0] * prod(output[2:])
    return depth >= DEPTH and pixels >= PIXELS * filters[0] and prod(output) * depth >= WORTH


def convolve(
    library: Library,
    x: Array,
    weights: Array,
    pads: tuple[tuple[int, int], ...],
    strides: tuple[int, ...],
    dilations: tuple[int, ...],
    groups: int,
    shape: Shape,
) -> NDArray[np.float32]:
    """[N, C, H, W] by [O, C / groups, kh, kw] -> `shape`. Raises NotNativeError where it does not pay or has no kernel."""
    if not pays(weights.shape, shape):
        raise NotNativeError("a small convolution")
    (top, bottom), (left, right) = pads
    source, out = Value("x", x.shape), Value("y", shape)
    facts = {"weights": in_rows(weights), "scale": None, "shift": None, "groups": groups}
    facts |= {"strides": tuple(strides), "dilations": tuple(dilations), "pads": (top, left, bottom, right)}
    graph = Graph([source], [out], [Node("conv", [source], out, facts)])
    drafts, (read,), (written,) = lower(graph, library)
    result = np.empty(shape, np.float32)
    read.array, written.array = in_rows(x), result
    offsets, size = lay_out(drafts)
    arena = aligned_floats(size)

    def address(buffer: Buffer) -> int:
        if buffer.role == "arena":
            return int(arena.ctypes.data) + 4 * offsets[buffer]
        return int(buffer.array.ctypes.data)

    library.run(finish(drafts, address))
    return result
