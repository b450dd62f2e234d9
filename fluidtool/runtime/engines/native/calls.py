"""Kernel calls before they have addresses, and where values live."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fluidtool.runtime.engines.native.abi import Arguments, Kind, Pairs, Product
from fluidtool.runtime.graph.ir import NONE, Activation, Node, Shape

ALIGNMENT = 16  # floats: a line of the cache
LARGE_PAGE = 1 << 19  # floats: 2 MiB


@dataclass(eq=False, slots=True)
class Buffer:
    """Memory of `size` floats: of the arena, a constant (`array`), or an array that comes and goes with each run."""

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

    Strides and sizes are counted in numbers: floats, or `halves` of 16 bits. Some channels of a larger image start at
    `start`, and `apart` is then the stride of its images.
    """

    buffer: Buffer
    shape: Shape  # N, C, H, W
    lanes: int
    halo: tuple[int, int, int, int]
    halves: bool = False
    start: int = 0
    apart: int = 0

    @property
    def blocks(self) -> int:
        """Blocks of channels."""
        return -(-self.shape[1] // self.lanes)

    @property
    def row(self) -> int:
        """Stride of a row."""
        return (self.shape[3] + self.halo[1] + self.halo[3]) * self.lanes

    @property
    def rows(self) -> int:
        """Rows of a plane, halo included."""
        return self.shape[2] + self.halo[0] + self.halo[2]

    @property
    def block(self) -> int:
        """Stride of a block of channels."""
        return self.rows * self.row

    @property
    def image(self) -> int:
        """Stride of an image."""
        return self.apart or self.blocks * self.block

    @property
    def origin(self) -> int:
        """Where the first pixel inside the halo is."""
        return self.start + self.halo[0] * self.row + self.halo[1] * self.lanes

    @property
    def size(self) -> int:
        """Numbers in all."""
        return self.shape[0] * self.image

    def channels(self, first: int, shape: Shape) -> Blocked:
        """An image of this shape whose channels are those from `first` on, the first of a block."""
        return replace(self, shape=shape, start=self.start + first // self.lanes * self.block, apart=self.image)


Pointer = tuple[Buffer, int]  # where in a buffer, in floats


@dataclass(slots=True)
class KernelCall:
    """A kernel and its arguments; `node` asked for it, and lies `blocked`, or with strides."""

    arguments: Arguments[Pointer]
    tasks: int = 1
    activation: Activation = NONE
    node: Node | None = None
    blocked: bool = False

    @property
    def kind(self) -> Kind:
        """Which kernel."""
        return self.arguments.kind

    def buffers(self) -> list[Buffer]:
        """The memory that the kernel touches."""
        return [pointer[0] for pointer in self.arguments.pointers() if pointer is not None]


def is_narrow(kernel_call: KernelCall) -> bool:
    """Whether a call reads weights of 16 bits."""
    arguments = kernel_call.arguments
    return isinstance(arguments, Pairs) or (isinstance(arguments, Product) and bool(arguments.bfloat16))


def row_major(shape: Shape) -> Shape:
    """Strides of a contiguous array."""
    return tuple(prod(shape[axis + 1 :]) for axis in range(len(shape)))


def constant(array: Any) -> Buffer:
    """A constant of float32, aligned."""
    numbers = aligned_floats(int(np.size(array)))
    numbers[:] = np.asarray(array, np.float32).reshape(-1)
    return Buffer(numbers.size, "constant", numbers)


def aligned_floats(size: int, alignment: int = ALIGNMENT) -> NDArray[np.float32]:
    """Floats that start at a line of the cache, or at another multiple of floats, which is theirs up to its end."""
    memory = np.empty(-(-size // alignment) * alignment + alignment, np.float32)
    start = (-memory.ctypes.data // 4) % alignment
    return memory[start : start + size]
