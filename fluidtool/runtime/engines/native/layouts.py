"""The memory layout of values: row-major or strided, or in blocks of channels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod
from typing import Any

import numpy as np

from fluidtool.records import dataclass
from fluidtool.runtime.engines.native.memory import aligned_floats
from fluidtool.runtime.graph.ir import Shape

Halo = tuple[int, int, int, int]  # zeros at the top, left, bottom and right
NO_HALO: Halo = (0, 0, 0, 0)


@dataclass(eq=False, slots=True)
class Buffer:
    """Memory of `size` floats: in the arena, a constant (`array`), or an array that changes with each run."""

    size: int
    role: str = "arena"  # or "constant", "input", "output"
    array: Any = None


@dataclass(frozen=True, slots=True)
class Plain:
    """Row-major or strided: strides in floats."""

    buffer: Buffer
    offset: int
    strides: Shape


@dataclass(frozen=True, slots=True)
class Blocked:
    """Channels in blocks of `lanes`, innermost; rows and columns with a halo (top, left, bottom, right) of zeros.

    Strides and sizes are in elements: floats, or 16-bit `halves`. Channels of a larger image start at
    `start`, and `apart` is then the stride of its images. Rows may be some of those `within` a taller image. With
    `by_block` the planes of all images follow each other for each block, so that a row of pixels may go on in the next image.
    """

    buffer: Buffer
    shape: Shape  # N, C, H, W
    lanes: int
    halo: Halo
    halves: bool = False
    start: int = 0
    apart: int = 0
    within: int = 0
    by_block: bool = False

    @property
    def blocks(self) -> int:
        """Blocks of channels."""
        return -(-self.shape[1] // self.lanes)

    @property
    def pixel(self) -> int:
        """The stride of a pixel."""
        return self.lanes

    @property
    def row(self) -> int:
        """The stride of a row."""
        return (self.shape[3] + self.halo[1] + self.halo[3]) * self.lanes

    @property
    def rows(self) -> int:
        """Rows of a plane, halo included."""
        return (self.within or self.shape[2]) + self.halo[0] + self.halo[2]

    @property
    def block(self) -> int:
        """Stride of a block of channels."""
        return self.plane * (self.shape[0] if self.by_block else 1)

    @property
    def plane(self) -> int:
        """The elements of a block of an image."""
        return self.rows * self.row

    @property
    def image(self) -> int:
        """Stride of an image."""
        return self.apart or self.plane * (1 if self.by_block else self.blocks)

    @property
    def origin(self) -> int:
        """The offset of the first pixel inside the halo."""
        return self.start + self.halo[0] * self.row + self.halo[1] * self.lanes

    @property
    def size(self) -> int:
        """The total number of elements."""
        return self.shape[0] * (self.blocks * self.plane if self.by_block else self.image)

    def band(self, first: int, count: int) -> Blocked:
        """So many of its rows."""
        shape = (*self.shape[:2], count, self.shape[3])
        start, within = self.start + first * self.row, self.within or self.shape[2]
        return replace(self, shape=shape, start=start, apart=self.image, within=within)

    def channels(self, first: int, shape: Shape) -> Blocked:
        """The part of an image that starts with channel `first`, the first of a block."""
        return replace(self, shape=shape, start=self.start + first // self.lanes * self.block, apart=self.image)


@dataclass(frozen=True, slots=True)
class Last:
    """All channels of a pixel side by side, in rows and columns with a halo of zeros; read as blocks of `lanes` of them."""

    buffer: Buffer
    shape: Shape  # N, C, H, W
    lanes: int
    halo: Halo = NO_HALO

    @property
    def blocks(self) -> int:
        """Blocks of channels."""
        return -(-self.shape[1] // self.lanes)

    @property
    def block(self) -> int:
        """Stride of a block of channels."""
        return self.lanes

    @property
    def pixel(self) -> int:
        """The stride of a pixel."""
        return self.shape[1]

    @property
    def row(self) -> int:
        """The stride of a row."""
        return (self.shape[3] + self.halo[1] + self.halo[3]) * self.pixel

    @property
    def rows(self) -> int:
        """Rows of an image, halo included."""
        return self.shape[2] + self.halo[0] + self.halo[2]

    @property
    def image(self) -> int:
        """Stride of an image."""
        return self.rows * self.row

    @property
    def origin(self) -> int:
        """The offset of the first pixel inside the halo."""
        return self.halo[0] * self.row + self.halo[1] * self.pixel

    @property
    def size(self) -> int:
        """The total number of elements."""
        return self.shape[0] * self.image


BEYOND = 64  # bytes behind an image of bytes that kernels may read, whatever they are


@dataclass(frozen=True, slots=True)
class Bytes:
    """Whole numbers + 128 as bytes: all channels of a pixel side by side, in rows and columns with a halo of zeros (128)."""

    buffer: Buffer
    shape: Shape  # N, C, H, W
    halo: Halo = NO_HALO

    @property
    def pixel(self) -> int:
        """The stride of a pixel: a multiple of four bytes, which are multiplied at once."""
        return -(-self.shape[1] // 4) * 4

    @property
    def row(self) -> int:
        """The stride of a row."""
        return (self.shape[3] + self.halo[1] + self.halo[3]) * self.pixel

    @property
    def rows(self) -> int:
        """Rows of an image, halo included."""
        return self.shape[2] + self.halo[0] + self.halo[2]

    @property
    def image(self) -> int:
        """Stride of an image."""
        return self.rows * self.row

    @property
    def origin(self) -> int:
        """The offset of the first pixel inside the halo."""
        return self.halo[0] * self.row + self.halo[1] * self.pixel

    @property
    def size(self) -> int:
        """The total number of bytes."""
        return self.shape[0] * self.image

    @property
    def floats(self) -> int:
        """Its size in memory, in floats."""
        return -(-(self.size + BEYOND) // 4)


Image = Blocked | Last
Pointer = tuple[Buffer, int]  # where in a buffer, in floats


def row_major(shape: Shape) -> Shape:
    """Strides of a contiguous array."""
    return tuple(prod(shape[axis + 1 :]) for axis in range(len(shape)))


def constant(array: Any) -> Buffer:
    """A float32 constant, aligned."""
    numbers = aligned_floats(int(np.size(array)))
    numbers[:] = np.asarray(array, np.float32).reshape(-1)
    return Buffer(numbers.size, "constant", numbers)


def joined(a: Halo, b: Halo) -> Halo:
    """The halo that covers both."""
    return max(a[0], b[0]), max(a[1], b[1]), max(a[2], b[2]), max(a[3], b[3])


def is_contiguous(strides: Shape, shape: Shape) -> bool:
    """Whether an array of these strides is row-major (axes of size 1 may have any stride)."""
    return all(size == 1 or a == b for size, a, b in zip(shape, strides, row_major(shape), strict=True))


def merged(shape: Sequence[int], strides: Sequence[Sequence[int]]) -> tuple[list[int], list[list[int]]]:
    """The fewest equivalent axes: adjacent ones that every array traverses as one are merged."""
    sizes: list[int] = []
    kept: list[list[int]] = [[] for _ in strides]
    for axis, size in enumerate(shape):
        if size == 1:
            continue
        here = [stride[axis] for stride in strides]
        if sizes and all(k[-1] == stride * size for k, stride in zip(kept, here, strict=True)):
            sizes[-1] *= size
            for k, stride in zip(kept, here, strict=True):
                k[-1] = stride
        else:
            sizes.append(size)
            for k, stride in zip(kept, here, strict=True):
                k.append(stride)
    return (sizes, kept) if sizes else ([1], [[1] for _ in strides])


def view_strides(shape: Shape, strides: Shape, new: Shape) -> Shape | None:
    """The strides of the same elements in another shape; None if they would have to be moved."""
    sizes, (steps,) = merged(shape, [strides])
    axis, found = len(sizes) - 1, []
    left, step = sizes[axis], steps[axis]
    for size in reversed(new):
        if size > 1 and left == 1 and axis > 0:
            axis -= 1
            left, step = sizes[axis], steps[axis]
        if left % size:
            return None
        found.append(step)
        left, step = left // size, step * size
    return tuple(reversed(found))


def broadcast_strides(strides: Shape, shape: Shape, aligned: Shape) -> Shape:
    """Strides for the shape padded with ones: 0 in repeated axes."""
    found = []
    left = list(zip(shape, strides, strict=True))
    for size in aligned:
        while left and left[0][0] == 1 != size:
            left.pop(0)
        if size == 1:
            found.append(0)
            if left and left[0][0] == 1:
                left.pop(0)
        else:
            found.append(left.pop(0)[1])
    return tuple(found)
