"""Memory for long messages, taken again when nothing refers to it: new memory costs as much as receiving into it."""

from __future__ import annotations

from collections import OrderedDict, deque
from typing import Any

import numpy as np

from fluidtool.tensor.references import ONE, references

Array = np.ndarray[Any, Any]
KEPT = 1 << 30  # bytes, in use or not
LOOKED_AT = 4


class _Kept:
    __slots__ = ("array",)

    def __init__(self, array: Array) -> None:
        self.array = array


class Memory:
    """Arrays of bytes. kept: how many are kept, in use or not. Not for several threads at once."""

    def __init__(self, most: int = KEPT) -> None:
        self._most, self.kept = most, 0
        self._kept: OrderedDict[int, deque[_Kept]] = OrderedDict()  # by size, the one taken last at the end

    def take(self, size: int) -> Array:
        """At least `size` bytes that nobody else refers to, with any content."""
        size = _rounded(size)
        kept = self._kept.setdefault(size, deque())
        self._kept.move_to_end(size)
        for _ in range(min(len(kept), LOOKED_AT)):
            kept.rotate(-1)
            if references(kept[-1], "array") == ONE:
                return kept[-1].array
        array = np.empty(size, np.uint8)
        self._keep(array)
        return array

    def _keep(self, array: Array) -> None:
        if array.nbytes > self._most:
            return
        self._kept[array.nbytes].append(_Kept(array))
        self.kept += array.nbytes
        while self.kept > self._most:
            size, oldest = next(iter(self._kept.items()))
            if oldest:
                oldest.popleft()
                self.kept -= size
            if not oldest:
                del self._kept[size]


def _rounded(size: int) -> int:
    """The next of eight steps between powers of two, so that contents of nearly one size share memory."""
    step = 1 << max(size.bit_length() - 4, 12)
    return -(-size // step) * step
