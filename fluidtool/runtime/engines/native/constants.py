"""Constants as the kernels read them: packed once, shared by all specializations of a region."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Protocol
from weakref import WeakValueDictionary, ref

import numpy as np
from numpy.typing import NDArray

from fluidtool.records import dataclass
from fluidtool.runtime.engines.native.calls import KernelCall
from fluidtool.runtime.engines.native.layouts import Buffer
from fluidtool.tensor.files import file_of, private

if TYPE_CHECKING:
    from fluidtool.runtime.engines.native.cache import WeightCache
    from fluidtool.runtime.engines.native.library import Library

SHORT = 1 << 16  # bytes of an array that is compared directly
LEAST = 1 << 20  # bytes of a constant that is looked for in the user's cache; smaller ones are packed sooner than found


@dataclass(frozen=True, slots=True)
class Packing:
    """A call that packs a constant, or a part of it: all its arguments except the output, and its number of tasks."""

    call: partial[Any]
    tasks: int
    at: int = 0  # the float of the constant where it starts to write

    @property
    def arrays(self) -> dict[str, NDArray[Any]]:
        """Its inputs."""
        return {name: value for name, value in self.call.keywords.items() if isinstance(value, np.ndarray)}

    def recipe(self, mark: Callable[[NDArray[Any]], Any]) -> tuple[Any, ...]:
        """A key that identifies it; `mark` identifies arrays."""
        given = self.call.keywords.items()
        marked = ((name, mark(value) if isinstance(value, np.ndarray) else value) for name, value in given)
        return (self.call.func, self.at, *marked)

    def kernel_call(self, constant: NDArray[np.float32]) -> KernelCall:
        """The call that writes its part of the constant."""
        arrays = {**self.arrays, "out": constant[self.at :]}
        pointers = {name: (Buffer(array.size, "constant", array), 0) for name, array in arrays.items()}
        return KernelCall(self.call(**pointers), tasks=self.tasks)


class Packed(Protocol):
    """Lookup of packed constants by the steps that pack them."""

    def get(
        self, size: int, packings: Sequence[Packing], make: Callable[[], NDArray[np.float32]]
    ) -> NDArray[np.float32]:
        """This many floats, packed by these steps; `make` packs them."""

    def private(self, array: NDArray[Any]) -> NDArray[Any]:
        """An array that is used unpacked, in memory that is not mapped from a file."""


class PackedConstants:
    """Constants packed from some parameters, while a specialization uses them. Parameters are assumed not to change."""

    def __init__(self, parameters: Sequence[NDArray[Any]] = (), library: Library | None = None) -> None:
        self.parameters = tuple(parameters)
        self._library = library  # None: constants are not kept on the disk
        self._found: WeakValueDictionary[Any, NDArray[Any]] = WeakValueDictionary()
        ranges = ((_address(array), array.nbytes, number) for number, array in enumerate(self.parameters))
        self._ranges = sorted(found for found in ranges if found[1])
        self._starts = [start for start, *_ in self._ranges]
        self._digests: dict[Any, tuple[ref[Any], bytes]] = {}

    def get(
        self, size: int, packings: Sequence[Packing], make: Callable[[], NDArray[np.float32]]
    ) -> NDArray[np.float32]:
        """The floats that these steps have already packed; else they are packed now."""
        recipe = (size, tuple(packing.recipe(self.mark) for packing in packings))
        found = self._found.get(recipe)
        if found is None:
            found = self._found[recipe] = make() if 4 * size < LEAST else self._kept(size, repr(recipe), make)
        return found

    def _kept(self, size: int, recipe: str, make: Callable[[], NDArray[np.float32]]) -> NDArray[np.float32]:
        """A large constant, which the user's cache may have."""
        if self._cache is None or not self._origin:
            return make()
        return self._cache.get(self._origin + recipe, size, make)

    def file_name(self, constant: NDArray[Any]) -> str:
        """The name of the file in the user's cache that has a constant; '' if none has it."""
        return "" if self._cache is None else self._cache.name_of(constant)

    @cached_property
    def _cache(self) -> WeightCache | None:
        from fluidtool.runtime.engines.native.cache import weight_cache  # small networks never need it

        return None if self._library is None else weight_cache()

    @cached_property
    def _origin(self) -> str:
        from fluidtool.runtime.engines.native.cache import origin

        return "" if self._library is None else origin(self.parameters, self._library)

    def private(self, array: NDArray[Any]) -> NDArray[Any]:
        """An array of a parameter that is used unpacked, copied once for all specializations; others are unchanged."""
        if file_of(array) is None:
            return array
        recipe = self.mark(array)
        found = self._found.get(recipe)
        if found is None:
            found = self._found[recipe] = private(array)
        return found

    def mark(self, array: NDArray[Any]) -> Any:
        """A key for the elements of an array: their place in a parameter, else the elements or a digest."""
        place = bisect_right(self._starts, _address(array)) - 1
        if place >= 0:
            start, size, number = self._ranges[place]
            if _address(array) < start + size:
                return number, _address(array) - start, array.shape, array.strides, array.dtype.char
        return array.tobytes() if array.nbytes <= SHORT else self._digest(array), array.shape, array.dtype.char

    def _digest(self, array: NDArray[Any]) -> bytes:
        """A digest of the elements; those of rounded weights, which are used for all specializations, are kept."""
        if array.dtype != np.int8:
            return _digest(array)
        owner, key = array if array.base is None else array.base, (_address(array), array.shape, array.strides)
        known = self._digests.get(key)
        if known is not None and known[0]() is owner:
            return known[1]
        found = _digest(array)
        self._digests[key] = ref(owner, lambda _: self._digests.pop(key, None)), found
        return found


class ForeseenConstants:
    """Replaces packed constants if only their sizes matter: nothing is packed, and no parameter is read."""

    def get(
        self, size: int, packings: Sequence[Packing], make: Callable[[], NDArray[np.float32]]
    ) -> NDArray[np.float32]:
        """This many floats, which take no memory, as they are never written."""
        return np.zeros(size, np.float32)

    def private(self, array: NDArray[Any]) -> NDArray[Any]:
        """The array itself: nothing runs with it."""
        return array


def _digest(array: NDArray[Any]) -> bytes:
    from hashlib import blake2b  # loads all of OpenSSL, which few models need

    return blake2b(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data).digest()


def _address(array: NDArray[Any]) -> int:
    address: int = array.__array_interface__["data"][0]
    return address
