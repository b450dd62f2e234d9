"""Convolutions and transposed convolutions of two and three dimensions."""

from __future__ import annotations

from typing import Any

import numpy as np

from fluidtool.onnx_export.graph import Graph, Value
from fluidtool.onnx_export.operation import Operation
from fluidtool.onnx_export.operators.activation import activated
from fluidtool.onnx_export.operators.grids import grid_samples
from fluidtool.onnx_export.operators.narrowed import narrow
from fluidtool.onnx_export.registry import need, renders
from fluidtool.ops.nn.conv_common import plan_convolution
from fluidtool.ops.nn.conv_transpose import plan_transposed
from fluidtool.ops.nn.windows import CHANNELS_LAST, Windows


def first(x: Value, data_format: str) -> Value:
    """With channels on axis 1."""
    return x.transpose(0, x.rank - 1, *range(1, x.rank - 1)) if data_format in CHANNELS_LAST else x


def back(x: Value, data_format: str) -> Value:
    """With channels where the program has them."""
    return x.transpose(0, *range(2, x.rank), 1) if data_format in CHANNELS_LAST else x


def pads(windows: Windows) -> list[int]:
    """Paddings as ONNX has them: those before every axis, then those after."""
    return [before for before, _ in windows.paddings] + [after for _, after in windows.paddings]


def per_channel(bias: Value, rank: int) -> Value:
    """A view that broadcasts along axis 1."""
    return bias.reshape([1, -1, *[1] * (rank - 2)])


@renders(
    "conv2d", "depthwise_conv2d", "conv3d", "fused_conv2d", "fused_conv3d", "conv2d_fusion", "fused_conv2d_add_act"
)
def convolution(g: Graph, op: Operation) -> Value:
    x, weights = op["Input"], op["Filter"]
    plan = plan_convolution(op.context, _shape(x), _shape(weights))
    x = first(x, plan.data_format)
    if op.attr("fuse_relu_before_depthwise_conv", False):
        x = x.apply("Relu")
    bias = op.get("Bias")
    same = op.attr("padding_algorithm") == "SAME" and min(plan.sizes) < 0
    where: dict[str, Any] = {"auto_pad": "SAME_UPPER"} if same else {"pads": pads(plan.windows)}
    out = narrow(
        g, "Conv", [x, weights, None if bias is None else bias.flat()],
        strides=list(plan.windows.strides), dilations=list(plan.windows.dilations), group=plan.groups, **where,
    )  # fmt: skip
    out = back(out.shaped((plan.batch, plan.filter_shape[0], *plan.counts)), plan.data_format)
    residual = op.get("ResidualData")
    if residual is not None and op.attr(
        "fuse_residual_connection", op.type in ("conv2d_fusion", "fused_conv2d_add_act")
    ):
        out = out + residual
    return _tail(g, op, out)


def _shape(x: Value) -> tuple[int, ...]:
    need(x.shape is not None, "the number of dimensions of its input is known only at run time")
    return x.shape or ()


def _tail(g: Graph, op: Operation, out: Value) -> Value:
    if op.attr("fuse_relu", False):
        return out.apply("Relu")
    if op.attr("fuse_brelu", False):
        return out.clip(0, op.attr("fuse_brelu_threshold"))
    name = op.attr("fuse_activation", "") or op.attr("activation", "")
    return activated(g, out, name, op.attr("fuse_alpha", 0.0), op.attr("fuse_beta", 0.0))


@renders("conv2d_transpose", "depthwise_conv2d_transpose", "conv3d_transpose")
def transposed(g: Graph, op: Operation) -> Value:
    x, weights = op["Input"], op["Filter"]
    plan = plan_transposed(op.context, _shape(x), _shape(weights))
    x = first(x, plan.data_format)
    windows, sizes = plan.windows, (x.shape or ())[2:]
    need(
        op.attr("padding_algorithm") != "SAME" or min(sizes) >= 0,
        "paddings that depend on sizes known only at run time",
    )
    extra = [int(n) for n in op.attr("output_padding", []) or []]
    before, after = pads(windows)[: len(sizes)], pads(windows)[len(sizes) :]
    cut = min(sizes) < 0 and bool(op.attr("output_size"))
    if cut:
        extra, after = [], [0] * len(sizes)
    elif min(sizes) >= 0:
        least = [
            (size - 1) * stride - before - after + extent
            for size, stride, (before, after), extent in zip(
                sizes, windows.strides, windows.paddings, windows.extents, strict=True
            )
        ]
        extra = [size - low for size, low in zip(plan.sizes, least, strict=True)]
    out = narrow(
        g, "ConvTranspose", [x, weights], strides=list(windows.strides), dilations=list(windows.dilations),
        group=plan.groups, pads=[*before, *(a - e for a, e in zip(after, extra or [0] * len(after), strict=True))]
        if extra and any(extra) and all(a >= e for a, e in zip(after, extra, strict=True)) else [*before, *after],
        output_padding=extra if extra and any(e > a for a, e in zip(after, extra, strict=True)) else None,
    )  # fmt: skip
    if cut:  # all that the windows reach, and zeros beyond
        axes = range(2, out_rank := len(sizes) + 2)
        out = out.pad([0] * out_rank, [0, 0, *(stride - 1 for stride in windows.strides)])
        out = out.slice([0] * len(sizes), list(op.known_ints("output_size")), axes)
    out = out.shaped((plan.batch, plan.channels, *plan.sizes))
    bias = op.get("Bias")
    if bias is not None:
        out = out + per_channel(bias, out.rank)
    return _tail(g, op, back(out, plan.data_format))


@renders("deformable_conv", "deformable_conv_v1")
def deformable(g: Graph, op: Operation) -> Value:
    """Every tap of the kernel is sampled by GridSample where its offset says, then one product gives the outputs."""
    x, offset, weights, mask = op["Input"], op["Offset"], op["Filter"], op.get("Mask")
    strides, paddings, dilations = (list(op.attr(name)) for name in ("strides", "paddings", "dilations"))
    groups, parts = op.attr("groups"), op.attr("deformable_groups")
    _, channels, height, width = x.shape or ()
    need(min(channels, height, width) > 0, "the size of the image is known only at run time")
    out_channels, _, kh, kw = weights.static("filter")
    rows, columns = offset.size(2), offset.size(3)
    taps, n = kh * kw, x.dim(0)
    # [N, parts, taps, (y, x), rows, columns] -> [N * parts, taps * rows, columns]
    moved = offset.reshape([n, parts, taps, 2, rows, columns])
    places = [
        _places(count, stride, pad) for count, stride, pad in zip((rows, columns), strides, paddings, strict=True)
    ]
    ys = np.repeat(np.arange(kh), kw)[:, None, None] * dilations[0] + places[0][None, :, None]
    xs = np.tile(np.arange(kw), kh)[:, None, None] * dilations[1] + places[1][None, None, :]
    y = moved.pick(3, 0) + g.constant(np.broadcast_to(ys, (taps, rows, columns)).astype(x.dtype))
    across = moved.pick(3, 1) + g.constant(np.broadcast_to(xs, (taps, rows, columns)).astype(x.dtype))
    # A cell c of `size` cells is at (2c + 1) / size - 1 of GridSample without aligned corners.
    grid = g.stack([(across * 2 + 1) / width - 1, (y * 2 + 1) / height - 1], -1)
    batch = n * parts if isinstance(n, int) else n * parts if parts > 1 else n
    grid = grid.reshape([batch, taps * rows, columns, 2])
    images = x.reshape([batch, channels // parts, height, width])
    sampled = grid_samples(g, images, grid, "bilinear", "zeros", False)
    sampled = sampled.reshape([n, parts, channels // parts, taps, rows * columns])
    if mask is not None:
        sampled = sampled * mask.reshape([n, parts, 1, taps, rows * columns])
    columns_of = sampled.reshape([n, groups, channels // groups * taps, rows * columns])
    matrix = weights.reshape([groups, out_channels // groups, channels // groups * taps])
    return (matrix @ columns_of).reshape([n, out_channels, rows, columns])


def _places(count: int, stride: int, pad: int) -> Any:
    return np.arange(count) * stride - pad
