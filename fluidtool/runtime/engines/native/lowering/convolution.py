"""Convolutions and pooling, on blocked layouts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import gcd, lcm, prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fluidtool.runtime.engines.native.bfloat16 import rounded
from fluidtool.runtime.engines.native.calls import Blocked, Buffer, Kind, constant
from fluidtool.runtime.engines.native.lowering.memory import (
    NO_HALO,
    SMALL,
    Halo,
    Lowering,
    conv_output,
    lowers,
    padded_bias,
)
from fluidtool.runtime.engines.native.lowering.winograd import outputs_by_side, winograd
from fluidtool.runtime.engines.native.packed import Packing
from fluidtool.runtime.graph.importers.registry import need
from fluidtool.runtime.graph.ir import Node, Shape

PART_BYTES = 200_000  # of an image that a part sweeps over again and again: they stay in the second cache
NEAR_BYTES = 4  # of weights for each of an image, up to which threads rather share out the image than the weights
ONE_FRAME = (1, 1, 1)  # images that a window reaches over, their distance, and how far it moves on
Packed = tuple[Buffer, Buffer | None]  # filters, and what is added by channel
PART_PIXELS = 48  # that a part should have at least


def is_depthwise(node: Node) -> bool:
    """Whether each channel is convolved with one filter of its own."""
    count, inner, *_ = node.attrs["weights"].shape
    return bool(node.attrs["groups"] == node.inputs[0].shape[1] == count and inner == 1)


def needs_halo(node: Node, width: int) -> bool:
    """Whether the kernel for a node reads zeros around the image."""
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


@lowers("conv")
def _conv(low: Lowering, node: Node) -> None:
    if is_depthwise(node):
        _depthwise(low, node)
        return
    node = replace(node, attrs=join_groups(low, node.attrs))
    x, attrs = node.inputs[0], node.attrs
    if outputs := outputs_by_side(node, low.width):
        winograd(low, node, outputs)
        return
    source = low.blocked(x, narrow=attrs["groups"] == 1)
    if attrs["weights"].shape[2:] == (1, 1) and attrs["strides"] != (1, 1) and not any(attrs["pads"]):
        source = _subsampled(low, node, source)
        node = replace(node, attrs={**attrs, "strides": (1, 1)})
    convolve(low, node, source, conv_output(low, node))


def convolve(
    low: Lowering, node: Node, source: Blocked, out: Blocked, spread: tuple[int, int, int] = (0, 1, 1),
    packed: Packed | None = None,
) -> None:  # fmt: skip
    """The step of a convolution. spread: where in `out` the first pixel lies, and its steps in rows and columns; `packed`:
    its filters, where several steps have the same.
    """
    x, attrs, groups = node.inputs[0], node.attrs, node.attrs["groups"]
    count, inner, *_ = attrs["weights"].shape
    weights, bias = packed or pack_filter(low, attrs, source.lanes)
    offsets, lengths = segments(attrs, inner, source)
    n = image_sizes(node, source, out)
    blocks = -(-(count // groups) // low.width)
    n |= {3: blocks, 4: len(offsets), 5: lengths[0], 6: lengths[1], 7: lengths[2]}
    n |= {14: out.block, 19: groups, 20: inner // source.lanes * source.block, 21: weights.size // groups}
    n |= {22: blocks * out.block, 23: low.width, 27: blocks * low.width}
    n |= residual_sizes(low, node)
    if spread == (0, 1, 1):
        flatten(n, node)
    n[12], n[13] = spread[1] * n[12], spread[2] * n[13]
    work = prod(node.output.shape) * prod(attrs["weights"].shape[1:])
    touched = [min(w, s) for w, s in zip(attrs["weights"].shape[2:], attrs["strides"], strict=True)]
    image = 4 * x.shape[1] * prod(node.output.shape[2:]) * prod(touched)
    tasks = cut_image(low, n, work, image, 4 * weights.size)
    table = np.asarray(offsets, np.int64)
    pointers = _pointers(low, node, source, out, weights, bias) | {5: (Buffer(table.size, "constant", table), 0)}
    pointers[3] = (out.buffer, out.origin + spread[0])
    low.steps.add(Kind.CONVOLUTION, pointers, n, activation=node.activation, tasks=tasks)


def join_groups(low: Lowering, attrs: Mapping[str, Any]) -> Mapping[str, Any]:
    """The attrs of a convolution with groups of few channels put together, with zeros between, to whole vectors."""
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


def _subsampled(low: Lowering, node: Node, source: Blocked) -> Blocked:
    """The pixels that filters of one pixel meet when they skip some, side by side."""
    shape = (*source.shape[:2], *node.output.shape[2:])
    place = Blocked(Buffer(0), shape, source.lanes, NO_HALO)
    place.buffer.size = place.size
    down, right = node.attrs["strides"]
    n = {0: shape[0], 1: source.blocks, 2: shape[2], 3: shape[3], 4: source.lanes, 5: source.image, 6: source.block}
    low.steps.add(
        Kind.SUBSAMPLE, {0: (source.buffer, source.origin), 3: (place.buffer, 0)},
        n | {7: down * source.row, 8: right * source.lanes}, tasks=low.task_count(place.size, prod(shape[::2]) * source.blocks),
    )  # fmt: skip
    return place


def _pointers(
    low: Lowering, node: Node, source: Blocked, out: Blocked, weights: Buffer, bias: Buffer | None
) -> dict[int, Any]:
    attrs = node.attrs
    start = source.origin - attrs["pads"][0] * source.row - attrs["pads"][1] * source.lanes
    residual = low.blockeds[node.residual] if node.residual is not None else None
    return {
        0: (source.buffer, start),
        1: (weights, 0),
        2: None if bias is None else (bias, 0),
        3: (out.buffer, out.origin),
        4: None if residual is None else (residual.buffer, residual.origin),
    }


def image_sizes(node: Node, source: Blocked, out: Blocked) -> dict[int, int]:
    """The sizes of a step that say how many pixels there are, and where; one part."""
    images, _, rows, columns = node.output.shape
    down, right = node.attrs["strides"]
    *_, forward = node.attrs.get("frames", ONE_FRAME)
    return {
        0: images, 1: rows, 2: columns, 8: forward * source.image, 9: down * source.row, 10: right * source.lanes,
        11: out.image, 12: out.row, 13: out.lanes, 25: 1, 26: 1, 28: 1,
    }  # fmt: skip


def residual_sizes(low: Lowering, node: Node) -> dict[int, int]:
    """The sizes of a step that say where its residual lies."""
    if node.residual is None:
        return {}
    place = low.blockeds[node.residual]
    return {15: place.image, 16: place.row, 17: place.lanes, 18: place.block}


def flatten(n: dict[int, int], node: Node) -> None:
    """Rows that follow each other without a gap in everything, from the first pixel of each to the last, are one row."""
    strides = ((9, 10), (12, 13), (16, 17)) if node.residual is not None else ((9, 10), (12, 13))
    if node.attrs["weights"].shape[2:] == (1, 1) and all(n[row] == n[2] * n[pixel] for row, pixel in strides):
        n[2] *= n[1]
        n[1] = 1


def segments(attrs: Mapping[str, Any], inner: int, source: Blocked) -> tuple[list[int], tuple[int, int, int]]:
    """(offsets of the segments, (length, length of the last ones, how many last ones))."""
    lines, columns = attrs["weights"].shape[2:]
    (frames, behind, _), (down, right) = attrs.get("frames", ONE_FRAME), attrs["dilations"]
    rows = [
        frame * behind * source.image + row * down * source.row
        for frame in range(frames)
        for row in range(lines // frames)
    ]
    whole, rest = divmod(inner, source.lanes)
    together = right == 1
    offsets = [
        block * source.block + row + column * right * source.lanes
        for block in range(whole)
        for row in rows
        for column in range(1 if together else columns)
    ]
    last = [
        whole * source.block + row + column * right * source.lanes
        for row in (rows if rest else [])
        for column in range(columns)
    ]
    return offsets + last, (source.lanes * (columns if together else 1), rest, len(last))


def pack_filter(low: Lowering, attrs: Mapping[str, Any], lanes: int) -> Packed:
    """The filters of a convolution as its kernel reads them."""
    (weights, scale), groups, width = low.filters(attrs), attrs["groups"], low.width
    count, inner, rows, columns = weights.shape
    each = -(-(count // groups) // width) * width
    size = groups * each * inner * rows * columns
    arrays = {0: weights} if scale is None else {0: weights, 1: scale}
    n = dict(enumerate((count // groups, inner, rows * columns, groups, size // groups, lanes)))
    packing = Packing(Kind.PACK_FILTER, arrays, n, groups * -(-each // (2 * width)))
    return low.materialize(size, [packing]), padded_bias(attrs["shift"], groups, each)


def cut_image(low: Lowering, n: dict[int, int], work: int, x_bytes: int, w_bytes: int) -> int:
    """Choose the parts by row, column and channel block; returns how many tasks that makes.

    A part sweeps over its pixels for each pair of channel blocks, so they should stay in the second cache; and it sweeps
    over all weights, so that it should have pixels enough to be worth reading them.
    """
    pairs, groups, lines, threads = -(-n[3] // 2), n[19], n[0] * n[1], low.library.threads
    if work <= SMALL:
        return groups
    wanted = max(1, min(-(-x_bytes * n[0] // PART_BYTES), lines * n[2] // PART_PIXELS))
    if w_bytes < NEAR_BYTES * x_bytes * n[0] and lines * n[2] // threads >= PART_PIXELS:
        wanted = -(-wanted // threads) * threads
    n[25] = min(lines, wanted)
    if n[25] < wanted:
        n[28] = max(min(-(-wanted // n[25]), n[2] // 24), 1)
    if threads > 1:
        n[26] = _even(pairs, groups * n[25] * n[28], threads)
    return groups * n[25] * n[26] * n[28]


def _even(pairs: int, others: int, threads: int) -> int:
    """Into how many parts to cut pairs of blocks, with so many parts of other kinds, that all threads have as much to do."""
    least = min(pairs, -(-4 * threads // others))
    return min(
        range(least, min(pairs, 2 * least) + 1), key=lambda count: -(-others * count // threads) * -(-pairs // count)
    )


def _depthwise(low: Lowering, node: Node) -> None:
    attrs, width = node.attrs, low.width
    source = low.blocked(node.inputs[0])
    out = conv_output(low, node)
    count, _, rows, columns = attrs["weights"].shape
    blocks = -(-count // width)
    weights: NDArray[Any] = np.zeros((blocks * width, rows * columns), np.float64)
    weights[:count] = attrs["weights"].reshape(count, -1)
    if attrs["scale"] is not None:
        weights[:count] *= attrs["scale"].reshape(-1, 1)
    if low.narrow:
        weights = rounded(weights)
    packed = constant(weights.reshape(blocks, width, -1).transpose(0, 2, 1))
    bias = padded_bias(attrs["shift"], 1, blocks * width)
    images, _, *size = node.output.shape
    n = dict(
        enumerate((images, *size, blocks, rows, columns, *attrs["pads"][:2], source.image, source.row, source.block))
    )
    n |= {11: out.image, 12: out.row, 13: out.lanes, 14: out.block}
    n |= dict(enumerate((*attrs["strides"], *attrs["dilations"], source.shape[2]), 20)) | {27: source.shape[3]}
    n |= residual_sizes(low, node)
    n[25] = min(size[0], low.library.threads) if images < low.library.threads else 1
    tasks = low.task_count(prod(node.output.shape) * rows * columns, images * blocks * n[25])
    pointers = _pointers(low, node, source, out, packed, bias) | {0: (source.buffer, source.origin)}
    low.steps.add(Kind.DEPTHWISE, pointers, n, activation=node.activation, tasks=tasks)


@lowers("affine")
def _affine(low: Lowering, node: Node) -> None:
    """A factor and a shift by channel: a depthwise convolution of one tap."""
    need(len(node.output.shape) == 4, "batch_norm of no image")
    ones = np.ones((node.output.shape[1], 1, 1, 1), np.float32)
    taps = {"weights": ones, "strides": (1, 1), "dilations": (1, 1), "pads": NO_HALO, "groups": node.output.shape[1]}
    _depthwise(low, replace(node, attrs={**node.attrs, **taps}))


@lowers("pool")
def _pool(low: Lowering, node: Node) -> None:
    source, attrs = low.blocked(node.inputs[0]), node.attrs
    out = low.new_blocked(node.output)
    images, _, rows, columns = node.output.shape
    n = dict(enumerate((images, rows, columns, out.blocks, *attrs["window"], *attrs["strides"], *attrs["pads"][:2])))
    n |= dict(enumerate((*source.shape[2:], source.image, source.row, source.block), 10))
    n |= dict(enumerate((out.image, out.row, out.block, attrs["mode"], int(attrs["adaptive"])), 15))
    work = prod(node.inputs[0].shape)
    pointers = {0: (source.buffer, source.origin), 3: (out.buffer, out.origin)}
    low.steps.add(Kind.POOL, pointers, n, tasks=low.task_count(work, images * out.blocks * rows))
