"""A compiled region as bytes, for the user's cache (docs/adr/0022-starts-from-the-cache.md).

Constants come first, each at the start of a cache line, so that they are used where the file is mapped; those that have a file
of their own in the cache of packed weights, or lie in a mapped parameter file, are named. Behind them stands what fills the
addresses in, and where it begins. A file of the cache is looked at only if its digest is right: what it contains is what
`packed_up` gave.
"""

from __future__ import annotations

import marshal
import struct
from collections.abc import Callable, Iterable
from math import prod
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fluidtool.runtime.engines.native.cache import WeightCache
from fluidtool.runtime.engines.native.library import Library, first_byte
from fluidtool.runtime.engines.native.memory import ALIGNMENT
from fluidtool.runtime.engines.native.region import Frame, NativeRegion, arena_of
from fluidtool.tensor.files import file_of, map_file

LARGEST = 64 << 20  # bytes of the constants in one file
LINE = 4 * ALIGNMENT  # bytes
END = struct.Struct("=Q")  # where what stands before it begins: here the description
WITHIN, PACKED, PARAMETER = range(
    3
)  # where a constant is: in this file, in one of packed weights, in one of parameters

Named = Callable[[NDArray[Any]], str]


class KeptValue(NamedTuple):
    """What a run needs to know of an input or output."""

    name: str
    shape: tuple[int, ...]
    integer: bool

    @property
    def dtype(self) -> type[np.float32 | np.int64]:
        """As `Value.dtype` of a graph."""
        return np.int64 if self.integer else np.float32

    @property
    def floats(self) -> int:
        """As `Value.floats` of a graph."""
        return prod(self.shape) * (2 if self.integer else 1)


# ---------------------------------------------------------------- to bytes
def packed_up(region: NativeRegion, file_name: Named) -> bytes | None:
    """A region as bytes. file_name: of the file of packed weights that has a constant, '' if none.

    None if constants cannot be kept: too many bytes, or not row-major.
    """
    from fluidtool.runtime.engines.native.compiler import mentions  # imported where the region was compiled

    contents = bytearray()
    constants: list[tuple[Any, ...]] = []
    numbers: dict[int, int] = {}  # of the constants, by the identity of their arrays
    places: list[tuple[int, int, int]] = []  # the constant, the word of all steps, the bytes behind its first
    frame, of_arena = region.frames[0], region.of_arena
    steps, width = frame.steps.copy(), frame.steps.shape[1]
    arena = np.stack([of_arena, steps.reshape(-1)[of_arena] - first_byte(frame.arena)], axis=1)
    for buffer, mentioned in mentions(region.kernel_calls).items():
        words = [(step * width + at, offset) for step, at, offset in mentioned]
        if buffer.role == "constant":
            number = numbers.setdefault(id(buffer.array), len(constants))
            if number == len(constants):
                place = _place(buffer.array, file_name, contents)
                if place is None or len(contents) > LARGEST:
                    return None
                constants.append(place)
            places += [(number, word, offset) for word, offset in words]
        steps.flat[[word for word, _ in words]] = 0
    description = {
        "steps": (steps.tobytes(), *steps.shape),
        "arena": (frame.arena.size, arena.tobytes()),
        "constants": (constants, np.array(places, np.int64).tobytes()),
        "inputs": [(_described(value), _numbers(found)) for value, found in region.inputs],
        "offsets": [(name, _numbers(found)) for name, found in region.offsets],
        "outputs": [(name, _described(value), _numbers(found)) for name, value, found in region.outputs],
        "bounds": [(name, int(bound)) for name, bound in region.bounds],
        "tables": _numbers(region.tables),
        "lods": {name: _numbers(lod) for name, lod in region.lods.items()},
        "ids_word": region.ids_word,
        "runs_to_pay": region.runs_to_pay,
    }
    at = len(contents)
    return b"".join([contents, marshal.dumps(description), END.pack(at)])


def _place(array: NDArray[Any], file_name: Named, contents: bytearray) -> tuple[Any, ...] | None:
    """Where a start finds a constant, which is added to `contents` if it has no file."""
    if not array.flags.c_contiguous:
        return None
    file = file_of(array)
    if file is not None:
        return PARAMETER, file.path, array.ctypes.data - file.start, array.nbytes
    if name := file_name(array):
        return PACKED, name, array.size
    contents += bytes(-len(contents) % LINE)
    contents += array.tobytes()
    return WITHIN, len(contents) - array.nbytes


def _numbers(found: Iterable[Iterable[int]]) -> list[tuple[int, ...]]:
    """Python's own numbers, which are all that `marshal` writes."""
    return [tuple(map(int, each)) for each in found]


def _described(value: Any) -> tuple[str, tuple[int, ...], bool]:
    return value.name, tuple(map(int, value.shape)), value.integer


# ---------------------------------------------------------------- from bytes
def unpacked(data: memoryview, library: Library, weights: WeightCache | None) -> NativeRegion | None:
    """The region of these bytes, whose constants stay there. None if packed weights are not in the cache any more.

    Raises UnreadableError for a parameter file that is gone.
    """
    (at,) = END.unpack(data[-END.size :])
    kept = marshal.loads(data[at : -END.size])
    constants, places = kept["constants"]
    arrays: list[NDArray[Any]] = []
    for place in constants:
        array = _constant(data, weights, place)
        if array is None:
            return None
        arrays.append(array)
    described, *shape = kept["steps"]
    steps = np.frombuffer(described, np.int64).reshape(shape).copy()
    size, described_arena = kept["arena"]
    arena = arena_of(size)
    of_arena, offsets = np.frombuffer(described_arena, np.int64).reshape(-1, 2).T
    steps.reshape(-1)[of_arena] = first_byte(arena) + offsets
    if constants:
        numbers, words, offsets = np.frombuffer(places, np.int64).reshape(-1, 3).T
        addresses = np.array([int(array.ctypes.data) for array in arrays], np.int64)
        steps.reshape(-1)[words] = addresses[numbers] + offsets
    return NativeRegion(
        library,
        [Frame(steps, arena)],
        np.ascontiguousarray(of_arena),
        [],
        arrays,
        [array for array in arrays if file_of(array) is not None],
        [(KeptValue(*value), found) for value, found in kept["inputs"]],
        kept["offsets"],
        [(name, KeptValue(*value), found) for name, value, found in kept["outputs"]],
        kept["bounds"],
        kept["tables"],
        kept["lods"],
        kept["ids_word"],
        kept["runs_to_pay"],
    )


def _constant(data: memoryview, weights: WeightCache | None, place: tuple[Any, ...]) -> NDArray[Any] | None:
    """Memory with a constant, which begins there."""
    kind, *rest = place
    if kind == WITHIN:
        return np.frombuffer(data, np.uint8, offset=rest[0])
    if kind == PACKED:
        return None if weights is None else weights.constant(*rest)
    path, at, size = rest
    return np.frombuffer(map_file(path), np.uint8, size, at)
