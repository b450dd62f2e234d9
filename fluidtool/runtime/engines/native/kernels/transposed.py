"""conv2d_transpose and its gradients, by the kernels of convolutions: each is a gradient of the other."""

from __future__ import annotations

from math import prod
from typing import Any

from fluidtool.ops.context import OpContext
from fluidtool.ops.nn.conv_common import bias_grad, require_like_output
from fluidtool.ops.nn.conv_transpose import TransposedConvolution, plan_transposed
from fluidtool.ops.nn.windows import CHANNELS_LAST
from fluidtool.runtime.engines.native.kernels.convolution import (
    FUSED,
    compute,
    conv_node,
    spreads,
    transposed_node,
    windows_gradient,
)
from fluidtool.runtime.engines.native.kernels.direct import are_floats
from fluidtool.runtime.engines.native.library import Library
from fluidtool.runtime.graph.ir import Node, Shape, UnsupportedError, Value

WORTH = 1 << 24
"""Multiplications from which packing filters and images pays off; below, numpy's products are as fast."""
CHANNELS = 8
"""Of the output, from which on it pays: they fill vectors."""


def conv2d_transpose(library: Library, ctx: OpContext, Input: Any, Filter: Any, Bias: Any) -> Any:
    """fluidtool.ops.nn.conv_transpose.conv2d_transpose without bias and fused activations."""
    if not are_floats(Input, Filter) or Bias is not None or any(ctx.attr(n) for n in FUSED if n in ctx.info.attrs):
        return NotImplemented
    plan = plan_transposed(ctx, Input.shape, Filter.shape)
    if not suits(plan, Input.shape, Filter.shape) or plan.channels < CHANNELS:
        return NotImplemented
    x = Value("Input", Input.shape)
    node = transposed_node(x, Filter, plan.windows, plan.output_shape)
    try:
        return compute(library, {x: Input}, {"Output": node})["Output"]
    except UnsupportedError:
        return NotImplemented


def conv2d_transpose_gradient(
    library: Library, ctx: OpContext, Input: Any, Filter: Any, Bias: Any, Output_grad: Any
) -> Any:
    """The gradient of conv2d_transpose: dInput is a convolution of dOutput, dFilter that of one."""
    if not are_floats(Input, Filter, Output_grad) or any(ctx.attr(n) for n in FUSED if n in ctx.info.attrs):
        return NotImplemented
    plan = plan_transposed(ctx, Input.shape, Filter.shape)
    require_like_output(ctx, "Output@GRAD", Output_grad, plan.output_shape)
    if not suits(plan, Input.shape, Filter.shape):
        return NotImplemented
    x, grad = Value("Input", Input.shape), Value("Output@GRAD", Output_grad.shape)
    (top, bottom), (left, right) = plan.windows.paddings
    nodes: dict[str, Node] = {}
    if ctx.wants("Input@GRAD"):
        nodes["Input@GRAD"] = conv_node(grad, Filter, (top, left, bottom, right), plan.windows, 1, Input.shape)
    if ctx.wants("Filter@GRAD"):
        nodes["Filter@GRAD"] = windows_gradient(grad, x, Filter.shape, plan.windows)
    try:
        grads = compute(library, {x: Input, grad: Output_grad}, nodes)
    except UnsupportedError:
        return NotImplemented
    if ctx.wants("Bias@GRAD"):
        grads["Bias@GRAD"] = bias_grad(Output_grad, plan.data_format)
    return grads


def suits(plan: TransposedConvolution, x: Shape, filters: Shape) -> bool:
    """Whether the kernels apply: images with the channels first, one group, enough work."""
    if len(x) != 4 or plan.data_format in CHANNELS_LAST or plan.groups != 1 or not spreads(plan.windows):
        return False
    return prod(x) * prod(filters[1:]) >= max(WORTH, 1)
