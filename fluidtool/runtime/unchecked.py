"""Results of a run whose ids a GPU looks up without anybody waiting: whether they were in range is found out with the results."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from fluidtool.errors import FluidError, OperatorError
from fluidtool.tensor import CUDAPlace, LoDTensor
from fluidtool.tensor.data_types import var_type_of
from fluidtool.tensor.lod import LoD

if TYPE_CHECKING:
    from fluidtool.runtime.engines.base import MarkingRegion
    from fluidtool.runtime.graph.importers.registry import Lod


class Mark:
    """What a run leaves behind its first result: 1 if an id was out of range, else 0.

    whole: the first result and the mark, on the GPU. repeat: runs the same feed one operator at a time, which raises the error.
    """

    __slots__ = ("_is_clear", "_repeat", "whole")

    def __init__(self, whole: Any, repeat: Callable[[], object]) -> None:
        self.whole, self._repeat = whole, repeat
        self._is_clear = False

    def settle(self) -> None:
        """Wait for the run; raises OperatorError if an id was out of range."""
        if not self._is_clear:
            self.look(self.whole[-1:].get())

    def look(self, copy: Any) -> None:
        """Look at a copy, on the host, that ends with the mark; raises OperatorError if an id was out of range."""
        if copy[-1] != 0:
            self._repeat()
            raise OperatorError(
                "an id was out of range for its table, but its array has changed since: feed another array for the next run, or "
                "read the results before"
            )
        self._is_clear, self._repeat = True, _nothing

    def host(self, array: Any) -> Any:
        """A result on the host, after a look at the mark, which comes with a copy of the first result."""
        if self._is_clear or array.data.ptr != self.whole.data.ptr:
            self.settle()
            return array.get()
        copy = self.whole.get()
        self.look(copy)
        return copy[:-1].reshape(array.shape)


def _nothing() -> None:
    """What is left to repeat of a run whose ids were in range."""


class UncheckedTensor(LoDTensor):
    """A result of a run on a GPU. Its values are those of a LoDTensor once they are asked for; then an OperatorError is raised
    if an id that the run looked up was out of range.
    """

    __slots__ = ("_mark",)

    def __init__(self, array: Any, offsets: LoD, mark: Mark) -> None:
        super().__init__(array, offsets)
        self._mark: Mark | None = mark

    @property
    def array(self) -> Any:
        """The array on the GPU; raises OperatorError for an id out of range."""
        if self._mark is not None:
            self._mark.settle()
        return ARRAY.__get__(self)

    @array.setter
    def array(self, array: Any) -> None:
        ARRAY.__set__(self, array)
        self._mark = None  # another array, of which the run says nothing

    def numpy(self) -> np.ndarray[Any, Any]:
        """The value on the host; raises OperatorError for an id out of range."""
        found: np.ndarray[Any, Any] = super().numpy() if self._mark is None else self._mark.host(ARRAY.__get__(self))
        return found

    def shape(self) -> list[int]:
        """The dimensions, for which nobody waits."""
        found = ARRAY.__get__(self)
        return super().shape() if found is None else [int(size) for size in found.shape]

    def dtype(self) -> Any:
        """The data type, for which nobody waits."""
        found = ARRAY.__get__(self)
        return super().dtype() if found is None else var_type_of(found.dtype)

    def is_initialized(self) -> bool:
        """Whether there is memory to read."""
        return ARRAY.__get__(self) is not None

    def place(self) -> Any:
        """Where the memory is."""
        found = ARRAY.__get__(self)
        return CUDAPlace(int(found.device.id)) if hasattr(found, "device") else super().place()


ARRAY: Any = vars(LoDTensor)["array"]  # where every LoDTensor has its array


def computed_ahead(
    compiled: MarkingRegion,
    inputs: Sequence[str],
    arrays: Sequence[Any],
    lods: Sequence[Lod],
    fetches: Sequence[str],
    repeat: Callable[[Mapping[str, Any]], object],
) -> list[Any] | None:
    """The fetched values, which are all outputs of a region, without waiting for the ids among these arrays.

    None if they cannot be computed of these arrays.
    """
    try:
        results, whole = compiled.ahead(dict(zip(inputs, arrays, strict=True)))
    except (FluidError, MemoryError):  # caused by the values; any other exception is a bug
        return None
    kept = compiled.lods
    if whole is None:
        return [LoDTensor(results[name], [list(level) for level in kept[name]]) for name in fetches]

    def again() -> None:
        values = zip(inputs, arrays, lods, strict=True)
        repeat({name: LoDTensor(array, [list(level) for level in lod]) for name, array, lod in values})

    mark = Mark(whole, again)
    return [UncheckedTensor(results[name], [list(level) for level in kept[name]], mark) for name in fetches]
