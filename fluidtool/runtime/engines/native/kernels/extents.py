"""How far the C kernels that single operators call read and write: checked at every call, before it.

The arrays of a call are contiguous and begin where the pointers point, so that a length in bytes says all; what has once been
found to fit such lengths is not looked at again. What a kernel takes from a table of the call - starts of sequences, places,
numbers of images - is compared with the sizes each time, unless the kernel does so itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from fluidtool.runtime.engines.native.calls import Buffer, KernelCall, Kind
from fluidtool.runtime.engines.native.extents import FLOAT, PLACE, ExtentError, Sizes, Touched, check, need, touches

BEHIND = 7  # the slot of the first address that lies behind pointer 0, where that points to addresses
NUMBER = 4  # bytes of an int32
MOST_CORNERS = 16  # half of MOST_EDGES of src/polygons.c
ROWS, SEQUENCES = 16, 17  # of packed sequences: sizes that only this module reads
Table = Callable[[Mapping[int, int], Sequence[Any]], Any]


def check_call(kind: Kind, width: int, tasks: int, sizes: Mapping[int, int], arrays: Sequence[Any]) -> None:
    """Raise ExtentError, a fault of fluidtool, for a call whose kernel would leave one of its arrays (by slot, or None)."""
    try:
        check_lengths(kind, width, tasks, tuple(sizes.items()), tuple([length(array) for array in arrays]))
        table = TABLES.get(kind)
        if table is not None:
            need(table(sizes, arrays), "a table that fits its sizes")
    except ExtentError as error:
        raise ExtentError(f"the native step {kind.name} must not run: {error}") from None


def length(array: Any) -> int:
    """Bytes of a contiguous array; -1 where there is none."""
    if array is None:
        return -1
    return int(array.nbytes) if array.flags.c_contiguous else 0


@lru_cache(maxsize=4096)
def check_lengths(
    kind: Kind, width: int, tasks: int, sizes: tuple[tuple[int, int], ...], lengths: tuple[int, ...]
) -> None:
    """Raise ExtentError for arrays that are too short, by their bytes."""
    pointers = {slot: (Buffer(bytes_ // FLOAT), 0) for slot, bytes_ in enumerate(lengths) if bytes_ >= 0}
    check(KernelCall(kind, pointers, dict(sizes), tasks=tasks), width)


def floats(slots: Mapping[int, int], n: Sizes, optional: Sequence[int] = ()) -> Touched:
    """So many floats of each slot; those that are optional may be missing."""
    for slot, count in slots.items():
        if slot not in optional or n.has(slot):
            yield slot, 0, count, FLOAT


# ---------------------------------------------------------------- rows
@touches(Kind.FEW_ROWS)
def _few_rows(n: Sizes) -> Touched:
    return floats({0: n[0] * n[1], 1: n[1] * n[2], 3: n[0] * n[2]}, n)


@touches(Kind.ACTIVATION_GRADIENT, Kind.DESCEND)
def _three_alike(n: Sizes) -> Touched:
    return floats(dict.fromkeys((0, 1, 2), n[0]), n)


@touches(Kind.CROSS_ENTROPY, Kind.CROSS_ENTROPY_GRADIENT)
def _cross_entropy(n: Sizes) -> Touched:
    """The kernel compares every label with the columns."""
    size = n[0] * n[1]
    yield from floats({0: size, 3: size, 4: n[0]}, n)
    if n.has(1):
        yield 1, 0, n[0], PLACE
    else:
        yield 2, 0, size, FLOAT


@touches(Kind.LAYER_NORM_GRADIENT)
def _layer_norm_gradient(n: Sizes) -> Touched:
    size, sums = n[0] * n[1], n.step.tasks * 2 * n[1]
    return floats(behind(size, n[1], n[0], n[0], size, size, sums), n, optional=(BEHIND + 1,))


@touches(Kind.BATCH_NORM)
def _batch_norm(n: Sizes) -> Touched:
    size = n[0] * n[1] * n[2]
    return floats(behind(size, n[1], n[1], size, n[1], n[1]), n)


@touches(Kind.BATCH_NORM_GRADIENT)
def _batch_norm_gradient(n: Sizes) -> Touched:
    size = n[0] * n[1] * n[2]
    return floats(behind(size, n[1], n[1], n[1], size, size, n[1], n[1]), n)


def behind(*counts: int) -> dict[int, int]:
    """The slots of addresses that lie behind pointer 0, each with so many."""
    return {BEHIND + at: count for at, count in enumerate(counts)}


# ---------------------------------------------------------------- updates; the kernels compare every row with the table's
@touches(Kind.ADAM)
def _adam(n: Sizes) -> Touched:
    return floats(behind(*[n[0]] * 7) | {1: 6}, n)


@touches(Kind.MOMENTUM)
def _momentum(n: Sizes) -> Touched:
    return floats(dict.fromkeys(range(5), n[0]), n)


@touches(Kind.ADAM_ROWS)
def _adam_rows(n: Sizes) -> Touched:
    table = n[2] * n[1]
    yield from floats(behind(table, table, table, n[0] * n[1]) | {1: 6}, n)
    yield BEHIND + 4, 0, n[0], PLACE


@touches(Kind.ADAGRAD_ROWS)
def _adagrad_rows(n: Sizes) -> Touched:
    yield from floats({0: n[2] * n[1], 1: n[2] * n[1], 2: n[0] * n[1]}, n)
    yield 3, 0, n[0], PLACE


@touches(Kind.SCATTER_ROWS)
def _scatter_rows(n: Sizes) -> Touched:
    yield from floats({0: n[0] * n[1], 2: n[2] * n[1]}, n)
    yield 1, 0, n[0], PLACE


# ---------------------------------------------------------------- planes
@touches(Kind.MAXIMUM_GRADIENT)
def _maximum_gradient(n: Sizes) -> Touched:
    x, maxima = n[0] * n[1] * n[2], n[0] * n[3] * n[4]
    return floats({0: x, 1: maxima, 2: maxima, 3: x}, n)


@touches(Kind.SAMPLE_PLANES)
def _sample_planes(n: Sizes) -> Touched:
    places = n[0] * n[4]
    need(n[2] * n[3] > 0 or not places * n[1], "a cell")
    return floats({0: n[0] * n[1] * n[2] * n[3], 1: places, 2: places, 3: places * n[1], 4: places}, n, optional=(4,))


@touches(Kind.DEPTHWISE_PLANES)
def _depthwise_planes(n: Sizes) -> Touched:
    need(n[13] >= 2 * padded_plane(n) + n[14], "memory for a plane")
    yield from floats({0: n[0] * n[1] * n[2] * n[3], 1: n[1] * n[12], 3: n[0] * n[1] * n[4] * n[5]}, n)
    yield from depthwise_memory(n)


@touches(Kind.DEPTHWISE_PLANES_GRADIENT)
def _depthwise_planes_gradient(n: Sizes) -> Touched:
    need(n[13] >= 3 * padded_plane(n) + 2 * n[14], "memory for a plane")
    x, filters = n[0] * n[1] * n[2] * n[3], n[1] * n[12]
    yield from floats({0: x, 1: filters, 2: n[0] * n[1] * n[4] * n[5], 3: x, 6: filters}, n, optional=(3, 6))
    yield from depthwise_memory(n)


def padded_plane(n: Sizes) -> int:
    """Floats of a plane with its padding and what vectors reach beyond it; every window must lie in it."""
    need(min(n[8], n[9]) >= 0 and n[8] + n[2] <= n[10] and n[9] + n[3] <= n[11], "planes within their padding")
    need(min(n[4], n[5], n[6], n[7], n[12]) > 0, "windows")
    need((n[4] - 1) * n[6] * n[11] + (n[5] - 1) * n[7] + n[14] < n[10] * n[11], "windows within the plane")
    return n[10] * n[11] + 4 * n.width


def depthwise_memory(n: Sizes) -> Touched:
    """The memory of all tasks, and the offsets of the taps."""
    yield 4, 0, n.step.tasks * n[13], FLOAT
    yield 5, 0, n[12], PLACE


def taps(n: Mapping[int, int], arrays: Sequence[Any]) -> bool:
    """The last offset is the farthest."""
    offsets = arrays[5]
    return bool(within(offsets, n[14] + 1) and offsets[-1] == n[14])


# ---------------------------------------------------------------- regions
@touches(Kind.ALIGN_REGIONS)
def _align_regions(n: Sizes) -> Touched:
    bins, cell = n[4] * n[5], 6  # floats of `bin_cells`
    memory = 2 * max(n[2], n[3]) + cell * (n[4] + n[5]) + n[4] * n[2] + n[5] * n[3] + (n[3] + bins) * n.width
    need(n[9] >= memory and n[9] % 2 == 0, "memory for a region")
    yield from floats({0: maps(n), 1: 4 * n[0], 2: n.step.tasks * n[9], 3: n[0] * n[1] * bins}, n)
    yield 5, 0, n[0], PLACE


@touches(Kind.POOL_REGIONS)
def _pool_regions(n: Sizes) -> Touched:
    bins = n[4] * n[5]
    yield from floats({0: maps(n), 2: n.step.tasks * 2 * bins * n.width, 3: n[0] * n[1] * bins}, n)
    if n.has(4):
        yield 4, 0, n[0] * n[1] * bins, PLACE
    yield 5, 0, n[0] * (1 + 2 * (n[4] + n[5])), PLACE


def maps(n: Sizes) -> int:
    """Floats of the maps, in blocks of channels."""
    return n[ROWS] * n.blocks(n[1]) * n[2] * n[3] * n.width


def images(n: Mapping[int, int], arrays: Sequence[Any]) -> bool:
    """Every region has an image."""
    return within(arrays[5], n[ROWS])


def edges(n: Mapping[int, int], arrays: Sequence[Any]) -> bool:
    """Every region has an image, and its bins lie within the maps."""
    table, rows = arrays[5], 1 + 2 * n[4]
    inside = within(table[:, 1:rows], n[2] + 1) and within(table[:, rows:], n[3] + 1)
    return inside and within(table[:, 0], n[ROWS])


# ---------------------------------------------------------------- boxes
@touches(Kind.BEST_BOXES)
def _best_boxes(n: Sizes) -> Touched:
    need(n[2] < 1 << 31, "places of 32 bits")
    lines = n[0] * n[1]
    yield from floats({0: n[0] * n[2] * 4, 1: lines * n[2], 2: lines * 5 * (n[3] + n.width)}, n)
    yield 5, 0, lines * (n[3] + 1), PLACE


@touches(Kind.DETECTIONS)
def _detections(n: Sizes) -> Touched:
    """The places are those that BEST_BOXES has found."""
    lines = n[0] * n[1]
    yield from floats({0: n[0] * n[2] * 4, 1: lines * n[2], 3: 6 * n[ROWS]}, n)
    for slot, count, each in (
        (2, n[0] + 1, PLACE),
        (4, n[ROWS], PLACE),
        (5, lines * (n[3] + 1), PLACE),
        (6, n[ROWS], NUMBER),
    ):
        yield slot, 0, count, each


@touches(Kind.SUPPRESS)
def _suppress(n: Sizes) -> Touched:
    yield from floats({0: 4 * n[0], 1: 5 * (n[0] + n.width)}, n)
    yield 5, 0, n[0] + 1, PLACE


@touches(Kind.SUPPRESS_POLYGONS)
def _suppress_polygons(n: Sizes) -> Touched:
    need(2 <= n[1] <= 2 * MOST_CORNERS, "corners that a stack holds")
    yield from floats({0: n[0] * n[1], 1: 5 * n[0]}, n)
    yield 5, 0, n[0] + 1, PLACE


def detection_starts(n: Mapping[int, int], arrays: Sequence[Any]) -> bool:
    """Where the detections of the images start, one behind the other."""
    return ascending(arrays[2], n[ROWS])


# ---------------------------------------------------------------- sequences
@touches(Kind.VITERBI)
def _viterbi(n: Sizes) -> Touched:
    yield from floats({0: n[ROWS] * n[1], 1: (2 + n[1]) * n[1], 2: n.step.tasks * n[2]}, n)
    yield 4, 0, n[ROWS], PLACE
    yield 5, 0, 2 * n[0], PLACE
    need(n[2] >= (n[SEQUENCES] + 2) * (n[1] + n.width), "memory for the longest")


def tagged(n: Mapping[int, int], arrays: Sequence[Any]) -> bool:
    """Sequences of rows that exist, none longer than the longest."""
    starts, lengths = arrays[5].T
    return bool(starts.min() >= 0 and (starts + lengths).max() <= n[ROWS] and lengths.max() <= n[SEQUENCES])


@touches(Kind.LSTM)
def _lstm(n: Sizes) -> Touched:
    size, rows, first = n[1], n[ROWS], n[SEQUENCES] * n[1]
    bias, memory = (7 if n[3] else 4) * size, 2 * size * n[2] * n.step.tasks
    counts = behind(4 * rows * size, size * n.whole(4 * size), bias, first, first, *[rows * size] * 2, 4 * rows * size)
    yield from floats(counts | {BEHIND + 8: rows * size, BEHIND + 11: memory}, n, optional=(BEHIND + 3, BEHIND + 4))
    yield from packing(n)


@touches(Kind.LSTM_GRADIENT)
def _lstm_gradient(n: Sizes) -> Touched:
    size, rows, first = n[1], n[ROWS], n[SEQUENCES] * n[1]
    bias, memory = (7 if n[3] else 4) * size, 6 * size * n[2] * n.step.tasks
    counts = behind(rows * size, 4 * size * n.whole(size), bias, first, first, *[rows * size] * 2, 4 * rows * size)
    later = {8: rows * size, 11: memory, 12: 4 * rows * size, 13: rows * size, 14: rows * size, 15: first, 16: first}
    optional = [BEHIND + slot for slot in (3, 4, 13, 14, 15, 16)]
    yield from floats(counts | {BEHIND + slot: count for slot, count in later.items()}, n, optional)
    yield from packing(n)


@touches(Kind.GRU)
def _gru(n: Sizes) -> Touched:
    size, rows = n[1], n[ROWS]
    weights = size * n.whole(2 * size), size * n.whole(size)
    counts = behind(3 * rows * size, *weights, 3 * size, n[SEQUENCES] * size, rows * size, 3 * rows * size)
    yield from floats(
        counts | dict.fromkeys((BEHIND + 7, BEHIND + 8), rows * size), n, optional=(BEHIND + 3, BEHIND + 4)
    )
    yield from packing(n)


@touches(Kind.GRU_GRADIENT)
def _gru_gradient(n: Sizes) -> Touched:
    size, rows, first = n[1], n[ROWS], n[SEQUENCES] * n[1]
    weights, memory = (2 * size * n.whole(size), size * n.whole(size)), 2 * size * n[2] * n.step.tasks
    counts = behind(rows * size, *weights, 3 * rows * size, rows * size, first, 3 * rows * size, first, memory)
    yield from floats(counts, n, optional=(BEHIND + 5, BEHIND + 7))
    yield from packing(n)


def packing(n: Sizes) -> Touched:
    """The starts of the steps, and the row that each packed row is."""
    yield BEHIND + 9, 0, n[0] + 1, PLACE
    yield BEHIND + 10, 0, n[ROWS], PLACE


def packed(n: Mapping[int, int], arrays: Sequence[Any]) -> bool:
    """Steps of rows that exist, each of no more sequences than the one before; the tasks may leave some out."""
    starts, rows = arrays[BEHIND + 9], arrays[BEHIND + 10]
    alive = np.diff(starts)
    fewer = not alive.size or bool(alive[0] <= n[SEQUENCES] and (alive[1:] <= alive[:-1]).all())
    return fewer and ascending(starts, n[ROWS]) and within(rows, n[ROWS])


TABLES: dict[Kind, Table] = {
    Kind.DEPTHWISE_PLANES: taps,
    Kind.DEPTHWISE_PLANES_GRADIENT: taps,
    Kind.ALIGN_REGIONS: images,
    Kind.POOL_REGIONS: edges,
    Kind.DETECTIONS: detection_starts,
    Kind.VITERBI: tagged,
    Kind.LSTM: packed,
    Kind.LSTM_GRADIENT: packed,
    Kind.GRU: packed,
    Kind.GRU_GRADIENT: packed,
}


def within(table: Any, end: int) -> bool:
    """Whether all numbers of a table are at least 0 and below `end`."""
    return not table.size or bool(table.min() >= 0 and table.max() < end)


def ascending(starts: Any, end: int) -> bool:
    """Whether starts begin at 0, go up, and end at `end` or before."""
    return bool(starts[0] == 0 and starts[-1] <= end and (starts[1:] >= starts[:-1]).all())
