"""Convolutions and pooling, on blocked layouts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from math import gcd, inf, lcm, prod
from typing import Any, NamedTuple

import numpy as np

from fluidtool.runtime.engines.native import abi
from fluidtool.runtime.engines.native.constants import Packing
from fluidtool.runtime.engines.native.layouts import NO_HALO, Blocked, Buffer, Halo, Image, Pointer
from fluidtool.runtime.engines.native.lowering.builder import SMALL
from fluidtool.runtime.engines.native.lowering.packing import Fed, padded_bias
from fluidtool.runtime.engines.native.lowering.values import Lowering, conv_output, lowers
from fluidtool.runtime.engines.native.lowering.winograd import outputs_by_side, winograd
from fluidtool.runtime.graph.importers.registry import need
from fluidtool.runtime.graph.ir import Node, Shape

PART_BYTES = 200_000  # of an image that a part traverses repeatedly: they stay in the L2 cache
NEAR_BYTES = 2  # of weights for each of an image, up to which threads rather share out the image than the weights
FAR_BYTES = (
    700_000  # of weights, from which on they are beyond the L2 cache: threads rather share them out than the image
)
NEAR_IMAGE = 900_000  # bytes of an image, up to which that holds
ONE_FRAME = (1, 1, 1)  # images that a window covers, their distance, and its step
Packed = tuple[Buffer, Buffer | None]  # filters, and what is added by channel
PART_PIXELS = 48  # minimum per part


def is_depthwise(node: Node) -> bool:
    """Whether each channel is convolved with a separate filter."""
    count, inner, *_ = node.attrs["weights"].shape
    return bool(node.attrs["groups"] == node.inputs[0].shape[1] == count and inner == 1)


def needs_halo(node: Node, width: int) -> bool:
    """Whether the kernel for a node reads a halo around the image."""
    return node.kind == "conv3d" or (
        node.kind == "conv" and not is_depthwise(node) and not outputs_by_side(node, width)
    )


def reach(node: Node, windows: Shape) -> Halo:
    """The zeros around its first input that a node reads whose windows are as many as the last two sizes say."""
    (top, left, _, _), size = node.attrs["pads"], node.inputs[0].shape[2:]
    below, right = (
        (out - 1) * s + (w - 1) * d + 1 - before - size
        for out, s, w, d, before, size in zip(
            windows[2:], node.attrs["strides"], node.attrs["weights"].shape[-2:],
            node.attrs["dilations"], (top, left), size, strict=True,
        )
    )  # fmt: skip
    return top, left, max(below, 0), max(right, 0)


def convolution(low: Lowering, node: Node) -> None:
    """The calls of a convolution of floats that sums over channels."""
    given = node.attrs
    node = replace(node, attrs=join_groups(low, given))
    x, attrs = node.inputs[0], node.attrs
    if outputs := outputs_by_side(node, low.width):
        winograd(low, node, outputs)
        return
    source = low.blocked(x, narrow=attrs["groups"] == 1)
    if attrs["weights"].shape[2:] == (1, 1) and attrs["strides"] != (1, 1) and not any(attrs["pads"]):
        source = subsampled(low, node, source)
        node = replace(node, attrs={**attrs, "strides": (1, 1)})
    diagonals = channels_of_groups(low, given) if source.lanes == low.width else 0
    packed = pack_diagonals(low, given) if diagonals else None
    convolve(low, node, source, conv_output(low, node), packed=packed, diagonals=diagonals)


def convolve(
    low: Lowering, node: Node, source: Image, out: Image, spread: tuple[int, int, int] = (0, 1, 1),
    packed: Packed | None = None, diagonals: int = 0,
) -> None:  # fmt: skip
    """The call of a convolution. spread: where in `out` the first pixel lies, and its steps in rows and columns; `packed`:
    its filters, where several calls have the same or `diagonals`, the channels of a group, are not 0.
    """
    x, attrs, groups = node.inputs[0], node.attrs, node.attrs["groups"]
    count, inner, *_ = attrs["weights"].shape
    weights, bias = packed or pack_filter(low, attrs, source.lanes)
    offsets, lengths = segments(attrs, inner, source)
    blocks = -(-(count // groups) // low.width)
    pixels = image_pixels(low, node, source, out)
    if spread == (0, 1, 1):
        pixels = flattened(pixels, node)
    work = prod(node.output.shape) * prod(attrs["weights"].shape[1:])
    touched = [min(w, s) for w, s in zip(attrs["weights"].shape[2:], attrs["strides"], strict=True)]
    image = 4 * x.shape[1] * prod(node.output.shape[2:]) * prod(touched)
    parts = cut_image(low, pixels, blocks, groups, work, image, 4 * weights.size, far_bytes=FAR_BYTES)
    table = np.asarray(offsets, np.int64)
    last_lanes = low.width if isinstance(out, Blocked) else out.shape[1] - (blocks - 1) * low.width
    arguments = abi.Convolution(
        source=(source.buffer, window_start(node, source)), weights=(weights, 0), bias=None if bias is None else (bias, 0),
        out=(out.buffer, out.origin + spread[0]), residual=residual_of(low, node),
        offsets=(Buffer(table.size, "constant", table), 0),
        blocks=blocks, segments=len(offsets), segment_length=lengths[0], last_length=lengths[1], last_segments=lengths[2],
        groups=groups, source_group=inner // source.lanes * source.block, weights_group=weights.size // groups,
        out_group=blocks * out.block, out_block=out.block, last_lanes=last_lanes,
        bias_group=blocks * low.width, diagonals=diagonals,
        **pixels._replace(out_row=spread[1] * pixels.out_row, out_pixel=spread[2] * pixels.out_pixel)._asdict(),
        residual_block=residual_block(low, node), **parts._asdict(),
    )  # fmt: skip
    low.calls.add(arguments, groups * prod(parts), node.activation)


def join_groups(low: Lowering, attrs: Mapping[str, Any]) -> Mapping[str, Any]:
    """The attrs of a convolution with groups of few channels merged, with zeros between, to whole vectors."""
    weights, groups = attrs["weights"], attrs["groups"]
    count, inner, *window = weights.shape
    each = count // groups
    together = lcm(low.width // gcd(inner, low.width), low.width // gcd(each, low.width))
    if groups == 1 or together == 1:
        return attrs
    need(groups % together == 0, "groups of few channels")
    wide = np.zeros((groups // together, together, each, together, inner, *window), np.float32)
    for number in range(together):
        wide[:, number, :, number] = weights.reshape(groups // together, together, each, inner, *window)[:, number]
    weights = wide.reshape(count, together * inner, *window)
    return {**attrs, "weights": weights, "groups": groups // together}


def channels_of_groups(low: Lowering, attrs: Mapping[str, Any]) -> int:
    """The channels of each group, of the source and of the result, where that is so few that sums by diagonals win; or 0.

    Groups of 8 channels have gained nothing that could be measured so far: they are computed with zeros between.
    """
    count, inner, *_ = attrs["weights"].shape
    fits = count == attrs["groups"] * inner and inner in (2, 4) and count % low.width == 0
    return inner if fits else 0


def pack_diagonals(low: Lowering, attrs: Mapping[str, Any]) -> Packed:
    """The filters of small groups for a kernel that moves sums instead of pixels between lanes.

    For each lane of the source there are, one after the other, its weights for the channels lane ^ 0, lane ^ 1, ...
    """
    (weights, scale), width = low.packing.filters(attrs), low.width
    count, each, *window = weights.shape
    scaled = weights if scale is None else weights * scale.reshape(-1, 1, 1, 1)
    lane = np.arange(count)[:, np.newaxis]
    found = np.ascontiguousarray(scaled[lane ^ np.arange(each), lane % each], np.float32)
    size = found.size
    call = partial(
        abi.PackFilter, source=found, scale=None, filters=width, channels=each, taps=prod(window), groups=count // width,
        out_group=size * width // count, lanes=each,
    )  # fmt: skip
    return low.packing.materialize(size, [Packing(call, count // width)]), padded_bias(
        attrs["shift"], count // width, width
    )


def subsampled(low: Lowering, node: Node, source: Blocked) -> Blocked:
    """The pixels that strided filters of one pixel read, side by side."""
    shape, unit = (*source.shape[:2], *node.output.shape[2:]), 2 if source.halves else 1
    place = replace(source, buffer=Buffer(0), shape=shape, halo=NO_HALO, start=0, apart=0, within=0)
    place.buffer.size = place.size // unit
    down, right = node.attrs["strides"]
    planes = [(shape[0], source.image // unit), (source.blocks, source.block // unit)]
    (images, of_image), (blocks, of_block) = reversed(planes) if source.by_block else planes
    arguments = abi.Subsample(
        source=(source.buffer, source.origin // unit), out=(place.buffer, 0), images=images, blocks=blocks, rows=shape[2],
        columns=shape[3], lanes=source.lanes // unit, source_image=of_image, source_block=of_block,
        source_row=down * source.row // unit, source_pixel=right * source.pixel // unit,
    )  # fmt: skip
    low.calls.add(arguments, low.calls.task_count(place.size, prod(shape[::2]) * source.blocks))
    return place


class Pixels(NamedTuple):
    """Arguments of a convolution with the number of pixels, and their place."""

    images: int
    rows: int
    columns: int
    source_image: int
    source_row: int
    source_pixel: int
    out_image: int
    out_row: int
    out_pixel: int
    residual_image: int = 0
    residual_row: int = 0
    residual_pixel: int = 0


class Parts(NamedTuple):
    """Arguments of a convolution with the number of parts that its tasks split each dimension into."""

    row_parts: int = 1
    column_parts: int = 1
    block_parts: int = 1


def window_start(node: Node, source: Image) -> int:
    """The start of the first window of the first image."""
    top, left, *_ = node.attrs["pads"]
    return source.origin - int(top) * source.row - int(left) * source.pixel


def image_pixels(low: Lowering, node: Node, source: Image, out: Image) -> Pixels:
    """The pixels that a convolution reads and writes."""
    images, _, rows, columns = node.output.shape
    down, right = node.attrs["strides"]
    *_, forward = node.attrs.get("frames", ONE_FRAME)
    pixels = Pixels(
        images,
        rows,
        columns,
        forward * source.image,
        down * source.row,
        right * source.pixel,
        out.image,
        out.row,
        out.pixel,
    )
    if node.residual is None:
        return pixels
    place = low.blockeds[node.residual]
    return pixels._replace(residual_image=place.image, residual_row=place.row, residual_pixel=place.pixel)


def residual_of(low: Lowering, node: Node) -> Pointer | None:
    """The place of its residual's first pixel."""
    if node.residual is None:
        return None
    place = low.blockeds[node.residual]
    return place.buffer, place.origin


def residual_block(low: Lowering, node: Node) -> int:
    """The stride of a block of its channels."""
    return 0 if node.residual is None else low.blockeds[node.residual].block


def flattened(pixels: Pixels, node: Node) -> Pixels:
    """Rows without a gap between them in all arrays, from first to last pixel, are merged into one row."""
    strides = [(pixels.source_row, pixels.source_pixel), (pixels.out_row, pixels.out_pixel)]
    if node.residual is not None:
        strides.append((pixels.residual_row, pixels.residual_pixel))
    if node.attrs["weights"].shape[2:] == (1, 1) and all(row == pixels.columns * pixel for row, pixel in strides):
        return pixels._replace(rows=1, columns=pixels.columns * pixels.rows)
    return pixels


def segments(attrs: Mapping[str, Any], inner: int, source: Image) -> tuple[list[int], tuple[int, int, int]]:
    """(offsets of the segments, (length, length of the last ones, how many last ones))."""
    lines, columns = attrs["weights"].shape[2:]
    (frames, behind, _), (down, right) = attrs.get("frames", ONE_FRAME), attrs["dilations"]
    rows = [
        frame * behind * source.image + row * down * source.row
        for frame in range(frames)
        for row in range(lines // frames)
    ]
    whole, rest = divmod(inner, source.lanes)
    together = right == 1 and source.pixel == source.lanes
    offsets = [
        block * source.block + row + column * right * source.pixel
        for block in range(whole)
        for row in rows
        for column in range(1 if together else columns)
    ]
    last = [
        whole * source.block + row + column * right * source.pixel
        for row in (rows if rest else [])
        for column in range(columns)
    ]
    return offsets + last, (source.lanes * (columns if together else 1), rest, len(last))


def pack_filter(low: Lowering, attrs: Mapping[str, Any], lanes: int) -> Packed:
    """The filters of a convolution as its kernel reads them."""
    if isinstance(attrs["weights"], Fed):
        return pack_fed(low, attrs["weights"], lanes), None
    (weights, scale), groups, width = low.packing.filters(attrs), attrs["groups"], low.width
    count, inner, rows, columns = weights.shape
    each = -(-(count // groups) // width) * width
    size = groups * each * inner * rows * columns
    call = partial(
        abi.PackFilter, source=weights, scale=scale, filters=count // groups, channels=inner, taps=rows * columns,
        groups=groups, out_group=size // groups, lanes=lanes,
    )  # fmt: skip
    return low.packing.materialize(size, [Packing(call, groups * -(-each // (2 * width)))]), padded_bias(
        attrs["shift"], groups, each
    )


def pack_fed(low: Lowering, weights: Fed, lanes: int) -> Buffer:
    """The same for filters that every run has new ones of."""
    count, inner, rows, columns = weights.shape
    blocks = -(-count // low.width)
    packed = Buffer(blocks * low.width * inner * rows * columns)
    arguments = abi.PackFilter(
        source=(weights.buffer, 0), scale=None, out=(packed, 0), filters=count, channels=inner, taps=rows * columns, groups=1,
        out_group=packed.size, lanes=lanes,
    )  # fmt: skip
    low.calls.add(arguments, low.calls.task_count(packed.size, -(-blocks // 2)))
    return packed


def cut_image(
    low: Lowering, pixels: Pixels, blocks: int, groups: int, work: int, x_bytes: int, w_bytes: int,
    part_bytes: int = PART_BYTES, whole: bool = False, far_bytes: float = inf,
) -> Parts:  # fmt: skip
    """The parts by row, column and channel block.

    A part traverses its pixels for each pair of channel blocks, so they should stay in the L2 cache; and it traverses
    all weights, so that it should have enough pixels to be worth reading them. whole: parts by row are of whole images, or
    each of one image. far_bytes: weights of so many are read by one thread each.
    """
    pairs, lines, threads = -(-blocks // 2), pixels.images * pixels.rows, low.library.threads
    if work <= SMALL:
        return Parts()
    wanted = max(1, min(-(-x_bytes * pixels.images // part_bytes), lines * pixels.columns // PART_PIXELS))
    if w_bytes < NEAR_BYTES * x_bytes * pixels.images and lines * pixels.columns // threads >= PART_PIXELS:
        wanted = -(-wanted // threads) * threads
    if w_bytes >= far_bytes and x_bytes * pixels.images <= NEAR_IMAGE:
        wanted = 1
    by_row = _of_images(min(lines, wanted), pixels.images) if whole else min(lines, wanted)
    by_column = max(min(-(-wanted // by_row), pixels.columns // 24), 1) if by_row < wanted else 1
    by_block = _even(pairs, groups * by_row * by_column, threads) if threads > 1 else 1
    return Parts(by_row, by_column, by_block)


def _of_images(parts: int, images: int) -> int:
    """No fewer parts, each of whole images or within one."""
    if parts > images:
        return -(-parts // images) * images
    return min(count for count in range(parts, images + 1) if images % count == 0)


def _even(pairs: int, others: int, threads: int) -> int:
    """The number of parts for pairs of blocks, given other parts, so that all threads have equal work."""
    least = min(pairs, -(-4 * threads // others))
    return min(
        range(least, min(pairs, 2 * least) + 1), key=lambda count: -(-others * count // threads) * -(-pairs // count)
    )


@lowers("pool")
def _pool(low: Lowering, node: Node) -> None:
    source, attrs = low.blocked(node.inputs[0]), node.attrs
    out = low.new_blocked(node.output)
    images, _, rows, columns = node.output.shape
    (window_h, window_w), (stride_h, stride_w), (top, left, *_) = attrs["window"], attrs["strides"], attrs["pads"]
    arguments = abi.Pool(
        source=(source.buffer, source.origin), out=(out.buffer, out.origin), images=images, rows=rows, columns=columns,
        blocks=out.blocks, window_h=window_h, window_w=window_w, stride_h=stride_h, stride_w=stride_w,
        pad_top=top, pad_left=left, source_height=source.shape[2], source_width=source.shape[3],
        source_image=source.image, source_row=source.row, source_block=source.block,
        out_image=out.image, out_row=out.row, out_block=out.block, mode=attrs["mode"], adaptive=int(attrs["adaptive"]),
    )  # fmt: skip
    low.calls.add(arguments, low.calls.task_count(prod(node.inputs[0].shape), images * out.blocks * rows))
