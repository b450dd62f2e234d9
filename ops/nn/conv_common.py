"""What the convolution operators share: the plan from attributes and shapes, kernels, inference, second gradients."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from fluidtool.ops.context import InferContext, OpContext
from fluidtool.ops.gradient import GradMakerContext, OpDescription
from fluidtool.ops.math.rectified import rectified
from fluidtool.ops.nn.convolution import convolve, convolve_filter_grad, convolve_input_grad
from fluidtool.ops.nn.fused_activation import activate
from fluidtool.ops.nn.precision import require_floating, widened
from fluidtool.ops.nn.windows import (
    UNKNOWN,
    Windows,
    channels_back,
    channels_first,
    join_shape,
    lay_windows,
    require_outputs,
    split_shape,
)
from fluidtool.ops.quantize.eight_bits import is_8_bits, read_scales, scaled_bias, stored, whole_weights
from fluidtool.ops.schema import TensorMeta
from fluidtool.records import dataclass
from fluidtool.shapes import shape_text


@dataclass(frozen=True, slots=True)
class Convolution:
    """One convolution: its windows, groups and layout, checked against the shapes."""

    windows: Windows
    groups: int
    data_format: str
    batch: int
    sizes: tuple[int, ...]
    filter_shape: tuple[int, ...]
    counts: tuple[int, ...]

    @property
    def output_shape(self) -> tuple[int, ...]:
        """The shape of the output, in the layout of the input."""
        return join_shape(self.batch, self.filter_shape[0], self.counts, self.data_format)

    def forward(self, xp: Any, x: Any, weight: Any) -> Any:
        """The output; 16-bit inputs are summed in float32."""
        cells = widened(channels_first(x, self.data_format))
        out = convolve(xp, cells, widened(weight), self.windows, self.groups, self.counts)
        return channels_back(out.astype(x.dtype, copy=False), self.data_format)

    def input_grad(self, xp: Any, out_grad: Any, weight: Any) -> Any:
        """The gradient by the input."""
        grad = widened(channels_first(out_grad, self.data_format))
        grad = convolve_input_grad(xp, grad, widened(weight), self.windows, self.groups, self.sizes)
        return channels_back(grad.astype(out_grad.dtype, copy=False), self.data_format)

    def filter_grad(self, xp: Any, x: Any, out_grad: Any) -> Any:
        """The gradient by the filter."""
        grad = widened(channels_first(out_grad, self.data_format))
        cells = widened(channels_first(x, self.data_format))
        grad = convolve_filter_grad(xp, cells, grad, self.windows, self.groups, self.filter_shape)
        return grad.astype(x.dtype, copy=False)


def plan_convolution(ctx: OpContext | InferContext, shape: Sequence[int], filter_shape: Sequence[int]) -> Convolution:
    """Read the attributes and check the shapes (Paddle 1.8.5 conv_op.cc); raises OperatorError if they are invalid."""
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
    if UNKNOWN not in (channels, filter_shape[1]) and channels != filter_shape[1] * groups:
        raise ctx.error(
            f"Input {shape_text(shape)} ({data_format}) has {channels} channels; Filter {shape_text(filter_shape)} "
            f"with groups {groups} expects {filter_shape[1]} * {groups}"
        )
    if filter_shape[0] % groups != 0 and filter_shape[0] != UNKNOWN:
        raise ctx.error(
            f"Filter {shape_text(filter_shape)} has {filter_shape[0]} output channels, not a multiple of groups {groups}"
        )
    counts = windows.output_sizes(sizes)
    require_outputs(ctx, sizes, windows, counts)
    return Convolution(windows, groups, data_format, batch, sizes, tuple(filter_shape), counts)


def check_types(ctx: OpContext, Input: Any, Filter: Any) -> None:
    """Refuse integers and inputs of different types."""
    require_floating(ctx, "Input", Input)
    if Input.dtype != Filter.dtype:
        raise ctx.error(f"Input and Filter must have one data type, found {Input.dtype} and {Filter.dtype}")


def check_bias(ctx: OpContext | InferContext, Bias: Any, channels: int) -> None:
    """Refuse a bias that is not as long as the output has channels, where both are known."""
    if Bias is not None and UNKNOWN not in (channels, *Bias.shape) and prod(Bias.shape) != channels:
        raise ctx.error(f"Bias must hold {channels} numbers for this Filter, found shape {shape_text(Bias.shape)}")


def per_channel(bias: Any, rank: int, data_format: str) -> Any:
    """A view of `bias` [C] that broadcasts along the channels."""
    return bias.reshape(join_shape(1, bias.size, [1] * (rank - 2), data_format))


def convolution(ctx: OpContext, Input: Any, Filter: Any, Bias: Any = None, ResidualData: Any = None) -> Any:
    """act(conv(Input, Filter) + Bias + ResidualData).

    Paddle's own CPU kernel reads Bias, ResidualData and the fuse_* attributes only with use_mkldnn; here they count
    whenever a program has them. An Input of 8 bits is one of MKL-DNN's, whose Scale_* attributes count.
    """
    if is_8_bits(Input) and "Scale_in" in ctx.info.attrs:
        return convolution_of_8_bits(ctx, Input, Filter, Bias, ResidualData)
    plan, plain = ctx.settled((Input.shape, Filter.shape), lambda: _settle(ctx, Input, Filter))
    if plain and Bias is None and ResidualData is None:
        check_types(ctx, Input, Filter)
        return plan.forward(ctx.xp, Input, Filter)
    out = convolution_with_bias(ctx, Input, Filter, Bias)
    if ResidualData is not None and ctx.attr("fuse_residual_connection"):
        out = out + ResidualData
    return fused_tail(ctx, out)


def convolution_of_8_bits(ctx: OpContext, Input: Any, Filter: Any, Bias: Any, ResidualData: Any) -> Any:
    """The same in whole numbers, scaled at the end (Paddle 1.8.5 mkldnn/conv_mkldnn_op.cc, ComputeINT8)."""
    xp, plan = ctx.xp, plan_convolution(ctx, Input.shape, Filter.shape)
    check_bias(ctx, Bias, Filter.shape[0])
    scales = read_scales(ctx, Filter.shape[0])
    weights = whole_weights(xp, Filter, scales.weights.reshape(-1, *[1] * (Filter.ndim - 1)))
    sums = plan.forward(xp, Input.astype("float64"), weights)
    if Bias is not None:
        sums += per_channel(scaled_bias(xp, Bias, scales), sums.ndim, plan.data_format)
    out = sums.astype("float32") * per_channel(scales.factor, sums.ndim, plan.data_format)
    if ResidualData is not None and ctx.attr("fuse_residual_connection"):
        scale = 1.0 if scales.out is None else scales.out / ctx.np.float32(ctx.attr("Scale_in_eltwise"))
        out = out + ResidualData.astype("float32") * scale
    positive = ctx.attr("fuse_relu") or ctx.attr("fuse_brelu") or ctx.attr("fuse_activation") in ("relu", "relu6")
    return stored(xp, fused_tail(ctx, out), scales.out, bool(positive))


def _settle(ctx: OpContext, Input: Any, Filter: Any) -> tuple[Convolution, bool]:
    """The plan for these shapes, and whether the attributes ask for no more than that."""
    check_types(ctx, Input, Filter)
    asked = ("fuse_relu", "fuse_brelu", "fuse_activation")
    fused = any(name in ctx.info.attrs and ctx.attr(name) for name in asked)
    return plan_convolution(ctx, Input.shape, Filter.shape), not (fused or _relu_first(ctx))


def convolution_with_bias(ctx: OpContext, Input: Any, Filter: Any, Bias: Any) -> Any:
    """conv(Input, Filter) + Bias, checked."""
    plan, _ = ctx.settled((Input.shape, Filter.shape), lambda: _settle(ctx, Input, Filter))
    check_types(ctx, Input, Filter)
    check_bias(ctx, Bias, Filter.shape[0])
    out = plan.forward(ctx.xp, _before(ctx, Input), Filter)
    return out if Bias is None else out + per_channel(Bias, out.ndim, plan.data_format)


def fused_tail(ctx: OpContext, out: Any) -> Any:
    """The activation that the fuse_* attributes ask for."""
    specs = ctx.info.attrs
    if ctx.attr("fuse_relu"):
        return rectified(ctx.xp, out)
    if "fuse_brelu" in specs and ctx.attr("fuse_brelu"):
        return ctx.xp.clip(out, 0, ctx.attr("fuse_brelu_threshold"))
    return activate(ctx, out, ctx.attr("fuse_activation"), ctx.attr("fuse_alpha"), ctx.attr("fuse_beta"))


def _before(ctx: OpContext, Input: Any) -> Any:
    return rectified(ctx.xp, Input) if _relu_first(ctx) else Input


def _relu_first(ctx: OpContext) -> bool:
    return "fuse_relu_before_depthwise_conv" in ctx.info.attrs and bool(ctx.attr("fuse_relu_before_depthwise_conv"))


def convolution_grad(ctx: OpContext, Input: Any, Filter: Any, out_grad: Any) -> dict[str, Any]:
    """dInput = transposed convolution of dOutput, dFilter = correlation of Input and dOutput, dBias = sum of dOutput."""
    require_plain(ctx)
    check_types(ctx, Input, Filter)
    plan = plan_convolution(ctx, Input.shape, Filter.shape)
    require_like_output(ctx, "Output@GRAD", out_grad, plan.output_shape)
    grads = {}
    if ctx.wants("Input@GRAD"):
        grad = plan.input_grad(ctx.xp, out_grad, Filter)
        grads["Input@GRAD"] = grad * (Input > 0) if _relu_first(ctx) else grad
    if ctx.wants("Filter@GRAD"):
        grads["Filter@GRAD"] = plan.filter_grad(ctx.xp, _before(ctx, Input), out_grad)
    if ctx.wants("Bias@GRAD"):
        grads["Bias@GRAD"] = bias_grad(out_grad, plan.data_format)
    return grads


def require_plain(ctx: OpContext) -> None:
    """Gradients are those of the bare operator: refuse a fused activation."""
    if ctx.attr("fuse_relu") or ctx.attr("fuse_activation"):
        raise ctx.error("its fused activation has no gradient; train the program before fusion")


def require_like_output(ctx: OpContext, slot: str, grad: Any, shape: tuple[int, ...]) -> None:
    """Refuse a gradient that is not shaped like the output."""
    if tuple(grad.shape) != shape:
        raise ctx.error(f"{slot} must have the output's shape {shape_text(shape)}, found {shape_text(grad.shape)}")


def bias_grad(out_grad: Any, data_format: str) -> Any:
    """The sum over everything but channels."""
    grad = widened(channels_first(out_grad, data_format))
    return grad.sum(axis=(0, *range(2, grad.ndim))).astype(out_grad.dtype, copy=False)


def infer_convolution(
    ctx: InferContext,
    Input: TensorMeta,
    Filter: TensorMeta,
    Bias: TensorMeta | None = None,
    ResidualData: TensorMeta | None = None,
) -> TensorMeta:
    """The output's shape; sizes of -1 stay open."""
    check_bias(ctx, Bias, Filter.shape[0] if Filter.rank else UNKNOWN)
    return Input.with_shape(plan_convolution(ctx, Input.shape, Filter.shape).output_shape)


def second_gradient(context: GradMakerContext) -> list[OpDescription]:
    """xxx_grad -> xxx_grad_grad (Paddle's Conv2DDoubleGradMaker): what has no second gradient coming in stays out."""
    ddx, ddw = context.output_grad("Input@GRAD"), context.output_grad("Filter@GRAD")
    inputs = {
        "Input": context.input("Input"),
        "Filter": context.input("Filter"),
        "DOutput": context.input("Output@GRAD"),
        "DDInput": ddx,
        "DDFilter": ddw,
    }
    outputs = {
        "DDOutput": context.input_grad("Output@GRAD") if ddx else [],
        "DFilter": context.input_grad("Filter") if ddx else [],
        "DInput": context.input_grad("Input") if ddw else [],
    }
    return [context.describe(context.op.type + "_grad", inputs, outputs)]


def convolution_grad_grad(
    ctx: OpContext, Input: Any, Filter: Any, DOutput: Any, DDInput: Any, DDFilter: Any
) -> dict[str, Any]:
    """DDOutput = conv(DDInput, Filter) + conv(Input, DDFilter); DFilter and DInput as in the first gradient."""
    check_types(ctx, Input, Filter)
    plan, xp, results = plan_convolution(ctx, Input.shape, Filter.shape), ctx.xp, {}
    parts = []
    if DDInput is not None:
        parts.append((DDInput, Filter))
        if ctx.wants("DFilter"):
            results["DFilter"] = plan.filter_grad(xp, DDInput, DOutput)
    if DDFilter is not None:
        parts.append((Input, DDFilter))
        if ctx.wants("DInput"):
            results["DInput"] = plan.input_grad(xp, DOutput, DDFilter)
    if ctx.wants("DDOutput") and parts:
        results["DDOutput"] = sum(plan.forward(xp, x, weight) for x, weight in parts)
    return results


def infer_grad_grad(
    ctx: InferContext,
    Input: TensorMeta,
    Filter: TensorMeta,
    DOutput: TensorMeta,
    DDInput: TensorMeta | None,
    DDFilter: TensorMeta | None,
) -> dict[str, TensorMeta]:
    """DInput, DFilter and DDOutput are shaped like Input, Filter and DOutput."""
    return {"DInput": Input, "DFilter": Filter, "DDOutput": DOutput}
