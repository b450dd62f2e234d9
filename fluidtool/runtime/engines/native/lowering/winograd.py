"""Convolutions of 3 x 3 filters with a stride of one by Winograd's method: fewer multiplications, more additions."""

from __future__ import annotations

from functools import partial
from math import prod

import numpy as np

from fluidtool.runtime.engines.native import abi
from fluidtool.runtime.engines.native.constants import Packing
from fluidtool.runtime.engines.native.layouts import Buffer, Halo, Image
from fluidtool.runtime.engines.native.lowering.packing import Fed, padded_bias
from fluidtool.runtime.engines.native.lowering.values import Lowering, conv_output
from fluidtool.runtime.graph.ir import Node

LEAST_CHANNELS = 16
WINDOWS = 28  # MOST_TILES of src/winograd.c
STRIP = 100_000  # floats of transformed windows in the arena at a time, unless the filters are larger
WEIGHT = 20  # multiplications that take as long as reading a weight from memory
FED_WEIGHT = 200  # and as writing it there first
TRANSFORM = {2: 100, 4: 220}  # and as transforming a window of one channel, by outputs on a side
MOST_FILTERS = 4_000_000  # floats of transformed filters


def outputs_by_side(node: Node, width: int) -> int:
    """The side of the squares of pixels that are computed at once: 2, 4, or 0 if plain convolution is better."""
    attrs = node.attrs
    count, channels, *window = attrs["weights"].shape
    plain = attrs["strides"] == attrs["dilations"] == (1, 1) and attrs["groups"] == 1
    if not plain or window != [3, 3] or min(count, channels) < LEAST_CHANNELS or channels % width:
        return 0
    pixels, filters = node.output.shape[0] * prod(node.output.shape[2:]), count * channels
    weight = FED_WEIGHT if isinstance(attrs["weights"], Fed) else WEIGHT
    costs = {0: 9 * filters * (pixels + weight)}
    for outputs, transform in TRANSFORM.items():
        positions = (outputs + 2) ** 2
        if positions * filters <= MOST_FILTERS or outputs == 2:
            windows = prod(_windows(node, outputs))
            costs[outputs] = positions * filters * (windows + weight) + windows * (count + channels) * transform
    return min(costs, key=lambda outputs: costs[outputs])


def _windows(node: Node, outputs: int) -> tuple[int, int, int]:
    images, _, rows, columns = node.output.shape
    return images, -(-rows // outputs), -(-columns // outputs)


def winograd(low: Lowering, node: Node, outputs: int) -> None:
    """The calls, on blocked layouts."""
    source = low.blocked(node.inputs[0])
    convolve_windows(low, node, source, conv_output(low, node), outputs)


def convolve_windows(low: Lowering, node: Node, source: Image, out: Image, outputs: int) -> None:
    """The calls: some windows are transformed, multiplied and transformed back, then the next ones."""
    filters, bias = _pack(low, node, outputs)
    shape = _windows(node, outputs)
    each = (outputs + 2) ** 2 * source.blocks * low.width
    strips = -(-prod(shape) * each // max(STRIP, filters.size))
    for strip in range(strips):
        first, last = (prod(shape) * number // strips for number in (strip, strip + 1))
        windows = Buffer((last - first) * each)
        add_windows(low, source, node.attrs["pads"], shape, outputs, windows, (first, last))
        _add_products(low, node, out, shape, outputs, (windows, filters, bias), (first, last))


def add_windows(
    low: Lowering, source: Image, pads: Halo, shape: tuple[int, int, int], outputs: int, windows: Buffer,
    strip: tuple[int, int], of_gradients: int = 0,
) -> None:  # fmt: skip
    """The call that transforms some windows of an image, or of the gradients of results."""
    (images, rows, columns), (first, last) = shape, strip
    (top, left, *_), count = pads, last - first
    arguments = abi.WinogradWindows(
        source=(source.buffer, source.origin), out=(windows, 0), images=images, window_rows=rows, window_columns=columns,
        blocks=source.blocks, outputs=outputs, pad_top=top, pad_left=left,
        source_height=source.shape[2], source_width=source.shape[3],
        source_image=source.image, source_row=source.row, source_pixel=source.pixel, source_block=source.block,
        out_block=count * low.width, out_position=source.blocks * count * low.width, first=first, count=count,
        of_gradients=of_gradients,
    )  # fmt: skip
    low.calls.add(arguments, low.calls.task_count(windows.size, count * source.blocks))


def _add_products(
    low: Lowering, node: Node, out: Image, shape: tuple[int, int, int], outputs: int,
    buffers: tuple[Buffer, Buffer, Buffer | None], strip: tuple[int, int],
) -> None:  # fmt: skip
    (images, rows, columns), (windows, filters, bias), (first, last) = shape, buffers, strip
    channels, count = node.inputs[0].shape[1], last - first
    chunks = -(-count // WINDOWS)
    table = np.arange(0, count * channels, count * low.width, dtype=np.int64)
    residual = None if node.residual is None else low.blockeds[node.residual]
    pairs, threads = -(-out.blocks // 2), low.library.threads
    parts = min(pairs, -(-4 * threads // chunks)) if threads > 1 else 1
    arguments = abi.Winograd(
        windows=(windows, 0), weights=(filters, 0), bias=None if bias is None else (bias, 0), out=(out.buffer, out.origin),
        residual=None if residual is None else (residual.buffer, residual.origin),
        offsets=(Buffer(table.size, "constant", table), 0), images=images, window_rows=rows, window_columns=columns,
        blocks=out.blocks, outputs=outputs, channels=channels, windows_position=count * channels, first=first, count=count,
        window_parts=chunks, block_parts=parts, rows=out.shape[2], columns=out.shape[3],
        out_image=out.image, out_row=out.row, out_pixel=out.pixel, out_block=out.block,
        residual_image=residual.image if residual else 0, residual_row=residual.row if residual else 0,
        residual_pixel=residual.pixel if residual else 0, residual_block=residual.block if residual else 0,
    )  # fmt: skip
    low.calls.add(arguments, chunks * parts, node.activation)


def _pack(low: Lowering, node: Node, outputs: int) -> tuple[Buffer, Buffer | None]:
    attrs = node.attrs
    if isinstance(attrs["weights"], Fed):
        return _pack_fed(low, attrs["weights"], outputs), None
    weights, scale = low.packing.filters(attrs)
    count, channels = weights.shape[:2]
    each = -(-count // low.width) * low.width
    call = partial(
        abi.PackWinograd, source=weights, scale=scale, filters=count, channels=channels, outputs=outputs,
        filter_step=9 * channels, channel_step=9,
    )  # fmt: skip
    packing = Packing(call, each // low.width)
    return low.packing.materialize((outputs + 2) ** 2 * each * channels, [packing]), padded_bias(
        attrs["shift"], 1, each
    )


def _pack_fed(low: Lowering, weights: Fed, outputs: int) -> Buffer:
    count, channels = weights.shape[:2]
    blocks = -(-count // low.width)
    packed = Buffer((outputs + 2) ** 2 * blocks * low.width * channels)
    steps = (9, 9 * count) if weights.turned else (9 * channels, 9)
    arguments = abi.PackWinograd(
        source=(weights.buffer, 0), scale=None, out=(packed, 0), filters=count, channels=channels, outputs=outputs,
        filter_step=steps[0], channel_step=steps[1], turned=int(weights.turned),
    )  # fmt: skip
    low.calls.add(arguments, low.calls.task_count(packed.size, blocks * channels))
    return packed
