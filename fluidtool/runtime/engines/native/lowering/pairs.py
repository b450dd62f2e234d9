"""Convolutions and products by dot products of pairs of bfloat16 numbers (src/pairs.c), where the processor has them.

Their inputs lie as halves, numbers of 16 bits, with channels in blocks; a matrix as an image of one row, with a pixel for
each of its rows. The form says which: the shape of an image, or (depth, rows) of a matrix. A node that is computed by pairs
writes floats, halves, or both, as its readers want.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from math import prod
from typing import Any

import numpy as np

from fluidtool.runtime.engines.native.calls import Blocked, Buffer, Kind, row_major
from fluidtool.runtime.engines.native.library import Library
from fluidtool.runtime.engines.native.lowering.convolution import (
    cut_image,
    flatten,
    image_sizes,
    is_depthwise,
    join_groups,
    reach,
    residual_sizes,
    segments,
)
from fluidtool.runtime.engines.native.lowering.memory import (
    NO_HALO,
    Halo,
    Lowering,
    conv_output,
    joined,
    padded_bias,
)
from fluidtool.runtime.engines.native.packed import Packing
from fluidtool.runtime.graph.ir import Graph, Node, Shape, Value
from fluidtool.runtime.graph.rewrites.joining import SideBySide


def by_pairs(node: Node, library: Library) -> bool:
    """Whether a node is computed by pairs; a depthwise convolution has no two channels to add."""
    return library.pairs and (node.kind == "product" or (node.kind == "conv" and not is_depthwise(node)))


def read_form(node: Node) -> Shape:
    """The form in which a node reads its first input."""
    return node.attrs["matrix"][::-1] if node.kind == "product" else node.inputs[0].shape


def written_form(node: Node) -> Shape:
    """The form in which a node can write halves."""
    return (node.output.shape[-1], node.attrs["matrix"][0]) if node.kind == "product" else node.output.shape


def half_uses(graph: Graph, library: Library) -> Counter[tuple[Value, Shape]]:
    """How often each value is read as halves of each form."""
    return Counter((node.inputs[0], read_form(node)) for node in graph.nodes if by_pairs(node, library))


def half_halos(graph: Graph, library: Library) -> dict[Value, Halo]:
    """For each value the zeros that the convolutions which read it as halves need around it."""
    halos: dict[Value, Halo] = {}
    for node in graph.nodes:
        if node.kind == "conv" and by_pairs(node, library):
            x = node.inputs[0]
            halos[x] = joined(halos.get(x, NO_HALO), reach(node, node.output.shape))
    return halos


def pairs(low: Lowering, node: Node) -> None:
    """The steps of a node that is computed by pairs."""
    (_product if node.kind == "product" else _convolution)(low, node)


# ---------------------------------------------------------------- where halves lie
def new_half(low: Lowering, value: Value, form: Shape, lanes: int) -> Blocked:
    """Room for a value as halves."""
    image = form if len(form) == 4 else (1, form[0], 1, form[1])
    halo = low.half_halos.get(value, NO_HALO) if len(form) == 4 else NO_HALO
    place = low.halves[value, form] = Blocked(Buffer(0), image, lanes, halo, halves=True)
    place.buffer.size = -(-place.size // 2)
    low.zero_halo(place)
    return place


def half(low: Lowering, value: Value, form: Shape, whole: bool = False) -> Blocked:
    """Where a value lies as halves; it is put there when it does not. whole: in blocks as wide as a vector."""
    found = low.halves.get((value, form))
    if found is not None:
        return found
    channels = form[1] if len(form) == 4 else form[0]
    blocked = low.blockeds.get(value) if len(form) == 4 else None
    lanes = low.width if whole or blocked is not None or len(form) == 2 else min(low.width, channels + channels % 2)
    if blocked is not None:
        source, start = blocked.buffer, blocked.origin
        strides = (blocked.image, blocked.block, blocked.row, blocked.lanes, 1)
    else:
        plain = low.contiguous(value)
        source, start = plain.buffer, plain.offset
        if len(form) == 4:
            image, channel, row, column = row_major(form)
            strides = (image, lanes * channel, row, column, channel)
        else:
            strides = (0, lanes, 0, channels, 1)
    place = new_half(low, value, form, lanes)
    images, _, rows, columns = place.shape
    n = dict(enumerate((images, channels, rows, columns, place.image, place.block, place.row, place.blocks, lanes)))
    n |= dict(enumerate(strides, 9))
    low.steps.add(
        Kind.NARROW, {0: (source, start), 3: (place.buffer, place.origin // 2)}, n,
        tasks=low.task_count(place.size, images * place.blocks * rows),
    )  # fmt: skip
    return place


def written_half(low: Lowering, node: Node) -> Blocked | None:
    """Room for the result of a node as halves, if it has readers that want them."""
    form = written_form(node)
    return new_half(low, node.output, form, low.width) if low.half_uses[node.output, form] else None


def floats_wanted(low: Lowering, node: Node) -> bool:
    """Whether the result of a node has readers that want floats."""
    return low.left[node.output] > low.half_uses[node.output, written_form(node)]


# ---------------------------------------------------------------- steps
def _convolution(low: Lowering, node: Node) -> None:
    node, residual = replace(node, attrs=join_groups(low, node.attrs)), None
    x, attrs, groups = node.inputs[0], node.attrs, node.attrs["groups"]
    source = half(low, x, x.shape, groups > 1)
    if node.residual is not None:
        residual = low.blocked(node.residual)
    out = conv_output(low, node) if floats_wanted(low, node) else None
    place = written_half(low, node)
    count, inner, *window = attrs["weights"].shape
    blocks = -(-(count // groups) // low.width)
    inner += inner % 2
    offsets, lengths = segments(attrs, inner, source)
    packed = _pack_filters(low, attrs, source.lanes)
    n = image_sizes(node, source, out or place or source)
    n |= {3: blocks, 4: len(offsets), 5: lengths[0], 6: lengths[1] + lengths[1] % 2, 7: lengths[2]}
    n |= {19: groups, 20: inner // source.lanes * source.block, 21: 2 * packed.size // groups, 23: low.width}
    n[27] = blocks * low.width
    if out is not None:
        n[14] = out.block
    if place is not None:
        n |= {24: place.image, 29: place.row, 30: place.block}
    n |= residual_sizes(low, node)
    if place is None or place.row == n[2] * place.lanes:
        flatten(n, node)
    start = source.origin - attrs["pads"][0] * source.row - attrs["pads"][1] * source.lanes
    bias = padded_bias(attrs["shift"], groups, blocks * low.width)
    touched = [min(w, s) for w, s in zip(window, attrs["strides"], strict=True)]
    tasks = cut_image(
        low, n, prod(node.output.shape) * inner * prod(window),
        2 * x.shape[1] * prod(node.output.shape[2:]) * prod(touched), 4 * packed.size,
    )  # fmt: skip
    _add(low, node, n, tasks, offsets, {
        0: (source.buffer, start // 2), 1: (packed, 0), 2: None if bias is None else (bias, 0),
        3: None if out is None else (out.buffer, out.origin),
        4: None if residual is None else (residual.buffer, residual.origin),
        6: None if place is None else (place.buffer, place.origin // 2),
    })  # fmt: skip


def _product(low: Lowering, node: Node) -> None:
    attrs = node.attrs
    (rows, depth), columns = attrs["matrix"], attrs["weights"].shape[1]
    source = half(low, node.inputs[0], (depth, rows))
    residual = low.contiguous(node.residual) if node.residual is not None else None
    out = None
    if floats_wanted(low, node):
        out = low.reuse_plain(node.residual, node.output) if node.residual is not None else None
        out = out or low.new_plain(node.output)
    place = written_half(low, node)
    blocks, (whole, rest) = -(-columns // low.width), divmod(depth + depth % 2, low.width)
    offsets = [block * source.block for block in range(whole + bool(rest))]
    packed = _pack_matrix(low, attrs["weights"])
    n = {0: 1, 1: 1, 2: rows, 3: blocks, 4: len(offsets), 5: low.width, 6: rest, 7: int(rest > 0), 10: low.width}
    n |= {13: columns, 14: low.width, 17: columns, 18: low.width, 19: 1, 23: columns - (blocks - 1) * low.width}
    n |= {25: 1, 26: 1, 28: 1}
    if place is not None:
        n[30] = place.block
    bias = padded_bias(attrs["shift"], 1, blocks * low.width)
    tasks = cut_image(low, n, rows * depth * columns, 2 * rows * depth, 4 * packed.size)
    _add(low, node, n, tasks, offsets, {
        0: (source.buffer, 0), 1: (packed, 0), 2: None if bias is None else (bias, 0),
        3: None if out is None else (out.buffer, out.offset),
        4: None if residual is None else (residual.buffer, residual.offset),
        6: None if place is None else (place.buffer, 0),
    })  # fmt: skip


def _add(
    low: Lowering, node: Node, n: dict[int, int], tasks: int, offsets: list[int], pointers: dict[int, Any]
) -> None:
    table = np.asarray(offsets, np.int64)
    pointers[5] = (Buffer(table.size, "constant", table), 0)
    low.steps.add(Kind.PAIRS, pointers, n, activation=node.activation, tasks=tasks)


# ---------------------------------------------------------------- weights
def _pack_filters(low: Lowering, attrs: Mapping[str, Any], lanes: int) -> Buffer:
    weights, groups = np.ascontiguousarray(attrs["weights"], np.float32), attrs["groups"]
    count, inner, *window = weights.shape
    each = -(-(count // groups) // low.width) * low.width
    taps = prod(window)
    size = groups * each * (inner + inner % 2) * taps
    n = dict(enumerate((count // groups, inner, taps, groups, size // groups, lanes)))
    n |= dict(enumerate((inner * taps, taps, 1, count // groups * inner * taps, 0, each // low.width), 6))
    arrays = {0: weights}
    if attrs["scale"] is not None:
        arrays[1] = np.ascontiguousarray(attrs["scale"], np.float32)
    return low.materialize(size // 2, [Packing(Kind.PACK_PAIRS, arrays, n, groups * each // low.width)])


def _pack_matrix(low: Lowering, weights: Any) -> Buffer:
    depth, columns = weights.shape
    start, blocks, packings = 0, -(-columns // low.width), []
    for part in weights.parts if isinstance(weights, SideBySide) else (weights,):
        matrix = part if part.dtype == np.float32 else part.astype(np.float32)
        by_depth, by_column = (stride // 4 for stride in matrix.strides)
        n = dict(enumerate((matrix.shape[1], depth, 1, 1, 0, low.width, by_column, by_depth, 0, 0)))
        n |= {10: start, 11: blocks}
        packings.append(Packing(Kind.PACK_PAIRS, {0: matrix}, n, -(-matrix.shape[1] // low.width)))
        start += matrix.shape[1] // low.width
    return low.materialize(blocks * low.width * (depth + depth % 2) // 2, packings)
