"""Large conv2d and its gradients: of one group with the channels last (images.py), of several on blocked layouts."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from operator import le
from typing import Any

import numpy as np

from fluidtool.ops.context import OpContext
from fluidtool.ops.nn.conv_common import Convolution, bias_grad, plan_convolution, require_like_output
from fluidtool.ops.nn.windows import CHANNELS_LAST, Windows
from fluidtool.records import dataclass
from fluidtool.runtime.engines.native.allocator import lay_out
from fluidtool.runtime.engines.native.binding import bind
from fluidtool.runtime.engines.native.kernels import images
from fluidtool.runtime.engines.native.kernels.direct import Array, are_floats, in_rows
from fluidtool.runtime.engines.native.kernels.last import is_only_last
from fluidtool.runtime.engines.native.layouts import Buffer
from fluidtool.runtime.engines.native.library import Library
from fluidtool.runtime.engines.native.lowering import lower
from fluidtool.runtime.engines.native.lowering.last import Geometry
from fluidtool.runtime.engines.native.lowering.training import bundled
from fluidtool.runtime.engines.native.memory import aligned_floats
from fluidtool.runtime.graph.ir import Graph, Node, Shape, UnsupportedError, Value

WORTH, SHALLOW_WORTH = 1 << 22, 1 << 24
"""Multiplications from which packing filters and images pays off; below, numpy's products are as fast."""
DEPTH, SHALLOW = 32, 8
"""Numbers that make up one result, from which on the first holds, or the second: columns of few are soon laid out."""
GRADIENT_WORTH = 1 << 20
"""The same for gradients."""
LAST_WORTH = 1 << 19
"""The same where the channels are last, and calls are compiled once."""
CHANNELS = 8
"""Of the input, from which on its gradient pays: they fill vectors, and numpy adds up columns for each."""
FILTERS, GRADIENT_FILTERS = 2, 4
"""For each pixel of all images, above which filters take more time to pack than to apply, and for gradients."""
FUSED = ("fuse_relu", "fuse_activation", "fuse_brelu", "fuse_relu_before_depthwise_conv")


def conv2d(library: Library, ctx: OpContext, Input: Any, Filter: Any, Bias: Any, ResidualData: Any) -> Any:
    """fluidtool.ops.nn.conv.conv2d without bias, residual data and fused activations."""
    if not are_floats(Input, Filter) or Bias is not None or ResidualData is not None or is_fused(ctx):
        return NotImplemented
    plan = plan_convolution(ctx, Input.shape, Filter.shape)
    if suits_last(plan, Input):
        return images.convolve(library, geometry_of(plan, Input.shape), Input, Filter)
    if not suits(plan, Input) or not pays(Filter.shape, plan.output_shape):
        return NotImplemented
    (top, bottom), (left, right) = plan.windows.paddings
    x = Value("Input", Input.shape)
    node = conv_node(x, Filter, (top, left, bottom, right), plan.windows, plan.groups, plan.output_shape)
    try:
        return compute(library, {x: Input}, {"Output": node})["Output"]
    except UnsupportedError:
        return NotImplemented


def conv2d_gradient(library: Library, ctx: OpContext, Input: Any, Filter: Any, Bias: Any, Output_grad: Any) -> Any:
    """fluidtool.ops.nn.conv.conv2d_grad: with a stride of one, dInput is a convolution of dOutput."""
    if not are_floats(Input, Filter, Output_grad) or is_fused(ctx):
        return NotImplemented
    plan = plan_convolution(ctx, Input.shape, Filter.shape)
    require_like_output(ctx, "Output@GRAD", Output_grad, plan.output_shape)
    if suits_last(plan, Input) or suits_last(plan, Output_grad):
        return last_gradients(library, ctx, plan, Input, Filter, Output_grad)
    if not suits(plan, Input):
        return NotImplemented
    x, grad = Value("Input", Input.shape), Value("Output@GRAD", Output_grad.shape)
    nodes: dict[str, Node] = {}
    if ctx.wants("Input@GRAD") and (node := input_gradient(plan, grad, Input.shape, Filter)) is not None:
        nodes["Input@GRAD"] = node
    if ctx.wants("Filter@GRAD") and (node := filter_gradient(library, plan, x, grad, Filter.shape)) is not None:
        nodes["Filter@GRAD"] = node
    if not nodes:
        return NotImplemented
    try:
        grads = compute(library, {x: Input, grad: Output_grad}, nodes)
    except UnsupportedError:
        return NotImplemented
    if "Filter@GRAD" in grads:
        grads["Filter@GRAD"] = unbundled(grads["Filter@GRAD"], Filter.shape, plan.groups)
    if ctx.wants("Input@GRAD") and "Input@GRAD" not in grads:
        grads["Input@GRAD"] = plan.input_grad(np, Output_grad, Filter)
    if ctx.wants("Filter@GRAD") and "Filter@GRAD" not in grads:
        grads["Filter@GRAD"] = plan.filter_grad(np, Input, Output_grad)
    if ctx.wants("Bias@GRAD"):
        grads["Bias@GRAD"] = bias_grad(Output_grad, plan.data_format)
    return grads


def last_gradients(
    library: Library, ctx: OpContext, plan: Convolution, x: Array, filters: Array, grad: Array
) -> dict[str, Any]:
    """The gradients that are wanted, of a convolution of one group."""
    geometry, grads = geometry_of(plan, x.shape), {}
    if ctx.wants("Input@GRAD"):
        grads["Input@GRAD"] = images.input_gradient(library, geometry, grad, filters)
    if ctx.wants("Filter@GRAD"):
        grads["Filter@GRAD"] = images.filter_gradient(library, geometry, x, grad)
    if ctx.wants("Bias@GRAD"):
        grads["Bias@GRAD"] = bias_grad(grad, plan.data_format)
    return grads


def geometry_of(plan: Convolution, shape: Shape) -> Geometry:
    """What its kernel calls depend on."""
    windows, ((top, bottom), (left, right)) = plan.windows, plan.windows.paddings
    down, aside = windows.strides
    below, behind = windows.dilations
    pads = (top, left, bottom, right)
    return Geometry(tuple(shape), plan.filter_shape, plan.output_shape, (down, aside), (below, behind), pads)


def suits_last(plan: Convolution, x: Array) -> bool:
    """Whether the kernels with the channels last apply: one group, enough work. Filters of one cell are products of matrices,
    which numpy computes as fast, unless an array has its channels last.
    """
    if x.ndim != 4 or plan.groups != 1 or plan.data_format in CHANNELS_LAST or x.size == 0 or not fits_windows(plan):
        return False
    count, *inner = plan.filter_shape
    pixels = plan.output_shape[0] * prod(plan.output_shape[2:])
    enough = prod(plan.output_shape) * prod(inner) >= LAST_WORTH and FILTERS * pixels >= count
    return enough and (prod(plan.windows.kernel) > 1 or is_only_last(x))


def fits_windows(plan: Convolution) -> bool:
    """Whether windows fit into the image with its padding, of which there is none to cut off."""
    return 0 not in plan.output_shape and all(
        before >= 0 and after >= 0 and size + before + after >= extent
        for size, extent, (before, after) in zip(plan.sizes, plan.windows.extents, plan.windows.paddings, strict=True)
    )


def is_fused(ctx: OpContext) -> bool:
    """Whether the operator does more than convolve."""
    return any(ctx.attr(name) for name in FUSED)


def suits(plan: Convolution, x: Array) -> bool:
    """Whether the kernels apply: images with the channels first, windows of more than one cell that fit."""
    if x.ndim != 4 or plan.data_format in CHANNELS_LAST or prod(plan.windows.kernel) == 1:
        return False
    return x.size > 0 and fits_windows(plan)


def input_gradient(plan: Convolution, grad: Value, shape: Shape, weights: Array) -> Node | None:
    """dInput: dOutput convolved with the reversed filters, their inputs and outputs swapped; None if that is slower."""
    windows = plan.windows
    work, pixels = prod(grad.shape) * prod(weights.shape[1:]), grad.shape[0] * prod(grad.shape[2:])
    if shape[1] < CHANNELS:
        return None
    if not windows.unit_strides:
        return None
    (top, bottom), (left, right) = (
        (extent - 1 - before, size + before - count)
        for extent, (before, _), size, count in zip(
            windows.extents, windows.paddings, plan.sizes, grad.shape[2:], strict=True
        )
    )
    count, inner, *kernel = weights.shape
    turned_shape = (plan.groups * inner, count // plan.groups, *kernel)
    if min(top, bottom, left, right) < 0 or work < GRADIENT_WORTH or FILTERS * pixels < turned_shape[0]:
        return None
    groups = weights.reshape(plan.groups, count // plan.groups, inner, *kernel)
    turned = groups.swapaxes(1, 2)[..., ::-1, ::-1].reshape(turned_shape)
    return conv_node(grad, turned, (top, left, bottom, right), windows, plan.groups, shape)


def filter_gradient(library: Library, plan: Convolution, x: Value, grad: Value, filters: Shape) -> Node | None:
    """dFilter by the library, including the values between groups of few channels; None if numpy is as fast."""
    count, inner, *window = filters
    pixels = grad.shape[0] * prod(grad.shape[2:])
    if pixels * prod(filters) < GRADIENT_WORTH or GRADIENT_FILTERS * pixels < count:
        return None
    try:
        together = bundled(library.width, plan.groups, count // plan.groups, inner)
    except UnsupportedError:
        return None
    return windows_gradient(x, grad, (count, together * inner, *window), plan.windows)


def windows_gradient(x: Value, grad: Value, filters: Shape, windows: Windows) -> Node:
    """For each filter the sum over all windows of x, each times the gradient of its result."""
    (top, bottom), (left, right) = windows.paddings
    attrs = {"weights": Filters(filters), "strides": windows.strides, "dilations": windows.dilations}
    return Node(
        "filter_gradient", [x, grad], Value("Filter@GRAD", filters), attrs | {"pads": (top, left, bottom, right)}
    )


def unbundled(wide: Array, filters: Shape, groups: int) -> Array:
    """The filters' gradient without the values between groups that were computed as one."""
    count, inner, *window = filters
    together = wide.shape[1] // inner
    if together == 1:
        return wide
    blocks = wide.reshape(groups // together, together, count // groups, together, inner, *window)
    found = np.empty((groups // together, together, count // groups, inner, *window), np.float32)
    for number in range(together):
        found[:, number] = blocks[:, number, :, number]
    return found.reshape(filters)


def spreads(windows: Windows) -> bool:
    """Whether there is a kernel for the transpose of these windows: no dilation, no cell outside all windows."""
    padded = min(min(pair) for pair in windows.paddings) >= 0
    return padded and set(windows.dilations) == {1} and all(map(le, windows.strides, windows.kernel))


def transposed_node(x: Value, weights: Array, windows: Windows, shape: Shape) -> Node:
    """[N, O, windows] spread by filters [O, C, kh, kw] over `shape`: a convolution's gradient by its input."""
    (top, _), (left, _) = windows.paddings
    attrs = {"weights": in_rows(weights), "scale": None, "shift": None, "strides": tuple(windows.strides)}
    return Node("conv_transpose", [x], Value("Output", shape), attrs | {"pads": (top, left)})


def pays(filters: Shape, output: Shape) -> bool:
    """Whether the native kernel is faster."""
    depth, pixels = prod(filters[1:]), output[0] * prod(output[2:])
    work = prod(output) * depth
    enough = (depth >= DEPTH and work >= WORTH) or (depth >= SHALLOW and work >= SHALLOW_WORTH)
    return enough and FILTERS * pixels >= filters[0]


@dataclass(frozen=True, slots=True)
class Filters:
    """Filters of which only the shape matters."""

    shape: Shape


def conv_node(
    x: Value, weights: Array, pads: tuple[int, int, int, int], windows: Windows, groups: int, shape: Shape
) -> Node:
    """[N, C, H, W] convolved with [O, C / groups, kh, kw] -> `shape`. pads: top, left, bottom, right."""
    attrs = {"weights": in_rows(weights), "scale": None, "shift": None, "groups": groups, "pads": pads}
    attrs |= {"strides": tuple(windows.strides), "dilations": tuple(windows.dilations)}
    return Node("conv", [x], Value("Output", shape), attrs)


def compute(library: Library, given: Mapping[Value, Array], nodes: Mapping[str, Node]) -> dict[str, Any]:
    """The results of nodes for these arrays, by the nodes' names. Raises UnsupportedError if there is no kernel."""
    graph = Graph(list(given), [node.output for node in nodes.values()], list(nodes.values()))
    lowered = lower(graph, library)
    for buffer, array in zip(lowered.inputs, given.values(), strict=True):
        buffer.array = in_rows(array)
    results = {name: np.empty(node.output.shape, np.float32) for name, node in nodes.items()}
    for buffer, array in zip(lowered.outputs, results.values(), strict=True):
        buffer.array = array
    offsets, size = lay_out(lowered.kernel_calls)
    arena = aligned_floats(size)

    def address(buffer: Buffer) -> int:
        if buffer.role == "arena":
            return int(arena.ctypes.data) + 4 * offsets[buffer]
        return int(buffer.array.ctypes.data)

    library.run(bind(lowered.kernel_calls, address, library.width))
    return results
