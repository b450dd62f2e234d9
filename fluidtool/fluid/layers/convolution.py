"""Convolutions, transposed, deformable and over rows (Paddle 1.8.5 layers/nn.py)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from fluidtool.errors import ArgumentTypeError, AssertedError, UsageError
from fluidtool.fluid.checks import check_type, check_variable_and_dtype
from fluidtool.fluid.initializer import Normal
from fluidtool.fluid.layer_helper import LayerHelper
from fluidtool.fluid.layers.building import FLOATS, append_simple
from fluidtool.fluid.layers.windows import (
    check_cudnn,
    check_format,
    height_and_width,
    per_dimension,
    read_padding,
)
from fluidtool.ir import Variable
from fluidtool.records import dataclass
from fluidtool.shapes import shape_text


def conv2d(
    input: Variable,
    num_filters: int,
    filter_size: int | Sequence[int],
    stride: int | Sequence[int] = 1,
    padding: Any = 0,
    dilation: int | Sequence[int] = 1,
    groups: int | None = None,
    param_attr: Any = None,
    bias_attr: Any = None,
    use_cudnn: bool = True,
    act: str | None = None,
    name: str | None = None,
    data_format: str = "NCHW",
) -> Variable:
    """Convolution of images [N, C, H, W] (or NHWC) with num_filters filters, plus bias and activation.

    padding: a number, [h, w], [top, bottom, left, right], pairs per dimension, 'SAME' or 'VALID'. With as many groups as
    channels and use_cudnn=False, the convolution is depthwise.
    """
    check_variable_and_dtype(input, "input", FLOATS, "conv2d")
    check_cudnn(use_cudnn)
    channels = _channels(input, check_format(data_format, 2))
    depthwise = channels == groups and num_filters % channels == 0 and not use_cudnn
    op_type = "depthwise_conv2d" if depthwise else "conv2d"
    helper = LayerHelper(op_type, param_attr=param_attr, bias_attr=bias_attr, act=act, name=name, use_cudnn=use_cudnn)
    options = _Options(num_filters, filter_size, stride, padding, dilation, groups, use_cudnn, data_format)
    extra = {"fuse_relu_before_depthwise_conv": False}
    return _convolution(helper, input, options, channels, 2, extra)


def conv3d(
    input: Variable,
    num_filters: int,
    filter_size: int | Sequence[int],
    stride: int | Sequence[int] = 1,
    padding: Any = 0,
    dilation: int | Sequence[int] = 1,
    groups: int | None = None,
    param_attr: Any = None,
    bias_attr: Any = None,
    use_cudnn: bool = True,
    act: str | None = None,
    name: str | None = None,
    data_format: str = "NCDHW",
) -> Variable:
    """conv2d with a depth dimension: [N, C, D, H, W] or NDHWC."""
    helper = LayerHelper("conv3d", param_attr=param_attr, bias_attr=bias_attr, act=act, name=name, use_cudnn=use_cudnn)
    check_cudnn(use_cudnn)
    channels = _channels(input, check_format(data_format, 3))
    options = _Options(num_filters, filter_size, stride, padding, dilation, groups, use_cudnn, data_format)
    return _convolution(helper, input, options, channels, 3, {})


def _channels(input: Variable, last: bool) -> int:
    channels = input.shape[-1] if last else input.shape[1]
    if channels < 0:
        raise UsageError(f"The channel dimmention of the input({input.shape}) should be defined. Received: {channels}.")
    return channels


@dataclass(frozen=True, slots=True)
class _Options:
    """The arguments of a convolution."""

    num_filters: int
    filter_size: Any
    stride: Any
    padding: Any
    dilation: Any
    groups: int | None
    use_cudnn: bool
    data_format: str

    @property
    def channels_last(self) -> bool:
        """Whether channels are the last dimension."""
        return self.data_format.endswith("C")


def _convolution(
    helper: LayerHelper, input: Variable, options: _Options, channels: int, count: int, extra: dict[str, Any]
) -> Variable:
    """Create the filter and append convolution, bias and activation."""
    size = per_dimension(options.filter_size, count, "filter_size")
    padding = read_padding(options.padding, count, options.data_format)
    attrs = {
        "strides": per_dimension(options.stride, count, "stride"),
        "paddings": padding.shortest(count),
        "dilations": per_dimension(options.dilation, count, "dilation"),
        "groups": options.groups,
        "use_cudnn": options.use_cudnn,
        "use_mkldnn": False,
        "padding_algorithm": padding.algorithm,
        "data_format": options.data_format,
        **extra,
    }
    weight = filter_parameter(helper, input, options.num_filters, channels, options.groups, size)
    return _appended(helper, input, weight, attrs, options.channels_last)


def filter_parameter(
    helper: LayerHelper, input: Variable, num_filters: int, channels: int, groups: int | None, size: list[int]
) -> Variable:
    """The filter [num_filters, channels / groups, …], gaussian by its size (He et al. 2015) by default."""
    if helper.param_attr is False:
        raise UsageError("param_attr should not be False here.")
    if groups is not None and channels % groups != 0:
        raise UsageError(
            "the channel of input must be divisible by groups,received: the channel of input is "
            f"{channels}, the shape of input is {input.shape}, the groups is {groups}"
        )
    shape = [num_filters, channels // (groups or 1), *size]
    spread = (2.0 / (math.prod(size) * channels)) ** 0.5
    created: Variable = helper.create_parameter(
        helper.param_attr, shape, input.dtype, default_initializer=Normal(0.0, spread, 0)
    )
    return created


def _appended(
    helper: LayerHelper, input: Variable, weight: Variable, attrs: dict[str, Any], channels_last: bool
) -> Variable:
    """The helper's operator, with bias and activation."""
    inputs = {"Input": input, "Filter": weight}
    out = append_simple(helper, helper.layer_type, inputs, attrs, dtype=input.dtype, slot="Output")
    rank = len(out.shape)
    biased = helper.append_bias_op(out, rank - 1, rank) if channels_last else helper.append_bias_op(out, 1, 2)
    return helper.append_activation(biased)


# ---------------------------------------------------------------- transposed
def conv2d_transpose(
    input: Variable,
    num_filters: int,
    output_size: int | Sequence[int] | None = None,
    filter_size: int | Sequence[int] | None = None,
    padding: Any = 0,
    stride: int | Sequence[int] = 1,
    dilation: int | Sequence[int] = 1,
    groups: int | None = None,
    param_attr: Any = None,
    bias_attr: Any = None,
    use_cudnn: bool = True,
    act: str | None = None,
    name: str | None = None,
    data_format: str = "NCHW",
) -> Variable:
    """The transpose of conv2d; output_size and filter_size may be derived from each other."""
    last = check_format(data_format, 2)
    channels = input.shape[-1] if last else input.shape[1]
    depthwise = channels == groups and num_filters == channels and not use_cudnn
    op_type = "depthwise_conv2d_transpose" if depthwise else "conv2d_transpose"
    helper = LayerHelper(op_type, param_attr=param_attr, bias_attr=bias_attr, act=act, name=name, use_cudnn=use_cudnn)
    options = _Options(num_filters, filter_size, stride, padding, dilation, groups, use_cudnn, data_format)
    return _transposed(helper, input, options, output_size, 2)


def conv3d_transpose(
    input: Variable,
    num_filters: int,
    output_size: int | Sequence[int] | None = None,
    filter_size: int | Sequence[int] | None = None,
    padding: Any = 0,
    stride: int | Sequence[int] = 1,
    dilation: int | Sequence[int] = 1,
    groups: int | None = None,
    param_attr: Any = None,
    bias_attr: Any = None,
    use_cudnn: bool = True,
    act: str | None = None,
    name: str | None = None,
    data_format: str = "NCDHW",
) -> Variable:
    """The transpose of conv3d; output_size and filter_size may be derived from each other."""
    check_format(data_format, 3)
    helper = LayerHelper(
        "conv3d_transpose", param_attr=param_attr, bias_attr=bias_attr, act=act, name=name, use_cudnn=use_cudnn
    )
    options = _Options(num_filters, filter_size, stride, padding, dilation, groups, use_cudnn, data_format)
    return _transposed(helper, input, options, output_size, 3)


def _transposed(helper: LayerHelper, input: Variable, options: _Options, output_size: Any, count: int) -> Variable:
    op_type, last = helper.layer_type, options.channels_last
    if not isinstance(input, Variable):
        raise ArgumentTypeError(f"Input of {op_type} must be Variable")
    if helper.param_attr is False:
        raise UsageError(f"param_attr should not be False in {op_type}.")
    check_cudnn(options.use_cudnn)
    stride = per_dimension(options.stride, count, "stride")
    dilation = per_dimension(options.dilation, count, "dilation")
    padding = read_padding(options.padding, count, options.data_format)
    if options.filter_size is None:
        if output_size is None:
            raise UsageError("output_size must be set when filter_size is None")
        wanted = per_dimension(output_size, count, "output_size")
        sizes = input.shape[1:-1] if last else input.shape[2:]
        both = padding.both_sides(count)
        size = [
            (wanted[i] - (sizes[i] - 1) * stride[i] + both[2 * i] + both[2 * i + 1] - 1) // dilation[i] + 1
            for i in range(count)
        ]
    else:
        size = per_dimension(options.filter_size, count, f"{op_type}.filter_size")
    if output_size is not None and not isinstance(output_size, (int, list, tuple)):
        raise UsageError(f"output_size should be int, list[int] or tuple[int], found {output_size!r}")
    groups = options.groups or 1
    channels = input.shape[-1] if last else input.shape[1]
    weight = helper.create_parameter(helper.param_attr, [channels, options.num_filters // groups, *size], input.dtype)
    attrs = {
        "output_size": [] if output_size is None else per_dimension(output_size, count, "output_size"),
        "strides": stride,
        "paddings": padding.shortest(count),
        "padding_algorithm": padding.algorithm,
        "dilations": dilation,
        "groups": groups,
        "use_cudnn": options.use_cudnn,
        "data_format": "NHWC" if last else "NCHW",
    }
    return _appended(helper, input, weight, attrs, last)


# ---------------------------------------------------------------- others
def deformable_conv(
    input: Variable,
    offset: Variable,
    mask: Variable | None,
    num_filters: int,
    filter_size: int | Sequence[int],
    stride: int | Sequence[int] = 1,
    padding: int | Sequence[int] = 0,
    dilation: int | Sequence[int] = 1,
    groups: int | None = None,
    deformable_groups: int | None = None,
    im2col_step: int | None = None,
    param_attr: Any = None,
    bias_attr: Any = None,
    modulated: bool = True,
    name: str | None = None,
) -> Variable:
    """Convolution at positions moved by `offset` (Dai et al. 2017), weighted by `mask` if modulated (Zhu et al. 2018)."""
    check_variable_and_dtype(input, "input", ("float32", "float64"), "deformable_conv")
    check_variable_and_dtype(offset, "offset", ("float32", "float64"), "deformable_conv")
    check_type(mask, "mask", (Variable, type(None)), "deformable_conv")
    helper = LayerHelper("deformable_conv", param_attr=param_attr, bias_attr=bias_attr, name=name)
    size = per_dimension(filter_size, 2, "filter_size")
    attrs = {
        "strides": per_dimension(stride, 2, "stride"),
        "paddings": per_dimension(padding, 2, "padding"),
        "dilations": per_dimension(dilation, 2, "dilation"),
        "groups": groups,
        "deformable_groups": deformable_groups,
        "im2col_step": im2col_step,
    }
    weight = filter_parameter(helper, input, num_filters, input.shape[1], groups, size)
    inputs = {"Input": input, "Filter": weight, "Offset": offset}
    op_type = "deformable_conv_v1"
    if modulated:
        op_type, inputs["Mask"] = "deformable_conv", mask  # type: ignore[assignment]
    out = append_simple(helper, op_type, inputs, attrs, dtype=input.dtype, slot="Output")
    return helper.append_bias_op(out, 1, 2)


def row_conv(input: Variable, future_context_size: int, param_attr: Any = None, act: str | None = None) -> Variable:
    """Each step with the future_context_size steps after it (Amodei et al. 2015)."""
    helper = LayerHelper("row_conv", param_attr=param_attr, act=act)
    check_variable_and_dtype(input, "input", ("float32",), "row_conv")
    shape = [future_context_size + 1, input.shape[-1]]
    weight = helper.create_parameter(helper.param_attr, shape, input.dtype)
    out = append_simple(helper, "row_conv", {"X": [input], "Filter": [weight]}, dtype=input.dtype)
    return helper.append_activation(out)


def unfold(
    x: Variable,
    kernel_sizes: int | list[int],
    strides: int | list[int] = 1,
    paddings: int | list[int] = 0,
    dilations: int | list[int] = 1,
    name: str | None = None,
) -> Variable:
    """The windows of images as columns, [N, C * k * k, positions]."""
    helper = LayerHelper("unfold", name=name)
    check_variable_and_dtype(x, "x", ("float32", "float64"), "unfold")
    if len(x.shape) != 4:
        raise AssertedError(f"input should be the format of [N, C, H, W], found {shape_text(x.shape)}")
    sides = [paddings] * 4 if isinstance(paddings, int) else paddings
    if not (isinstance(sides, list) and len(sides) in (2, 4)):
        raise UsageError(f"paddings should either be an integer or a list of 2 or 4 integers, found {paddings!r}")
    attrs = {
        "kernel_sizes": height_and_width(kernel_sizes, "kernel_sizes"),
        "strides": height_and_width(strides, "strides"),
        "paddings": sides * (4 // len(sides)),
        "dilations": height_and_width(dilations, "dilations"),
    }
    return append_simple(helper, "unfold", {"X": x}, attrs, dtype=x.dtype, slot="Y")


def im2sequence(
    input: Variable,
    filter_size: int | list[int] = 1,
    stride: int | list[int] = 1,
    padding: int | list[int] = 0,
    input_image_size: Variable | None = None,
    out_stride: int | list[int] = 1,
    name: str | None = None,
) -> Variable:
    """The windows of each image as a sequence, row by row."""
    check_variable_and_dtype(input, "input", ("float32",), "im2sequence")
    sides = [padding] * 2 if isinstance(padding, int) else list(padding)
    attrs = {
        "kernels": [filter_size] * 2 if isinstance(filter_size, int) else filter_size,
        "strides": [stride] * 2 if isinstance(stride, int) else stride,
        "paddings": sides * 2 if len(sides) == 2 else sides,
    }
    inputs = {"X": input}
    if input_image_size is not None:
        inputs["Y"] = input_image_size
        attrs["out_stride"] = per_dimension(out_stride, 2, "out_stride")
    return append_simple(LayerHelper("im2sequence", name=name), "im2sequence", inputs, attrs, dtype=input.dtype)
