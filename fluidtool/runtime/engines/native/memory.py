"""Memory for kernels: aligned, and what a thread keeps between calls."""

from __future__ import annotations

import threading

import numpy as np
from numpy.typing import NDArray

ALIGNMENT = 16  # floats: a cache line
LARGE_PAGE = 1 << 19  # floats: 2 MiB


def aligned_floats(size: int, alignment: int = ALIGNMENT) -> NDArray[np.float32]:
    """Floats aligned to a cache line, or to another multiple of floats; they own the memory up to its end."""
    memory = np.empty(-(-size // alignment) * alignment + alignment, np.float32)
    start = (-memory.ctypes.data // 4) % alignment
    return memory[start : start + size]


class ThreadMemory(threading.local):
    """Memory for what lies between the kernel calls of an operator: one for all that a thread runs, as large as any needed."""

    def __init__(self) -> None:
        self.floats = aligned_floats(0)

    def of(self, size: int) -> NDArray[np.float32]:
        """This many floats, with any values."""
        if self.floats.size < size:
            self.floats = aligned_floats(size)
        return self.floats
