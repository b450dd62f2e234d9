"""How far every kernel reads and writes from its pointers: checked when calls get their addresses.

A kernel trusts the sizes and strides of its call (abi.toml). Here each kernel declares, as its C source does, its accesses
by every pointer, from these sizes and from the tables of offsets that are constants; a call with smaller buffers never
runs. Optional pointers that are absent are not accessed. Values known only at run time - ids, offsets of pooled sequences -
are checked by the kernels themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from fluidtool.records import dataclass
from fluidtool.runtime.engines.native import abi
from fluidtool.runtime.engines.native.calls import KernelCall
from fluidtool.runtime.engines.native.layouts import Buffer, Pointer
from fluidtool.runtime.graph.ir import EngineFaultError

FLOAT, PLACE = 4, 8  # bytes of an element: float32, int64
ALONE = 6  # the operation of src/elementwise.c that has one operand
LANES = 2048  # of attention: the keys whose scores of a few rows fit SCORES of src/attention.c
MOST_WINDOWS = 28  # MOST_TILES of src/winograd.c
MOST_HALF_WINDOWS = 56  # MOST_WINDOWS of src/winograd_pairs.c
SPREAD_ROWS = 120  # of src/training.c
Touched = Iterator[tuple[str, int, int]]  # pointer, first element, the one behind the last
Axis = tuple[int, int]  # how many, how far apart


class ExtentError(EngineFaultError):
    """A call that would access memory outside its buffers, and must not run."""


@dataclass(frozen=True, slots=True)
class Setting:
    """What a kernel's extents depend on besides its arguments: lanes of a vector, and the number of tasks."""

    width: int
    tasks: int

    def whole(self, count: int) -> int:
        """Rounded up to whole vectors."""
        return -(-count // self.width) * self.width

    def blocks(self, count: int) -> int:
        """The number of vectors for this many elements."""
        return -(-count // self.width)


EXTENTS: dict[abi.Kind, Callable[[Any, Setting], Touched]] = {}


def touches(*kernels: type[abi.Arguments[Pointer]]) -> Callable[[Any], Any]:
    """Register the extents of kernels with these arguments."""

    def register(function: Any) -> Any:
        EXTENTS.update(dict.fromkeys((kernel.kind for kernel in kernels), function))
        return function

    return register


def need(condition: Any, what: str) -> None:
    """Raise ExtentError for a call with invalid arguments."""
    if not condition:
        raise ExtentError(f"it needs {what}")


def span(length: int, *axes: Axis) -> tuple[int, int]:
    """The first element and the one after the last, for `length` elements at each point of such a grid; (0, 0) for none."""
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


def reach(name: str, length: int, *axes: Axis) -> tuple[str, int, int]:
    """The extent of accesses to such a grid from a pointer."""
    return name, *span(length, *axes)


def check(kernel_call: KernelCall, width: int) -> None:
    """Raise ExtentError for a call that would access memory outside one of its buffers."""
    arguments = kernel_call.arguments
    touched = EXTENTS.get(arguments.kind)
    need(touched is not None, "known extents")
    assert touched is not None
    need(kernel_call.tasks >= 1, "a part")
    need(arguments.takes_activation or not kernel_call.activation.kind, "an activation that the kernel knows")
    exact(arguments)
    for name, low, high in touched(arguments, Setting(width, kernel_call.tasks)):
        pointer: Pointer | None = getattr(arguments, name)
        if low >= high or (pointer is None and name in arguments.optional):
            continue
        need(pointer is not None, f"pointer {name}")
        assert pointer is not None
        buffer, offset = pointer
        first, behind = bounds(buffer)
        each, start = arguments.pointer_bytes[name], FLOAT * offset
        if start + each * low < first or start + each * high > behind:
            raise ExtentError(
                f"pointer {name} accesses bytes {start + each * low} to {start + each * high} of "
                f"the available {first} to {behind}"
            )


def exact(arguments: abi.Arguments[Any]) -> None:
    """Convert the sizes to Python integers: numpy's might overflow."""
    for name, count in arguments.size_counts.items():
        size = getattr(arguments, name)
        if count:
            setattr(arguments, name, tuple(map(int, size)))
        elif type(size) is not int:
            setattr(arguments, name, int(size))


def table_of(pointer: Pointer) -> Any:
    """The integers of a constant, flat, from the pointer on."""
    buffer, offset = pointer
    need(buffer.array is not None and offset == 0, "a table that is a constant")
    table = buffer.array.reshape(-1)
    need(table.dtype.itemsize == PLACE and table.dtype.kind == "i", "a table of int64")
    return table


def bounds(buffer: Buffer) -> tuple[int, int]:
    """The first byte of a buffer and the one after the last, relative to its address."""
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
@touches(abi.Convolution)
def _convolution(s: abi.Convolution[Pointer], on: Setting) -> Touched:
    whole = s.segments - s.last_segments
    need(min(s.rows, s.groups, s.row_parts, s.block_parts, s.column_parts) > 0 and whole >= 0, "parts")
    need(
        on.tasks == s.groups * s.row_parts * s.block_parts * s.column_parts and 0 < s.last_lanes <= on.width,
        "as many tasks as parts",
    )
    need((s.segment_length > 0 or not whole) and (s.last_length > 0 or not s.last_segments), "segments of some length")
    x = span(
        0, (s.images, s.source_image), (s.rows, s.source_row), (s.columns, s.source_pixel), (s.groups, s.source_group)
    )
    yield "source", *segmented(s, x)
    depth = whole * s.segment_length + s.last_segments * s.last_length
    if s.diagonals:
        need(s.diagonals in (2, 4), "groups that are part of a vector")
        need(s.blocks == 1 and not s.last_segments and s.segment_length % on.width == 0, "pixels of one block")
        need(s.last_lanes == on.width, "whole vectors")
        depth = depth // on.width * s.diagonals
    yield reach("weights", depth * s.blocks * on.width, (s.groups, s.weights_group))
    yield reach("bias", s.blocks * on.width, (s.groups, s.bias_group))
    group = s.groups, s.out_group
    pixels = (s.images, s.out_image), (s.rows, s.out_row), (s.columns, s.out_pixel), group
    yield "out", *blocks_of(on.width, s.blocks, s.out_block, pixels, s.last_lanes)
    pixels = (s.images, s.residual_image), (s.rows, s.residual_row), (s.columns, s.residual_pixel), group
    yield "residual", *blocks_of(on.width, s.blocks, s.residual_block, pixels, s.last_lanes)


def segmented(s: abi.Convolution[Pointer] | abi.Pairs[Pointer], x: tuple[int, int]) -> tuple[int, int]:
    """What a convolution reads of its input: a segment at each offset of its table."""
    table, whole = table_of(s.offsets), s.segments - s.last_segments
    need(table.size >= s.segments, "an offset for each segment")
    (least, most), (_, last) = least_and_most(table[:whole]), least_and_most(table[whole : s.segments])
    if s.last_segments:
        least = min(least, int(table[whole : s.segments].min())) if whole else int(table[: s.segments].min())
    far = max(
        most + s.segment_length if whole else last + s.last_length,
        last + s.last_length if s.last_segments else most + s.segment_length,
    )
    return x[0] + least, x[1] + far


def blocks_of(width: int, count: int, stride: int, axes: tuple[Axis, ...], lanes: int) -> tuple[int, int]:
    """Blocks of channels at every pixel; the last one uses only some lanes."""
    low, high = span(lanes, *axes, (count, stride))
    if count > 1 and lanes < width:
        high = max(high, span(width, *axes, (count - 1, stride))[1])
    return low, high


@touches(abi.Depthwise)
def _depthwise(s: abi.Depthwise[Pointer], on: Setting) -> Touched:
    need(s.row_parts > 0 and min(s.stride_h, s.stride_w, s.dilation_h, s.dilation_w) > 0, "parts and strides")
    need((s.source is None) != (s.source_halves is None), "one source")
    for name in ("source", "source_halves"):
        yield reach(
            name,
            on.width,
            (s.images, s.source_image),
            (s.source_height, s.source_row),
            (s.source_width, on.width),
            (s.blocks, s.source_block),
        )
    lines = s.window_h
    if s.source_halves is not None:
        beside = max(s.pad_left, (s.columns - 1) * s.stride_w - s.pad_left + s.window_w - s.source_width)
        need((s.window_h, s.window_w) in ((3, 3), (5, 5)) and beside <= s.window_w // 2, "windows of halves")
        need(s.stride_h == s.stride_w <= 2 and s.dilation_h == s.dilation_w == 1, "windows that move by one or two")
        lines += 1  # and one of zeros
    yield "weights", 0, s.blocks * lines * s.window_w * on.width
    yield "bias", 0, s.blocks * on.width
    yield reach(
        "out", on.width, (s.images, s.out_image), (s.rows, s.out_row), (s.columns, s.out_pixel), (s.blocks, s.out_block)
    )
    need(s.out is not None or s.out_halves is not None, "a result")
    pixels = (s.images, s.halves_image), (s.rows, s.halves_row), (s.columns, s.halves_pixel)
    yield "out_halves", *_pairs_of_blocks(s, on, pixels, s.halves_block, s.halves_pair)
    yield reach(
        "residual",
        on.width,
        (s.images, s.residual_image),
        (s.rows, s.residual_row),
        (s.columns, s.residual_pixel),
        (s.blocks, s.residual_block),
    )


@touches(abi.Pool)
def _pool(s: abi.Pool[Pointer], on: Setting) -> Touched:
    yield reach(
        "source",
        on.width,
        (s.images, s.source_image),
        (s.source_height, s.source_row),
        (s.source_width, on.width),
        (s.blocks, s.source_block),
    )
    yield reach(
        "out", on.width, (s.images, s.out_image), (s.rows, s.out_row), (s.columns, on.width), (s.blocks, s.out_block)
    )


@touches(abi.PoolHalves)
def _pool_halves(s: abi.PoolHalves[Pointer], on: Setting) -> Touched:
    need(s.lanes in (on.width, 2 * on.width), "a vector of lanes, or two")
    columns = s.source_width * s.lanes
    yield reach(
        "source", columns, (s.images, s.source_image), (s.source_height, s.source_row), (s.blocks, s.source_block)
    )
    columns = s.columns * s.lanes
    yield reach("out", columns, (s.images, s.out_image), (s.rows, s.out_row), (s.blocks, s.out_block))


@touches(abi.FilterGradient)
def _filter_gradient(s: abi.FilterGradient[Pointer], on: Setting) -> Touched:
    need(min(s.rows, s.columns, s.filters, s.numbers, s.pair_parts, s.number_parts) > 0, "parts")
    pairs = -(-s.filters // (2 * on.width))
    need(on.tasks == s.pair_parts * s.number_parts, "as many tasks as parts")
    need(s.whole_blocks or s.filters >= on.width, "a vector of filters")
    need(s.whole_blocks or s.grad_block == on.width, "channels side by side")
    least, most = least_and_most(table_of(s.offsets)[: s.numbers])
    groups = -(-pairs // s.group_pairs) if s.group_pairs else 1
    low, high = span(
        1, (s.images, s.source_image), (s.rows, s.source_row), (s.columns, s.source_pixel), (groups, s.source_group)
    )
    yield "source", low + least, high + most
    blocks = (on.blocks(s.filters), s.grad_block) if s.whole_blocks else (1, 0)
    length = on.width if s.whole_blocks else s.filters
    yield reach("grad", length, (s.images, s.grad_image), (s.rows, s.grad_row), (s.columns, s.grad_pixel), blocks)
    first, last = least_and_most(table_of(s.places)[: s.numbers])
    need(first >= 0 and last <= s.numbers, "places in a filter")
    yield "out", 0, s.filters * s.numbers
    yield "scratch", 0, pairs * 2 * on.width * on.whole(s.numbers)
    yield "offsets", 0, s.numbers
    yield "places", 0, s.numbers


@touches(abi.WinogradFilterGradient)
def _winograd_filter_gradient(s: abi.WinogradFilterGradient[Pointer], on: Setting) -> Touched:
    need(s.outputs in (2, 4) and s.filters % on.width == s.channels % on.width == 0, "whole vectors")
    pairs = -(-s.filters // (2 * on.width))
    need(on.tasks == pairs * (s.channels // on.width), "as many tasks as blocks")
    positions = (s.outputs + 2) ** 2
    need(s.sums is not None or (s.begins and s.ends), "sums that are kept")
    yield "windows", 0, positions * s.channels * s.count
    yield "grads", 0, positions * s.filters * s.count
    yield "sums", 0, on.tasks * positions * 2 * on.width**2
    yield "out", 0, s.filters * s.channels * 9


@touches(abi.PackTaps)
def _pack_taps(s: abi.PackTaps[Pointer], on: Setting) -> Touched:
    yield "source", 0, s.filters * s.channels * s.taps
    yield "out", 0, s.filters * on.whole(s.channels * s.taps)


@touches(abi.Spread)
def _spread(s: abi.Spread[Pointer], on: Setting) -> Touched:
    need(s.together > 0, "images together")
    size = s.channels * s.window_h * s.window_w
    need(s.task_scratch >= min(SPREAD_ROWS, s.together * s.rows * s.columns) * size, "room for the windows")
    yield "grad", 0, s.images * s.rows * s.columns * s.filters
    yield "weights", 0, s.filters * on.whole(size)
    yield "out", 0, s.images * s.source_height * s.source_width * s.channels
    yield "scratch", 0, on.tasks * s.task_scratch


@touches(abi.WinogradWindows)
def _winograd_windows(s: abi.WinogradWindows[Pointer], on: Setting) -> Touched:
    need(
        s.outputs in (2, 4) and s.first >= 0 and s.first + s.count <= s.images * s.window_rows * s.window_columns,
        "windows of the image",
    )
    yield reach(
        "source",
        on.width,
        (s.images, s.source_image),
        (s.source_height, s.source_row),
        (s.source_width, s.source_pixel),
        (s.blocks, s.source_block),
    )
    yield reach("out", on.width, (s.blocks, s.out_block), (s.count, on.width), ((s.outputs + 2) ** 2, s.out_position))


@touches(abi.Winograd)
def _winograd(s: abi.Winograd[Pointer], on: Setting) -> Touched:
    need(
        s.outputs in (2, 4) and s.first >= 0 and s.first + s.count <= s.images * s.window_rows * s.window_columns,
        "windows of the image",
    )
    need(
        min(s.window_parts, s.block_parts) > 0
        and on.tasks == s.window_parts * s.block_parts
        and s.channels % on.width == 0,
        "as many tasks as parts",
    )
    need(-(-s.count // s.window_parts) <= MOST_WINDOWS, "parts that a stack holds")
    least, most = least_and_most(table_of(s.offsets)[: s.channels // on.width])
    need(table_of(s.offsets).size >= s.channels // on.width, "an offset for each segment")
    positions = (s.outputs + 2) ** 2
    low, high = span(on.width, (positions, s.windows_position), (s.count, on.width))
    yield "windows", low + least, high + most
    yield "weights", 0, s.blocks * on.width * positions * s.channels
    yield "bias", 0, s.blocks * on.width
    yield reach(
        "out", on.width, (s.images, s.out_image), (s.rows, s.out_row), (s.columns, s.out_pixel), (s.blocks, s.out_block)
    )
    yield reach(
        "residual",
        on.width,
        (s.images, s.residual_image),
        (s.rows, s.residual_row),
        (s.columns, s.residual_pixel),
        (s.blocks, s.residual_block),
    )


@touches(abi.Pairs)
def _pairs(s: abi.Pairs[Pointer], on: Setting) -> Touched:
    whole = s.segments - s.last_segments
    need(
        min(s.rows, s.groups, s.row_parts, s.block_parts, s.column_parts) > 0
        and whole >= 0
        and 0 < s.last_lanes <= on.width,
        "parts",
    )
    need(on.tasks == s.groups * s.row_parts * s.block_parts * s.column_parts, "as many tasks as parts")
    need(
        s.segment_length % 2 == 0 and s.last_length % 2 == 0 and (s.out is not None or s.out_halves is not None),
        "pairs",
    )
    x = span(
        0, (s.images, s.source_image), (s.rows, s.source_row), (s.columns, s.source_pixel), (s.groups, s.source_group)
    )
    yield "source", *segmented(s, x)
    yield reach(
        "weights",
        (whole * s.segment_length + s.last_segments * s.last_length) * s.blocks * on.width,
        (s.groups, s.weights_group),
    )
    yield reach("bias", s.blocks * on.width, (s.groups, s.bias_group))
    blocks = s.groups * s.blocks
    pixels = (s.images, s.out_image), (s.rows, s.out_row), (s.columns, s.out_pixel)
    yield "out", *blocks_of(on.width, blocks, s.out_block, pixels, s.last_lanes)
    pixels = (s.images, s.residual_image), (s.rows, s.residual_row), (s.columns, s.residual_pixel)
    yield "residual", *blocks_of(on.width, blocks, s.residual_block, pixels, s.last_lanes)
    pixels = (s.images, s.halves_image), (s.rows, s.halves_row), (s.columns, s.halves_pixel)
    yield "out_halves", *_pairs_of_blocks(s, on, pixels, s.halves_block, s.halves_pair)
    pixels = (s.images, s.residual_image), (s.rows, s.residual_row), (s.columns, s.residual_pixel)
    need(
        s.residual is None or s.residual_pair == 2 * s.residual_block, "blocks of floats that are as far apart in pairs"
    )
    need(s.residual_halves is None or (s.groups == 1 and s.residual is None), "one residual")
    yield "residual_halves", *_pairs_of_blocks(s, on, pixels, s.residual_block, s.residual_pair)


def _pairs_of_blocks(
    s: abi.Pairs[Pointer] | abi.Depthwise[Pointer], on: Setting, pixels: tuple[Axis, ...], block: int, pair: int
) -> tuple[int, int]:
    """Halves: pairs of blocks of every group, and a last one that is alone."""
    pairs, alone = divmod(s.blocks, 2)
    groups = (s.groups if isinstance(s, abi.Pairs) else 1), s.blocks * block
    together = span(on.width, *pixels, groups, (pairs, pair), (2, block))
    if not alone:
        return together
    low, high = span(on.width, *pixels, groups)
    start = pairs * pair
    return min(together[0], low + start), max(together[1], high + start)


@touches(abi.WinogradPairs)
def _winograd_pairs(s: abi.WinogradPairs[Pointer], on: Setting) -> Touched:
    need(2 * s.window_rows >= s.rows and 2 * s.window_columns >= s.columns, "windows over the whole image")
    need(
        min(s.window_parts, s.block_parts) > 0 and on.tasks == s.window_parts * s.block_parts, "as many tasks as parts"
    )
    need(s.channels % on.width == 0 and 0 < s.windows <= MOST_HALF_WINDOWS, "windows that a stack holds")
    need(s.out is not None or s.out_halves is not None, "a result")
    need(s.residual is None or s.residual_halves is None, "one residual")
    table, segments = table_of(s.offsets), s.channels // on.width
    expected = [block * s.windows * on.width for block in range(segments)]
    need(
        table[:segments].tolist() == expected and 2 * s.task_scratch >= 16 * s.channels * s.windows, "room for windows"
    )
    yield reach(
        "source",
        on.width,
        (s.images, s.source_image),
        (s.source_height, s.source_row),
        (s.source_width, s.source_pixel),
        (segments, s.source_block),
    )
    yield "weights", 0, s.blocks * on.width * 16 * s.channels
    yield "bias", 0, s.blocks * on.width
    yield "scratch", 0, on.tasks * s.task_scratch
    for name, image, row, pixel, block in (
        ("out", s.out_image, s.out_row, s.out_pixel, s.out_block),
        ("out_halves", s.halves_image, s.halves_row, s.halves_pixel, s.halves_block),
        ("residual", s.residual_image, s.residual_row, s.residual_pixel, s.residual_block),
        ("residual_halves", s.residual_image, s.residual_row, s.residual_pixel, s.residual_block),
    ):
        yield reach(name, on.width, (s.images, image), (s.rows, row), (s.columns, pixel), (s.blocks, block))


@touches(abi.PackWinogradPairs)
def _pack_winograd_pairs(s: abi.PackWinogradPairs[Pointer], on: Setting) -> Touched:
    need(s.channels % 2 == 0, "pairs of channels")
    yield "source", 0, s.filters * s.channels * 9
    yield "scale", 0, s.filters
    yield "out", 0, on.whole(s.filters) * 16 * s.channels


# ---------------------------------------------------------------- 8 bits
def _ends(s: abi.Int8Products[Pointer] | abi.Int8Depthwise[Pointer], on: Setting, lanes: int) -> Touched:
    """What follows the sums: constants by channel, the residual, the results."""
    need(0 < s.last_bytes <= on.width and (s.out is not None or s.out_int8 is not None), "results")
    for name in ("starts", "factors", "shifts"):
        yield reach(name, s.blocks * on.width)
    pixels = (s.images, s.out_image), (s.rows, s.out_row), (s.columns, s.out_pixel)
    yield "out", *blocks_of(on.width, s.blocks, s.out_block, pixels, lanes)
    pixels = (s.images, s.residual_image), (s.rows, s.residual_row), (s.columns, s.residual_pixel)
    yield "residual", *blocks_of(on.width, s.blocks, s.residual_block, pixels, lanes)
    pixels = (s.images, s.int8_image), (s.rows, s.int8_row), (s.columns, s.int8_pixel)
    yield "out_int8", *blocks_of(on.width, s.blocks, on.width, pixels, s.last_bytes)


@touches(abi.Int8Products)
def _int8_products(s: abi.Int8Products[Pointer], on: Setting) -> Touched:
    need(min(s.rows, s.segments, s.row_parts, s.block_parts, s.column_parts) > 0, "parts")
    need(on.tasks == s.row_parts * s.block_parts * s.column_parts, "as many tasks as parts")
    need(0 < s.last_lanes <= on.width and s.segment_length > 0 and s.segment_length % 4 == 0, "four bytes at a time")
    table = table_of(s.offsets)
    need(table.size >= s.segments, "an offset for each segment")
    least, most = least_and_most(table[: s.segments])
    low, high = span(s.segment_length, (s.images, s.source_image), (s.rows, s.source_row), (s.columns, s.source_pixel))
    yield "source", low + least, high + most
    yield reach("weights", s.segments * s.segment_length * s.blocks * on.width)
    yield from _ends(s, on, s.last_lanes)


@touches(abi.Int8Depthwise)
def _int8_depthwise(s: abi.Int8Depthwise[Pointer], on: Setting) -> Touched:
    need(min(s.window_h, s.window_w, s.stride_h, s.stride_w, s.dilation_h, s.dilation_w) > 0, "windows")
    need(min(s.images, s.rows, s.blocks) > 0, "results")
    yield reach(
        "source",
        on.width,
        (s.images, s.source_image),
        (s.rows, s.stride_h * s.source_row),
        (s.columns, s.stride_w * s.source_pixel),
        (s.window_h, s.dilation_h * s.source_row),
        (s.window_w, s.dilation_w * s.source_pixel),
        (s.blocks, on.width),
    )
    yield reach("weights", s.blocks * -(-s.window_h // 4) * s.window_w * 4 * on.width)
    yield from _ends(s, on, on.width)


@touches(abi.ToInt8)
def _to_int8(s: abi.ToInt8[Pointer], on: Setting) -> Touched:
    need(min(s.images, s.rows, s.columns, s.channels) > 0 and s.out_pixel >= s.channels, "pixels with room")
    pixels = (s.images, s.source_image), (s.rows, s.source_row), (s.columns, s.source_pixel)
    if s.source_channel == 1:
        lanes = s.channels - (on.blocks(s.channels) - 1) * on.width
        yield "source", *blocks_of(on.width, on.blocks(s.channels), s.source_block, pixels, lanes)
    else:
        yield reach("source", 1, *pixels, (s.channels, s.source_channel))
    yield reach("out", s.out_pixel, (s.images, s.out_image), (s.rows, s.out_row), (s.columns, s.out_pixel))


@touches(abi.SumImages)
def _sum_images(s: abi.SumImages[Pointer], on: Setting) -> Touched:
    need(0 < s.last_bytes <= on.width and (s.out is not None or s.out_int8 is not None), "results")
    need(min(s.images, s.rows, s.columns, s.blocks) > 0 and (s.source or s.added) is not None, "images")
    for name in ("source", "residual", "out"):
        image, row, pixel, block = (getattr(s, f"{name}_{step}") for step in ("image", "row", "pixel", "block"))
        pixels = (s.images, image), (s.rows, row), (s.columns, pixel)
        yield name, *blocks_of(on.width, s.blocks, block, pixels, on.width)
    yield reach("factors", on.width, (s.images, s.factors_image), (s.blocks, s.factors_block))
    if s.added is not None:
        need(s.offsets is not None, "offsets of what is added")
        assert s.offsets is not None
        table = table_of(s.offsets)
        need(table.size >= s.rows + s.columns, "an offset for each row and column")
        down, across = least_and_most(table[: s.rows]), least_and_most(table[s.rows : s.rows + s.columns])
        low, high = span(on.width, (s.images, s.added_image), (s.blocks, s.added_block))
        yield "added", low + down[0] + across[0], high + down[1] + across[1]
        yield reach("offsets", s.rows + s.columns)
    pixels = (s.images, s.int8_image), (s.rows, s.int8_row), (s.columns, s.int8_pixel)
    yield "out_int8", *blocks_of(on.width, s.blocks, on.width, pixels, s.last_bytes)


@touches(abi.Int8Halo)
def _int8_halo(s: abi.Int8Halo[Pointer], on: Setting) -> Touched:
    need(min(s.top, s.bottom, s.left, s.right, s.out_pixel) >= 0, "sizes that are not negative")
    need(s.top + s.bottom <= s.rows and s.left + s.right <= s.columns, "a halo within the image")
    yield reach("out", s.images * s.rows * s.columns * s.out_pixel)


@touches(abi.RoundToSteps)
def _round_to_steps(s: abi.RoundToSteps[Pointer], on: Setting) -> Touched:
    yield reach("source", s.count)
    yield reach("out", s.count)


@touches(abi.PackInt8)
def _pack_int8(s: abi.PackInt8[Pointer], on: Setting) -> Touched:
    need(s.segment_length == s.taps * s.pixel and s.pixel % 4 == 0 and s.channels <= s.pixel, "whole segments")
    yield reach(
        "source", 1, (s.outputs, s.source_output), (s.channels, s.source_channel), (s.segments * s.taps, s.source_tap)
    )
    yield reach("out", on.whole(s.outputs) * s.segments * s.segment_length)


# ---------------------------------------------------------------- constants that are packed
@touches(abi.Pack)
def _pack(s: abi.Pack[Pointer], on: Setting) -> Touched:
    need(
        s.outer > 0 and s.matrices % s.outer == 0 and s.first_column % on.width == 0 and s.first_column >= 0, "matrices"
    )
    need(
        s.first_column + s.columns <= s.all_columns
        and (s.first_column + s.columns == s.all_columns or s.columns % on.width == 0),
        "columns of the whole",
    )
    inner = s.matrices // s.outer
    yield reach(
        "source",
        1,
        (s.depth, s.source_row),
        (s.columns, s.source_column),
        (s.outer, s.source_outer),
        (inner, s.source_inner),
    )
    yield "scale", 0, s.columns
    yield (
        "out",
        *halves(span(s.depth * on.whole(s.all_columns), (s.outer, s.out_outer), (inner, s.out_inner)), s.bfloat16),
    )


def halves(weights: tuple[int, int], bfloat16: int) -> tuple[int, int]:
    """bfloat16 weights, two per 32 bits."""
    return weights if bfloat16 else (2 * weights[0], 2 * weights[1])


@touches(abi.PackFilter)
def _pack_filter(s: abi.PackFilter[Pointer], on: Setting) -> Touched:
    need(s.lanes > 0 and s.taps > 0, "lanes and taps")
    depth = s.channels * s.taps
    yield "source", 0, s.groups * s.filters * depth
    yield "scale", 0, s.groups * s.filters
    yield reach("out", depth * on.whole(s.filters), (s.groups, s.out_group))


@touches(abi.PackWinograd)
def _pack_winograd(s: abi.PackWinograd[Pointer], on: Setting) -> Touched:
    need(s.outputs in (2, 4), "windows")
    yield reach("source", 9, (s.filters, s.filter_step), (s.channels, s.channel_step))
    yield "scale", 0, s.filters
    yield "out", 0, on.whole(s.filters) * (s.outputs + 2) ** 2 * s.channels


@touches(abi.PackPairs)
def _pack_pairs(s: abi.PackPairs[Pointer], on: Setting) -> Touched:
    need(
        s.lanes > 0 and s.first_block >= 0 and s.first_block + on.blocks(s.outputs) <= s.all_blocks,
        "blocks of the whole",
    )
    whole, rest = divmod(s.channels, s.lanes)
    depth = (whole * s.lanes + (rest + 1) // 2 * 2) * s.taps
    need(whole == 0 or s.lanes % 2 == 0, "pairs")
    yield reach(
        "source",
        1,
        (s.outputs, s.source_output),
        (s.channels, s.source_channel),
        (s.taps, s.source_tap),
        (s.groups, s.source_group),
    )
    yield "scale", 0, s.groups * s.outputs
    yield reach("out", s.all_blocks * on.width * depth, (s.groups, s.out_group))


# ---------------------------------------------------------------- layouts and moves
@touches(abi.Block)
def _block(s: abi.Block[Pointer], on: Setting) -> Touched:
    need(s.lanes > 0 and (s.blocks - 1) * s.lanes < s.channels, "lanes for channels")
    channels = (
        s.blocks * s.lanes if s.lanes in (1, 3) else s.channels
    )  # for these lanes the kernel does not ask how many there are
    yield reach("source", channels * s.rows * s.columns, (s.images, s.channels * s.rows * s.columns))
    yield reach("out", s.columns * s.lanes, (s.images, s.out_image), (s.blocks, s.out_block), (s.rows, s.out_row))


@touches(abi.Unblock)
def _unblock(s: abi.Unblock[Pointer], on: Setting) -> Touched:
    need((s.blocks - 1) * on.width < s.channels, "lanes for channels")
    yield reach(
        "source",
        min(on.width, s.channels),
        (s.images, s.source_image),
        (s.blocks, s.source_block),
        (s.rows, s.source_row),
        (s.columns, on.width),
    )
    yield "out", 0, s.images * s.channels * s.rows * s.columns


@touches(abi.Halo)
def _halo(s: abi.Halo[Pointer], on: Setting) -> Touched:
    need(
        min(s.top, s.bottom, s.left, s.right) >= 0 and s.top + s.bottom <= s.rows and s.left + s.right <= s.columns,
        "a halo of the plane",
    )
    yield reach("out", s.rows * s.columns * s.lanes, (s.planes, s.rows * s.columns * s.lanes))


@touches(abi.Subsample)
def _subsample(s: abi.Subsample[Pointer], on: Setting) -> Touched:
    yield reach(
        "source",
        s.lanes,
        (s.images, s.source_image),
        (s.blocks, s.source_block),
        (s.rows, s.source_row),
        (s.columns, s.source_pixel),
    )
    yield "out", 0, s.images * s.blocks * s.rows * s.columns * s.lanes


@touches(abi.Copy)
def _copy(s: abi.Copy[Pointer], on: Setting) -> Touched:
    yield reach("source", 1, *zip(s.shape, s.source_strides, strict=True))
    yield reach("out", 1, *zip(s.shape, s.out_strides, strict=True))


@touches(abi.Narrow)
def _narrow(s: abi.Narrow[Pointer], on: Setting) -> Touched:
    last = s.channels - (s.blocks - 1) * s.lanes
    planes = s.lanes == s.channels == 3 and s.source_pixel == 1  # the kernel has a loop for these
    need(s.lanes > 0 and (s.lanes % 2 == 0 or planes) and 0 < last <= s.lanes, "lanes for channels")
    images, rows, columns = (s.images, s.source_image), (s.rows, s.source_row), (s.columns, s.source_pixel)
    whole, rest = _lanes_read(s, s.lanes, on.width), _lanes_read(s, last, on.width)
    low, high = span(0, images, rows, columns, (s.blocks - 1, s.source_block))
    low, high = (low + whole[0], high + whole[1]) if s.blocks > 1 else (0, 0)
    start = (s.blocks - 1) * s.source_block
    near, far = span(0, images, rows, columns)
    near, far = near + rest[0], far + rest[1]
    yield "source", min(low, start + near), max(high, start + far)
    yield reach("out", s.columns * s.lanes, (s.images, s.out_image), (s.blocks, s.out_block), (s.rows, s.out_row))


def _lanes_read(s: abi.Narrow[Pointer], lanes: int, width: int) -> tuple[int, int]:
    """What is read of a pixel for so many lanes of a block."""
    if s.source_channel != 1 or s.lanes % width:
        return span(1, (lanes, s.source_channel))
    vectors = -(-lanes // width)
    ends = [
        start * s.source_half + count
        for start, count in ((vectors - 1, lanes - (vectors - 1) * width), (vectors - 2, width))
    ]
    return min(0, (vectors - 1) * s.source_half), max(ends if vectors > 1 else ends[:1])


@touches(abi.Regroup)
def _regroup(s: abi.Regroup[Pointer], on: Setting) -> Touched:
    words = s.words
    need(words >= 3 and table_of(s.table).size >= s.blocks * words, "a table of blocks")
    table = table_of(s.table)[: s.blocks * words].reshape(s.blocks, words)
    sources = (words - 3) // (2 + on.width // 2)
    need((table[:, 2] >= 1).all() and (table[:, 2] <= sources).all() and (table[:, 0] >= 0).all(), "blocks")
    reached: dict[int, list[int]] = {}
    for line in table.tolist():
        for at in range(3, 3 + line[2] * (2 + on.width // 2), 2 + on.width // 2):
            reached.setdefault(line[at], []).append(line[at + 1])
    for image, offsets in reached.items():
        need(0 <= image < 4, "images")
        name = ("first", "second", "third", "fourth")[image]
        need(getattr(s, name) is not None, f"pointer {name}")
        of_image, of_row = s.source_strides[2 * image : 2 * image + 2]
        low, high = span(s.columns * on.width, (s.images, of_image), (s.rows, of_row))
        yield name, low + min(offsets), high + max(offsets)
    blocks = int(table[:, 0].max()) + 1
    yield reach(
        "out", on.width, (s.images, s.out_image), (blocks, s.out_block), (s.rows, s.out_row), (s.columns, s.out_pixel)
    )


@touches(abi.Pad)
def _pad(s: abi.Pad[Pointer], on: Setting) -> Touched:
    sizes, columns, table, start = s.shape, s.shape[-1], table_of(s.places), 0
    need(min(sizes) > 0 and table.size >= sum(sizes), "a place for each number")
    far, inside = 0, True
    for count in sizes:
        places = table[start : start + count]
        far, inside = far + int(places.max()), inside and int(places.max()) >= 0
        start += count
    need(s.first >= 0 and s.run >= 0 and s.first + s.run <= columns, "a run within the row")
    if s.run:
        run = table[start - columns :][s.first : s.first + s.run]
        need(run[0] >= 0 and run[-1] - run[0] == s.run - 1, "a run of consecutive places")
    if inside:
        yield "source", 0, far + 1
    yield reach("out", columns, *zip(s.shape[:-1], s.out_strides, strict=True))


@touches(abi.Interpolate)
def _interpolate(s: abi.Interpolate[Pointer], on: Setting) -> Touched:
    rows, columns, table = s.rows * s.row_taps, s.columns * s.column_taps, table_of(s.offsets)
    need(table.size >= rows + columns and min(s.row_taps, s.column_taps) > 0, "an offset for each tap")
    need(s.weights is not None or s.row_taps == s.column_taps == 1, "a weight for each tap")
    down, across = least_and_most(table[:rows]), least_and_most(table[rows : rows + columns])
    low, high = span(on.width, (s.images, s.source_image), (s.blocks, s.source_block))
    yield "source", low + down[0] + across[0], high + down[1] + across[1]
    yield "weights", 0, rows + columns
    yield reach(
        "out", on.width, (s.images, s.out_image), (s.rows, s.out_row), (s.blocks, s.out_block), (s.columns, on.width)
    )


# ---------------------------------------------------------------- rows
@touches(abi.Elementwise)
def _elementwise(s: abi.Elementwise[Pointer], on: Setting) -> Touched:
    need(s.other is not None or (s.operation == ALONE and s.added is None), "pointer other")

    def rows(column: int, strides: Sequence[int]) -> tuple[int, int]:
        return span(s.columns if column else min(s.columns, 1), *zip(s.shape, strides, strict=True))

    yield "source", *rows(s.source_column, s.source_strides)
    yield "other", *rows(s.other_column, s.other_strides)
    yield "added", *rows(1, s.added_strides)
    yield "out", *rows(1, s.out_strides)


@touches(abi.Softmax)
def _softmax(s: abi.Softmax[Pointer], on: Setting) -> Touched:
    yield "source", 0, s.rows * s.columns
    yield "out", 0, s.rows * s.columns
    if s.mask is not None:
        need(s.heads > 0 and s.head_rows > 0, "rows of the mask")
        images = -(-s.rows // (s.heads * s.head_rows))
        yield (
            "mask",
            *span(
                s.columns if s.mask_column else 1,
                (images, s.mask_image),
                (s.heads, s.mask_head),
                (s.head_rows, s.mask_row),
            ),
        )


@touches(abi.SoftmaxAxis)
def _softmax_axis(s: abi.SoftmaxAxis[Pointer], on: Setting) -> Touched:
    need(s.axis > 0, "an axis")
    yield "source", 0, s.outer * s.axis * s.inner
    yield "out", 0, s.outer * s.axis * s.inner


@touches(abi.Reduce)
def _reduce(s: abi.Reduce[Pointer], on: Setting) -> Touched:
    yield "source", 0, s.outer * s.axis * s.inner
    yield "out", 0, s.outer * s.inner


@touches(abi.LayerNorm)
def _layer_norm(s: abi.LayerNorm[Pointer], on: Setting) -> Touched:
    size = s.rows * s.columns
    yield from counts(source=size, scale=s.columns, bias=s.columns, out=size, residual=size, statistics=2 * s.rows)


def counts(**of: int) -> Touched:
    """This many elements from each pointer."""
    return ((name, 0, count) for name, count in of.items())


@touches(abi.GroupNorm)
def _group_norm(s: abi.GroupNorm[Pointer], on: Setting) -> Touched:
    need(s.groups > 0, "groups")
    size, channels = s.rows * s.group_channels * s.plane, s.groups * s.group_channels
    yield from counts(source=size, scale=channels, bias=channels, out=size)


@touches(abi.GroupNormBlocked)
def _group_norm_blocked(s: abi.GroupNormBlocked[Pointer], on: Setting) -> Touched:
    need(
        s.group_channels > 0
        and s.shared_blocks > 0
        and s.channels % s.group_channels == 0
        and on.blocks(s.channels) <= s.blocks,
        "groups",
    )
    need(
        s.shared_blocks >= s.blocks or s.shared_blocks * on.width % s.group_channels == 0,
        "groups within what shares them",
    )
    yield reach(
        "source",
        on.width,
        (s.images, s.source_image),
        (s.blocks, s.source_block),
        (s.rows, s.source_row),
        (s.columns, on.width),
    )
    yield "scale", 0, s.blocks * on.width
    yield "bias", 0, s.blocks * on.width
    yield reach(
        "out", on.width, (s.images, s.out_image), (s.blocks, s.out_block), (s.rows, s.out_row), (s.columns, on.width)
    )
    yield "scratch", 0, 2 * s.images * s.blocks * on.width


@touches(abi.LocalResponse)
def _local_response(s: abi.LocalResponse[Pointer], on: Setting) -> Touched:
    need(0 <= s.around < on.width, "neighbors within a vector")
    row = s.columns * on.width
    yield reach("source", row, (s.images, s.source_image), (s.blocks, s.source_block), (s.rows, s.source_row))
    yield reach("out", row, (s.images, s.out_image), (s.blocks, s.out_block), (s.rows, s.out_row))


@touches(abi.Cosine)
def _cosine(s: abi.Cosine[Pointer], on: Setting) -> Touched:
    yield "source", 0, s.rows * s.columns
    yield reach("other", s.columns, (s.rows, s.other_row))
    yield "out", 0, s.rows


@touches(abi.ExtremePlace)
def _extreme_place(s: abi.ExtremePlace[Pointer], on: Setting) -> Touched:
    yield "source", 0, s.outer * s.axis * s.inner
    yield "out", 0, s.outer * s.inner


@touches(abi.TopK)
def _top_k(s: abi.TopK[Pointer], on: Setting) -> Touched:
    need(0 < s.k <= s.columns, "a k within the row")
    yield "source", 0, s.rows * s.columns
    yield "out", 0, s.rows * s.k


@touches(abi.Pick)
def _pick(s: abi.Pick[Pointer], on: Setting) -> Touched:
    """The indices are those that TOP_K has found in the same rows."""
    yield "source", 0, s.rows * s.columns
    yield "out", 0, s.rows * s.k
    yield "places", 0, s.rows * s.k


@touches(abi.GatherRows)
def _gather_rows(s: abi.GatherRows[Pointer], on: Setting) -> Touched:
    """The kernel checks every id against the rows of the table; the zero row is not read."""
    yield "table", 0, (s.table_rows - (s.zero_id == s.table_rows - 1)) * s.columns
    yield "out", 0, s.count * s.columns
    yield "ids", 0, s.count


@touches(abi.GatherPool)
def _gather_pool(s: abi.GatherPool[Pointer], on: Setting) -> Touched:
    """The kernel checks every offset against the number of ids, which each run sets, and every id against the table."""
    yield "table", 0, s.table_rows * s.columns
    yield "offsets", 0, s.sequences + 1
    yield "out", 0, s.sequences * s.columns


# ---------------------------------------------------------------- products
@touches(abi.Product)
def _product(s: abi.Product[Pointer], on: Setting) -> Touched:
    need(min(s.outer, s.inner, s.column_parts, s.row_parts) > 0, "parts")
    need(on.tasks == s.outer * s.inner * s.column_parts * s.row_parts, "as many tasks as parts")
    yield reach("source", s.depth, (s.outer, s.source_outer), (s.inner, s.source_inner), (s.rows, s.source_row))
    weights = span(s.depth * on.whole(s.columns), (s.outer, s.weights_outer), (s.inner, s.weights_inner))
    yield "weights", *halves(weights, s.bfloat16)
    yield "bias", 0, on.whole(s.columns)
    yield reach("out", s.columns, (s.outer, s.out_outer), (s.inner, s.out_inner), (s.rows, s.out_row))
    yield reach("residual", s.columns, (s.outer, s.out_outer), (s.inner, s.out_inner), (s.rows, s.residual_row))


@touches(abi.Attention)
def _attention(s: abi.Attention[Pointer], on: Setting) -> Touched:
    need(s.inner > 0 and s.row_parts > 0 and on.tasks % (s.inner * s.row_parts) == 0, "parts")
    need(0 < s.keys <= LANES, "keys whose scores a stack holds")
    outer = on.tasks // (s.inner * s.row_parts)
    yield reach("query", s.depth, (outer, s.query_outer), (s.inner, s.query_inner), (s.rows, s.query_row))
    yield reach("key", 1, (outer, s.key_outer), (s.inner, s.key_inner), (s.keys, s.key_row), (s.depth, s.key_column))
    yield reach(
        "mask", s.keys if s.mask_column else 1, (outer, s.mask_outer), (s.inner, s.mask_inner), (s.rows, s.mask_row)
    )
    yield reach("out", s.columns, (outer, s.out_outer), (s.inner, s.out_inner), (s.rows, s.out_row))
    yield reach(
        "value", 1, (outer, s.value_outer), (s.inner, s.value_inner), (s.keys, s.value_row), (s.columns, s.value_column)
    )
    room = on.whole(s.keys) * s.depth + on.whole(s.columns) * s.keys
    yield reach("scratch", room, (on.tasks, s.task_scratch))


# ---------------------------------------------------------------- sequences
@touches(abi.PoolSequences)
def _pool_sequences(s: abi.PoolSequences[Pointer], on: Setting) -> Touched:
    need(s.source_rows < 1 << 31, "places of 32 bits")
    yield from counts(out=s.sequences * s.columns, places=s.sequences * s.columns)
    if s.source_rows:
        yield from counts(source=s.source_rows * s.columns, offsets=s.sequences + 1)
    else:
        yield "source", *rows_of(s.offsets, s.sequences, s.columns)


@touches(abi.SoftmaxSequences)
def _softmax_sequences(s: abi.SoftmaxSequences[Pointer], on: Setting) -> Touched:
    if s.source_rows:
        yield from counts(source=s.source_rows, out=s.source_rows, offsets=s.sequences + 1)
        return
    low, high = rows_of(s.offsets, s.sequences, 1)
    yield "source", low, high
    yield "out", low, high


def rows_of(table: Pointer, sequences: int, columns: int) -> tuple[int, int]:
    """The extent of sequences of rows with this many columns, by the table of offsets."""
    offsets = table_of(table)
    need(offsets.size >= sequences + 1, "an offset for each sequence")
    least, most = least_and_most(offsets[: sequences + 1])
    return least * columns, most * columns


@touches(abi.LstmSequences)
def _lstm_sequences(s: abi.LstmSequences[Pointer], on: Setting) -> Touched:
    need(s.fed_back == s.size, "states that are fed back")
    rows = packed_rows(s)
    yield from _lstm(s, on.whole(s.size), rows)
    yield "out", 0, rows * s.size
    yield "scratch", 0, 3 * s.size * s.sequences


@touches(abi.ProjectedSequences)
def _projected_sequences(s: abi.ProjectedSequences[Pointer], on: Setting) -> Touched:
    rows = packed_rows(s)
    yield from _lstm(s, on.whole(s.size), rows)
    yield "out", 0, rows * s.fed_back
    yield "scratch", 0, 2 * (s.size + s.fed_back) * s.sequences
    yield "projection", 0, on.whole(s.fed_back) * s.size


def _lstm(s: abi.LstmSequences[Pointer] | abi.ProjectedSequences[Pointer], units: int, rows: int) -> Touched:
    yield "source", 0, rows * 4 * s.size
    yield "weights", 0, 4 * units * s.fed_back
    yield "bias", 0, (7 if s.peepholes else 4) * units


@touches(abi.GruSequences)
def _gru_sequences(s: abi.GruSequences[Pointer], on: Setting) -> Touched:
    units, rows = on.whole(s.size), packed_rows(s)
    yield "source", 0, rows * 3 * s.size
    yield "weights", 0, 3 * units * s.size
    yield "bias", 0, 3 * units
    yield "out", 0, rows * s.size
    yield "scratch", 0, 4 * s.size * s.sequences


def packed_rows(
    s: abi.LstmSequences[Pointer] | abi.ProjectedSequences[Pointer] | abi.GruSequences[Pointer],
) -> int:
    """The rows that a recurrent layer reads: its table has the starts of the steps, then the row of each packed row."""
    table = table_of(s.table)
    need(s.parts > 0 and s.steps >= 0 and table.size > s.steps, "starts of the steps")
    starts = table[: s.steps + 1]
    alive = starts[1:] - starts[:-1]
    few = (alive >= 0).all() and (alive <= s.sequences).all()
    need(starts[0] == 0 and few, "steps of at most as many sequences")
    rows = table[s.steps + 1 :]
    need(rows.size >= starts[-1], "a row for each packed row")
    least, most = least_and_most(rows[: starts[-1]])
    need(least >= 0, "rows")
    return most + 1 if starts[-1] else 0


# ---------------------------------------------------------------- boxes
@touches(abi.YoloBoxes)
def _yolo_boxes(s: abi.YoloBoxes[Pointer], on: Setting) -> Touched:
    need(min(s.anchor_count, s.columns) > 0, "cells")
    cells = s.images * s.anchor_count * s.rows * s.columns
    yield "source", 0, cells * (5 + s.classes)
    yield "anchors", 0, 2 * s.anchor_count
    yield "out", 0, 4 * cells
    yield "image_sizes", 0, 2 * s.images


@touches(abi.YoloScores)
def _yolo_scores(s: abi.YoloScores[Pointer], on: Setting) -> Touched:
    cells = s.images * s.anchor_count * s.rows * s.columns
    yield "source", 0, cells * (5 + s.classes)
    yield "out", 0, cells * s.classes


@touches(abi.DecodeBoxes)
def _decode_boxes(s: abi.DecodeBoxes[Pointer], on: Setting) -> Touched:
    priors = s.rows if s.along_rows else s.columns
    yield "source", 0, 4 * s.rows * s.columns
    yield "priors", 0, 4 * priors
    yield reach("scale", 4, (priors, s.scale_step))
    yield "out", 0, 4 * s.rows * s.columns


@touches(abi.MultiplyAdds, abi.MultiplyPairs)
def _peak(s: abi.MultiplyAdds[Pointer], on: Setting) -> Touched:
    yield "out", 0, on.tasks * on.width
