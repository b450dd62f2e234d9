"""Convolutions of images with their channels last, and their gradients, by filters that every run has new ones of.

Their kernel calls are compiled for a geometry once; `Geometry.parts` names the buffers that a run fills in.
"""

from __future__ import annotations

from collections import Counter
from math import prod

import numpy as np

from fluidtool.records import dataclass
from fluidtool.runtime.engines.native import abi
from fluidtool.runtime.engines.native.layouts import NO_HALO, Blocked, Buffer, Halo, Image, Last, Plain
from fluidtool.runtime.engines.native.library import Library
from fluidtool.runtime.engines.native.lowering.convolution import convolve, reach
from fluidtool.runtime.engines.native.lowering.packing import ConstantPacking, Fed
from fluidtool.runtime.engines.native.lowering.training import Table, add_filter_gradient
from fluidtool.runtime.engines.native.lowering.values import Lowering
from fluidtool.runtime.engines.native.lowering.winograd import add_windows, convolve_windows, outputs_by_side
from fluidtool.runtime.graph.ir import Node, Shape, Value

SEGMENT = 256  # channels that are read one after the other
SPREAD_ROWS = 120  # of src/training.c
STRIP = 300_000  # floats of transformed windows and gradients at a time, unless the sums are larger


@dataclass(frozen=True, slots=True)
class Geometry:
    """A convolution of one group. pads: top, left, bottom, right."""

    source: Shape
    filters: Shape
    out: Shape
    strides: tuple[int, int]
    dilations: tuple[int, int]
    pads: Halo

    @property
    def source_pads(self) -> Halo:
        """The pads of the convolution that gives the gradient by the input, where windows move by one."""
        (top, left, *_), sizes = self.pads, zip(self.source[2:], self.out[2:], strict=True)
        reach = [(window - 1) * step for window, step in zip(self.filters[2:], self.dilations, strict=True)]
        below, right = (size + before - out for (size, out), before in zip(sizes, (top, left), strict=True))
        return reach[0] - top, reach[1] - left, below, right

    def node(self, weights: Fed) -> Node:
        """The convolution."""
        return conv_node(self.source, self.out, weights, self, self.pads)


def conv_node(source: Shape, out: Shape, weights: Fed, geometry: Geometry, pads: Halo) -> Node:
    """A convolution by filters that are fed."""
    attrs = {
        "weights": weights, "scale": None, "shift": None, "groups": 1, "pads": pads, "strides": geometry.strides,
        "dilations": geometry.dilations,
    }  # fmt: skip
    return Node("conv", [Value("source", source)], Value("out", out), attrs)


def add_forward(library: Library, geometry: Geometry) -> tuple[Lowering, list[Buffer], Buffer]:
    """The calls, the buffers of the image and the filters, and that of the result."""
    low = Lowering(library, Counter(), {}, ConstantPacking(library))
    image, filters, out = (Buffer(prod(shape), "input") for shape in (geometry.source, geometry.filters, geometry.out))
    node = geometry.node(Fed(geometry.filters, filters))
    add_convolution(low, node, image, out)
    return low, [image, filters], out


def add_convolution(low: Lowering, node: Node, image: Buffer, out: Buffer) -> None:
    """The calls of a convolution by Winograd's method, or by whole windows."""
    source, result = node.inputs[0].shape, node.output.shape
    if outputs := by_windows(low, node):
        ends = Last(image, source, low.width), Last(out, result, low.width)
        convolve_windows(low, node, *ends, outputs)
        return
    place = padded(low, Last(image, source, min(source[1], SEGMENT)), reach(node, result))
    convolve(low, node, place, Last(out, result, low.width))


def by_windows(low: Lowering, node: Node) -> int:
    """The side of the squares of pixels that Winograd's method computes at once, 0 without it."""
    return 0 if node.output.shape[1] % low.width else outputs_by_side(node, low.width)


def padded(low: Lowering, place: Last, halo: Halo) -> Image:
    """The image with zeros around it, in blocks of channels if it has whole ones: pixels far apart are slow to read."""
    if not any(halo):
        return place
    images, channels, rows, columns = place.shape
    lanes = channels if channels % low.width else low.width
    wide = Blocked(Buffer(0), place.shape, lanes, halo)
    wide.buffer.size = wide.size
    low.zero_halo(wide)
    shape = images, wide.blocks, rows, columns, lanes
    low.calls.copy(plain(place, lanes), plain(wide, wide.block), shape)
    return wide


def plain(place: Image, block: int) -> Plain:
    """The strides [N, blocks, H, W, lanes] of its pixels."""
    return Plain(place.buffer, place.origin, (place.image, block, place.row, place.pixel, 1))


# ---------------------------------------------------------------- gradient by the input
def add_input_gradient(library: Library, geometry: Geometry) -> tuple[Lowering, list[Buffer], Buffer]:
    """The calls, the buffers of the result's gradient and the filters, and that of the input's gradient."""
    low = Lowering(library, Counter(), {}, ConstantPacking(library))
    grad, filters, out = (Buffer(prod(shape), "input") for shape in (geometry.out, geometry.filters, geometry.source))
    count, channels, *window = geometry.filters
    turned = Fed((channels, count, *window), filters, turned=True)
    node = conv_node(geometry.out, geometry.source, turned, geometry, geometry.source_pads)
    if geometry.strides == (1, 1) and min(geometry.source_pads) >= 0 and (outputs := by_windows(low, node)):
        ends = Last(grad, geometry.out, low.width), Last(out, geometry.source, low.width)
        convolve_windows(low, node, *ends, outputs)
    else:
        _spread(low, geometry, grad, filters, out)
    return low, [grad, filters], out


def _spread(low: Lowering, geometry: Geometry, grad: Buffer, filters: Buffer, out: Buffer) -> None:
    (images, channels, *size), (count, _, *window), (rows, columns) = (
        geometry.source,
        geometry.filters,
        geometry.out[2:],
    )
    whole = channels * prod(window)
    packed = Buffer(count * -(-whole // low.width) * low.width)
    taps = abi.PackTaps(source=(filters, 0), out=(packed, 0), filters=count, channels=channels, taps=prod(window))
    low.calls.add(taps, low.calls.task_count(packed.size, count))
    together = max(1, SPREAD_ROWS // (rows * columns))
    tasks = low.calls.task_count(prod(geometry.out) * whole, -(-images // together))
    room = min(SPREAD_ROWS, together * rows * columns) * whole
    arguments = abi.Spread(
        grad=(grad, 0), weights=(packed, 0), out=(out, 0), scratch=(Buffer(tasks * room), 0), images=images, rows=rows,
        columns=columns, filters=count, channels=channels, source_height=size[0], source_width=size[1], window_h=window[0],
        window_w=window[1], stride_h=geometry.strides[0], stride_w=geometry.strides[1], dilation_h=geometry.dilations[0],
        dilation_w=geometry.dilations[1], pad_top=geometry.pads[0], pad_left=geometry.pads[1], together=together,
        task_scratch=room,
    )  # fmt: skip
    low.calls.add(arguments, tasks)


# ---------------------------------------------------------------- gradient by the filters
def add_filter_gradients(library: Library, geometry: Geometry) -> tuple[Lowering, list[Buffer], Buffer]:
    """The calls, the buffers of the image and the result's gradient, and that of the filters' gradient."""
    low = Lowering(library, Counter(), {}, ConstantPacking(library))
    image, grad, out = (Buffer(prod(shape), "input") for shape in (geometry.source, geometry.out, geometry.filters))
    if outputs := _outputs(low, geometry):
        _by_windows(low, geometry, image, grad, out, outputs)
        return low, [image, grad], out
    node = geometry.node(Fed(geometry.filters, out))
    source = padded(low, Last(image, geometry.source, geometry.source[1]), reach(node, geometry.out))
    grads = wide(low, Last(grad, geometry.out, low.width))
    node = Node("filter_gradient", node.inputs, Value("out", geometry.filters), node.attrs)
    add_filter_gradient(low, node, source, grads, out, _tables(geometry, source))
    return low, [image, grad], out


def wide(low: Lowering, place: Last) -> Last:
    """The image with a vector of channels at least; what is in those that there are not does not matter."""
    images, channels, rows, columns = place.shape
    if channels >= low.width:
        return place
    copy = Last(Buffer(images * rows * columns * low.width), (images, low.width, rows, columns), low.width)
    low.calls.copy(plain(place, channels), plain(copy, low.width), (images, 1, rows, columns, channels))
    return copy


def _tables(geometry: Geometry, source: Image) -> tuple[Table, Table]:
    """Where the numbers of a window lie, row by row, pixel by pixel; and the place of each in a filter."""
    _, channels, rows, columns = geometry.filters
    down, right = geometry.dilations
    row, column, channel = np.ogrid[:rows, :columns, :channels]
    block, lane = np.divmod(channel, source.lanes)
    offsets = row * down * source.row + column * right * source.pixel + block * source.block + lane
    places = channel * rows * columns + row * columns + column
    return (
        np.ascontiguousarray(offsets.reshape(-1), np.int64),
        np.ascontiguousarray(places.reshape(-1), np.int64),
    )


def _outputs(low: Lowering, geometry: Geometry) -> int:
    """As outputs_by_side."""
    count, channels, *window = geometry.filters
    if window != [3, 3] or geometry.strides != (1, 1) or geometry.dilations != (1, 1):
        return 0
    return 0 if count % low.width or channels % low.width else 4


def _by_windows(low: Lowering, geometry: Geometry, image: Buffer, grad: Buffer, out: Buffer, outputs: int) -> None:
    """Winograd's method: transformed windows of the image times those of the gradients, some of them at a time."""
    (count, channels, *_), (images, _, rows, columns) = geometry.filters, geometry.out
    shape = images, -(-rows // outputs), -(-columns // outputs)
    positions, total = (outputs + 2) ** 2, prod(shape)
    tasks = channels // low.width * -(-count // (2 * low.width))
    room = tasks * positions * 2 * low.width**2
    strips = -(-positions * (channels + count) * total // max(STRIP, room))
    sums = Buffer(room) if strips > 1 else None
    ends = (Last(image, geometry.source, low.width), geometry.pads), (Last(grad, geometry.out, low.width), NO_HALO)
    for strip in range(strips):
        first, last = (total * number // strips for number in (strip, strip + 1))
        made = []
        for of_gradients, (place, pads) in enumerate(ends):
            windows = Buffer((last - first) * positions * place.shape[1])
            add_windows(low, place, pads, shape, outputs, windows, (first, last), of_gradients)
            made.append(windows)
        arguments = abi.WinogradFilterGradient(
            windows=(made[0], 0), grads=(made[1], 0), sums=None if sums is None else (sums, 0), out=(out, 0), filters=count,
            channels=channels, outputs=outputs, count=last - first, begins=int(not strip), ends=int(strip + 1 == strips),
        )  # fmt: skip
        low.calls.add(arguments, tasks)
