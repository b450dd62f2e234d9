"""conv2d_transpose, depthwise_conv2d_transpose, conv3d_transpose: transposed convolution and its gradient."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fluidtool.ops.context import InferContext, OpContext
from fluidtool.ops.multiply_adds import transposed_multiply_adds
from fluidtool.ops.nn.conv_common import (
    bias_grad,
    check_bias,
    check_types,
    fused_tail,
    per_channel,
    require_like_output,
    require_plain,
)
from fluidtool.ops.nn.convolution import convolve, convolve_filter_grad, convolve_input_grad
from fluidtool.ops.nn.precision import widened
from fluidtool.ops.nn.windows import (
    UNKNOWN,
    Windows,
    channels_back,
    channels_first,
    join_shape,
    lay_windows,
    split_shape,
)
from fluidtool.ops.registry import op
from fluidtool.ops.schema import USE_CUDNN, USE_MKLDNN, TensorMeta, ints, or_variable
from fluidtool.ops.traits import Traits
from fluidtool.records import dataclass
from fluidtool.shapes import shape_text

CONV2D_TRANSPOSE: dict[str, Any] = {
    "is_test": False,
    "output_size": or_variable(ints()),
    "groups": 1,
    "dilations": ints(1, 1),
    "strides": ints(1, 1),
    "paddings": ints(0, 0),
    "fuse_relu": False,
    "fuse_activation": "",
    "fuse_alpha": 0.0,
    "fuse_beta": 0.0,
    "data_format": "NCHW",
    "padding_algorithm": "EXPLICIT",
    "workspace_size_MB": 512,
    **USE_CUDNN,
    **USE_MKLDNN,
}
CONV3D_TRANSPOSE: dict[str, Any] = {
    "output_size": or_variable(ints()),
    "dilations": ints(1, 1, 1),
    "strides": ints(1, 1, 1),
    "paddings": ints(0, 0, 0),
    "groups": 1,
    "data_format": "NCHW",
    "padding_algorithm": "EXPLICIT",
    "workspace_size_MB": 512,
    **USE_CUDNN,
    **USE_MKLDNN,
}


@dataclass(frozen=True, slots=True)
class TransposedConvolution:
    """The convolution (from output to input) that this one transposes, and the sizes of the output."""

    windows: Windows
    groups: int
    data_format: str
    batch: int
    channels: int
    sizes: tuple[int, ...]

    @property
    def output_shape(self) -> tuple[int, ...]:
        """The shape of the output, in the layout of the input."""
        return join_shape(self.batch, self.channels, self.sizes, self.data_format)


def plan_transposed(
    ctx: OpContext | InferContext, shape: Sequence[int], filter_shape: Sequence[int]
) -> TransposedConvolution:
    """Read the attributes and check the shapes (Paddle 1.8.5 conv_transpose_op.cc); the filter is [C, O / groups, k...]."""
    if len(shape) not in (4, 5) or len(filter_shape) != len(shape):
        raise ctx.error(
            f"Input must have 4 dimensions (or 5 with depth), and Filter the same number, "
            f"found {shape_text(shape)} and {shape_text(filter_shape)}"
        )
    data_format, groups = ctx.attr("data_format"), ctx.attr("groups")
    if groups <= 0:
        raise ctx.error(f"attribute groups must be positive, found {groups}")
    batch, channels, sizes = split_shape(shape, data_format)
    windows = lay_windows(
        ctx,
        sizes,
        filter_shape[2:],
        ctx.attr("strides"),
        ctx.attr("paddings"),
        ctx.attr("padding_algorithm"),
        ctx.attr("dilations"),
    )
    if UNKNOWN not in (channels, filter_shape[0]) and channels != filter_shape[0]:
        raise ctx.error(
            f"Input {shape_text(shape)} ({data_format}) has {channels} channels; "
            f"Filter {shape_text(filter_shape)} expects {filter_shape[0]}"
        )
    if channels % groups != 0 and channels != UNKNOWN:
        raise ctx.error(
            f"Input {shape_text(shape)} ({data_format}) has {channels} channels, not a multiple of groups {groups}"
        )
    outputs = _output_sizes(ctx, sizes, windows)
    return TransposedConvolution(windows, groups, data_format, batch, filter_shape[1] * groups, outputs)


def _output_sizes(ctx: OpContext | InferContext, sizes: tuple[int, ...], windows: Windows) -> tuple[int, ...]:
    least = tuple(
        (size - 1) * stride - before - after + extent if size != UNKNOWN else UNKNOWN
        for size, stride, (before, after), extent in zip(
            sizes, windows.strides, windows.paddings, windows.extents, strict=True
        )
    )
    wanted = list(ctx.attr("output_size"))
    extra = ctx.op.attr("output_padding") if ctx.op.has_attr("output_padding") else []
    if extra and not wanted:
        wanted = [size + more if size != UNKNOWN else UNKNOWN for size, more in zip(least, extra, strict=True)]
    if len(wanted) not in (0, len(least)):
        raise ctx.error(f"attribute output_size must have {len(least)} numbers, found {wanted}")
    for size, low, stride in zip(wanted, least, windows.strides, strict=False):
        if not (UNKNOWN in (size, low) or low <= size < low + stride):
            raise ctx.error(
                f"attribute output_size {wanted} is out of reach: with strides {windows.strides} the smallest output is "
                f"{least} and each size must be below that plus its stride"
            )
    outputs = tuple(wanted) or least
    if not all(size > 0 or size == UNKNOWN for size in outputs):
        raise ctx.error(
            f"the output would have sizes {outputs}: the paddings {windows.paddings} are larger than Input {sizes} spreads to"
        )
    return outputs


def transposed_convolution(ctx: OpContext, Input: Any, Filter: Any, Bias: Any = None) -> Any:
    """act(transposed convolution of Input by Filter + Bias); Bias counts whenever a program has one."""
    check_types(ctx, Input, Filter)
    plan, xp = plan_transposed(ctx, Input.shape, Filter.shape), ctx.xp
    check_bias(ctx, Bias, plan.channels)
    x = widened(channels_first(Input, plan.data_format))
    out = convolve_input_grad(xp, x, widened(Filter), plan.windows, plan.groups, plan.sizes)
    out = channels_back(out.astype(Input.dtype, copy=False), plan.data_format)
    return out if Bias is None else out + per_channel(Bias, out.ndim, plan.data_format)


def transposed_convolution_grad(ctx: OpContext, Input: Any, Filter: Any, out_grad: Any) -> dict[str, Any]:
    """dInput = convolution of dOutput, dFilter = correlation of dOutput and Input, dBias = sum of dOutput."""
    check_types(ctx, Input, Filter)
    plan, xp = plan_transposed(ctx, Input.shape, Filter.shape), ctx.xp
    require_like_output(ctx, "Output@GRAD", out_grad, plan.output_shape)
    grad = widened(channels_first(out_grad, plan.data_format))
    grads = {}
    if ctx.wants("Input@GRAD"):
        input_grad = convolve(xp, grad, widened(Filter), plan.windows, plan.groups)
        grads["Input@GRAD"] = channels_back(input_grad.astype(Input.dtype, copy=False), plan.data_format)
    if ctx.wants("Filter@GRAD"):
        x = widened(channels_first(Input, plan.data_format))
        filter_grad = convolve_filter_grad(xp, grad, x, plan.windows, plan.groups, Filter.shape)
        grads["Filter@GRAD"] = filter_grad.astype(Input.dtype, copy=False)
    if ctx.wants("Bias@GRAD"):
        grads["Bias@GRAD"] = bias_grad(out_grad, plan.data_format)
    return grads


def infer_transposed(ctx: InferContext, Input: TensorMeta, Filter: TensorMeta) -> TensorMeta:
    """The output's shape; sizes of -1 stay open."""
    return Input.with_shape(plan_transposed(ctx, Input.shape, Filter.shape).output_shape).with_lod_level(0)


@op(
    "conv2d_transpose",
    inputs="Input Filter Bias?",
    outputs="Output",
    attrs=CONV2D_TRANSPOSE,
    traits=Traits(weight="Filter", channel_axis=1),
    multiply_adds=transposed_multiply_adds,
)
def conv2d_transpose(ctx: OpContext, Input: Any, Filter: Any, Bias: Any) -> Any:
    """2-D transposed convolution, NCHW or NHWC, floating point (Paddle 1.8.5 conv_transpose_op.h)."""
    return fused_tail(ctx, transposed_convolution(ctx, Input, Filter, Bias))


@conv2d_transpose.infer
def _(ctx: InferContext, Input: TensorMeta, Filter: TensorMeta, Bias: TensorMeta | None) -> TensorMeta:
    return infer_transposed(ctx, Input, Filter)


@conv2d_transpose.grad(inputs="Input Filter Bias? Output@GRAD", outputs="Input@GRAD Filter@GRAD Bias@GRAD?")
def conv2d_transpose_grad(ctx: OpContext, Input: Any, Filter: Any, Bias: Any, Output_grad: Any) -> dict[str, Any]:
    """Gradients by input, filter and bias."""
    require_plain(ctx)
    return transposed_convolution_grad(ctx, Input, Filter, Output_grad)


@op(
    "depthwise_conv2d_transpose",
    inputs="Input Filter Bias?",
    outputs="Output",
    attrs=CONV2D_TRANSPOSE,
    traits=Traits(weight="Filter", channel_axis=0),
    multiply_adds=transposed_multiply_adds,
)
def depthwise_conv2d_transpose(ctx: OpContext, Input: Any, Filter: Any, Bias: Any) -> Any:
    """conv2d_transpose with as many groups as input channels."""
    return fused_tail(ctx, transposed_convolution(ctx, Input, Filter, Bias))


@depthwise_conv2d_transpose.infer
def _(ctx: InferContext, Input: TensorMeta, Filter: TensorMeta, Bias: TensorMeta | None) -> TensorMeta:
    return infer_transposed(ctx, Input, Filter)


@depthwise_conv2d_transpose.grad(inputs="Input Filter Bias? Output@GRAD", outputs="Input@GRAD Filter@GRAD Bias@GRAD?")
def depthwise_conv2d_transpose_grad(
    ctx: OpContext, Input: Any, Filter: Any, Bias: Any, Output_grad: Any
) -> dict[str, Any]:
    """Gradients by input, filter and bias."""
    require_plain(ctx)
    return transposed_convolution_grad(ctx, Input, Filter, Output_grad)


@op(
    "conv3d_transpose",
    inputs="Input Filter",
    outputs="Output",
    attrs=CONV3D_TRANSPOSE,
    traits=Traits(weight="Filter", channel_axis=1),
    multiply_adds=transposed_multiply_adds,
)
def conv3d_transpose(ctx: OpContext, Input: Any, Filter: Any) -> Any:
    """3-D transposed convolution, NCDHW or NDHWC, floating point (Paddle 1.8.5 conv_transpose_op.h)."""
    return transposed_convolution(ctx, Input, Filter)


@conv3d_transpose.infer
def _(ctx: InferContext, Input: TensorMeta, Filter: TensorMeta) -> TensorMeta:
    return infer_transposed(ctx, Input, Filter)


@conv3d_transpose.grad(inputs="Input Filter Output@GRAD", outputs="Input@GRAD Filter@GRAD")
def conv3d_transpose_grad(ctx: OpContext, Input: Any, Filter: Any, Output_grad: Any) -> dict[str, Any]:
    """Gradients by input and filter."""
    return transposed_convolution_grad(ctx, Input, Filter, Output_grad)
