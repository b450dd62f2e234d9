"""Fetched values as numpy arrays that convert to Python numbers as arrays with one element did before numpy 2.4."""

from __future__ import annotations

from typing import Any, SupportsIndex

import numpy as np


class FetchedArray(np.ndarray[Any, Any]):
    """An array; with one element, whatever its shape, it works as a number for `float`, `int`, `complex`, `range`, formats.

    Results and slices of it are such arrays, too. Printed, copied and pickled it is a plain array.
    """

    __array_priority__ = 1.0  # combined with plain arrays, the result is of this type

    def __float__(self) -> float:
        return float(self.item()) if self.size == 1 else super().__float__()

    def __int__(self) -> int:
        return int(self.item()) if self.size == 1 else super().__int__()

    def __complex__(self) -> complex:
        return complex(self.item()) if self.size == 1 else super().__complex__()

    def __index__(self) -> int:
        return self.item().__index__() if self.size == 1 and self.dtype.kind in "iu" else super().__index__()

    def __format__(self, spec: str, /) -> str:
        return format(self.item(), spec) if spec and self.size == 1 else super().__format__(spec)

    def __repr__(self) -> str:
        return repr(self.view(np.ndarray))

    def __reduce_ex__(self, protocol: SupportsIndex, /) -> Any:
        return self.view(np.ndarray).__reduce_ex__(protocol)

    def __array_wrap__(self, array: Any, context: Any = None, return_scalar: bool = False, /) -> Any:
        """The result of a computation: without dimensions a scalar, as for plain arrays."""
        return array[()] if array.ndim == 0 else array.view(FetchedArray)

    def squeeze(self, axis: Any = None) -> FetchedArray:
        """Without dimensions of size 1; without any dimension still an array, as for plain arrays."""
        return self.view(np.ndarray).squeeze(axis).view(FetchedArray)


def fetched_array(array: np.ndarray[Any, Any]) -> FetchedArray:
    """The same elements, not copied."""
    return array.view(FetchedArray)
