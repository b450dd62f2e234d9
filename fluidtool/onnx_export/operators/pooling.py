"""Pooling: windows of one size, adaptive windows, maxima with their places."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fluidtool.onnx_export.graph import Array, Graph, Value
from fluidtool.onnx_export.operation import Operation
from fluidtool.onnx_export.operators.convolution import back, first, pads
from fluidtool.onnx_export.operators.narrowed import narrow
from fluidtool.onnx_export.registry import need, renders
from fluidtool.ops.nn.pool import Pooling, plan_pooling
from fluidtool.ops.nn.pooling import AxisBins, adaptive_bins


@renders("pool2d", "pool3d")
def pool(g: Graph, op: Operation) -> Value:
    x = op["X"]
    axes = list(range(2, x.rank))
    data_format = op.attr("data_format")
    ksize = op.known_ints("ksize")
    everything, adaptive, maximum = op.attr("global_pooling"), op.attr("adaptive"), op.attr("pooling_type") == "max"
    # An adaptive maximum has windows of its own; with both attributes, Paddle's output is as large as its input.
    if (everything and not adaptive) or (adaptive and not everything and not maximum and all(n == 1 for n in ksize)):
        kind = "Max" if maximum else "Mean"
        return back(first(x, data_format).reduce(kind, axes, keepdims=True), data_format)
    plan = plan_pooling(op.context, x.shape or ())
    x = first(x, data_format)
    out = _known(g, op, x, plan) if min(plan.sizes) >= 0 else _open(g, op, x, plan)
    return back(out.shaped((plan.batch, plan.channels, *plan.counts)), data_format)


def _open(g: Graph, op: Operation, x: Value, plan: Pooling) -> Value:
    """For images whose size is known only at run time."""
    need(not plan.adaptive, "adaptive pooling of images whose size is known only at run time")
    windows, ceil = plan.windows, int(op.attr("ceil_mode"))
    where: dict[str, Any] = {"pads": pads(windows)}
    if op.attr("padding_algorithm") == "SAME":
        where = {"auto_pad": "SAME_UPPER"}
    common = {"kernel_shape": list(windows.kernel), "strides": list(windows.strides), "ceil_mode": ceil, **where}
    if plan.maximum:
        return narrow(g, "MaxPool", [x], **common)
    inside = op.attr("exclusive")
    need(inside or not ceil or op.saved_since(2, 0), "ceil_mode with a divisor that counts cells beyond the paddings")
    return narrow(g, "AveragePool", [x], count_include_pad=int(not inside), **common)


def _known(g: Graph, op: Operation, x: Value, plan: Pooling) -> Value:
    bins = plan.bins
    if any(axis.bounds for axis in bins):
        return _uneven(g, x, bins, plan.maximum)
    before = [axis.before for axis in bins]
    after = [max(axis.edges[1], 0) for axis in bins]
    kernel, strides = [axis.kernel for axis in bins], [axis.stride for axis in bins]
    simple = all(b < k and a < k for b, a, k in zip(before, after, kernel, strict=True))
    common = {"kernel_shape": kernel, "strides": strides}
    if plan.maximum:
        need(simple, "windows that contain only padding")
        windows = narrow(g, "MaxPool", [x], pads=[*before, *after], **common)
        if not plan.adaptive:
            return windows
        return windows.slice([0] * len(bins), list(plan.counts), list(range(2, 2 + len(bins))))
    if simple and (op.attr("exclusive") or plan.adaptive):
        return narrow(g, "AveragePool", [x], pads=[*before, *after], count_include_pad=0, **common)
    zeros = [0, 0]
    padded = x.pad([*zeros, *before], [*zeros, *after])
    out = narrow(g, "AveragePool", [padded], **common)
    lengths = [_lengths(op, plan, axis) for axis in bins]
    if all(n == axis.kernel for found, axis in zip(lengths, bins, strict=True) for n in found):
        return out
    factor = np.ones((), np.float64)
    for found, axis in zip(lengths, bins, strict=True):
        factor = np.multiply.outer(factor, axis.kernel / np.asarray(found, np.float64))
    return out * g.constant(factor.astype(x.dtype))


def _lengths(op: Operation, plan: Pooling, axis: AxisBins) -> Sequence[int]:
    """What each window of an axis divides by."""
    if op.attr("exclusive") or plan.adaptive:
        return axis.lengths()
    return axis.padded_lengths() if op.saved_since(2, 0) else [axis.kernel] * axis.count


def _uneven(g: Graph, x: Value, bins: Sequence[AxisBins], maximum: bool) -> Value:
    """Adaptive windows of different sizes: means by a product with a matrix per axis, maxima part by part."""
    for axis, found in enumerate(bins, 2):
        ranges = found.clipped()
        if maximum:
            x = g.concat([x.part(axis, a, b).reduce("Max", [axis], keepdims=True) for a, b in ranges], axis)
            continue
        matrix = np.zeros((found.size, found.count), np.float64)
        for column, (start, end) in enumerate(ranges):
            matrix[start:end, column] = 1 / (end - start)
        last = x.rank - 1
        x = (x.swap(axis, last) if axis != last else x) @ g.constant(matrix.astype(x.dtype))
        x = x.swap(axis, last) if axis != last else x
    return x


@renders("max_pool2d_with_index", "max_pool3d_with_index")
def max_with_index(g: Graph, op: Operation) -> dict[str, Value]:
    x = op["X"]
    sizes = (x.shape or ())[2:]
    need(min(sizes) >= 0, "the size of the image is known only at run time")
    kernel, strides, paddings = list(op.attr("ksize")), list(op.attr("strides")), list(op.attr("paddings"))
    if op.attr("global_pooling"):
        kernel, paddings = list(sizes), [0] * len(sizes)
    if op.attr("adaptive") and any(n % count for n, count in zip(sizes, kernel, strict=True)):
        return _uneven_with_index(g, op, x, adaptive_bins(sizes, kernel))
    if op.attr("adaptive"):
        kernel = [n // count for n, count in zip(sizes, kernel, strict=True)]
        strides, paddings = kernel, [0] * len(sizes)
    need(all(p < k for p, k in zip(paddings, kernel, strict=True)), "windows that contain only padding")
    narrowed = x.cast(np.float32)
    out, places = g.node(
        "MaxPool", [narrowed], [np.float32, np.int64], kernel_shape=kernel, strides=strides, pads=[*paddings, *paddings]
    )
    places = g.binary("Mod", places, int(np.prod(sizes)))
    return {"Out": out.cast(x.dtype), "Mask": places.cast(op.dtype("Mask", np.int32))}


def _uneven_with_index(g: Graph, op: Operation, x: Value, bins: Sequence[AxisBins]) -> dict[str, Value]:
    """Windows of different sizes: each is made as long as the longest by its own last cell, which changes no maximum."""
    shape, rank, counts = x.shape or (), x.rank, [axis.count for axis in bins]
    cells = np.arange(int(np.prod(shape[2:]))).reshape(shape[2:])
    for axis, found in enumerate(bins):
        cells = np.take(cells, _cells_of(found), axis=2 * axis)
    windows = cells.transpose(*range(0, 2 * (rank - 2), 2), *range(1, 2 * (rank - 2), 2)).reshape(np.prod(counts), -1)
    seen = x.reshape([x.dim(0), x.dim(1), x.merged(2, rank)]).gather(g.constant(windows, np.int64), 2)
    first = g.op("ArgMax", seen, axis=3, keepdims=1, dtype=np.int64, shape=(*shape[:2], len(windows), 1))
    table = g.constant(windows[None, None], np.int64).expand([x.dim(0), x.dim(1), 1, 1])
    places = g.op("GatherElements", table, first, axis=3, shape=first.shape)
    out = [x.dim(0), x.dim(1), *counts]
    return {
        "Out": seen.reduce("Max", [3]).reshape(out),
        "Mask": places.reshape(out).cast(op.dtype("Mask", np.int32)),
    }


def _cells_of(bins: AxisBins) -> Array:
    """[windows, longest]: the cells of an axis that each window sees, its last one repeated."""
    ranges = bins.clipped()
    longest = max(end - start for start, end in ranges)
    return np.array([[min(start + tap, end - 1) for tap in range(longest)] for start, end in ranges])


@renders("unpool")
def unpool(g: Graph, op: Operation) -> Value:
    x, places = op["X"], op["Indices"].cast(np.int64)
    n, channels = x.dim(0), x.size(1)
    shape = op.shape()
    need(min(shape[2:]) > 0, "the size of the output is known only at run time")
    cells = int(np.prod(shape[2:]))
    empty = g.full(g.vector([n, channels, cells]), 0, x.dtype)
    flat = [x.merged(2, x.rank)]
    filled = g.op(
        "ScatterElements", empty, places.reshape([n, channels, *flat]), x.reshape([n, channels, *flat]), axis=2
    )
    return filled.reshape([n, channels, *shape[2:]])


@renders("spp")
def pyramid(g: Graph, op: Operation) -> Value:
    x, parts = op["X"], []
    height, width = x.size(2), x.size(3)
    for level in range(op.attr("pyramid_height")):
        bins = 2**level
        kernel = [-(-height // bins), -(-width // bins)]
        paddings = [(kernel[0] * bins - height + 1) // 2, (kernel[1] * bins - width + 1) // 2]
        common = {"kernel_shape": kernel, "strides": kernel, "pads": [*paddings, *paddings]}
        kind = "MaxPool" if op.attr("pooling_type") == "max" else "AveragePool"
        out = narrow(g, kind, [x], **common)
        parts.append(out.reshape([x.dim(0), x.size(1) * bins * bins]))
    return g.concat(parts, 1)
