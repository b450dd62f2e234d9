"""Convolutions of 3 x 3 filters that move by one, by Winograd's method: fewer multiplications, more additions."""

from __future__ import annotations

from math import prod

import numpy as np

from fluidtool.runtime.engines.native.calls import Blocked, Buffer, Kind
from fluidtool.runtime.engines.native.lowering.memory import Lowering, conv_output, padded_bias
from fluidtool.runtime.engines.native.packed import Packing
from fluidtool.runtime.graph.ir import Node

LEAST_CHANNELS = 16
WINDOWS = 28  # MOST_TILES of src/winograd.c
STRIP = 100_000  # floats of transformed windows that lie in the arena at a time, unless the filters are more
WEIGHT = 20  # multiplications that take as long as reading a weight from memory
TRANSFORM = {2: 100, 4: 220}  # and as transforming a window of one channel, by outputs on a side
MOST_FILTERS = 4_000_000  # floats of transformed filters


def outputs_by_side(node: Node, width: int) -> int:
    """Of how many pixels the squares are that are computed at once: 2, 4, or 0 where plain convolution is better."""
    attrs = node.attrs
    count, channels, *window = attrs["weights"].shape
    plain = attrs["strides"] == attrs["dilations"] == (1, 1) and attrs["groups"] == 1
    if not plain or window != [3, 3] or min(count, channels) < LEAST_CHANNELS or channels % width:
        return 0
    pixels, filters = node.output.shape[0] * prod(node.output.shape[2:]), count * channels
    costs = {0: 9 * filters * (pixels + WEIGHT)}
    for outputs, transform in TRANSFORM.items():
        positions = (outputs + 2) ** 2
        if positions * filters <= MOST_FILTERS or outputs == 2:
            windows = prod(_windows(node, outputs))
            costs[outputs] = positions * filters * (windows + WEIGHT) + windows * (count + channels) * transform
    return min(costs, key=lambda outputs: costs[outputs])


def _windows(node: Node, outputs: int) -> tuple[int, int, int]:
    images, _, rows, columns = node.output.shape
    return images, -(-rows // outputs), -(-columns // outputs)


def winograd(low: Lowering, node: Node, outputs: int) -> None:
    """The steps: some windows are transformed, multiplied and transformed back, then the next ones."""
    source = low.blocked(node.inputs[0])
    out = conv_output(low, node)
    filters, bias = _pack(low, node, outputs)
    shape = _windows(node, outputs)
    each = (outputs + 2) ** 2 * source.blocks * low.width
    strips = -(-prod(shape) * each // max(STRIP, filters.size))
    for strip in range(strips):
        first, last = (prod(shape) * number // strips for number in (strip, strip + 1))
        windows = Buffer((last - first) * each)
        _add_windows(low, node, source, shape, outputs, windows, (first, last))
        _add_products(low, node, out, shape, outputs, {0: windows, 1: filters, 2: bias}, (first, last))


def _add_windows(
    low: Lowering, node: Node, source: Blocked, shape: tuple[int, int, int], outputs: int, windows: Buffer,
    strip: tuple[int, int],
) -> None:  # fmt: skip
    n = dict(enumerate((*shape, source.blocks, outputs, *node.attrs["pads"][:2], *source.shape[2:])))
    count = strip[1] - strip[0]
    block = count * low.width
    n |= dict(enumerate((source.image, source.row, source.block, block, source.blocks * block, strip[0], count), 9))
    tasks = low.task_count(windows.size, count * source.blocks)
    low.steps.add(Kind.WINOGRAD_WINDOWS, {0: (source.buffer, source.origin), 3: (windows, 0)}, n, tasks=tasks)


def _add_products(
    low: Lowering, node: Node, out: Blocked, shape: tuple[int, int, int], outputs: int,
    buffers: dict[int, Buffer | None], strip: tuple[int, int],
) -> None:  # fmt: skip
    channels, count = node.inputs[0].shape[1], strip[1] - strip[0]
    chunks = -(-count // WINDOWS)
    n = dict(enumerate((*shape, out.blocks, outputs, channels, 0, count * channels, strip[0], count, chunks)))
    n |= {11: out.image, 12: out.row, 13: out.lanes, 14: out.block, 21: out.shape[2], 22: out.shape[3]}
    pointers = {slot: (buffer, 0) for slot, buffer in buffers.items() if buffer is not None}
    pointers[3] = (out.buffer, out.origin)
    table = np.arange(0, count * channels, count * low.width, dtype=np.int64)
    pointers[5] = (Buffer(table.size, "constant", table), 0)
    if node.residual is not None:
        residual = low.blockeds[node.residual]
        pointers[4] = (residual.buffer, residual.origin)
        n |= {15: residual.image, 16: residual.row, 17: residual.lanes, 18: residual.block}
    pairs, threads = -(-out.blocks // 2), low.library.threads
    n[26] = min(pairs, -(-4 * threads // chunks)) if threads > 1 else 1
    low.steps.add(Kind.WINOGRAD, pointers, n, activation=node.activation, tasks=chunks * n[26])


def _pack(low: Lowering, node: Node, outputs: int) -> tuple[Buffer, Buffer | None]:
    attrs = node.attrs
    weights, scale = low.filters(attrs)
    count, channels = weights.shape[:2]
    each = -(-count // low.width) * low.width
    arrays = {0: weights} if scale is None else {0: weights, 1: scale}
    packing = Packing(Kind.PACK_WINOGRAD, arrays, {0: count, 1: channels, 2: outputs}, each // low.width)
    return low.materialize((outputs + 2) ** 2 * each * channels, [packing]), padded_bias(attrs["shift"], 1, each)
