"""The outermost fields of a protobuf message, read without its schema."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

VARINT, FIXED64, DELIMITED, FIXED32 = 0, 1, 2, 5
_SIZE = {FIXED64: 8, FIXED32: 4}  # bytes of a value by wire type


def fields(data: Any, at: int = 0) -> Iterator[tuple[int, int, int, int]]:
    """(number, wire type, where the value begins, where it ends) of the fields from a place on; the last may end behind.

    They end at what is no field: another wire type, or the number 0.
    """
    while at < len(data):
        key, at = _varint(data, at)
        number, wire = key >> 3, key & 7
        if number == 0:
            return
        if wire == VARINT:
            begin, end = at, _varint(data, at)[1]
        elif wire == DELIMITED:
            size, begin = _varint(data, at)
            end = begin + size
        elif wire in _SIZE:
            begin, end = at, at + _SIZE[wire]
        else:
            return
        yield number, wire, begin, end
        at = end


def _varint(data: Any, at: int) -> tuple[int, int]:
    """The number at a place, and the place behind it; behind the end where it is cut off."""
    number = 0
    for shift in range(0, 70, 7):
        if at >= len(data):
            break
        byte, at = data[at], at + 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number, at
    return number, len(data) + 1
