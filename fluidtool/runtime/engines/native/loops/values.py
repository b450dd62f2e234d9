"""Values as src/loop_values.c has them - a place in memory, a shape, a LoD -, and the memory that they lie in."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping
from itertools import pairwise
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fluidtool.ops.control_flow.compiled import StepRecord
from fluidtool.runtime.engines.native.library import first_byte
from fluidtool.runtime.step import shape_alone
from fluidtool.tensor import LoDTensor, LoDTensorArray

Array = NDArray[Any]
WORDS, ARRAY_WORDS, MOST_DIMS = 11, 3, 4  # as in src/loop_values.c
DATA, KIND, RANK, DIMS, LOD, BOUNDS, BORROWED, ARRAY = 0, 1, 2, 3, 7, 8, 9, 10
NO_VALUE, DIMENSIONS = 0, 5
KINDS = {"float32": 1, "int64": 2, "int32": 3, "bool": 4}
TYPES = {number: np.dtype(name) for name, number in KINDS.items()}


class NoFormError(Exception):
    """A value that the instructions have no form for: the loop runs operator by operator."""


class Memory:
    """Arrays by address, so that a view of an address keeps the right one alive; and tables of LoDs.

    None of the arrays is part of another one: whatever is part of one is found by the last start that is not behind it.
    """

    __slots__ = ("_arrays", "_lods", "_starts", "_tables")

    def __init__(self) -> None:
        self._starts: list[int] = []  # ascending
        self._arrays: list[Array] = []  # in the same order
        self._lods: dict[int, list[list[int]]] = {}
        self._tables: dict[tuple[int, ...], Array] = {}

    def add(self, array: Array) -> int:
        """Remember a contiguous array; returns its address. Those that are part of it, as loops leave them, are dropped."""
        address = first_byte(array)
        if self._around(address, array.nbytes) is None:
            begin = end = bisect_left(self._starts, address)
            while end < len(self._starts) and self._starts[end] + self._arrays[end].nbytes <= address + array.nbytes:
                end += 1
            self._starts[begin:end], self._arrays[begin:end] = [address], [array]
        return address

    def add_all(self, other: Memory) -> None:
        """Remember what another one does."""
        for array in other._arrays:
            self.add(array)
        self._lods.update(other._lods)
        self._tables.update(other._tables)

    def table(self, offsets: list[int]) -> int:
        """The address of offsets as kernels read them; raises NoFormError for some that are no sequences."""
        key = tuple(offsets)
        if (found := self._tables.get(key)) is None:
            if not key or key[0] != 0 or any(end < start for start, end in pairwise(key)):
                raise NoFormError
            found = self._tables[key] = np.array(offsets, np.int64)
            self._lods[first_byte(found)] = [list(offsets)]
        return first_byte(found)

    def lod(self, address: int, bounds: int) -> list[list[int]]:
        """The LoD whose table is there, or begins there."""
        return [] if not address else [self._lods[address][0][:bounds]]

    def view(self, address: int, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
        """What lies at an address that one of the arrays has."""
        at = self._around(address, prod(shape) * dtype.itemsize)
        assert at is not None
        start, whole = self._starts[at], self._arrays[at]
        flat = whole if whole.dtype == np.uint8 and whole.ndim == 1 else whole.reshape(-1).view(np.uint8)
        return np.ndarray(shape, dtype, flat, address - start)

    def _around(self, address: int, size: int) -> int | None:
        """The number of the array that so many bytes from an address on are part of."""
        at = bisect_right(self._starts, address) - 1
        is_within = at >= 0 and address + size <= self._starts[at] + self._arrays[at].nbytes
        return at if is_within else None


def write_tensor(row: Array, value: Any, memory: Memory) -> None:
    """A tensor, or None, as a value; raises NoFormError for one that has no such form."""
    if value is None:
        return
    if type(value) is not LoDTensor or len(value.offsets) > 1:
        raise NoFormError
    array = value.array
    if array is None:
        shape = value.shape()
        if len(shape) > MOST_DIMS:
            raise NoFormError
        row[KIND], row[RANK] = DIMENSIONS, len(shape)
    else:
        shape = array.shape
        if type(array) is not np.ndarray or array.ndim > MOST_DIMS or not array.size:
            raise NoFormError
        kind = KINDS.get(array.dtype.name)
        if kind is None or not array.dtype.isnative:
            raise NoFormError
        if not array.flags.c_contiguous:
            hollow = not any(array.strides)
            array = None if hollow else np.ascontiguousarray(array)
        row[KIND], row[RANK] = kind, len(shape)
        row[DATA] = 0 if array is None else memory.add(array)
    row[DIMS : DIMS + len(shape)] = shape
    if value.offsets:
        (offsets,) = value.offsets
        if not offsets or not len(shape) or offsets[-1] != shape[0]:
            raise NoFormError
        row[LOD], row[BOUNDS] = memory.table(offsets), len(offsets)


def read_tensor(row: Array, memory: Memory) -> LoDTensor | None:
    """A value as a tensor, which shares its memory unless that is used anew."""
    data, kind, rank, *rest = row.tolist()
    if kind == NO_VALUE:
        return None
    shape = tuple(rest[:rank])
    lod = memory.lod(rest[LOD - DIMS], rest[BOUNDS - DIMS])
    if kind == DIMENSIONS:
        found = LoDTensor(None, lod)
        found.set_dims(shape)
        return found
    if not data:
        return LoDTensor(shape_alone(shape, TYPES[kind]), lod)
    array = memory.view(data, shape, TYPES[kind])
    return LoDTensor(array.copy() if rest[BORROWED - DIMS] else array, lod)


class Arrays:
    """The arrays of tensors of a loop: tables of items, which grow."""

    __slots__ = ("_before", "_given", "_items", "_memory", "table")

    def __init__(self, given: list[LoDTensorArray], room: int, memory: Memory) -> None:
        self._given, self._memory = given, memory
        self._items: list[Array] = []
        self.table = np.zeros((max(len(given), 1), ARRAY_WORDS), np.int64)
        for number, array in enumerate(given):
            items = np.zeros((len(array) + room, WORDS), np.int64)
            for row, item in zip(items, array, strict=False):
                if item.array is not None:
                    write_tensor(row, item, memory)
                elif item.offsets:
                    raise NoFormError
            self._items.append(items)
            self.table[number] = items.ctypes.data, len(array), len(items)
        self._before = [items.copy() for items in self._items]

    def grow(self, number: int, count: int) -> None:
        """Make room for so many items, and as many again."""
        items = np.zeros((2 * count, WORDS), np.int64)
        before = self._items[number]
        items[: len(before)] = before
        self._items[number] = items
        self.table[number, 0], self.table[number, 2] = items.ctypes.data, len(items)

    def value(self, number: int) -> LoDTensorArray:
        """The array as it is now; items that have not been written are those that were given."""
        items, given, before = self._items[number], self._given[number], self._before[number]
        found = LoDTensorArray()
        for place in range(int(self.table[number, 1])):
            if place < len(given) and (items[place] == before[place]).all():
                found.append(given[place])
            else:
                found.append(read_tensor(items[place], self._memory) or LoDTensor())
        return found


class Record:
    """What the steps of a loop left: values by step and slot, and what is the same in all of them."""

    __slots__ = ("common", "memory", "rows", "slots")

    def __init__(self, slots: Mapping[str, int], rows: Array, common: Mapping[str, Any], memory: Memory) -> None:
        self.slots, self.rows, self.common, self.memory = slots, rows, common, memory


class RecordedStep(StepRecord):
    """The values of a step by name: read from a record when they are asked for. changed: what was set later; None: deleted."""

    __slots__ = ("_read", "changed", "number", "record")

    def __init__(self, record: Record, number: int) -> None:
        self.record, self.number = record, number
        self.changed: dict[str, Any] = {}
        self._read: dict[str, Any] = {}

    @property
    def common(self) -> Mapping[str, Any]:
        """Those that are the same in all steps."""
        return self.record.common

    def __getitem__(self, name: str) -> Any:
        found = self.get(name)
        if found is None:
            raise KeyError(name)
        return found

    def get(self, name: str, default: Any = None) -> Any:
        """The value, or what stands for none."""
        found = self.changed[name] if name in self.changed else self._recorded(name)
        return default if found is None else found

    def _recorded(self, name: str) -> Any:
        record = self.record
        slot = record.slots.get(name)
        if slot is None:
            return record.common.get(name)
        if name not in self._read:
            self._read[name] = read_tensor(record.rows[self.number, slot], record.memory)
        return self._read[name]

    def __setitem__(self, name: str, value: Any) -> None:
        self.changed[name] = value

    def __delitem__(self, name: str) -> None:
        self.changed[name] = None

    def __iter__(self) -> Iterator[str]:
        names = dict.fromkeys((*self.record.slots, *self.record.common, *self.changed))
        return (name for name in names if name in self)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __contains__(self, name: object) -> bool:
        if not isinstance(name, str):
            return False
        if name in self.changed:
            return self.changed[name] is not None
        slot = self.record.slots.get(name)
        return bool(self.record.rows[self.number, slot, KIND]) if slot is not None else name in self.record.common
