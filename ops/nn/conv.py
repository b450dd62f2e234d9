"""conv2d, depthwise_conv2d, conv3d and their first and second gradients."""

from __future__ import annotations

from typing import Any

from fluidtool.ops.context import InferContext, OpContext
from fluidtool.ops.multiply_adds import convolution_multiply_adds
from fluidtool.ops.nn.conv_common import (
    convolution,
    convolution_grad,
    convolution_grad_grad,
    infer_convolution,
    infer_grad_grad,
    second_gradient,
)
from fluidtool.ops.registry import op
from fluidtool.ops.schema import USE_CUDNN, USE_MKLDNN, TensorMeta, floats, ints
from fluidtool.ops.traits import Traits

INPUTS, GRAD_INPUTS = "Input Filter Bias? ResidualData?", "Input Filter Bias? Output@GRAD"
GRAD_OUTPUTS = "Input@GRAD Filter@GRAD Bias@GRAD?"
SECOND_INPUTS, SECOND_OUTPUTS = "Input Filter DOutput DDInput? DDFilter?", "DDOutput DFilter DInput"
COMMON: dict[str, Any] = {
    "workspace_size_MB": 512,
    "exhaustive_search": False,
    "fuse_relu": False,
    "fuse_activation": "",
    "fuse_alpha": 0.0,
    "fuse_beta": 0.0,
    **USE_CUDNN,
    **USE_MKLDNN,
}
CONV2D: dict[str, Any] = {
    "is_test": False,
    "strides": ints(1, 1),
    "paddings": ints(0, 0),
    "padding_algorithm": "EXPLICIT",
    "groups": 1,
    "dilations": ints(1, 1),
    "fuse_relu_before_depthwise_conv": False,
    "use_quantizer": False,
    "fuse_brelu": False,
    "fuse_brelu_threshold": 6.0,
    "fuse_residual_connection": False,
    "Scale_in": 1.0,
    "Scale_out": 1.0,
    "Scale_in_eltwise": 1.0,
    "Scale_weights": floats(1.0),
    "force_fp32_output": False,
    "data_format": "NCHW",
    **COMMON,
}
CONV3D: dict[str, Any] = {
    "is_test": False,
    "strides": ints(1, 1, 1),
    "paddings": ints(0, 0, 0),
    "padding_algorithm": "EXPLICIT",
    "groups": 1,
    "dilations": ints(1, 1, 1),
    "fuse_residual_connection": False,
    "data_format": "NCDHW",
    "force_fp32_output": False,
    **COMMON,
}


@op(
    "conv2d",
    inputs=INPUTS,
    outputs="Output",
    attrs=CONV2D,
    lod="Input",
    traits=Traits(weight="Filter", channel_axis=0),
    multiply_adds=convolution_multiply_adds,
)
def conv2d(ctx: OpContext, Input: Any, Filter: Any, Bias: Any, ResidualData: Any) -> Any:
    """2-D convolution, NCHW or NHWC, floating point; Filter is [O, C / groups, kh, kw] in both (Paddle 1.8.5 conv_op.h)."""
    return convolution(ctx, Input, Filter, Bias, ResidualData)


conv2d.infer(infer_convolution)


@conv2d.grad(inputs=GRAD_INPUTS, outputs=GRAD_OUTPUTS)
def conv2d_grad(ctx: OpContext, Input: Any, Filter: Any, Bias: Any, Output_grad: Any) -> dict[str, Any]:
    """Gradients by input, filter and bias."""
    return convolution_grad(ctx, Input, Filter, Output_grad)


conv2d_grad.grad_maker(second_gradient)


@op("conv2d_grad_grad", inputs=SECOND_INPUTS, outputs=SECOND_OUTPUTS, attrs=CONV2D)
def conv2d_grad_grad(
    ctx: OpContext, Input: Any, Filter: Any, DOutput: Any, DDInput: Any, DDFilter: Any
) -> dict[str, Any]:
    """Second gradients of conv2d."""
    return convolution_grad_grad(ctx, Input, Filter, DOutput, DDInput, DDFilter)


conv2d_grad_grad.infer(infer_grad_grad)


@op(
    "depthwise_conv2d",
    inputs=INPUTS,
    outputs="Output",
    attrs=CONV2D,
    lod="Input",
    traits=Traits(weight="Filter", channel_axis=0),
    multiply_adds=convolution_multiply_adds,
)
def depthwise_conv2d(ctx: OpContext, Input: Any, Filter: Any, Bias: Any, ResidualData: Any) -> Any:
    """conv2d with as many groups as input channels (Paddle 1.8.5 conv_op.cc: on the CPU the same kernel as conv2d)."""
    return convolution(ctx, Input, Filter, Bias, ResidualData)


depthwise_conv2d.infer(infer_convolution)


@depthwise_conv2d.grad(inputs=GRAD_INPUTS, outputs=GRAD_OUTPUTS)
def depthwise_conv2d_grad(ctx: OpContext, Input: Any, Filter: Any, Bias: Any, Output_grad: Any) -> dict[str, Any]:
    """Gradients by input, filter and bias."""
    return convolution_grad(ctx, Input, Filter, Output_grad)


@op("depthwise_conv2d_grad_grad", inputs=SECOND_INPUTS, outputs=SECOND_OUTPUTS, attrs=CONV2D)
def depthwise_conv2d_grad_grad(
    ctx: OpContext, Input: Any, Filter: Any, DOutput: Any, DDInput: Any, DDFilter: Any
) -> dict[str, Any]:
    """Second gradients of depthwise_conv2d: an operator of Paddle 2.x programs; 1.8.5 makes none."""
    return convolution_grad_grad(ctx, Input, Filter, DOutput, DDInput, DDFilter)


depthwise_conv2d_grad_grad.infer(infer_grad_grad)


@op(
    "conv3d",
    inputs="Input Filter ResidualData?",
    outputs="Output",
    attrs=CONV3D,
    lod="Input",
    traits=Traits(weight="Filter", channel_axis=0),
    multiply_adds=convolution_multiply_adds,
)
def conv3d(ctx: OpContext, Input: Any, Filter: Any, ResidualData: Any) -> Any:
    """3-D convolution, NCDHW or NDHWC, floating point; Filter is [O, C / groups, kd, kh, kw] (Paddle 1.8.5 conv_op.h)."""
    return convolution(ctx, Input, Filter, None, ResidualData)


@conv3d.infer
def _(ctx: InferContext, Input: TensorMeta, Filter: TensorMeta, ResidualData: TensorMeta | None) -> TensorMeta:
    return infer_convolution(ctx, Input, Filter)


@conv3d.grad(inputs="Input Filter ResidualData? Output@GRAD", outputs="Input@GRAD Filter@GRAD")
def conv3d_grad(ctx: OpContext, Input: Any, Filter: Any, ResidualData: Any, Output_grad: Any) -> dict[str, Any]:
    """Gradients by input and filter."""
    return convolution_grad(ctx, Input, Filter, Output_grad)


conv3d_grad.grad_maker(second_gradient)


@op("conv3d_grad_grad", inputs=SECOND_INPUTS, outputs=SECOND_OUTPUTS, attrs=CONV3D)
def conv3d_grad_grad(
    ctx: OpContext, Input: Any, Filter: Any, DOutput: Any, DDInput: Any, DDFilter: Any
) -> dict[str, Any]:
    """Second gradients of conv3d."""
    return convolution_grad_grad(ctx, Input, Filter, DOutput, DDInput, DDFilter)


conv3d_grad_grad.infer(infer_grad_grad)
