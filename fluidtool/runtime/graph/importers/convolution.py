"""Convolutions, pooling, normalization by channel."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fluidtool.ir import Operator
from fluidtool.records import dataclass
from fluidtool.runtime.graph.importers.quantization import use_8_bits
from fluidtool.runtime.graph.importers.registry import ADD, MULTIPLY, GraphBuilder, imports, need
from fluidtool.runtime.graph.ir import Activation, Shape, Value


def padding(
    attrs: Mapping[str, Any], size: Shape, window: Sequence[int], strides: Sequence[int], dilations: Any
) -> Any:
    """(top, left, bottom, right) by Paddle 1.8's `padding_algorithm`."""
    algorithm, pads = attrs.get("padding_algorithm", "EXPLICIT"), [int(p) for p in attrs["paddings"]]
    if algorithm == "VALID":
        return 0, 0, 0, 0
    if algorithm == "SAME":
        sums = [
            max((-(-n // s) - 1) * s + w - n, 0) for n, w, s in zip(size, window, strides, strict=True)
        ]  # Paddle sets the dilations to 1
        need(tuple(dilations) == (1, 1), "SAME padding of a dilated window")
        return sums[0] // 2, sums[1] // 2, sums[0] - sums[0] // 2, sums[1] - sums[1] // 2
    need(algorithm == "EXPLICIT" and len(pads) in (2, 4), "unsupported paddings")
    if len(pads) == 2:
        return pads[0], pads[1], pads[0], pads[1]
    return pads[0], pads[2], pads[1], pads[3]


@dataclass(frozen=True, slots=True)
class Windows:
    """The windows of a convolution: pads are (top, left, bottom, right), results [n, count, h, w]; of volumes likewise."""

    strides: Shape
    dilations: Shape
    pads: Shape
    results: Shape


def windows_of(attrs: Mapping[str, Any], images: Shape, filters: Shape) -> Windows:
    """The windows of filters [count, c of a group, h, w] over images [n, c, h, w]; raises UnsupportedError if they do not fit."""
    strides, dilations = tuple(attrs["strides"]), tuple(attrs["dilations"])
    groups, (count, inner, *window) = int(attrs["groups"]), filters
    need(groups > 0 and inner * groups == images[1] and count % groups == 0, "filters that do not match the channels")
    need(
        len(strides) == len(dilations) == len(window) == 2 and min(*strides, *dilations) > 0,
        "strides that do not match the window",
    )
    top, left, bottom, right = padding(attrs, images[2:], window, strides, dilations)
    rows, columns = (
        (n + before + after - (d * (w - 1) + 1)) // s + 1
        for n, before, after, d, w, s in zip(
            images[2:], (top, left), (bottom, right), dilations, window, strides, strict=True
        )
    )
    need(min(rows, columns, top + 1, left + 1, bottom + 1, right + 1) > 0, "windows that do not fit the image")
    return Windows(strides, dilations, (top, left, bottom, right), (images[0], count, rows, columns))


@imports("conv2d", "depthwise_conv2d")
def _conv(r: GraphBuilder, op: Operator, attrs: dict[str, Any]) -> None:
    x, weights = r.get(op, "Input"), r.constant(op, "Filter")
    need(attrs.get("data_format", "NCHW") in ("NCHW", "AnyLayout"), "convolution in NHWC")
    need(not attrs.get("fuse_relu_before_depthwise_conv"), "ReLU before a depthwise convolution")
    need(not op.inputs.get("ResidualData") and not attrs.get("fuse_activation"), "a convolution that is already fused")
    need(len(x.shape) == 4 and weights.dtype == np.float32, "not a float32 image")
    sizes = windows_of(attrs, x.shape, weights.shape)
    bias = r.constant(op, "Bias") if op.inputs.get("Bias") else None
    r.add(
        "conv",
        [x],
        op,
        "Output",
        sizes.results,
        Activation(1) if attrs.get("fuse_relu") else Activation(),
        weights=weights,
        scale=None,
        shift=None if bias is None else bias.reshape(-1),
        strides=sizes.strides,
        dilations=sizes.dilations,
        pads=sizes.pads,
        groups=int(attrs["groups"]),
    )
    use_8_bits(r, op, "Filter", 0)


@imports("batch_norm")
def _batch_norm(r: GraphBuilder, op: Operator, attrs: dict[str, Any]) -> None:
    x = r.get(op, "X")
    need(attrs.get("is_test") or attrs.get("use_global_stats"), "batch_norm in training mode")
    need(not attrs.get("trainable_statistics"), "batch_norm in training mode")
    need(not attrs.get("fuse_with_relu"), "batch_norm that ends with a relu")
    need(attrs.get("data_layout", "NCHW") in ("NCHW", "AnyLayout") or len(x.shape) == 2, "batch_norm in NHWC")
    mean, variance = (r.constant(op, slot).astype(np.float64).reshape(-1) for slot in ("Mean", "Variance"))
    scale, bias = (
        r.constant(op, slot).astype(np.float64).reshape(-1) if op.inputs.get(slot) else np.full(mean.size, without)
        for slot, without in (("Scale", 1.0), ("Bias", 0.0))
    )
    factor = scale / np.sqrt(variance + float(attrs["epsilon"]))
    if len(x.shape) == 4:
        r.add("affine", [x], op, "Y", x.shape, scale=factor, shift=bias - mean * factor)
        return
    need(len(x.shape) > 1, "batch_norm of a vector")
    shape = (1, factor.size) + (1,) * (len(x.shape) - 2)
    for operation, numbers in ((MULTIPLY, factor), (ADD, bias - mean * factor)):
        other = Value("", shape, numbers.astype(np.float32).reshape(shape))
        x = r.add("binary", [x, other], op, "Y", x.shape, operation=operation, y_shape=shape)


@imports("affine_channel")
def _affine_channel(r: GraphBuilder, op: Operator, attrs: dict[str, Any]) -> None:
    x = r.get(op, "X")
    need(attrs.get("data_layout", "NCHW") in ("NCHW", "AnyLayout"), "affine_channel in NHWC")
    scale, bias = (r.constant(op, slot).astype(np.float64).reshape(-1) for slot in ("Scale", "Bias"))
    r.add("affine", [x], op, "Out", x.shape, scale=scale, shift=bias)


@imports("pool2d")
def _pool(r: GraphBuilder, op: Operator, attrs: dict[str, Any]) -> None:
    x = r.get(op, "X")
    need(len(x.shape) == 4 and attrs.get("data_format", "NCHW") in ("NCHW", "AnyLayout"), "not an NCHW image")
    size, window, strides = x.shape[2:], tuple(attrs["ksize"]), tuple(attrs["strides"])
    adaptive, maximum = bool(attrs.get("adaptive")), attrs["pooling_type"] == "max"
    need(attrs["pooling_type"] in ("max", "avg"), "pooling of another type")
    need(len(window) == len(strides) == 2, "windows that do not fit the image")
    need(not (adaptive and maximum), "adaptive max pooling")  # Paddle's is not adaptive
    everywhere = bool(attrs.get("global_pooling"))
    window = size if everywhere else window
    if (everywhere and not adaptive) or (adaptive and window == (1, 1)):
        window, strides, pads, adaptive = size, (1, 1), (0, 0, 0, 0), False
    elif adaptive:  # one result per cell of the window, with global_pooling, too
        pads = (0, 0, 0, 0)
    else:
        pads = padding(attrs, size, window, strides, (1, 1))
    need(min(*window, *strides) > 0, "windows that do not fit the image")
    if adaptive:
        rows, columns = window
    else:
        more = [s - 1 if attrs.get("ceil_mode") else 0 for s in strides]
        rows, columns = (
            (n + before + after - w + extra) // s + 1
            for n, before, after, w, extra, s in zip(size, pads[:2], pads[2:], window, more, strides, strict=True)
        )
    need(
        maximum or adaptive or attrs.get("exclusive", True) or not attrs.get("ceil_mode"),
        "inclusive mean of a partial window",
    )
    need(min(rows, columns, *(pad + 1 for pad in pads)) > 0, "windows that do not fit the image")
    mode = 0 if maximum else 1 if attrs.get("exclusive", True) or adaptive else 2
    need(mode != 2 or pads[:2] == pads[2:], "inclusive mean with uneven padding")
    r.add(
        "pool",
        [x],
        op,
        "Out",
        (*x.shape[:2], rows, columns),
        window=window,
        strides=strides,
        pads=pads,
        mode=mode,
        adaptive=adaptive,
    )
