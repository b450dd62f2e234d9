"""How far every kernel reads and writes behind its pointers: checked when steps get their addresses.

A kernel believes the sizes and strides of its step (src/engine.h). Here each kind says, as its C source does, what it touches
behind every pointer, by these sizes and by the tables of offsets that are constants; a step whose buffers are smaller never
runs. What only a run can tell - ids, offsets of sequences that are pooled - the kernels check themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from fluidtool.runtime.engines.native.calls import NARROW, Buffer, KernelCall, Kind
from fluidtool.runtime.graph.ir import EngineFaultError

FLOAT, HALF, PLACE = 4, 2, 8  # bytes of what lies behind a pointer: float32, 16 bits, int64
LANES = 2048  # of attention: the keys whose scores of a few rows fit SCORES of src/attention.c
MOST_WINDOWS = 28  # MOST_TILES of src/winograd.c
Touched = Iterator[tuple[int, int, int, int]]  # slot, first number, the one behind the last, bytes of a number
Axis = tuple[int, int]  # how many, how far apart


class ExtentError(EngineFaultError):
    """A step that would leave its buffers, and must not run."""


class Sizes(dict[int, int]):
    """The sizes of a step (0 where none is set), lanes of a vector, and the tables behind pointers that are constants."""

    __slots__ = ("step", "width")

    def __init__(self, step: KernelCall, width: int) -> None:
        super().__init__(step.sizes)
        self.step, self.width = step, width
        for slot, size in self.items():
            if type(size) is not int:  # one of numpy's might overflow
                self[slot] = int(size)

    def __missing__(self, slot: int) -> int:
        return 0

    def has(self, slot: int) -> bool:
        """Whether the step has this pointer."""
        return slot in self.step.pointers

    def table(self, slot: int) -> Any:
        """The whole numbers of a constant, flat, from where the pointer points."""
        found = self.step.pointers.get(slot)
        need(found is not None and found[0].array is not None and found[1] == 0, f"a table behind pointer {slot}")
        assert found is not None
        array = found[0].array.reshape(-1)
        need(array.dtype.itemsize == PLACE and array.dtype.kind == "i", f"a table of int64 behind pointer {slot}")
        return array

    def whole(self, count: int) -> int:
        """As many as fill whole vectors."""
        return -(-count // self.width) * self.width

    def blocks(self, count: int) -> int:
        """Vectors that hold so many."""
        return -(-count // self.width)


EXTENTS: dict[Kind, Callable[[Sizes], Touched]] = {}


def touches(*kinds: Kind) -> Callable[[Any], Any]:
    """Register what the kernels of these kinds touch."""

    def register(function: Any) -> Any:
        EXTENTS.update(dict.fromkeys(kinds, function))
        return function

    return register


def need(condition: Any, what: str) -> None:
    """Raise ExtentError for a step that its kernel could not walk through."""
    if not condition:
        raise ExtentError(f"without {what}")


def span(length: int, *axes: Axis) -> tuple[int, int]:
    """The first number and the one behind the last, of `length` at every point of a grid of such axes; (0, 0) for none."""
    low = high = 0
    for count, stride in axes:
        if count < 1:
            need(count == 0, "sizes that are not negative")
            return 0, 0
        far = (count - 1) * stride
        if far < 0:
            low += far
        else:
            high += far
    need(length >= 0, "sizes that are not negative")
    return low, high + length


def check(kernel_call: KernelCall, width: int) -> None:
    """Raise ExtentError for a step that would read or write beyond one of its buffers."""
    touched = EXTENTS.get(kernel_call.kind)
    need(touched is not None, "known extents")
    assert touched is not None
    sizes = Sizes(kernel_call, width)
    need(kernel_call.tasks >= 1, "a part")
    for slot, low, high, each in touched(sizes):
        if low >= high:
            continue
        found = kernel_call.pointers.get(slot)
        need(found is not None, f"pointer {slot}")
        assert found is not None
        buffer, offset = found
        first, behind = bounds(buffer)
        start = FLOAT * offset
        if start + each * low < first or start + each * high > behind:
            raise ExtentError(
                f"pointer {slot} reaches over bytes {start + each * low} to {start + each * high} of "
                f"{first} to {behind} that there are"
            )


def bounds(buffer: Buffer) -> tuple[int, int]:
    """The first byte of a buffer and the one behind the last, from its address."""
    array = buffer.array
    if array is None:
        return 0, FLOAT * buffer.size
    if array.flags.c_contiguous:
        return 0, array.nbytes
    return span(array.itemsize, *zip(array.shape, array.strides, strict=True))


def least_and_most(table: Any) -> tuple[int, int]:
    """Of a table that may be empty."""
    return (int(table.min()), int(table.max())) if table.size else (0, 0)


# ---------------------------------------------------------------- convolutions and pooling
@touches(Kind.CONVOLUTION)
def _convolution(n: Sizes) -> Touched:
    whole = n[4] - n[7]
    need(min(n[1], n[19], n[25], n[26], n[28]) > 0 and n[24] == 0 and whole >= 0, "parts")
    need(n.step.tasks == n[19] * n[25] * n[26] * n[28] and 0 < n[23] <= n.width, "as many tasks as parts")
    need((n[5] > 0 or not whole) and (n[6] > 0 or not n[7]), "segments of some length")
    x = span(0, (n[0], n[8]), (n[1], n[9]), (n[2], n[10]), (n[19], n[20]))
    yield segmented(n, x, whole, FLOAT)
    depth = whole * n[5] + n[7] * n[6]
    yield 1, *span(depth * n[3] * n.width, (n[19], n[21])), FLOAT
    if n.has(2):
        yield 2, *span(n[3] * n.width, (n[19], n[27])), FLOAT
    for slot, strides, lanes in ((3, (11, 12, 13, 14), n[23]), (4, (15, 16, 17, 18), n[23])):
        if slot == 3 or n.has(slot):
            image, row, pixel, block = (n[at] for at in strides)
            pixels = (n[0], image), (n[1], row), (n[2], pixel), (n[19], n[22])
            yield slot, *blocks_of(n, n[3], block, pixels, lanes), FLOAT


def segmented(n: Sizes, x: tuple[int, int], whole: int, each: int) -> tuple[int, int, int, int]:
    """What a convolution reads of its input: a share at each offset of its table."""
    table = n.table(5)
    need(table.size >= n[4], "an offset for each segment")
    (least, most), (_, last) = least_and_most(table[:whole]), least_and_most(table[whole : n[4]])
    if n[7]:
        least = min(least, int(table[whole : n[4]].min())) if whole else int(table[: n[4]].min())
    far = max(most + n[5] if whole else last + n[6], last + n[6] if n[7] else most + n[5])
    return 0, x[0] + least, x[1] + far, each


def blocks_of(n: Sizes, count: int, stride: int, axes: tuple[Axis, ...], lanes: int) -> tuple[int, int]:
    """Blocks of channels at every pixel, the last of which has only some lanes."""
    low, high = span(lanes, *axes, (count, stride))
    if count > 1 and lanes < n.width:
        high = max(high, span(n.width, *axes, (count - 1, stride))[1])
    return low, high


@touches(Kind.DEPTHWISE)
def _depthwise(n: Sizes) -> Touched:
    need(n[25] > 0 and min(n[20], n[21], n[22], n[23]) > 0, "parts and strides")
    yield 0, *span(n.width, (n[0], n[8]), (n[24], n[9]), (n[27], n.width), (n[3], n[10])), FLOAT
    yield 1, 0, n[3] * n[4] * n[5] * n.width, FLOAT
    if n.has(2):
        yield 2, 0, n[3] * n.width, FLOAT
    yield 3, *span(n.width, (n[0], n[11]), (n[1], n[12]), (n[2], n[13]), (n[3], n[14])), FLOAT
    if n.has(4):
        yield 4, *span(n.width, (n[0], n[15]), (n[1], n[16]), (n[2], n[17]), (n[3], n[18])), FLOAT


@touches(Kind.POOL)
def _pool(n: Sizes) -> Touched:
    yield 0, *span(n.width, (n[0], n[12]), (n[10], n[13]), (n[11], n.width), (n[3], n[14])), FLOAT
    yield 3, *span(n.width, (n[0], n[15]), (n[1], n[16]), (n[2], n.width), (n[3], n[17])), FLOAT


@touches(Kind.FILTER_GRADIENT)
def _filter_gradient(n: Sizes) -> Touched:
    need(min(n[1], n[2], n[3], n[4], n[11]) > 0, "parts")
    pairs = -(-n[3] // (2 * n.width))
    need(n.step.tasks == pairs * n[11], "as many tasks as parts")
    least, most = least_and_most(n.table(5)[: n[4]])
    groups = -(-pairs // n[13]) if n[13] else 1
    low, high = span(1, (n[0], n[5]), (n[1], n[6]), (n[2], n[7]), (groups, n[12]))
    yield 0, low + least, high + most, FLOAT
    yield 2, *span(n.width, (n[0], n[8]), (n[1], n[9]), (n[2], n.width), (n.blocks(n[3]), n[10])), FLOAT
    yield 3, 0, n[3] * n[4], FLOAT
    yield 4, 0, pairs * 2 * n.width * (n[4] + (14 if n.width == 16 else 6)), FLOAT
    yield 5, 0, n[4], PLACE


@touches(Kind.WINOGRAD_WINDOWS)
def _winograd_windows(n: Sizes) -> Touched:
    need(n[4] in (2, 4) and n[14] >= 0 and n[14] + n[15] <= n[0] * n[1] * n[2], "windows of the image")
    yield 0, *span(n.width, (n[0], n[9]), (n[7], n[10]), (n[8], n.width), (n[3], n[11])), FLOAT
    yield 3, *span(n.width, (n[3], n[12]), (n[15], n.width), ((n[4] + 2) ** 2, n[13])), FLOAT


@touches(Kind.WINOGRAD)
def _winograd(n: Sizes) -> Touched:
    need(n[4] in (2, 4) and n[8] >= 0 and n[8] + n[9] <= n[0] * n[1] * n[2], "windows of the image")
    need(min(n[10], n[26]) > 0 and n.step.tasks == n[10] * n[26] and n[5] % n.width == 0, "as many tasks as parts")
    need(-(-n[9] // n[10]) <= MOST_WINDOWS, "parts that a stack holds")
    least, most = least_and_most(n.table(5)[: n[5] // n.width])
    need(n.table(5).size >= n[5] // n.width, "an offset for each segment")
    positions = (n[4] + 2) ** 2
    low, high = span(n.width, (positions, n[7]), (n[9], n.width))
    yield 0, low + least, high + most, FLOAT
    yield 1, 0, n[3] * n.width * positions * n[5], FLOAT
    if n.has(2):
        yield 2, 0, n[3] * n.width, FLOAT
    yield 3, *span(n.width, (n[0], n[11]), (n[21], n[12]), (n[22], n[13]), (n[3], n[14])), FLOAT
    if n.has(4):
        yield 4, *span(n.width, (n[0], n[15]), (n[21], n[16]), (n[22], n[17]), (n[3], n[18])), FLOAT


@touches(Kind.PAIRS)
def _pairs(n: Sizes) -> Touched:
    whole = n[4] - n[7]
    need(min(n[1], n[19], n[25], n[26], n[28]) > 0 and whole >= 0 and 0 < n[23] <= n.width, "parts")
    need(n.step.tasks == n[19] * n[25] * n[26] * n[28], "as many tasks as parts")
    need(n[5] % 2 == 0 and n[6] % 2 == 0 and (n.has(3) or n.has(6)), "pairs")
    x = span(0, (n[0], n[8]), (n[1], n[9]), (n[2], n[10]), (n[19], n[20]))
    yield segmented(n, x, whole, HALF)
    yield 1, *span((whole * n[5] + n[7] * n[6]) * n[3] * n.width, (n[19], n[21])), HALF
    if n.has(2):
        yield 2, *span(n[3] * n.width, (n[19], n[27])), FLOAT
    for slot, strides in ((3, (11, 12, 13, 14)), (4, (15, 16, 17, 18))):
        if n.has(slot):
            image, row, pixel, block = (n[at] for at in strides)
            pixels = (n[0], image), (n[1], row), (n[2], pixel)
            yield slot, *blocks_of(n, n[19] * n[3], block, pixels, n[23]), FLOAT
    if n.has(6):
        yield 6, *span(n.width, (n[0], n[24]), (n[1], n[29]), (n[2], n.width), (n[19] * n[3], n[30])), HALF


# ---------------------------------------------------------------- constants that are packed
@touches(Kind.PACK)
def _pack(n: Sizes) -> Touched:
    need(n[5] > 0 and n[4] % n[5] == 0 and n[11] % n.width == 0 and n[11] >= 0, "matrices")
    need(n[11] + n[1] <= n[12] and (n[11] + n[1] == n[12] or n[1] % n.width == 0), "columns of the whole")
    inner = n[4] // n[5]
    yield 0, *span(1, (n[0], n[2]), (n[1], n[3]), (n[5], n[6]), (inner, n[7])), FLOAT
    if n.has(1):
        yield 1, 0, n[1], FLOAT
    yield 3, *span(n[0] * n.whole(n[12]), (n[5], n[8]), (inner, n[9])), HALF if n[10] else FLOAT


@touches(Kind.PACK_FILTER)
def _pack_filter(n: Sizes) -> Touched:
    need(n[5] > 0 and n[2] > 0, "lanes and taps")
    depth = n[1] * n[2]
    yield 0, 0, n[3] * n[0] * depth, FLOAT
    if n.has(1):
        yield 1, 0, n[3] * n[0], FLOAT
    yield 3, *span(depth * n.whole(n[0]), (n[3], n[4])), FLOAT


@touches(Kind.PACK_WINOGRAD)
def _pack_winograd(n: Sizes) -> Touched:
    need(n[2] in (2, 4), "windows")
    yield 0, 0, n[0] * n[1] * 9, FLOAT
    if n.has(1):
        yield 1, 0, n[0], FLOAT
    yield 3, 0, n.whole(n[0]) * (n[2] + 2) ** 2 * n[1], FLOAT


@touches(Kind.PACK_PAIRS)
def _pack_pairs(n: Sizes) -> Touched:
    need(n[5] > 0 and n[10] >= 0 and n[10] + n.blocks(n[0]) <= n[11], "blocks of the whole")
    whole, rest = divmod(n[1], n[5])
    depth = (whole * n[5] + (rest + 1) // 2 * 2) * n[2]
    need(whole == 0 or n[5] % 2 == 0, "pairs")
    yield 0, *span(1, (n[0], n[6]), (n[1], n[7]), (n[2], n[8]), (n[3], n[9])), FLOAT
    if n.has(1):
        yield 1, 0, n[3] * n[0], FLOAT
    yield 3, *span(n[11] * n.width * depth, (n[3], n[4])), HALF


# ---------------------------------------------------------------- layouts and moves
@touches(Kind.BLOCK)
def _block(n: Sizes) -> Touched:
    need(n[8] > 0 and (n[7] - 1) * n[8] < n[1], "lanes for channels")
    channels = n[7] * n[8] if n[8] in (1, 3) else n[1]  # for these lanes the kernel does not ask how many there are
    yield 0, *span(channels * n[2] * n[3], (n[0], n[1] * n[2] * n[3])), FLOAT
    yield 3, *span(n[3] * n[8], (n[0], n[4]), (n[7], n[5]), (n[2], n[6])), FLOAT


@touches(Kind.UNBLOCK)
def _unblock(n: Sizes) -> Touched:
    need((n[7] - 1) * n.width < n[1], "lanes for channels")
    yield 0, *span(min(n.width, n[1]), (n[0], n[4]), (n[7], n[5]), (n[2], n[6]), (n[3], n.width)), FLOAT
    yield 3, 0, n[0] * n[1] * n[2] * n[3], FLOAT


@touches(Kind.HALO)
def _halo(n: Sizes) -> Touched:
    need(min(n[3], n[4], n[5], n[6]) >= 0 and n[3] + n[4] <= n[1] and n[5] + n[6] <= n[2], "a halo of the plane")
    yield 3, *span(n[1] * n[2] * n[7], (n[0], n[1] * n[2] * n[7])), FLOAT


@touches(Kind.SUBSAMPLE)
def _subsample(n: Sizes) -> Touched:
    yield 0, *span(n[4], (n[0], n[5]), (n[1], n[6]), (n[2], n[7]), (n[3], n[8])), FLOAT
    yield 3, 0, n[0] * n[1] * n[2] * n[3] * n[4], FLOAT


@touches(Kind.COPY)
def _copy(n: Sizes) -> Touched:
    yield 0, *span(1, *((n[axis], n[6 + axis]) for axis in range(6))), FLOAT
    yield 3, *span(1, *((n[axis], n[12 + axis]) for axis in range(6))), FLOAT


@touches(Kind.NARROW)
def _narrow(n: Sizes) -> Touched:
    last = n[1] - (n[7] - 1) * n[8]
    need(n[8] > 0 and n[8] % 2 == 0 and 0 < last <= n[8], "lanes for channels")
    images, rows, columns = (n[0], n[9]), (n[2], n[11]), (n[3], n[12])
    low, high = span(1, images, rows, columns, (n[7] - 1, n[10]), (n[8], n[13]))
    start = (n[7] - 1) * n[10]
    near, far = span(1, images, rows, columns, (last, n[13]))
    yield 0, min(low, start + near), max(high, start + far), FLOAT
    yield 3, *span(n[3] * n[8], (n[0], n[4]), (n[7], n[5]), (n[2], n[6])), HALF


@touches(Kind.REGROUP)
def _regroup(n: Sizes) -> Touched:
    words = n[15]
    need(words >= 3 and n.table(5).size >= n[3] * words, "a table of blocks")
    table = n.table(5)[: n[3] * words].reshape(n[3], words)
    sources = (words - 3) // (2 + n.width // 2)
    need((table[:, 2] >= 1).all() and (table[:, 2] <= sources).all() and (table[:, 0] >= 0).all(), "blocks")
    reached: dict[int, list[int]] = {}
    for line in table.tolist():
        for at in range(3, 3 + line[2] * (2 + n.width // 2), 2 + n.width // 2):
            reached.setdefault(line[at], []).append(line[at + 1])
    for image, offsets in reached.items():
        need(0 <= image < 4, "images")
        low, high = span(n[2] * n.width, (n[0], n[7 + 2 * image]), (n[1], n[8 + 2 * image]))
        yield (0, 1, 2, 4)[image], low + min(offsets), high + max(offsets), FLOAT
    blocks = int(table[:, 0].max()) + 1
    yield 3, *span(n.width, (n[0], n[4]), (blocks, n[5]), (n[1], n[6]), (n[2], n[16])), FLOAT


@touches(Kind.PAD)
def _pad(n: Sizes) -> Touched:
    counts, table, start = [n[axis] for axis in range(5)], n.table(5), 0
    need(min(counts) > 0 and table.size >= sum(counts), "a place for each number")
    far, inside = 0, True
    for count in counts:
        places = table[start : start + count]
        far, inside = far + int(places.max()), inside and int(places.max()) >= 0
        start += count
    need(n[9] >= 0 and n[10] >= 0 and n[9] + n[10] <= n[4], "a run within the row")
    if n[10]:
        run = table[start - n[4] :][n[9] : n[9] + n[10]]
        need(run[0] >= 0 and run[-1] - run[0] == n[10] - 1, "a run of places one behind the other")
    if inside:
        yield 0, 0, far + 1, FLOAT
    yield 3, *span(n[4], (n[0], n[5]), (n[1], n[6]), (n[2], n[7]), (n[3], n[8])), FLOAT


@touches(Kind.INTERPOLATE)
def _interpolate(n: Sizes) -> Touched:
    rows, columns, table = n[1] * n[4], n[2] * n[5], n.table(5)
    need(table.size >= rows + columns and min(n[4], n[5]) > 0, "an offset for each tap")
    need(n.has(1) or n[4] == n[5] == 1, "a weight for each tap")
    down, across = least_and_most(table[:rows]), least_and_most(table[rows : rows + columns])
    low, high = span(n.width, (n[0], n[6]), (n[3], n[7]))
    yield 0, low + down[0] + across[0], high + down[1] + across[1], FLOAT
    if n.has(1):
        yield 1, 0, rows + columns, FLOAT
    yield 3, *span(n.width, (n[0], n[8]), (n[1], n[9]), (n[3], n[10]), (n[2], n.width)), FLOAT


# ---------------------------------------------------------------- rows
@touches(Kind.ELEMENTWISE)
def _elementwise(n: Sizes) -> Touched:
    alone = 6  # ALONE of src/elementwise.c
    for slot, first, step in ((0, 5, n[17]), (1, 9, n[18]), (2, 20, 1), (3, 13, 1)):
        if n.has(slot) or slot in (0, 3) or (slot == 1 and (n[19] != alone or n.has(2))):
            outer = [(n[axis], n[first + axis]) for axis in range(4)]
            yield slot, *span(n[4] if step else min(n[4], 1), *outer), FLOAT


@touches(Kind.SOFTMAX)
def _softmax(n: Sizes) -> Touched:
    yield 0, 0, n[0] * n[1], FLOAT
    yield 3, 0, n[0] * n[1], FLOAT
    if n.has(1):
        need(n[2] > 0 and n[3] > 0, "rows of the mask")
        images = -(-n[0] // (n[2] * n[3]))
        yield 1, *span(n[1] if n[7] else 1, (images, n[4]), (n[2], n[5]), (n[3], n[6])), FLOAT


@touches(Kind.SOFTMAX_AXIS)
def _softmax_axis(n: Sizes) -> Touched:
    need(n[1] > 0, "an axis")
    yield 0, 0, n[0] * n[1] * n[2], FLOAT
    yield 3, 0, n[0] * n[1] * n[2], FLOAT


@touches(Kind.REDUCE)
def _reduce(n: Sizes) -> Touched:
    yield 0, 0, n[0] * n[1] * n[2], FLOAT
    yield 3, 0, n[0] * n[2], FLOAT


@touches(Kind.LAYER_NORM)
def _layer_norm(n: Sizes) -> Touched:
    for slot, count in ((0, n[0] * n[1]), (1, n[1]), (2, n[1]), (3, n[0] * n[1]), (4, n[0] * n[1]), (5, 2 * n[0])):
        if n.has(slot) or slot in (0, 3):
            yield slot, 0, count, FLOAT


@touches(Kind.GROUP_NORM)
def _group_norm(n: Sizes) -> Touched:
    need(n[1] > 0, "groups")
    for slot, count in ((0, n[0] * n[2] * n[3]), (1, n[1] * n[2]), (2, n[1] * n[2]), (3, n[0] * n[2] * n[3])):
        if n.has(slot) or slot in (0, 3):
            yield slot, 0, count, FLOAT


@touches(Kind.GROUP_NORM_BLOCKED)
def _group_norm_blocked(n: Sizes) -> Touched:
    need(n[5] > 0 and n[6] > 0 and n[4] % n[5] == 0 and n.blocks(n[4]) <= n[1], "groups")
    need(n[6] >= n[1] or n[6] * n.width % n[5] == 0, "groups within what shares them")
    yield 0, *span(n.width, (n[0], n[7]), (n[1], n[8]), (n[2], n[9]), (n[3], n.width)), FLOAT
    yield 1, 0, n[1] * n.width, FLOAT
    yield 2, 0, n[1] * n.width, FLOAT
    yield 3, *span(n.width, (n[0], n[10]), (n[1], n[11]), (n[2], n[12]), (n[3], n.width)), FLOAT
    yield 4, 0, 2 * n[0] * n[1] * n.width, FLOAT


@touches(Kind.LOCAL_RESPONSE)
def _local_response(n: Sizes) -> Touched:
    need(0 <= n[5] < n.width, "neighbours within a vector")
    for slot, first in ((0, 6), (3, 9)):
        yield slot, *span(n[3] * n.width, (n[0], n[first]), (n[1], n[first + 1]), (n[2], n[first + 2])), FLOAT


@touches(Kind.COSINE)
def _cosine(n: Sizes) -> Touched:
    yield 0, 0, n[0] * n[1], FLOAT
    yield 1, *span(n[1], (n[0], n[2])), FLOAT
    yield 3, 0, n[0], FLOAT


@touches(Kind.EXTREME_PLACE)
def _extreme_place(n: Sizes) -> Touched:
    yield 0, 0, n[0] * n[1] * n[2], FLOAT
    yield 3, 0, n[0] * n[2], PLACE


@touches(Kind.TOP_K)
def _top_k(n: Sizes) -> Touched:
    need(0 < n[2] <= n[1], "a k within the row")
    yield 0, 0, n[0] * n[1], FLOAT
    yield 3, 0, n[0] * n[2], PLACE


@touches(Kind.PICK)
def _pick(n: Sizes) -> Touched:
    """The places are those that TOP_K has found in the same rows."""
    yield 0, 0, n[0] * n[1], FLOAT
    yield 3, 0, n[0] * n[2], FLOAT
    yield 5, 0, n[0] * n[2], PLACE


@touches(Kind.GATHER_ROWS)
def _gather_rows(n: Sizes) -> Touched:
    """The kernel compares every id with the rows of the table; the row of zeros is not read."""
    yield 0, 0, (n[4] - (n[3] == n[4] - 1)) * n[1], FLOAT
    yield 3, 0, n[0] * n[1], FLOAT
    yield 5, 0, n[0], PLACE


@touches(Kind.GATHER_POOL)
def _gather_pool(n: Sizes) -> Touched:
    """The kernel compares every offset with the number of ids, which each run sets, and every id with the table."""
    yield 0, 0, n[4] * n[1], FLOAT
    yield 1, 0, n[0] + 1, PLACE
    yield 3, 0, n[0] * n[1], FLOAT


# ---------------------------------------------------------------- products
@touches(Kind.PRODUCT)
def _product(n: Sizes) -> Touched:
    need(min(n[6], n[7], n[14], n[15]) > 0, "parts")
    need(n.step.tasks == n[6] * n[7] * n[14] * n[15], "as many tasks as parts")
    yield 0, *span(n[1], (n[6], n[8]), (n[7], n[9]), (n[0], n[3])), FLOAT
    yield 1, *span(n[1] * n.whole(n[2]), (n[6], n[10]), (n[7], n[11])), HALF if n[NARROW] else FLOAT
    if n.has(2):
        yield 2, 0, n.whole(n[2]), FLOAT
    yield 3, *span(n[2], (n[6], n[12]), (n[7], n[13]), (n[0], n[4])), FLOAT
    if n.has(4):
        yield 4, *span(n[2], (n[6], n[12]), (n[7], n[13]), (n[0], n[5])), FLOAT


@touches(Kind.ATTENTION)
def _attention(n: Sizes) -> Touched:
    need(n[10] > 0 and n[25] > 0 and n.step.tasks % (n[10] * n[25]) == 0, "parts")
    need(0 < n[2] <= LANES, "keys whose scores a stack holds")
    outer = n.step.tasks // (n[10] * n[25])
    yield 0, *span(n[1], (outer, n[11]), (n[10], n[12]), (n[0], n[4])), FLOAT
    yield 1, *span(1, (outer, n[13]), (n[10], n[14]), (n[2], n[5]), (n[1], n[6])), FLOAT
    if n.has(2):
        yield 2, *span(n[2] if n[24] else 1, (outer, n[21]), (n[10], n[22]), (n[0], n[23])), FLOAT
    yield 3, *span(n[3], (outer, n[19]), (n[10], n[20]), (n[0], n[9])), FLOAT
    yield 4, *span(1, (outer, n[15]), (n[10], n[16]), (n[2], n[7]), (n[3], n[8])), FLOAT
    room = n.whole(n[2]) * n[1] + n.whole(n[3]) * n[2]
    yield 6, *span(room, (n.step.tasks, n[26])), FLOAT


# ---------------------------------------------------------------- sequences
@touches(Kind.POOL_SEQUENCES)
def _pool_sequences(n: Sizes) -> Touched:
    yield 0, *sequences(n, n[1]), FLOAT
    yield 3, 0, n[0] * n[1], FLOAT


@touches(Kind.SOFTMAX_SEQUENCES)
def _softmax_sequences(n: Sizes) -> Touched:
    low, high = sequences(n, 1)
    yield 0, low, high, FLOAT
    yield 3, low, high, FLOAT


def sequences(n: Sizes, width: int) -> tuple[int, int]:
    """What sequences of rows of this width take, as the table of offsets has them."""
    offsets = n.table(5)
    need(offsets.size >= n[0] + 1, "an offset for each sequence")
    least, most = least_and_most(offsets[: n[0] + 1])
    return least * width, most * width


@touches(Kind.LSTM_SEQUENCES)
def _lstm_sequences(n: Sizes) -> Touched:
    need(n[8] == n[1], "states that are fed back")
    rows = packed_rows(n)
    yield from _lstm(n, rows)
    yield 3, 0, rows * n[1], FLOAT
    yield 4, 0, 3 * n[1] * n[2], FLOAT


@touches(Kind.PROJECTED_SEQUENCES)
def _projected_sequences(n: Sizes) -> Touched:
    rows = packed_rows(n)
    yield from _lstm(n, rows)
    yield 3, 0, rows * n[8], FLOAT
    yield 4, 0, 2 * (n[1] + n[8]) * n[2], FLOAT
    yield 6, 0, n.whole(n[8]) * n[1], FLOAT


def _lstm(n: Sizes, rows: int) -> Touched:
    units = n.whole(n[1])
    yield 0, 0, rows * 4 * n[1], FLOAT
    yield 1, 0, 4 * units * n[8], FLOAT
    yield 2, 0, (7 if n[4] else 4) * units, FLOAT


@touches(Kind.GRU_SEQUENCES)
def _gru_sequences(n: Sizes) -> Touched:
    units, rows = n.whole(n[1]), packed_rows(n)
    yield 0, 0, rows * 3 * n[1], FLOAT
    yield 1, 0, 3 * units * n[1], FLOAT
    yield 2, 0, 3 * units, FLOAT
    yield 3, 0, rows * n[1], FLOAT
    yield 4, 0, 4 * n[1] * n[2], FLOAT


def packed_rows(n: Sizes) -> int:
    """The rows that a recurrent layer reads: its table has the starts of the steps, then the row of each packed row."""
    table = n.table(5)
    need(n[3] > 0 and n[0] >= 0 and table.size > n[0], "starts of the steps")
    starts = table[: n[0] + 1]
    alive = starts[1:] - starts[:-1]
    need(starts[0] == 0 and (alive >= 0).all() and (alive <= n[2]).all(), "steps of at most as many sequences")
    rows = table[n[0] + 1 :]
    need(rows.size >= starts[-1], "a row for each packed row")
    least, most = least_and_most(rows[: starts[-1]])
    need(least >= 0, "rows")
    return most + 1 if starts[-1] else 0


# ---------------------------------------------------------------- boxes
@touches(Kind.YOLO_BOXES)
def _yolo_boxes(n: Sizes) -> Touched:
    need(min(n[1], n[3]) > 0, "cells")
    cells = n[0] * n[1] * n[2] * n[3]
    yield 0, 0, cells * (5 + n[4]), FLOAT
    yield 1, 0, 2 * n[1], FLOAT
    yield 3, 0, 4 * cells, FLOAT
    yield 5, 0, 2 * n[0], PLACE


@touches(Kind.YOLO_SCORES)
def _yolo_scores(n: Sizes) -> Touched:
    cells = n[0] * n[1] * n[2] * n[3]
    yield 0, 0, cells * (5 + n[4]), FLOAT
    yield 3, 0, cells * n[4], FLOAT


@touches(Kind.DECODE_BOXES)
def _decode_boxes(n: Sizes) -> Touched:
    priors = n[0] if n[2] else n[1]
    yield 0, 0, 4 * n[0] * n[1], FLOAT
    yield 1, 0, 4 * priors, FLOAT
    yield 2, *span(4, (priors, n[3])), FLOAT
    yield 3, 0, 4 * n[0] * n[1], FLOAT


@touches(Kind.MULTIPLY_ADDS, Kind.MULTIPLY_PAIRS)
def _peak(n: Sizes) -> Touched:
    yield 3, 0, n.step.tasks * n.width, FLOAT
