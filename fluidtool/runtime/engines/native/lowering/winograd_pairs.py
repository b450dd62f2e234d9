"""Convolutions of 3 x 3 filters with a stride of one by Winograd's method F(2 x 2, 3 x 3), with halves (src/winograd_pairs.c)."""

from __future__ import annotations

from functools import partial
from math import prod

import numpy as np

from fluidtool.records import dataclass
from fluidtool.runtime.engines.native import abi
from fluidtool.runtime.engines.native.constants import Packing
from fluidtool.runtime.engines.native.layouts import Blocked, Buffer, Pointer
from fluidtool.runtime.engines.native.library import Library
from fluidtool.runtime.engines.native.lowering.packing import padded_bias
from fluidtool.runtime.engines.native.lowering.values import Lowering
from fluidtool.runtime.graph.ir import Node

LEAST_CHANNELS = 16
POSITIONS = 16
TILE = 14  # windows that are multiplied at once
MOST_WINDOWS = 56  # of src/winograd_pairs.c
WINDOW_BYTES = 500_000  # of transformed windows at a time, which stay in the L2 cache
WEIGHT = 12  # multiplications by pairs that take as long as reading a weight from memory
TRANSFORM = 200  # and as transforming a window of one channel


@dataclass(frozen=True, slots=True)
class Windows:
    """The windows of an image, and how threads share them out: so many at a time, of a part, for some channels of the result."""

    images: int
    rows: int
    columns: int
    together: int
    window_parts: int
    block_parts: int

    @property
    def count(self) -> int:
        """Of all images."""
        return self.images * self.rows * self.columns

    @property
    def readings(self) -> int:
        """How often the filters are read: each part reads them for every few windows."""
        return self.window_parts * -(-self.count // (self.window_parts * self.together))


def plan(node: Node, library: Library) -> Windows | None:
    """How a convolution by pairs is computed so; None where it is not, or its multiplications are quicker."""
    attrs = node.attrs
    if node.kind != "conv" or not library.halves_in_vectors or "frames" in attrs:
        return None
    filters, channels, *window = attrs["weights"].shape
    plain = attrs["strides"] == attrs["dilations"] == (1, 1) and attrs["groups"] == 1
    if not plain or window != [3, 3] or min(filters, channels) < LEAST_CHANNELS or channels % library.width:
        return None
    images, _, rows, columns = node.output.shape
    shape, pairs = (images, -(-rows // 2), -(-columns // 2)), -(-filters // (2 * library.width))
    together = min(MOST_WINDOWS, max(TILE, WINDOW_BYTES // (2 * POSITIONS * channels) // TILE * TILE))
    parts = max(1, min(library.threads, prod(shape) // TILE))
    windows = Windows(*shape, together, parts, min(pairs, -(-library.threads // parts)))
    transforms = windows.count * (windows.block_parts * channels + filters)
    cost = POSITIONS * filters * channels * (windows.count + WEIGHT * windows.readings) + TRANSFORM * transforms
    return windows if cost < 9 * filters * channels * (images * rows * columns + WEIGHT) else None


@dataclass(frozen=True, slots=True)
class Ends:
    """Where a convolution by pairs writes floats or halves, and where that lies which it adds, as floats or as halves."""

    out: Blocked | None
    halves: Blocked | None
    residual: Blocked | None
    residual_halves: Blocked | None


def convolve(low: Lowering, node: Node, windows: Windows, source: Blocked, ends: Ends) -> None:
    """The call, and memory for the transformed windows of each task, so that a thread reads what it has written itself."""
    (top, left, *_), channels = node.attrs["pads"], source.blocks * low.width
    filters, bias = _pack(low, node)
    tasks = windows.window_parts * windows.block_parts
    task_scratch = POSITIONS * channels * windows.together // 2
    table = np.arange(source.blocks, dtype=np.int64) * (windows.together * low.width)
    arguments = abi.WinogradPairs(
        source=(source.buffer, source.origin // 2), weights=(filters, 0), bias=None if bias is None else (bias, 0),
        out=_start(ends.out), residual=_start(ends.residual), residual_halves=_start(ends.residual_halves),
        out_halves=_start(ends.halves), offsets=(Buffer(table.size, "constant", table), 0),
        scratch=(Buffer(tasks * task_scratch), 0), task_scratch=task_scratch, images=windows.images,
        window_rows=windows.rows, window_columns=windows.columns, windows=windows.together,
        blocks=-(-node.output.shape[1] // low.width), channels=channels, window_parts=windows.window_parts,
        block_parts=windows.block_parts, rows=node.output.shape[2], columns=node.output.shape[3], pad_top=top, pad_left=left,
        source_height=source.shape[2], source_width=source.shape[3], **_strides("source", source), **_strides("out", ends.out),
        **_strides("halves", ends.halves), **_strides("residual", ends.residual or ends.residual_halves),
    )  # fmt: skip
    low.calls.add(arguments, tasks, node.activation)


def _start(place: Blocked | None) -> Pointer | None:
    """The first pixel, in floats."""
    return None if place is None else (place.buffer, place.origin // (2 if place.halves else 1))


def _strides(name: str, place: Blocked | None) -> dict[str, int]:
    if place is None:
        return {}
    return {
        f"{name}_image": place.image, f"{name}_row": place.row, f"{name}_pixel": place.pixel, f"{name}_block": place.block,
    }  # fmt: skip


def _pack(low: Lowering, node: Node) -> tuple[Buffer, Buffer | None]:
    """The filters, which are rounded once they have been transformed, and the bias."""
    weights, scale, shift = (node.attrs[name] for name in ("weights", "scale", "shift"))
    count, channels = weights.shape[:2]
    each = -(-count // low.width) * low.width
    call = partial(
        abi.PackWinogradPairs, source=np.ascontiguousarray(weights, np.float32),
        scale=None if scale is None else np.ascontiguousarray(scale, np.float32), filters=count, channels=channels,
    )  # fmt: skip
    packed = low.packing.materialize(POSITIONS * each * channels // 2, [Packing(call, each // low.width)])
    return packed, padded_bias(shift, 1, each)
