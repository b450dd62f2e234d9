"""Convolutions and pooling, on blocked layouts."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from fluidtool.runtime.engines.native.graph import Node
from fluidtool.runtime.engines.native.lowering.memory import NO_HALO, SECOND_CACHE, SMALL, Lowering, lowers, padded_bias
from fluidtool.runtime.engines.native.reading.registry import need
from fluidtool.runtime.engines.native.steps import Blocked, Buffer, Kind, aligned_floats, constant


@lowers("conv")
def _conv(low: Lowering, node: Node) -> None:
    x, facts = node.inputs[0], node.facts
    count, inner, *_ = facts["weights"].shape
    if facts["groups"] == x.shape[1] == count and inner == 1:
        _depthwise(low, node)
        return
    groups = facts["groups"]
    need(groups == 1 or (inner % low.width == 0 and (count // groups) % low.width == 0), "groups of few channels")
    source = low.blocked(x, narrow=groups == 1)
    out = _conv_output(low, node)
    packed, bias = _pack_filter(low, facts, source.lanes)
    offsets, lengths = _segments(facts, inner, source)
    n = _image_sizes(node, source, out)
    blocks = -(-(count // groups) // low.width)
    n |= {3: blocks, 4: len(offsets), 5: lengths[0], 6: lengths[1], 7: lengths[2]}
    n |= {14: out.block, 19: groups, 20: inner // source.lanes * source.block, 21: packed.size // groups}
    n |= {22: blocks * out.block, 23: low.width, 27: blocks * low.width}
    n |= _residual_sizes(low, node)
    _flatten(n, node, source, out, low)
    work = prod(node.output.shape) * prod(facts["weights"].shape[1:])
    touched = [min(w, s) for w, s in zip(facts["weights"].shape[2:], facts["strides"], strict=True)]
    image = 4 * x.shape[1] * prod(node.output.shape[2:]) * prod(touched)
    tasks = _cut(low, n, work, image, 4 * packed.size)
    low.steps.add(Kind.CONVOLUTION, _pointers(low, node, source, out, packed, bias, offsets), n,
                  activation=node.activation, tasks=tasks)  # fmt: skip


def _conv_output(low: Lowering, node: Node) -> Blocked:
    if node.residual is not None:
        low.blocked(node.residual)
        reused = low.reuse_blocked(node.residual, node.output)
        if reused is not None:
            return reused
    return low.new_blocked(node.output)


def _pointers(
    low: Lowering, node: Node, source: Blocked, out: Blocked, weights: Buffer, bias: Buffer | None, offsets: list[int]
) -> dict[int, Any]:
    facts = node.facts
    table = np.asarray(offsets, np.int64)
    start = source.origin - facts["pads"][0] * source.row - facts["pads"][1] * source.lanes
    residual = low.blockeds[node.residual] if node.residual is not None else None
    return {
        0: (source.buffer, start),
        1: (weights, 0),
        2: None if bias is None else (bias, 0),
        3: (out.buffer, out.origin),
        4: None if residual is None else (residual.buffer, residual.origin),
        5: (Buffer(table.size, "constant", table), 0),
    }


def _image_sizes(node: Node, source: Blocked, out: Blocked) -> dict[int, int]:
    images, _, rows, columns = node.output.shape
    down, right = node.facts["strides"]
    return {
        0: images, 1: rows, 2: columns, 8: source.image, 9: down * source.row, 10: right * source.lanes,
        11: out.image, 12: out.row, 13: out.lanes, 25: 1, 26: 1, 28: 1,
    }  # fmt: skip


def _residual_sizes(low: Lowering, node: Node) -> dict[int, int]:
    if node.residual is None:
        return {}
    place = low.blockeds[node.residual]
    return {15: place.image, 16: place.row, 17: place.lanes, 18: place.block}


def _flatten(n: dict[int, int], node: Node, source: Blocked, out: Blocked, low: Lowering) -> None:
    """Rows that follow each other without a gap in everything are one row."""
    places = [source, out, *([low.blockeds[node.residual]] if node.residual is not None else [])]
    gaps = any(place.halo[1] or place.halo[3] for place in places)
    if not gaps and node.facts["strides"] == (1, 1) and node.facts["weights"].shape[2:] == (1, 1):
        n[2] *= n[1]
        n[1] = 1


def _segments(facts: dict[str, Any], inner: int, source: Blocked) -> tuple[list[int], tuple[int, int, int]]:
    """(offsets of the segments, (length, length of the last ones, how many last ones))."""
    rows, columns = facts["weights"].shape[2:]
    down, right = facts["dilations"]
    whole, rest = divmod(inner, source.lanes)
    together = right == 1
    offsets = [
        block * source.block + row * down * source.row + column * right * source.lanes
        for block in range(whole)
        for row in range(rows)
        for column in range(1 if together else columns)
    ]
    last = [
        whole * source.block + row * down * source.row + column * right * source.lanes
        for row in range(rows if rest else 0)
        for column in range(columns)
    ]
    return offsets + last, (source.lanes * (columns if together else 1), rest, len(last))


def _pack_filter(low: Lowering, facts: dict[str, Any], lanes: int) -> tuple[Buffer, Buffer | None]:
    weights, groups, width = np.ascontiguousarray(facts["weights"], np.float32), facts["groups"], low.width
    count, inner, rows, columns = weights.shape
    each = -(-(count // groups) // width) * width
    packed = Buffer(groups * each * inner * rows * columns, "constant")
    packed.array = aligned_floats(packed.size)
    arrays = {0: weights, 3: packed.array}
    if facts["scale"] is not None:
        arrays[1] = np.ascontiguousarray(facts["scale"], np.float32)
    n = dict(enumerate((count // groups, inner, rows * columns, groups, packed.size // groups, lanes)))
    low.run_now(Kind.PACK_FILTER, arrays, n, groups * -(-each // (2 * width)))
    return packed, padded_bias(facts["shift"], groups, each)


def _cut(low: Lowering, n: dict[int, int], work: int, x_bytes: int, weight_bytes: int) -> int:
    """Choose the parts by row, column and channel block; returns how many tasks that makes.

    A part by channel block reads its weights once and the whole image for each pair of blocks: right when the image
    stays in the second cache. A part by row reads all weights, and its rows again and again.
    """
    pairs, groups, lines = -(-n[3] // 2), n[19], n[0] * n[1]
    threads = low.library.threads
    if threads == 1 or work <= SMALL:
        wanted = 1
    elif x_bytes * n[0] <= SECOND_CACHE and weight_bytes >= x_bytes // 2:
        n[26] = min(pairs, 4 * threads)
        wanted = -(-2 * threads // (n[26] * groups))
    else:
        wanted = max(2 * threads, -(-x_bytes * n[0] // SECOND_CACHE))
    n[25] = min(lines, wanted)
    if n[25] < wanted:
        n[28] = max(min(-(-wanted // n[25]), n[2] // 24), 1)
    if n[25] * n[26] * n[28] * groups < 2 * threads and work > SMALL:
        n[26] = min(pairs, 4 * threads)
    return groups * n[25] * n[26] * n[28]


def _depthwise(low: Lowering, node: Node) -> None:
    facts, width = node.facts, low.width
    source = low.blocked(node.inputs[0])
    out = _conv_output(low, node)
    count, _, rows, columns = facts["weights"].shape
    blocks = -(-count // width)
    weights = np.zeros((blocks * width, rows * columns), np.float64)
    weights[:count] = facts["weights"].reshape(count, -1)
    if facts["scale"] is not None:
        weights[:count] *= facts["scale"].reshape(-1, 1)
    packed = constant(weights.reshape(blocks, width, -1).transpose(0, 2, 1))
    bias = padded_bias(facts["shift"], 1, blocks * width)
    down, right = facts["dilations"]
    offsets = [r * down * source.row + c * right * source.lanes for r in range(rows) for c in range(columns)]
    n = _image_sizes(node, source, out) | {3: blocks, 4: len(offsets), 14: out.block, 20: source.block}
    n |= _residual_sizes(low, node)
    work = prod(node.output.shape) * len(offsets)
    low.steps.add(
        Kind.DEPTHWISE, _pointers(low, node, source, out, packed, bias, offsets), n,
        activation=node.activation, tasks=low.parts(work, n[0] * n[3] * n[1]),
    )  # fmt: skip


@lowers("affine")
def _affine(low: Lowering, node: Node) -> None:
    """A factor and a shift by channel: a depthwise convolution of one tap."""
    need(len(node.output.shape) == 4, "batch_norm of no image")
    ones = np.ones((node.output.shape[1], 1, 1, 1), np.float32)
    node.facts |= {
        "weights": ones,
        "strides": (1, 1),
        "dilations": (1, 1),
        "pads": NO_HALO,
        "groups": node.output.shape[1],
    }
    _depthwise(low, node)


@lowers("pool")
def _pool(low: Lowering, node: Node) -> None:
    source, facts = low.blocked(node.inputs[0]), node.facts
    out = low.new_blocked(node.output)
    images, _, rows, columns = node.output.shape
    n = dict(enumerate((images, rows, columns, out.blocks, *facts["window"], *facts["strides"], *facts["pads"][:2])))
    n |= dict(enumerate((*source.shape[2:], source.image, source.row, source.block), 10))
    n |= dict(enumerate((out.image, out.row, out.block, facts["mode"], int(facts["adaptive"])), 15))
    work = prod(node.inputs[0].shape)
    pointers = {0: (source.buffer, source.origin), 3: (out.buffer, out.origin)}
    low.steps.add(Kind.POOL, pointers, n, tasks=low.parts(work, images * out.blocks * rows))
