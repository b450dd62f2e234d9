"""Convolutions of one group and their gradients, channels last; compiled once for a geometry."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import field
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fluidtool.records import dataclass
from fluidtool.runtime.engines.native.abi import FIRST
from fluidtool.runtime.engines.native.allocator import lay_out
from fluidtool.runtime.engines.native.binding import bind
from fluidtool.runtime.engines.native.calls import KernelCall
from fluidtool.runtime.engines.native.kernels.direct import Array, address, in_rows
from fluidtool.runtime.engines.native.kernels.last import empty_last, memory_of
from fluidtool.runtime.engines.native.layouts import Buffer
from fluidtool.runtime.engines.native.library import Library
from fluidtool.runtime.engines.native.lowering.last import (
    Geometry,
    add_filter_gradients,
    add_forward,
    add_input_gradient,
)
from fluidtool.runtime.engines.native.lowering.values import Lowering

MOST_KEPT = 512  # compiled geometries
Adds = Callable[[Library, Geometry], tuple[Lowering, list[Buffer], Buffer]]


@dataclass(frozen=True, slots=True)
class Places:
    """Words of kernel calls that hold addresses in a buffer: rows, words, and offsets in bytes."""

    rows: NDArray[np.int64]
    words: NDArray[np.int64]
    offsets: NDArray[np.int64]

    @classmethod
    def found(cls, calls: Sequence[KernelCall], offset: Callable[[Buffer], int | None]) -> Places:
        """Those of the buffers that have an offset, in floats."""
        found = [
            (row, word, 4 * (start + pointer[1]))
            for row, call in enumerate(calls)
            for word, pointer in enumerate(call.arguments.pointers(), FIRST)
            if pointer is not None and (start := offset(pointer[0])) is not None
        ]
        rows, words, offsets = np.array(found, np.int64).reshape(-1, 3).T.copy()
        return cls(rows, words, offsets)

    def fill(self, calls: NDArray[np.int64], start: int) -> None:
        """Write the addresses for a buffer that begins there."""
        calls[self.rows, self.words] = self.offsets + start


@dataclass(frozen=True, slots=True)
class Compiled:
    """Kernel calls without the addresses of the arrays that they are given and of the arena."""

    calls: NDArray[np.int64]
    arrays: tuple[Places, ...]
    arena: Places
    size: int
    keep: list[Any] = field(default_factory=list)

    def run(self, library: Library, *arrays: Array) -> None:
        """Run on contiguous arrays: the inputs, then the result."""
        calls = self.calls.copy()
        for places, array in zip(self.arrays, arrays, strict=True):
            places.fill(calls, address(array))
        arena = library.memory.of(self.size)
        self.arena.fill(calls, address(arena))
        library.run(calls)


@lru_cache(maxsize=MOST_KEPT)
def compiled(library: Library, threads: int, add: Adds, geometry: Geometry) -> Compiled:
    """The kernel calls of a geometry for so many threads."""
    low, inputs, out = add(library, geometry)
    calls = low.calls.made
    offsets, size = lay_out(calls)
    keep = [buffer.array for call in calls for buffer in call.buffers() if buffer.role == "constant"]
    table = bind(calls, lambda buffer: int(buffer.array.ctypes.data) if buffer.role == "constant" else 0, library.width)
    arrays = tuple(Places.found(calls, {each: 0}.get) for each in (*inputs, out))
    return Compiled(table, arrays, Places.found(calls, offsets.get), size, keep)


def convolve(library: Library, geometry: Geometry, x: Array, filters: Array) -> Array:
    """[N, C, H, W] convolved with [O, C, kh, kw], channels last."""
    out = empty_last(geometry.out)
    _run(library, add_forward, geometry, memory_of(x), in_rows(filters), memory_of(out))
    return out


def input_gradient(library: Library, geometry: Geometry, grad: Array, filters: Array) -> Array:
    """The gradient by the image, channels last."""
    out = empty_last(geometry.source)
    _run(library, add_input_gradient, geometry, memory_of(grad), in_rows(filters), memory_of(out))
    return out


def filter_gradient(library: Library, geometry: Geometry, x: Array, grad: Array) -> Array:
    """The gradient by the filters."""
    out = np.empty(geometry.filters, np.float32)
    _run(library, add_filter_gradients, geometry, memory_of(x), memory_of(grad), out)
    return out


def _run(library: Library, add: Adds, geometry: Geometry, *arrays: Array) -> None:
    compiled(library, library.threads, add, geometry).run(library, *arrays)
