"""The numpy engine: every operator, everywhere."""

from __future__ import annotations

import ctypes
import sys
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np

from fluidtool.runtime.engines.numpy import special

LARGEST_KEPT = (1 << 25) - (1 << 16)  # the most that glibc learns to keep is 32 MiB, its own header included
TRIM_THRESHOLD, MOST_KEPT = -1, (1 << 31) - 1  # M_TRIM_THRESHOLD of malloc.h, and its largest value


class NumpyDevice:
    """numpy on the host."""

    name = "numpy"
    xp: Any = np

    def host(self, array: Any) -> Any:
        """The array itself."""
        return array

    def array(self, values: Any) -> Any:
        """An array of the values; an array is returned unchanged, one of a GPU is copied to the host."""
        return np.asarray(values.get() if type(values).__module__.startswith("cupy") else values)

    def holds(self, array: Any) -> bool:
        """Whether an array is on the host."""
        return isinstance(array, np.ndarray)

    def active(self) -> AbstractContextManager[None]:
        """There is nothing to select."""
        return nullcontext()

    def flags(self, count: int) -> None:
        """None: checks are made at once."""

    def mark_outside(self, ids: Any, low: int, high: int, ignored: int | None, flag: Any) -> None:
        """Never called, since there are no flags."""
        raise NotImplementedError

    def read_flags(self, flags: Any) -> tuple[int, int] | None:
        """No flag is ever set."""

    def random(self, generator: np.random.Generator, shape: tuple[int, ...], dtype: Any) -> Any:
        """The next numbers of the generator, evenly from [0, 1)."""
        return generator.random(shape, dtype)

    def add_at(self, total: Any, key: Any, values: Any) -> None:
        """total[key] += values, in order."""
        np.add.at(total, key, values)

    def sums_at(self, places: Any, values: Any, size: int) -> Any:
        """The sums of the values at each of the places."""
        return np.bincount(places, values, size)

    def replace_rows(self, total: Any, rows: Any, values: Any) -> None:
        """total[rows] = values; the last of repeated rows wins."""
        total[rows] = values

    def wait(self) -> None:
        """Everything is complete when its call returns."""

    def memory(self) -> str:
        """Nothing is said of the host's memory, which other processes use, too."""
        return ""

    def failure(self, error: RuntimeError) -> None:
        """No error is one of the host's."""

    def special(self) -> Any:
        """The special functions of this engine."""
        return special


def keep_freed_memory() -> None:
    """Let the C library keep freed memory of arrays, for the arrays of the next step.

    glibc requests every large array from the system, page by page, until an array of that size has been freed. So
    free one, which is never touched. It also returns what is free at the end of its memory, so raise the size from which
    it does: the values of a step may be gigabytes, and come again in the next one. Elsewhere this has no effect.
    """
    np.empty(LARGEST_KEPT, np.uint8)
    if sys.platform == "linux" and (change := getattr(ctypes.CDLL(None), "mallopt", None)) is not None:
        change(TRIM_THRESHOLD, MOST_KEPT)


NUMPY = NumpyDevice()
