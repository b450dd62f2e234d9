"""Convolutions of each channel by itself: generated kernels, channels last, with what follows the convolution."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np
from numpy.typing import NDArray

from fluidtool.runtime.engines.cuda.calls import Buffer, Place, channels_last, same_strides
from fluidtool.runtime.engines.cuda.lowering import Lowering
from fluidtool.runtime.engines.cuda.sources import Source
from fluidtool.runtime.graph.ir import Node, Shape, Value

VECTOR = 4  # channels that a thread reads at once
LANES = ("x", "y", "z", "w")  # of a float4 or a ushort4
THREADS = 64  # of a block: so few that small images reach all processors
UNROLLED = 49  # elements of a window whose loop is unrolled


def is_depthwise(images: Shape, filters: Shape) -> bool:
    """Whether every channel has one filter of its own. filters: [count, channels of a group, height, width]."""
    return len(filters) == 4 and filters[:2] == (images[1], 1)


def convolve_depthwise(low: Lowering, node: Node, weights: NDArray[np.float32]) -> None:
    """A thread for each pixel and four channels, or one; sums are float32. weights: [channels, 1, height, width]."""
    x, shape, channels = node.inputs[0], node.output.shape, node.output.shape[1]
    source = _channels_last(low, x)
    filters = low.weights(weights[:, 0].transpose(1, 2, 0))
    src, out = Source(low), low.new(node.output, channels_last(shape))
    lanes = VECTOR if channels % VECTOR == 0 and _is_aligned(source) else 1
    count, pieces = prod(shape) // lanes, (shape[0], channels // lanes, *shape[2:])
    n, piece, row, column = src.split(src.thread(count), pieces, (0, 2, 3, 1))
    first = piece if lanes == 1 else src.whole(f"{piece} * {lanes}")
    src.lines.append(f"float {', '.join(f'sum{lane} = 0.0f' for lane in range(lanes))};")
    _sum_of_window(src, node, (source, filters), weights.shape[2:], (n, first, row, column), lanes)
    values = []
    for lane in range(lanes):
        channel = first if not lane else src.whole(f"{first} + {lane}")
        index = [n, channel, row, column]
        value = f"sum{lane}"
        if node.attrs["shift"] is not None:
            value = f"({value} + {src.table(np.asarray(node.attrs['shift'], np.float32))}[{channel}])"
        src.lines.append(f"const float found{lane} = {src.finished(node, value, index)};")
        values.append((index, f"found{lane}"))
    if lanes == VECTOR and same_strides(out.strides, channels_last(shape), shape):
        src.lines.append(_stored(src, out, values))
    else:
        src.lines += [src.store(out, index, value) for index, value in values]
    low.calls.append(src.launch(out, -(-count // THREADS), THREADS, "depthwise"))


def _channels_last(low: Lowering, x: Value) -> Place:
    """An image channels last, as it is if it is that already, be it of floats or of halves."""
    place, strides = low.place(x), channels_last(x.shape)
    is_so = same_strides(place.strides, strides, x.shape)
    return Place(place.buffer, strides, place.offset) if is_so else low.laid(x, strides, low.half)


def _is_aligned(place: Place) -> bool:
    """Whether vectors may be read: the memory of others may begin anywhere."""
    return place.buffer.role != "input" and place.offset % VECTOR == 0


def _sum_of_window(
    src: Source, node: Node, given: tuple[Place, Buffer], window: Sequence[int], index: Sequence[str], lanes: int
) -> None:
    """Add the products of a window. Where it leaves the image the nearest pixel is read, so that no load waits for a branch."""
    (source, filters), (rows, columns) = given, window
    n, channel, *pixel = index
    _, channels, h, w = node.inputs[0].shape
    attrs, sizes = node.attrs, node.output.shape[2:]
    unroll = ["#pragma unroll"] if rows * columns <= UNROLLED else []
    inside = []
    for axis, (name, step, size) in enumerate((("y", "r", h), ("x", "s", w))):
        stride, dilation, pad = attrs["strides"][axis], attrs["dilations"][axis], attrs["pads"][axis]
        last = (sizes[axis] - 1) * stride - pad + (window[axis] - 1) * dilation
        src.lines += [*unroll, f"for (int {step} = 0; {step} < {window[axis]}; {step}++) {{"]
        src.lines.append(f"const int {name} = {pixel[axis]} * {stride} - {pad} + {step} * {dilation};")
        nearest = name
        if pad > 0 or last >= size:
            inside.append(f"{name} == near_{name}")
            nearest = f"{name} < 0 ? 0 : {name} < {size} ? {name} : {size - 1}"
        src.lines.append(f"const int near_{name} = {nearest};")
    here = f"(({n} * {h} + near_y) * {w} + near_x) * {channels} + {channel}"
    src.lines.append(f"const bool inside = {' && '.join(inside) or 'true'};")
    pixels = _loaded(src, "a", source.buffer, source.offset, here, lanes)
    factors = _loaded(src, "b", filters, 0, f"(r * {columns} + s) * {channels} + {channel}", lanes)
    for lane, (a, b) in enumerate(zip(pixels, factors, strict=True)):
        src.lines.append(f"sum{lane} += (inside ? {a} : 0.0f) * {b};")
    src.lines.append("} }")


def _loaded(src: Source, name: str, buffer: Buffer, offset: int, at: str, lanes: int) -> list[str]:
    """The elements from `at` on, as floats; four are read at once."""
    if lanes == 1:
        return [src.read(buffer, offset, at)]
    kind = _vector(buffer)
    src.lines.append(f"const {kind} {name} = *(const {kind}*)({src.pointer(buffer, offset)} + {at});")
    each = [f"{name}.{lane}" for lane in LANES]
    return [f"ft_of_{buffer.half}({text})" for text in each] if buffer.half else each


def _stored(src: Source, out: Place, values: Sequence[tuple[Sequence[str], str]]) -> str:
    """The statement that stores four channels at once."""
    kind, half = _vector(out.buffer), out.buffer.half
    index = values[0][0]
    at = " + ".join(f"{part} * {step}" for part, step in zip(index, out.strides, strict=True))
    numbers = [f"ft_to_{half}({value})" if half else value for _, value in values]
    return f"*({kind}*)(out + {at}) = {kind}{{{', '.join(numbers)}}};"


def _vector(buffer: Buffer) -> str:
    """What CUDA calls four elements of a buffer, which are aligned together."""
    return "ushort4" if buffer.half else "float4"
