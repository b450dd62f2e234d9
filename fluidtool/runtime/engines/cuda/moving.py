"""Arrays on their way into a region and out of it: small ones are copied together, by one kernel."""

from __future__ import annotations

from collections.abc import Sequence
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


class Mover:
    """Copies arrays on one GPU. Its kernels, by the types of the arrays, are kept for the life of the engine."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self._kernels: dict[tuple[tuple[str, str], ...], Any] = {}

    def copy(self, pairs: Sequence[Pair]) -> None:
        """Copy each array to another one of its shape; those on the host, and large ones, one by one."""
        small = sorted((pair for pair in pairs if _is_small(*pair)), key=_types)
        together = small if len(small) > 1 else []
        for into, array in pairs:
            if not together or not _is_small(into, array):
                put(into, array)
        for start in range(0, len(together), AT_ONCE):
            self._launch(together[start : start + AT_ONCE])

    def copies(self, arrays: Sequence[Any], types: Sequence[Any]) -> list[Any]:
        """New arrays of these types with the same numbers."""
        found = [self._device.xp.empty(array.shape, type) for array, type in zip(arrays, types, strict=True)]
        self.copy(list(zip(found, arrays, strict=True)))
        return found

    def _launch(self, pairs: Sequence[Pair]) -> None:
        types = tuple(map(_types, pairs))
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
        self._rows = list(map(rows_of, arrays))  # that may not be 0

    def take(self, given: Sequence[Any], run: object = None) -> None:
        """Copy arrays to where the graph reads them; those that lie there already stay, unless `run` is None."""
        if run is None or run is not self._run:
            self._last = []
        last = [each() for each in self._last] or [None] * len(given)
        self._run = None  # until everything is there
        self._mover.copy([
            (self._room(number, rows_of(array)), array)
            for number, (array, there) in enumerate(zip(given, last, strict=True)) if there is not array
        ])  # fmt: skip
        if run is not None:
            self._run, self._last = run, list(map(ref, given))

    def _room(self, number: int, rows: int) -> Any:
        """Where an array of so many rows goes. Ids behind them become 0, which is in range."""
        into, before = self._arrays[number], self._rows[number]
        if into.dtype == np.int64 and rows < before:
            into[rows:before] = 0
        self._rows[number] = rows
        return into if rows == rows_of(into) else into[:rows]


def rows_of(array: Any) -> int:
    """The size of its first axis; 1 for a number without axes."""
    return int(array.shape[0]) if array.shape else 1


def source(types: Sequence[tuple[str, str]]) -> str:
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


def _types(pair: Pair) -> tuple[str, str]:
    """What the kernel calls the types of arrays; '' if it has none."""
    into, array = pair
    return TYPES.get(into.dtype, ""), TYPES.get(array.dtype, "")


def _is_small(into: Any, array: Any) -> bool:
    """Whether an array is copied with others: it lies on the same GPU, one element behind the other."""
    return (
        not isinstance(array, np.ndarray)
        and _types((into, array)) in TOGETHER
        and array.size <= MOST
        and bool(array.flags.c_contiguous)
        and array.device == into.device
    )


def put(into: Any, array: Any) -> None:
    """Copy an array of the host or of this device to where a graph reads it."""
    if isinstance(array, np.ndarray):
        into.set(np.ascontiguousarray(array, into.dtype))
    else:
        into[...] = array
