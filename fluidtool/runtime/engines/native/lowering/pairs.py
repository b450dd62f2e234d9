"""Convolutions and products by dot products of pairs of bfloat16 numbers (src/pairs.c), if the processor supports them.

Their inputs are halves (16-bit elements) with channels in blocks, as wide as a vector or a row of a tile of AMX; a
matrix is an image of one row, with a pixel for each of its rows. The form says which: the shape of an image, or (depth,
rows) of a matrix. A node that is computed by pairs writes floats, halves, or both, as its readers want.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from math import prod
from typing import Any

import numpy as np

from fluidtool.runtime.engines.native import abi
from fluidtool.runtime.engines.native.constants import Packing
from fluidtool.runtime.engines.native.layouts import NO_HALO, Blocked, Buffer, Halo, joined, row_major
from fluidtool.runtime.engines.native.library import Library
from fluidtool.runtime.engines.native.lowering import winograd_pairs
from fluidtool.runtime.engines.native.lowering.convolution import (
    PART_BYTES,
    Pixels,
    cut_image,
    flattened,
    image_pixels,
    is_depthwise,
    join_groups,
    reach,
    residual_block,
    residual_of,
    segments,
    subsampled,
    window_start,
)
from fluidtool.runtime.engines.native.lowering.packing import padded_bias
from fluidtool.runtime.engines.native.lowering.phases import is_narrow, phases, tap_segments
from fluidtool.runtime.engines.native.lowering.pictures import by_rows, place_of_picture, reads_picture
from fluidtool.runtime.engines.native.lowering.values import Lowering, conv_output
from fluidtool.runtime.engines.native.lowering.winograd_pairs import Ends
from fluidtool.runtime.graph.ir import Graph, Node, Shape, Value
from fluidtool.runtime.graph.weights import matrices

HALF_PART_BYTES = (
    400_000  # as PART_BYTES, of halves: pixels take half the time, so that more have to share a reading of weights
)
TILE_PART_BYTES = 500_000  # the same with tiles: their processors have larger L2 caches
ROWS_PART_BYTES = 1_000_000  # as those, of a matrix: its weights are read again for each part, from beyond the L2 cache


def by_pairs(node: Node, library: Library) -> bool:
    """Whether a node is computed by pairs; a depthwise convolution has no two channels to sum."""
    return library.pairs and (node.kind == "product" or (node.kind == "conv" and not is_depthwise(node)))


def read_form(node: Node) -> Shape:
    """The form in which a node reads its first input."""
    return node.attrs["matrix"][::-1] if node.kind == "product" else node.inputs[0].shape


def written_form(node: Node) -> Shape:
    """The form in which a node can write halves."""
    return (node.output.shape[-1], node.attrs["matrix"][0]) if node.kind == "product" else node.output.shape


def may_pool_halves(node: Node, library: Library, groups: frozenset[Value]) -> bool:
    """Whether a node is a maximum of windows that halves can have; `groups`: what lies in blocks of its own (in_groups)."""
    if not library.pairs or node.kind != "pool" or len(node.output.shape) != 4:
        return False
    if node.attrs["mode"] or node.attrs["adaptive"]:
        return False
    return (node.inputs[0] in groups) == (node.output in groups)


def may_filter_halves(node: Node, library: Library) -> bool:
    """Whether src/depthwise_pairs.c computes a node: a depthwise convolution, where blocks of halves are as wide as a vector, by a
    square window that reaches beside the image by no more than half of itself.
    """
    if node.kind != "conv" or not library.halves_in_vectors or node.residual is not None:
        return False
    attrs, (*_, columns) = node.attrs, node.output.shape
    size, (*_, stride), (_, left, *_) = attrs["weights"].shape[-1], attrs["strides"], attrs["pads"]
    right = (columns - 1) * stride - left + size - node.inputs[0].shape[3]
    return (
        is_depthwise(node)
        and attrs["weights"].shape[2:] in ((3, 3), (5, 5))
        and attrs["strides"] in ((1, 1), (2, 2))
        and attrs["dilations"] == (1, 1)
        and max(left, right) <= size // 2
    )


def half_uses(graph: Graph, library: Library) -> tuple[Counter[tuple[Value, Shape]], frozenset[Value]]:
    """How often each value is read as halves of each form, and the maxima of windows that are made of such and read as such.

    What is added, or convolved channel by channel, is read so if nobody wants its floats: only halves are stored then.
    """
    nodes, readers, groups = (
        [node for node in graph.nodes if by_pairs(node, library)],
        graph.uses(),
        in_groups(graph, library),
    )
    made = {node.output: written_form(node) for node in nodes}
    pools = [
        node
        for node in graph.nodes
        if may_pool_halves(node, library, groups) and made.get(node.inputs[0]) == node.inputs[0].shape
    ]
    made |= {node.output: node.output.shape for node in pools}
    reads = Counter((node.inputs[0], read_form(node)) for node in nodes)
    added = Counter(
        (node.residual, written_form(node))
        for node in nodes
        if node.residual is not None
        and made.get(node.residual) == written_form(node)
        and node.attrs.get("groups", 1) == 1
    )
    for (value, form), count in added.items():
        if readers[value] == reads[value, form] + count:
            reads[value, form] += count
    pools = [node for node in pools if readers[node.output] == reads[node.output, node.output.shape]]
    reads.update((node.inputs[0], node.inputs[0].shape) for node in pools)
    filtered = Counter(node.inputs[0] for node in graph.nodes if may_filter_halves(node, library))
    for value, count in filtered.items():
        if made.get(value) == value.shape and readers[value] == reads[value, value.shape] + count:
            reads[value, value.shape] += count
    return reads, frozenset(node.output for node in pools)


def only_halves(low: Lowering, value: Value | None, form: Shape) -> Blocked | None:
    """The place of a value, if it is there as halves only."""
    if value is None or value in low.blockeds or value in low.plains:
        return None
    return low.halves.get((value, form))


def half_residual(low: Lowering, node: Node) -> Blocked | None:
    """The place of what a node adds, if it is there as halves only."""
    return only_halves(low, node.residual, written_form(node))


def residual_strides(low: Lowering, place: Blocked) -> dict[str, int]:
    """How a kernel goes through the halves that it adds."""
    return {name.replace("halves", "residual"): stride for name, stride in halves_written(low, place).items()}


def half_halos(nodes: Sequence[Node], library: Library) -> dict[Value, Halo]:
    """For each value the halo that the convolutions which read it as halves need."""
    halos: dict[Value, Halo] = {}
    for node in nodes:
        if node.kind == "conv" and by_pairs(node, library) and winograd_pairs.plan(node, library) is None:
            x = node.inputs[0]
            halos[x] = joined(halos.get(x, NO_HALO), reach(node, node.output.shape))
    return halos


def in_groups(graph: Graph, library: Library) -> frozenset[Value]:
    """The values that a convolution in groups reads or writes: their halves lie in blocks as wide as a vector."""
    found = [node for node in graph.nodes if by_pairs(node, library) and node.attrs.get("groups", 1) > 1]
    return frozenset(value for node in found for value in (node.inputs[0], node.output))


def pairs(low: Lowering, node: Node) -> None:
    """The calls of a node that is computed by pairs, or of halves."""
    {"product": _product, "conv": _convolution, "pool": _pool}[node.kind](low, node)


# ---------------------------------------------------------------- layout of halves
def block_lanes(low: Lowering, value: Value, form: Shape) -> int:
    """The lanes of whole blocks of halves of a value."""
    channels = form[1] if len(form) == 4 else form[0]
    return low.width if value in low.half_groups or channels <= low.width else low.library.half_lanes


def _by_block(low: Lowering, value: Value, lanes: int) -> bool:
    """Whether the images of a value follow each other within blocks: tiles then go on from one to the next."""
    return lanes > low.width and value not in low.half_groups


def new_half(low: Lowering, value: Value, form: Shape, lanes: int) -> Blocked:
    """Memory for a value as halves."""
    image = form if len(form) == 4 else (1, form[0], 1, form[1])
    halo = low.half_halos.get(value, NO_HALO) if len(form) == 4 else NO_HALO
    by_block = _by_block(low, value, lanes)
    place = low.halves[value, form] = Blocked(Buffer(0), image, lanes, halo, halves=True, by_block=by_block)
    place.buffer.size = -(-place.size // 2)
    low.zero_halo(place)
    return place


def half(low: Lowering, value: Value, form: Shape, whole: bool = False) -> Blocked:
    """The place of a value as halves; converted if needed. whole: in blocks as wide as a vector."""
    found = low.halves.get((value, form))
    if found is not None:
        return found
    channels = form[1] if len(form) == 4 else form[0]
    blocked = low.blockeds.get(value) if len(form) == 4 else None
    lanes = block_lanes(low, value, form)
    if not whole and blocked is None and len(form) == 4:
        lanes = min(lanes, channels + channels % 2)
    return narrowed(low, value, new_half(low, value, form, lanes), form)


def narrowed(low: Lowering, value: Value, place: Blocked, form: Shape) -> Blocked:
    """The place, after a call that makes halves there of a value's floats."""
    channels, blocked = place.shape[1], low.blockeds.get(value) if len(form) == 4 else None
    lanes, apart = place.lanes, low.width
    if blocked is not None:
        source, start, apart = blocked.buffer, blocked.origin, blocked.block
        strides = (blocked.image, lanes // low.width * blocked.block, blocked.row, blocked.lanes, 1)
    else:
        plain = low.contiguous(value)
        source, start = plain.buffer, plain.offset
        if len(form) == 4:
            image, channel, row, column = row_major(form)
            strides = (image, lanes * channel, row, column, channel)
        else:
            strides = (0, lanes, 0, channels, 1)
    images, _, rows, columns = place.shape
    of_image, of_block, of_row, of_pixel, of_channel = strides
    arguments = abi.Narrow(
        source=(source, start), out=(place.buffer, place.origin // 2), images=images, channels=channels, rows=rows,
        columns=columns, out_image=place.image, out_block=place.block, out_row=place.row, blocks=place.blocks, lanes=lanes,
        source_image=of_image, source_block=of_block, source_row=of_row, source_pixel=of_pixel, source_channel=of_channel,
        source_half=apart,
    )  # fmt: skip
    low.calls.add(arguments, low.calls.task_count(place.size, images * place.blocks * rows))
    return place


def _picture(low: Lowering, value: Value) -> Blocked:
    """The place of a picture, which is put there once."""
    place = low.pictures.get(value)
    if place is None:
        place = low.pictures[value] = narrowed(low, value, place_of_picture(low, value), value.shape)
    return place


def written_half(low: Lowering, node: Node, added: Blocked | None = None) -> Blocked | None:
    """Memory for the result of a node as halves, if it has readers that want them: that of what it adds, `added`, where it is
    the last to read it, and reads it pixel by pixel only.
    """
    form = written_form(node)
    if not low.half_uses[node.output, form]:
        return None
    lanes, halo = block_lanes(low, node.output, form), low.half_halos.get(node.output, NO_HALO)
    if added is None or node.residual is None or low.left[node.residual] or node.residual in node.inputs:
        return new_half(low, node.output, form, lanes)
    wanted = lanes, halo if len(form) == 4 else NO_HALO, _by_block(low, node.output, lanes)
    if (added.lanes, added.halo, added.by_block) != wanted:
        return new_half(low, node.output, form, lanes)
    low.halves[node.output, form] = added
    return added


def halves_written(low: Lowering, place: Blocked | None) -> dict[str, int]:
    """How a kernel goes through the halves that it writes."""
    if place is None:
        return {}
    wide = place.lanes > low.width
    return {
        "halves_image": place.image, "halves_row": place.row, "halves_pixel": place.lanes,
        "halves_block": low.width if wide else place.block, "halves_pair": place.block if wide else 2 * place.block,
    }  # fmt: skip


def floats_wanted(low: Lowering, node: Node) -> bool:
    """Whether the result of a node has readers that want floats."""
    return low.left[node.output] > low.half_uses[node.output, written_form(node)]


# ---------------------------------------------------------------- calls
def _convolution(low: Lowering, node: Node) -> None:
    windows = winograd_pairs.plan(node, low.library)
    if windows is not None:
        source = half(low, node.inputs[0], node.inputs[0].shape)
        winograd_pairs.convolve(low, node, windows, source, _ends(low, node))
        return
    node = replace(node, attrs=join_groups(low, node.attrs))
    x, attrs, groups = node.inputs[0], node.attrs, node.attrs["groups"]
    x_bytes, sorted_by = _traversed(node), (1, 1)
    rows = None
    if reads_picture(low, node):
        source = _picture(low, x)
        node, rows = by_rows(node, source)
        attrs = node.attrs
    else:
        source = half(low, x, x.shape, groups > 1)
    if source.by_block and attrs["strides"] != (1, 1):
        if attrs["weights"].shape[2:] == (1, 1) and not any(attrs["pads"]):
            source = subsampled(low, node, source)
            node = replace(node, attrs={**attrs, "strides": (1, 1)})
        elif is_narrow(node):
            source, sorted_by = phases(low, node, source), attrs["strides"]
            node = replace(node, attrs={**attrs, "strides": (1, 1), "pads": NO_HALO})
        attrs = node.attrs
    ends = _ends(low, node)
    out, place, added = ends.out, ends.halves, ends.residual_halves
    whole = replace(node, residual=None) if added is not None else node
    count, inner, *window = attrs["weights"].shape
    blocks = -(-(count // groups) // low.width)
    inner += inner % 2
    if rows is not None:
        offsets, lengths = rows
    elif sorted_by == (1, 1):
        offsets, lengths = segments(attrs, inner, source)
    else:
        offsets, lengths = tap_segments(attrs, inner, source, sorted_by)
    packed = _pack_filters(low, attrs, source.lanes if rows is None else lengths[0])
    pixels = image_pixels(low, whole, source, out or place or source)
    if all(each is None or each.row == pixels.columns * each.lanes for each in (place, added)):
        pixels = flattened(pixels, whole)
    bias = padded_bias(attrs["shift"], groups, blocks * low.width)
    parts = cut_image(
        low, pixels, blocks, groups, prod(node.output.shape) * inner * prod(window), x_bytes, 4 * packed.size,
        TILE_PART_BYTES if source.by_block else HALF_PART_BYTES, source.by_block,
    )  # fmt: skip
    arguments = abi.Pairs(
        source=(source.buffer, window_start(node, source) // 2), weights=(packed, 0),
        bias=None if bias is None else (bias, 0), out=None if out is None else (out.buffer, out.origin),
        residual=residual_of(low, whole), offsets=(_table(offsets), 0),
        residual_halves=None if added is None else (added.buffer, added.origin // 2),
        out_halves=None if place is None else (place.buffer, place.origin // 2),
        **pixels._asdict() | _added(low, whole, added),
        blocks=blocks, segments=len(offsets), segment_length=lengths[0], last_length=lengths[1] + lengths[1] % 2,
        last_segments=lengths[2], groups=groups, source_group=inner // source.lanes * source.block,
        weights_group=2 * packed.size // groups, last_lanes=low.width, bias_group=blocks * low.width,
        out_block=0 if out is None else out.block,
        **halves_written(low, place), **parts._asdict(),
    )  # fmt: skip
    low.calls.add(arguments, groups * prod(parts), node.activation)


def _ends(low: Lowering, node: Node) -> Ends:
    """Memory for the results of a convolution, and the place of what it adds."""
    added = half_residual(low, node)
    residual = None if node.residual is None or added is not None else low.blocked(node.residual)
    alone = replace(node, residual=None) if added is not None else node
    out = conv_output(low, alone) if floats_wanted(low, node) else None
    return Ends(out, written_half(low, node, added), residual, added)


def _traversed(node: Node) -> int:
    """The bytes of an image that a convolution reads."""
    touched = [min(w, s) for w, s in zip(node.attrs["weights"].shape[2:], node.attrs["strides"], strict=True)]
    return int(2 * node.inputs[0].shape[1] * prod(node.output.shape[2:]) * prod(touched))


def _pool(low: Lowering, node: Node) -> None:
    attrs, source, place = node.attrs, half(low, node.inputs[0], node.inputs[0].shape), written_half(low, node)
    assert place is not None and place.lanes == source.lanes
    images, _, rows, columns = node.output.shape
    (window_h, window_w), (stride_h, stride_w), (top, left, *_) = attrs["window"], attrs["strides"], attrs["pads"]
    arguments = abi.PoolHalves(
        source=(source.buffer, source.origin // 2), out=(place.buffer, place.origin // 2), images=images, rows=rows,
        columns=columns, blocks=place.blocks, lanes=place.lanes, window_h=window_h, window_w=window_w, stride_h=stride_h,
        stride_w=stride_w, pad_top=top, pad_left=left, source_height=source.shape[2], source_width=source.shape[3],
        source_image=source.image, source_row=source.row, source_block=source.block, out_image=place.image,
        out_row=place.row, out_block=place.block,
    )  # fmt: skip
    low.calls.add(arguments, low.calls.task_count(prod(node.inputs[0].shape), images * place.blocks * rows))


def _added(low: Lowering, node: Node, halves: Blocked | None) -> dict[str, int]:
    """The strides of a convolution's residual."""
    if halves is not None:
        return residual_strides(low, halves)
    block = residual_block(low, node)
    return {"residual_block": block, "residual_pair": 2 * block}


def _product(low: Lowering, node: Node) -> None:
    attrs = node.attrs
    (rows, depth), columns = attrs["matrix"], attrs["weights"].shape[1]
    source = half(low, node.inputs[0], (depth, rows))
    added = half_residual(low, node)
    residual = low.contiguous(node.residual) if node.residual is not None and added is None else None
    out = None
    if floats_wanted(low, node):
        out = (
            low.reuse_plain(node.residual, node.output) if node.residual is not None and residual is not None else None
        )
        out = out or low.new_plain(node.output)
    place = written_half(low, node, added)
    blocks, (whole, rest) = -(-columns // low.width), divmod(depth + depth % 2, source.lanes)
    offsets = [block * source.block for block in range(whole + bool(rest))]
    packed = _pack_matrix(low, attrs["weights"])
    pixels = Pixels(1, 1, rows, 0, 0, source.lanes, 0, 0, columns, residual_pixel=columns)
    bias = padded_bias(attrs["shift"], 1, blocks * low.width)
    parts = cut_image(
        low, pixels, blocks, 1, rows * depth * columns, 2 * rows * depth, 4 * packed.size,
        ROWS_PART_BYTES if source.by_block else PART_BYTES,
    )  # fmt: skip
    arguments = abi.Pairs(
        source=(source.buffer, 0), weights=(packed, 0), bias=None if bias is None else (bias, 0),
        out=None if out is None else (out.buffer, out.offset),
        residual=None if residual is None else (residual.buffer, residual.offset), offsets=(_table(offsets), 0),
        residual_halves=None if added is None else (added.buffer, 0),
        out_halves=None if place is None else (place.buffer, 0),
        **pixels._asdict()
        | ({"residual_block": low.width, "residual_pair": 2 * low.width} if added is None else residual_strides(low, added)),
        blocks=blocks, segments=len(offsets), segment_length=source.lanes, last_length=rest, last_segments=int(rest > 0),
        groups=1, last_lanes=columns - (blocks - 1) * low.width, out_block=low.width,
        **halves_written(low, place), **parts._asdict(),
    )  # fmt: skip
    low.calls.add(arguments, prod(parts), node.activation)


def _table(offsets: list[int]) -> Buffer:
    table = np.asarray(offsets, np.int64)
    return Buffer(table.size, "constant", table)


# ---------------------------------------------------------------- weights
def _pack_filters(low: Lowering, attrs: Mapping[str, Any], lanes: int) -> Buffer:
    weights, groups = np.ascontiguousarray(attrs["weights"], np.float32), attrs["groups"]
    count, inner, *window = weights.shape
    each = -(-(count // groups) // low.width) * low.width
    taps = prod(window)
    size = groups * each * (inner + inner % 2) * taps
    scale = None if attrs["scale"] is None else np.ascontiguousarray(attrs["scale"], np.float32)
    call = partial(
        abi.PackPairs, source=weights, scale=scale, outputs=count // groups, channels=inner, taps=taps, groups=groups,
        out_group=size // groups, lanes=lanes, source_output=inner * taps, source_channel=taps, source_tap=1,
        source_group=count // groups * inner * taps, first_block=0, all_blocks=each // low.width,
    )  # fmt: skip
    return low.packing.materialize(size // 2, [Packing(call, groups * each // low.width)])


def _pack_matrix(low: Lowering, weights: Any) -> Buffer:
    depth, columns = weights.shape
    start, blocks, packings = 0, -(-columns // low.width), []
    for matrix, scale in matrices(weights):
        by_depth, by_column = (stride // 4 for stride in matrix.strides)
        call = partial(
            abi.PackPairs, source=matrix, scale=scale, outputs=matrix.shape[1], channels=depth, taps=1, groups=1, out_group=0,
            lanes=low.width, source_output=by_column, source_channel=by_depth, source_tap=0, source_group=0,
            first_block=start, all_blocks=blocks,
        )  # fmt: skip
        packings.append(Packing(call, -(-matrix.shape[1] // low.width)))
        start += matrix.shape[1] // low.width
    return low.packing.materialize(blocks * low.width * (depth + depth % 2) // 2, packings)
