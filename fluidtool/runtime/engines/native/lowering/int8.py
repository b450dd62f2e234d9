"""Convolutions and products of 8-bit numbers (src/int8.c), and quantizers.

What they read lies as bytes (`Bytes`); a matrix is an image of one row, with a pixel for each of its rows. The form says which:
the shape of an image, or (depth, rows) of a matrix. A node that is followed by a quantizer stores bytes itself, floats, or both,
as its readers want.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import field, replace
from functools import partial
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fluidtool.records import dataclass
from fluidtool.runtime.engines.native import abi
from fluidtool.runtime.engines.native.constants import Packing
from fluidtool.runtime.engines.native.layouts import (
    NO_HALO,
    Blocked,
    Buffer,
    Bytes,
    Halo,
    Plain,
    Pointer,
    constant,
    joined,
    row_major,
)
from fluidtool.runtime.engines.native.lowering.convolution import Parts, Pixels, cut_image, is_depthwise, reach
from fluidtool.runtime.engines.native.lowering.twins import as_twins, doubled, find_twins
from fluidtool.runtime.engines.native.lowering.values import Lowering, conv_output, lowers
from fluidtool.runtime.engines.native.memory import aligned_floats
from fluidtool.runtime.graph.ir import Graph, Node, Shape, Value
from fluidtool.runtime.graph.quantization import Quantizer

KINDS = ("conv_int8", "product_int8")
MAKERS = (*KINDS, "image_sums")
"""Nodes that can store bytes."""
ZERO = 128  # the byte of 0


def read_form(node: Node) -> Shape:
    """The form in which a node reads its first input."""
    return node.attrs["matrix"][::-1] if node.kind == "product_int8" else node.inputs[0].shape


def written_form(node: Node) -> Shape:
    """The form in which a node can write bytes."""
    return (node.output.shape[-1], node.attrs["matrix"][0]) if node.kind == "product_int8" else node.output.shape


@dataclass(frozen=True, slots=True)
class ByteUses:
    """What of a graph lies as bytes: how often each value is read so, by form, the halos that readers need, and the
    quantizer that the maker of a value applies when it stores.
    """

    reads: Counter[tuple[Value, Shape]] = field(default_factory=Counter)
    halos: dict[Value, Halo] = field(default_factory=dict)
    next: dict[Value, Node] = field(default_factory=dict)
    readers: Counter[Value] = field(default_factory=Counter)
    twins: frozenset[Node] = frozenset()

    def wanted(self, value: Value) -> list[Shape]:
        """Every form in which a value is read as bytes."""
        return [form for found, form in self.reads if found is value]

    def leaves_floats(self, node: Node) -> bool:
        """Whether a quantizer reads floats, though the node before it stores bytes."""
        form = written_form(node)
        quantize = self.next[node.output]
        return self.readers[quantize.output] > self.reads[quantize.output, form]


def byte_uses(graph: Graph, width: int) -> ByteUses:
    """What lies as bytes, on vectors of `width` lanes."""
    uses = ByteUses(readers=graph.uses())
    for node in graph.nodes:
        if node.kind in KINDS:
            x = node.inputs[0]
            uses.reads[x, read_form(node)] += 1
            if node.kind == "conv_int8":
                uses.halos[x] = joined(uses.halos.get(x, NO_HALO), reach(node, node.output.shape))
    makers = {node.output: node for node in graph.nodes if node.kind in MAKERS}
    for node in graph.nodes:
        maker = makers.get(node.inputs[0]) if node.kind == "quantize" else None
        if maker is not None and uses.reads[node.output, written_form(maker)]:
            uses.next.setdefault(maker.output, node)
    wants_floats = {
        out: out not in uses.next or uses.leaves_floats(maker) or uses.readers[out] > 1 for out, maker in makers.items()
    }
    settled = {quantize for out, quantize in uses.next.items() if not uses.leaves_floats(makers[out])}
    return replace(uses, twins=find_twins(graph, width, wants_floats, settled))


# ---------------------------------------------------------------- layout
def new_bytes(low: Lowering, value: Value, form: Shape) -> Bytes:
    """Memory for a value as bytes."""
    image = form if len(form) == 4 else (1, form[0], 1, form[1])
    halo = low.bytes_of.halos.get(value, NO_HALO) if len(form) == 4 else NO_HALO
    place = low.bytes[value, form] = Bytes(Buffer(0), image, halo)
    place.buffer.size = place.floats
    if any(halo):
        top, left, bottom, right = halo
        arguments = abi.Int8Halo(
            out=(place.buffer, 0), images=image[0], rows=place.rows, columns=image[3] + left + right, top=top,
            bottom=bottom, left=left, right=right, out_pixel=place.pixel,
        )  # fmt: skip
        low.calls.add(arguments, low.calls.task_count(place.size - prod(image), image[0]))
    return place


@lowers("quantize")
def _quantize(low: Lowering, node: Node) -> None:
    """Bytes for the readers of bytes, unless they are there; floats for others."""
    x, out, uses = node.inputs[0], node.output, low.bytes_of
    for form in uses.wanted(out):
        if (out, form) not in low.bytes:
            _to_bytes(low, x, out, form, node.attrs["quantizer"])
    if uses.readers[out] > sum(uses.reads[out, form] for form in uses.wanted(out)):
        _round(low, x, out, node.attrs["quantizer"])


def _to_bytes(low: Lowering, x: Value, out: Value, form: Shape, quantizer: Quantizer) -> None:
    blocked = low.blockeds.get(x) if len(form) == 4 else None
    if blocked is not None:
        source: Pointer = blocked.buffer, blocked.origin
        strides = (blocked.image, blocked.row, blocked.lanes, blocked.block, 1)
    else:
        plain = low.contiguous(x)
        source = plain.buffer, plain.offset
        if len(form) == 4:
            image, channel, row, column = row_major(form)
            strides = (image, row, column if channel > 1 else form[1], low.width, channel)
        else:
            strides = (0, 0, form[0], low.width, 1)
    place = new_bytes(low, out, form)
    images, channels, rows, columns = place.shape
    of_image, of_row, of_pixel, of_block, of_channel = strides
    arguments = abi.ToInt8(
        source=source, out=(place.buffer, place.origin // 4), images=images, rows=rows, columns=columns, channels=channels,
        source_image=of_image, source_row=of_row, source_pixel=of_pixel, source_block=of_block, source_channel=of_channel,
        out_image=place.image, out_row=place.row, out_pixel=place.pixel, **steps(quantizer),
    )  # fmt: skip
    low.calls.add(arguments, low.calls.task_count(place.size, images * rows))


def steps(quantizer: Quantizer) -> dict[str, Any]:
    """The arguments of a kernel that say how floats become bytes."""
    return {
        "factor": quantizer.factor, "low": float(quantizer.low), "high": float(quantizer.high), "away": int(quantizer.away),
    }  # fmt: skip


def _round(low: Lowering, x: Value, out: Value, quantizer: Quantizer) -> None:
    """Floats that are whole steps, for readers of floats."""
    source, target, count = _alike(low, x, out)
    arguments = abi.RoundToSteps(
        source=source, out=target, count=count, limit=min(quantizer.limit, float(np.finfo(np.float32).max)),
        multiplier=quantizer.multiplier, divisor=quantizer.divisor, **steps(quantizer),
    )  # fmt: skip
    low.calls.add(arguments, low.calls.task_count(4 * count, -(-count // 1024)))


def _alike(low: Lowering, x: Value, out: Value) -> tuple[Pointer, Pointer, int]:
    """A value, memory for another in the same layout, and their size."""
    blocked = low.blockeds.get(x)
    if blocked is not None and x not in low.plains and out not in low.whole and _is_alone(blocked, low.halos.get(out)):
        place: Blocked = low.new_blocked(out)
        return (blocked.buffer, 0), (place.buffer, 0), place.size
    source: Plain = low.contiguous(x)
    plain = low.new_plain(out)
    return (source.buffer, source.offset), (plain.buffer, plain.offset), prod(x.shape)


def _is_alone(place: Blocked, wanted: Halo | None) -> bool:
    """Whether an image is the whole of its memory, and another without more around it lies as it does."""
    return not (place.start or place.apart or any(place.halo) or any(wanted or NO_HALO))


# ---------------------------------------------------------------- what a node stores
NO_BYTES: dict[str, Any] = {"out_int8": None, "factor": 0.0, "low": 0.0, "high": 0.0}


@dataclass(frozen=True, slots=True)
class Stored:
    """Where a node stores floats and bytes, and the quantizer of these."""

    floats: Any = None
    bytes: Bytes | None = None
    quantizer: Quantizer | None = None
    twins: bool = False
    """Whether two pixels are stored as one."""

    def arguments(self, width: int, blocks: int) -> dict[str, Any]:
        """What the kernel is told about bytes."""
        place = self.bytes
        if place is None or self.quantizer is None:
            return NO_BYTES | {"last_bytes": width}
        pixel = 2 * place.pixel if self.twins else place.pixel
        return {
            "out_int8": (place.buffer, place.origin // 4), "int8_image": place.image, "int8_row": place.row,
            "int8_pixel": pixel, "last_bytes": pixel - (blocks - 1) * width, **steps(self.quantizer),
        }  # fmt: skip


def place_of_bytes(low: Lowering, node: Node) -> tuple[Bytes | None, Quantizer | None, bool]:
    """Memory for the bytes that a node stores, their quantizer, and whether it stores floats as well."""
    quantize = low.bytes_of.next.get(node.output)
    if quantize is None:
        return None, None, True
    unread = 0 if low.bytes_of.leaves_floats(node) else 1
    place = new_bytes(low, quantize.output, written_form(node))
    return place, quantize.attrs["quantizer"], low.left[node.output] > unread


# ---------------------------------------------------------------- constants
def _words(numbers: NDArray[Any], room: int) -> Pointer:
    """A constant of int32, zeros behind."""
    array: NDArray[np.int32] = aligned_floats(room).view(np.int32)
    array[:] = 0
    array[: numbers.size] = numbers
    return Buffer(room, "constant", array), 0


def _padded(numbers: Any, room: int) -> Pointer:
    array = np.zeros(room, np.float32)
    array[: np.size(numbers)] = numbers
    return constant(array), 0


def _by_channel(attrs: Mapping[str, Any], outputs: int, room: int) -> dict[str, Any]:
    """What sums start from, are multiplied with, and what is added: by output."""
    numbers, axis = attrs["whole"], 0 if attrs["whole"].ndim == 4 else 1
    sums = numbers.sum(axis=tuple(each for each in range(numbers.ndim) if each != axis), dtype=np.int64)
    factors = attrs["steps"] if attrs.get("scale") is None else attrs["steps"] * np.reshape(attrs["scale"], -1)
    shift = np.zeros(outputs) if attrs["shift"] is None else np.reshape(attrs["shift"], -1)
    return {
        "starts": _words(-ZERO * sums, room), "factors": _padded(factors, room), "shifts": _padded(shift, room),
    }  # fmt: skip


def _packed(low: Lowering, numbers: Any, outputs: int, strides: Shape, sizes: tuple[int, int, int, int]) -> Buffer:
    """Weights as the kernel reads them. sizes: channels, their room in a pixel, taps of a segment, segments."""
    channels, pixel, taps, segments = sizes
    blocks, length = -(-outputs // low.width), taps * pixel
    call = partial(
        abi.PackInt8, source=numbers, outputs=outputs, channels=channels, taps=taps, segments=segments,
        segment_length=length, pixel=pixel, source_output=strides[0], source_channel=strides[1], source_tap=strides[2],
    )  # fmt: skip
    return low.packing.materialize(blocks * low.width * segments * length // 4, [Packing(call, blocks)])


# ---------------------------------------------------------------- calls
@lowers("conv_int8")
def _convolution(low: Lowering, node: Node) -> None:
    twin, by_channel = node in low.bytes_of.twins, is_depthwise(node)
    residual = None if node.residual is None else low.narrows[node.residual] if twin else low.blocked(node.residual)
    source = low.bytes[node.inputs[0], node.inputs[0].shape]
    place, quantizer, floats = place_of_bytes(low, node)
    out = None
    if floats:
        out = low.new_blocked(node.output, node.output.shape[1]) if twin else conv_output(low, node)
    if twin:
        node = doubled(node)
        out, residual = (None if found is None else as_twins(found) for found in (out, residual))
    stored = Stored(out, place, quantizer, twin)
    if by_channel:
        _depthwise(low, node, source, residual, stored)
        return
    attrs = node.attrs
    count, inner, lines, columns = attrs["whole"].shape
    blocks, (down, right) = -(-count // low.width), attrs["dilations"]
    taps, segments = (columns, lines) if right == 1 else (1, lines * columns)
    offsets = [
        row * down * source.row + column * right * source.pixel
        for row in range(lines)
        for column in range(1 if right == 1 else columns)
    ]
    strides = (inner * lines * columns, lines * columns, 1)
    weights = _packed(low, attrs["whole"], count, strides, (inner, source.pixel, taps, segments))
    images, _, *size = node.output.shape
    step_h, step_w = attrs["strides"]
    pixels = Pixels(
        images, size[0], size[1], source.image, step_h * source.row, step_w * source.pixel,
        *((0, 0, 0) if out is None else (out.image, out.row, out.lanes)),
        *((0, 0, 0) if residual is None else (residual.image, residual.row, residual.lanes)),
    )  # fmt: skip
    pixels, bytes_row = _flattened(pixels, stored, (lines, columns) == (1, 1))
    arguments = stored.arguments(low.width, blocks) | ({} if place is None else {"int8_row": bytes_row})
    work = prod(node.output.shape) * prod(attrs["whole"].shape[1:])
    parts = cut_image(low, pixels, blocks, 1, work, source.size // images, 4 * weights.size)
    top, left, *_ = attrs["pads"]
    start = source.origin - int(top) * source.row - int(left) * source.pixel
    _add(low, node, (source.buffer, start // 4), weights, offsets, taps * source.pixel, pixels, blocks, parts, {
        "out": None if out is None else (out.buffer, out.origin), "out_block": 0 if out is None else out.block,
        "residual": None if residual is None else (residual.buffer, residual.origin),
        "residual_block": 0 if residual is None else residual.block, "last_lanes": low.width, **arguments,
    })  # fmt: skip


def _flattened(pixels: Pixels, stored: Stored, one_tap: bool) -> tuple[Pixels, int]:
    """Rows without a gap between them, wherever they are read and written, as one; and the stride of rows of bytes."""
    row = 0 if stored.bytes is None else stored.bytes.row
    strides = [(pixels.source_row, pixels.source_pixel), (pixels.out_row, pixels.out_pixel)]
    strides += [(pixels.residual_row, pixels.residual_pixel)]
    strides += [] if stored.bytes is None else [(row, stored.bytes.pixel)]
    if one_tap and all(each == pixels.columns * pixel for each, pixel in strides):
        return pixels._replace(rows=1, columns=pixels.columns * pixels.rows), row
    return pixels, row


def _add(
    low: Lowering, node: Node, source: Pointer, weights: Buffer, offsets: list[int], length: int, pixels: Pixels, blocks: int,
    parts: Parts, arguments: Mapping[str, Any],
) -> None:  # fmt: skip
    table = np.asarray(offsets, np.int64)
    outputs = node.attrs["whole"].shape[0 if node.kind == "conv_int8" else 1]
    call = abi.Int8Products(
        source=source, weights=(weights, 0), offsets=(Buffer(table.size, "constant", table), 0), **pixels._asdict(),
        blocks=blocks, segments=len(offsets), segment_length=length, **parts._asdict(),
        **_by_channel(node.attrs, outputs, blocks * low.width), **arguments,
    )  # fmt: skip
    low.calls.add(call, prod(parts), node.activation)


@lowers("product_int8")
def _product(low: Lowering, node: Node) -> None:
    attrs = node.attrs
    (rows, depth), columns = attrs["matrix"], attrs["weights"].shape[1]
    source = low.bytes[node.inputs[0], (depth, rows)]
    residual = low.contiguous(node.residual) if node.residual is not None else None
    place, quantizer, floats = place_of_bytes(low, node)
    out = None
    if floats:
        out = low.reuse_plain(node.residual, node.output) if node.residual is not None else None
        out = out or low.new_plain(node.output)
    blocks = -(-columns // low.width)
    weights = _packed(low, attrs["whole"], columns, _byte_strides(attrs["whole"]), (depth, source.pixel, 1, 1))
    pixels = Pixels(1, 1, rows, 0, 0, source.pixel, 0, 0, columns, residual_pixel=columns)
    parts = cut_image(low, pixels, blocks, 1, rows * depth * columns, rows * depth, 4 * weights.size)
    stored = Stored(out, place, quantizer)
    _add(low, node, (source.buffer, 0), weights, [0], source.pixel, pixels, blocks, parts, {
        "out": None if out is None else (out.buffer, out.offset), "out_block": low.width,
        "residual": None if residual is None else (residual.buffer, residual.offset), "residual_block": low.width,
        "last_lanes": columns - (blocks - 1) * low.width, **stored.arguments(low.width, blocks),
    })  # fmt: skip


def _byte_strides(matrix: NDArray[np.int8]) -> Shape:
    """Of the outputs, the depth, and taps of a matrix [depth][outputs]."""
    by_depth, by_output = matrix.strides
    return by_output, by_depth, 0


def _depthwise(low: Lowering, node: Node, source: Bytes, residual: Blocked | None, stored: Stored) -> None:
    attrs, width, out = node.attrs, low.width, stored.floats
    count, _, lines, columns = attrs["whole"].shape
    blocks, groups = -(-count // width), -(-lines // 4)
    taps = np.zeros((blocks * width, groups * 4, columns), np.int8)
    taps[:count, :lines] = attrs["whole"][:, 0]
    taps = taps.reshape(blocks, width, groups, 4, columns).transpose(0, 2, 4, 1, 3)
    memory: NDArray[np.int8] = aligned_floats(taps.size // 4).view(np.int8)
    memory[:] = taps.reshape(-1)
    images, _, *size = node.output.shape
    top, left, *_ = attrs["pads"]
    start = source.origin - int(top) * source.row - int(left) * source.pixel
    arguments = abi.Int8Depthwise(
        source=(source.buffer, start // 4), weights=(Buffer(taps.size // 4, "constant", memory), 0),
        out=None if out is None else (out.buffer, out.origin),
        residual=None if residual is None else (residual.buffer, residual.origin),
        **_by_channel(attrs, count, blocks * width), images=images, rows=size[0], columns=size[1], blocks=blocks,
        window_h=lines, window_w=columns, stride_h=attrs["strides"][0], stride_w=attrs["strides"][1],
        dilation_h=attrs["dilations"][0], dilation_w=attrs["dilations"][1],
        source_image=source.image, source_row=source.row, source_pixel=source.pixel,
        out_image=0 if out is None else out.image, out_row=0 if out is None else out.row,
        out_pixel=0 if out is None else out.lanes, out_block=0 if out is None else out.block,
        residual_image=0 if residual is None else residual.image, residual_row=0 if residual is None else residual.row,
        residual_pixel=0 if residual is None else residual.lanes,
        residual_block=0 if residual is None else residual.block, **stored.arguments(width, blocks),
    )  # fmt: skip
    tasks = low.calls.task_count(prod(node.output.shape) * lines * columns, images * size[0] * blocks)
    low.calls.add(arguments, tasks, node.activation)
