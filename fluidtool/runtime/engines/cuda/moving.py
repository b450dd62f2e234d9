"""Arrays on their way into a region and out of it: small ones are copied together, by one kernel."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from operator import itemgetter
from typing import Any
from weakref import ref

import numpy as np

from fluidtool.ops.context import Device

MOST = 1 << 16  # elements of an array that is copied with others: a copy of its own takes longer to begin than to make
AT_ONCE = 64  # arrays, whose pointers and sizes are arguments of the kernel
THREADS = 256
TYPES = {
    np.dtype(np.float32): "float", np.dtype(np.int64): "whole", np.dtype(np.int32): "int", np.dtype(np.bool_): "bool",
    np.dtype(np.uint8): "byte",
}  # fmt: skip
TOGETHER = frozenset(
    {("float", "float"), ("whole", "whole"), ("int", "whole"), ("whole", "int")}
    | {pair for other in ("bool", "byte") for pair in (("float", other), (other, "float"))}
)
"""Where to and from where: in regions booleans, and bytes of masks, are 1 and 0, and whole numbers of 32 bits have 64."""
Pair = tuple[Any, Any]  # where to, and from where
Types = tuple[str, str]  # of these


class Mover:
    """Copies arrays on one GPU. Its kernels, by the types of the arrays, are kept for the life of the engine."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self._kernels: dict[tuple[Types, ...], Any] = {}

    def copy(self, pairs: Sequence[Pair]) -> None:
        """Copy each array to another one of its shape; those on the host, and large ones, one by one."""
        if len(pairs) == 1:  # as for most networks, in a run that should take the host little time
            put(*pairs[0])
            return
        types = [_types_together(into, array) for into, array in pairs]
        if len(types) - types.count(None) < 2:
            types = [None] * len(pairs)
        together = []
        for pair, found in zip(pairs, types, strict=True):
            if found is None:
                put(*pair)
            else:
                together.append((found, pair))
        together.sort(key=itemgetter(0))
        for start in range(0, len(together), AT_ONCE):
            self._launch(together[start : start + AT_ONCE])

    def copies(self, arrays: Collection[Any], types: Sequence[Any]) -> list[Any]:
        """New arrays of these types with the same numbers."""
        found = [self._device.xp.empty(array.shape, type) for array, type in zip(arrays, types, strict=True)]
        self.copy(list(zip(found, arrays, strict=True)))
        return found

    def _launch(self, together: Sequence[tuple[Types, Pair]]) -> None:
        types, pairs = zip(*together, strict=True)
        if types not in self._kernels:
            self._kernels[types] = self._device.xp.RawModule(code=source(types)).get_function("copy_arrays")
        arguments = [each for into, array in pairs for each in (into, array, np.int32(array.size))]
        blocks = -(-sum(array.size for _, array in pairs) // THREADS)
        self._kernels[types]((blocks,), (THREADS,), tuple(arguments))


class Inputs:
    """Where a graph reads its inputs, which may have fewer rows, and which arrays were copied there last.

    One that comes again in the same run needs no copy: operators never write into an array, and training steps, which do, give
    one that is watched by a weak reference another identity. A weak reference is no array's once its own is gone, and keeps none.
    """

    def __init__(self, mover: Mover, arrays: Sequence[Any]) -> None:
        self._mover, self._arrays = mover, arrays
        self._run: object = None
        self._last: list[ref[Any]] = []
        self._most = tuple(map(rows_of, arrays))
        self._rows = list(self._most)  # that may not be 0

    def take(self, given: Sequence[Any], run: object = None) -> None:
        """Copy arrays to where the graph reads them; those that lie there already stay, unless `run` is None."""
        same = run is not None and run is self._run
        self._run = None  # until everything is there
        self._mover.copy([
            (self._room(number, array), array)
            for number, array in enumerate(given)
            if not (same and self._last[number]() is array)
        ])  # fmt: skip
        if run is not None:
            self._run, self._last = run, list(map(ref, given))

    def _room(self, number: int, array: Any) -> Any:
        """Where an array goes. Ids behind its rows become 0, which is in range."""
        into, before, rows = self._arrays[number], self._rows[number], rows_of(array)
        if rows == before == self._most[number]:
            return into
        if into.dtype == np.int64 and rows < before:
            into[rows:before] = 0
        self._rows[number] = rows
        return into[:rows]


def rows_of(array: Any) -> int:
    """The size of its first axis; 1 for a number without axes."""
    shape = array.shape
    return int(shape[0]) if shape else 1


def source(types: Sequence[Types]) -> str:
    """A kernel that copies arrays of these types, to and from, each with its size behind it."""
    taken = ", ".join(
        f"{to}* __restrict__ to{n}, const {given}* __restrict__ from{n}, int size{n}"
        for n, (to, given) in enumerate(types)
    )
    lines = [
        f"    if (at < size{n}) {{ to{n}[at] = from{n}[at]; return; }}\n    at -= size{n};\n" for n in range(len(types))
    ]
    begin = "    int at = blockIdx.x * blockDim.x + threadIdx.x;\n"
    named = "typedef long long whole;\ntypedef unsigned char byte;\n"
    return f'{named}extern "C" __global__ void copy_arrays({taken})\n{{\n{begin}{"".join(lines)}}}\n'


def _types_together(into: Any, array: Any) -> Types | None:
    """What the kernel calls the types of arrays, if one is copied with others: it lies on the same GPU, one element behind the
    other.
    """
    if isinstance(array, np.ndarray) or array.size > MOST:
        return None
    types = TYPES.get(into.dtype, ""), TYPES.get(array.dtype, "")
    lies_there = types in TOGETHER and array.flags.c_contiguous and array.data.device_id == into.data.device_id
    return types if lies_there else None


def _are_alike(into: Any, array: Any) -> bool:
    """Whether the bytes of one array are those of the other, on one GPU."""
    return (
        array.dtype == into.dtype
        and array.shape == into.shape
        and bool(array.flags.c_contiguous)
        and bool(into.flags.c_contiguous)
        and array.data.device_id == into.data.device_id
    )


def put(into: Any, array: Any) -> None:
    """Copy an array of the host or of this device to where a graph reads it."""
    if isinstance(array, np.ndarray):
        into.set(np.ascontiguousarray(array, into.dtype))
    elif _are_alike(into, array):  # of all ways to copy, the one that takes the host the least time
        into.data.copy_from_device_async(array.data, array.nbytes)
    else:
        into[...] = array
