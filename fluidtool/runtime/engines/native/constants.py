"""Constants as the kernels read them: packed once, shared by all specializations of a region."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from operator import is_
from typing import Any, Protocol
from weakref import WeakValueDictionary

import numpy as np
from numpy.typing import NDArray

from fluidtool.runtime.engines.native.calls import KernelCall
from fluidtool.runtime.engines.native.layouts import Buffer
from fluidtool.tensor.files import file_of, private

SHORT = 1 << 16  # bytes of an array that is compared as it is


@dataclass(frozen=True, slots=True)
class Packing:
    """A call that packs a constant, or a part of it: all its arguments but where it writes, and its number of tasks."""

    call: partial[Any]
    tasks: int
    at: int = 0  # the float of the constant where it starts to write

    @property
    def arrays(self) -> dict[str, NDArray[Any]]:
        """What it reads."""
        return {name: value for name, value in self.call.keywords.items() if isinstance(value, np.ndarray)}

    def recipe(self, mark: Callable[[NDArray[Any]], Any]) -> tuple[Any, ...]:
        """What tells it from others; `mark` tells arrays from others."""
        given = self.call.keywords.items()
        marked = ((name, mark(value) if isinstance(value, np.ndarray) else value) for name, value in given)
        return (self.call.func, self.at, *marked)

    def kernel_call(self, constant: NDArray[np.float32]) -> KernelCall:
        """The call that writes its part of the constant."""
        arrays = {**self.arrays, "out": constant[self.at :]}
        pointers = {name: (Buffer(array.size, "constant", array), 0) for name, array in arrays.items()}
        return KernelCall(self.call(**pointers), tasks=self.tasks)


class Packed(Protocol):
    """Where constants that some steps pack are looked for."""

    def get(
        self, size: int, packings: Sequence[Packing], make: Callable[[], NDArray[np.float32]]
    ) -> NDArray[np.float32]:
        """So many floats, packed by these steps; `make` packs them."""

    def private(self, array: NDArray[Any]) -> NDArray[Any]:
        """An array that is used as it is, in memory that no file backs."""


class PackedConstants:
    """What was packed from some parameters, for as long as a specialization uses it. Parameters count as unchanging."""

    def __init__(self, parameters: Sequence[NDArray[Any]] = ()) -> None:
        self.parameters = tuple(parameters)
        self._found: WeakValueDictionary[Any, NDArray[Any]] = WeakValueDictionary()
        ranges = ((_address(array), array.nbytes, number) for number, array in enumerate(self.parameters))
        self._ranges = sorted(found for found in ranges if found[1])
        self._starts = [start for start, *_ in self._ranges]

    def are_from(self, parameters: Sequence[NDArray[Any]]) -> bool:
        """Whether these are the very arrays that are packed here."""
        mine = self.parameters
        same = mine is parameters or (len(mine) == len(parameters) and all(map(is_, mine, parameters)))
        if same:
            self.parameters = tuple(parameters)  # the next look finds the same tuple
        return same

    def get(
        self, size: int, packings: Sequence[Packing], make: Callable[[], NDArray[np.float32]]
    ) -> NDArray[np.float32]:
        """The floats that these steps have packed before; else they are made now."""
        recipe = (size, tuple(packing.recipe(self.mark) for packing in packings))
        found = self._found.get(recipe)
        if found is None:
            found = self._found[recipe] = make()
        return found

    def private(self, array: NDArray[Any]) -> NDArray[Any]:
        """An array of a parameter that is used as it is, in memory of its own and the same for all specializations; others stay."""
        if file_of(array) is None:
            return array
        recipe = self.mark(array)
        found = self._found.get(recipe)
        if found is None:
            found = self._found[recipe] = private(array)
        return found

    def mark(self, array: NDArray[Any]) -> Any:
        """What tells the numbers of an array from others: where in which parameter they lie, else they or a digest."""
        place = bisect_right(self._starts, _address(array)) - 1
        if place >= 0:
            start, size, number = self._ranges[place]
            if _address(array) < start + size:
                return number, _address(array) - start, array.shape, array.strides, array.dtype.char
        return array.tobytes() if array.nbytes <= SHORT else _digest(array), array.shape, array.dtype.char


class ForeseenConstants:
    """In place of packed constants where only their sizes count: nothing is packed, and no parameter is read."""

    def get(
        self, size: int, packings: Sequence[Packing], make: Callable[[], NDArray[np.float32]]
    ) -> NDArray[np.float32]:
        """So many floats, which take memory when somebody writes them: nobody does."""
        return np.zeros(size, np.float32)

    def private(self, array: NDArray[Any]) -> NDArray[Any]:
        """The array itself: nothing is run with it."""
        return array


def _digest(array: NDArray[Any]) -> bytes:
    from hashlib import blake2b  # with all of OpenSSL, which few models need

    return blake2b(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data).digest()


def _address(array: NDArray[Any]) -> int:
    address: int = array.__array_interface__["data"][0]
    return address
