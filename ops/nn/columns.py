"""The windows of images as columns of a matrix, for convolutions that are matrix products.

Columns are [C, K..., N, rows, windows...]: for each kernel position the cell that each window of a strip of rows meets.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache, partial
from itertools import product
from math import prod
from typing import Any

from fluidtool.ops.nn.windows import Windows, pad

COLUMN_BYTES = 1 << 24
"""How much of an image is laid out as columns at a time: a few large matrix products, little memory."""
LONG_ROW = 64
"""Windows in a row from which cells are taken apart by the stride before they are copied; measured."""


def blocks(x: Any, windows: Windows, counts: tuple[int, ...]) -> Iterator[tuple[slice, list[slice]]]:
    """Images and strips of output rows whose columns fit into COLUMN_BYTES: several images, or strips of one."""
    row = x.shape[1] * prod(windows.kernel) * prod(counts[1:]) * x.dtype.itemsize
    images = max(1, COLUMN_BYTES // (row * counts[0]))
    rows = counts[0] if images > 1 else max(1, min(counts[0], COLUMN_BYTES // row))
    strips = [slice(start, min(start + rows, counts[0])) for start in range(0, counts[0], rows)]
    for start in range(0, len(x), images):
        yield slice(start, start + images), strips


def columns_of(xp: Any, x: Any, windows: Windows, counts: tuple[int, ...]) -> Callable[[slice], Any]:
    """What lays out the columns of a strip of rows of the images [N, C, D...]."""
    cells = x.swapaxes(0, 1)
    if windows.unit_strides and counts == x.shape[2:]:
        return partial(_moved, xp, cells, windows)
    padded, stride = pad(xp, cells, windows.reach(x.shape[2:], counts)), windows.strides[-1]
    if stride == 1 or counts[-1] < LONG_ROW:
        return partial(_gathered, xp, [padded], windows, counts)
    return partial(
        _gathered, xp, [xp.ascontiguousarray(padded[..., k::stride]) for k in range(stride)], windows, counts
    )


def add_columns(padded: Any, columns: Any, windows: Windows, rows: slice) -> None:
    """Add columns to the cells [C, N, cells...] that they came from."""
    for tap, cells in windows.taps(columns.shape[-len(windows.kernel) :]):
        padded[(Ellipsis, *_rows_from(windows, rows, cells[1:]))] += columns[(slice(None), *tap)]


def _rows_from(windows: Windows, rows: slice, cells: Sequence[slice]) -> tuple[slice, ...]:
    """The cells of taps that were laid for the first rows, moved to the strip `rows`."""
    first, *others = cells
    shift = rows.start * windows.strides[0]
    return slice(first.start + shift, first.stop + shift, first.step), *others


def _gathered(xp: Any, parts: list[Any], windows: Windows, counts: tuple[int, ...], rows: slice) -> Any:
    """Columns of padded images [C, N, cells...], which lie whole or in as many parts as the last stride has cells."""
    counts = (rows.stop - rows.start, *counts[1:])
    columns = xp.empty((len(parts[0]), *windows.kernel, parts[0].shape[1], *counts), dtype=parts[0].dtype)
    step = windows.strides[-1] // len(parts) if len(parts) > 1 else windows.strides[-1]
    for tap, cells in windows.taps(counts):
        *outer, inner = _rows_from(windows, rows, cells[1:])
        first, part = divmod(inner.start, len(parts))
        inner = slice(first, first + step * (counts[-1] - 1) + 1, step)
        columns[(slice(None), *tap)] = parts[part][(Ellipsis, *outer, inner)]
    return columns


def _moved(xp: Any, cells: Any, windows: Windows, rows: slice) -> Any:
    """Columns of images [C, N, D...] with one window for each cell: each image moved in memory, and zeros beyond its ends."""
    sizes, rank = cells.shape[2:], cells.ndim - 2
    flat = cells.reshape(*cells.shape[:2], -1)
    columns = xp.empty(
        (len(cells), *windows.kernel, cells.shape[1], rows.stop - rows.start, *sizes[1:]), dtype=cells.dtype
    )
    lines = columns.reshape(*columns.shape[:-rank], -1)
    moves, borders = _moves(windows, sizes, rows.start, rows.stop)
    for target, source in moves:
        lines[target] = flat[source]
    for border in borders:
        columns[border] = 0
    return columns


@lru_cache(maxsize=256)
def _moves(windows: Windows, sizes: tuple[int, ...], start: int, stop: int) -> tuple[list[Any], list[Any]]:
    """What `_moved` copies, from flat images to each tap of flat columns, and what of the columns is beyond the images."""
    rank, every = len(sizes), slice(None)
    steps = [prod(sizes[axis + 1 :]) for axis in range(rank)]
    offsets = [
        [tap * dilation - before for tap in range(count)]
        for count, dilation, (before, _) in zip(windows.kernel, windows.dilations, windows.paddings, strict=True)
    ]
    moves, borders = [], []
    for tap in product(*map(range, windows.kernel)):
        first = start * steps[0] + sum(offsets[axis][k] * steps[axis] for axis, k in enumerate(tap))
        low, high = max(0, -first), min((stop - start) * steps[0], prod(sizes) - first)
        if low < high:
            moves.append(((every, *tap, every, slice(low, high)), (Ellipsis, slice(first + low, first + high))))
    for axis, size in enumerate(sizes):
        begin, count = (start, stop - start) if axis == 0 else (0, size)
        for k, offset in enumerate(offsets[axis]):
            for low, high in ((0, -offset - begin), (size - offset - begin, count)):
                outside = slice(max(low, 0), min(high, count))
                if outside.start < outside.stop:
                    borders.append((*[every] * (axis + 1), k, *[every] * rank, outside))
    return moves, borders
