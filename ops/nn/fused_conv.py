"""Convolutions as the inference passes of later versions write them: with bias, residual and activation."""

from __future__ import annotations

from typing import Any

from fluidtool.ops.context import InferContext, OpContext
from fluidtool.ops.multiply_adds import convolution_multiply_adds
from fluidtool.ops.nn.conv_common import convolution_with_bias, infer_convolution
from fluidtool.ops.nn.fused_activation import activate
from fluidtool.ops.registry import op
from fluidtool.ops.schema import TensorMeta, ints
from fluidtool.ops.traits import Traits

CONVOLUTION: dict[str, Any] = {
    "strides": ints(1, 1),
    "paddings": ints(0, 0),
    "padding_algorithm": "EXPLICIT",
    "dilations": ints(1, 1),
    "groups": 1,
    "data_format": "NCHW",
}
WITH_ACTIVATION: dict[str, Any] = {
    **CONVOLUTION,
    "activation": "relu",
    "split_channels": ints(),
    "exhaustive_search": False,
    "workspace_size_MB": 32,
    "fuse_alpha": 0.0,
}
ONEDNN: dict[str, Any] = {
    **CONVOLUTION,
    "mkldnn_data_type": "float32",
    "fuse_activation": "",
    "fuse_alpha": 0.0,
    "fuse_beta": 0.0,
    "fuse_residual_connection": False,
    "force_fp32_output": False,
    "use_mkldnn": True,
}
INPUTS = "Input Filter Bias? ResidualData?"


def _conv_add_act(ctx: OpContext, Input: Any, Filter: Any, Bias: Any, ResidualData: Any) -> dict[str, Any]:
    """Output = act(conv + Bias + ResidualData); Outputs are its channels, split as split_channels says."""
    out = convolution_with_bias(ctx, Input, Filter, Bias)
    if ResidualData is not None:
        out = out + ResidualData
    out = activate(ctx, out, ctx.attr("activation"), ctx.attr("fuse_alpha"))
    sections = ctx.attr("split_channels")
    if not ctx.wants("Outputs") or not sections:
        return {"Output": out}
    if sum(sections) != out.shape[1]:
        raise ctx.error(f"attribute split_channels {sections} must add up to the {out.shape[1]} channels")
    ends = [sum(sections[: i + 1]) for i in range(len(sections))]
    return {"Output": out, "Outputs": [out[:, end - size : end] for size, end in zip(sections, ends, strict=True)]}


def _infer_conv_add_act(
    ctx: InferContext, Input: TensorMeta, Filter: TensorMeta, Bias: TensorMeta | None, ResidualData: TensorMeta | None
) -> dict[str, Any]:
    out = infer_convolution(ctx, Input, Filter)
    sections = ctx.attr("split_channels")
    parts = [out.with_shape([out.shape[0], size, *out.shape[2:]]) for size in sections]
    return {"Output": out, "Outputs": parts}


@op(
    "conv2d_fusion",
    inputs=INPUTS,
    outputs="Output Outputs*?",
    attrs=WITH_ACTIVATION,
    lod="Input->Output",
    traits=Traits(weight="Filter", channel_axis=0),
    multiply_adds=convolution_multiply_adds,
)
def conv2d_fusion(ctx: OpContext, Input: Any, Filter: Any, Bias: Any, ResidualData: Any) -> dict[str, Any]:
    """act(conv2d(Input, Filter) + Bias + ResidualData) (Paddle 1.8 fused/conv_fusion_op.cc).

    Output has the LoD of Input, as that of conv2d has; Paddle's fused operator drops it.
    """
    return _conv_add_act(ctx, Input, Filter, Bias, ResidualData)


conv2d_fusion.infer(_infer_conv_add_act)


@op("fused_conv2d_add_act", inputs=INPUTS, outputs="Output Outputs*?", attrs=WITH_ACTIVATION)
def fused_conv2d_add_act(ctx: OpContext, Input: Any, Filter: Any, Bias: Any, ResidualData: Any) -> dict[str, Any]:
    """act(conv2d(Input, Filter) + Bias + ResidualData): conv2d_fusion under its later name (Paddle 2.6)."""
    return _conv_add_act(ctx, Input, Filter, Bias, ResidualData)


fused_conv2d_add_act.infer(_infer_conv_add_act)


def _onednn(ctx: OpContext, Input: Any, Filter: Any, Bias: Any, ResidualData: Any) -> Any:
    out = convolution_with_bias(ctx, Input, Filter, Bias)
    if ResidualData is not None and ctx.attr("fuse_residual_connection"):
        out = out + ResidualData
    return activate(ctx, out, ctx.attr("fuse_activation"), ctx.attr("fuse_alpha"), ctx.attr("fuse_beta"))


def _infer_onednn(
    ctx: InferContext, Input: TensorMeta, Filter: TensorMeta, Bias: TensorMeta | None, ResidualData: TensorMeta | None
) -> TensorMeta:
    return infer_convolution(ctx, Input, Filter)


@op("fused_conv2d", inputs=INPUTS, outputs="Output", attrs=ONEDNN)
def fused_conv2d(ctx: OpContext, Input: Any, Filter: Any, Bias: Any, ResidualData: Any) -> Any:
    """act(conv2d(Input, Filter) + Bias + ResidualData), as Paddle 2.6's oneDNN passes write it."""
    return _onednn(ctx, Input, Filter, Bias, ResidualData)


fused_conv2d.infer(_infer_onednn)


@op("fused_conv3d", inputs=INPUTS, outputs="Output", attrs=ONEDNN)
def fused_conv3d(ctx: OpContext, Input: Any, Filter: Any, Bias: Any, ResidualData: Any) -> Any:
    """act(conv3d(Input, Filter) + Bias + ResidualData), as Paddle 2.6's oneDNN passes write it."""
    return _onednn(ctx, Input, Filter, Bias, ResidualData)


fused_conv3d.infer(_infer_onednn)
