"""Arrays of numbers in MAT files of level 5 (MATLAB 5 to 7.2): the format of the labels of `flowers`.

A file is a header of 128 bytes (its last two tell the byte order: "IM" is little-endian), and elements: a tag of type and
size, and data padded to eight bytes; up to four bytes fit into the tag itself. Type 15 is an element compressed by zlib;
type 14 is a matrix, made of elements: flags, sizes, name, values (in column order, in the smallest type that holds them).
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from fluidtool.errors import UnreadableError

HEADER, MATRIX, COMPRESSED = 128, 14, 15
DTYPES = {1: "i1", 2: "u1", 3: "i2", 4: "u2", 5: "i4", 6: "u4", 7: "f4", 9: "f8", 12: "i8", 13: "u8"}


def load_arrays(path: Path) -> dict[str, np.ndarray[Any, Any]]:
    """The arrays of numbers by name; raises UnreadableError for anything but a MAT file of level 5."""
    data = path.read_bytes()
    order = {b"IM": "<", b"MI": ">"}.get(data[126:HEADER])
    if order is None:
        raise UnreadableError(f"{path} is not a MAT file of level 5 (MATLAB 5 to 7.2)")
    try:
        return dict(_arrays(data[HEADER:], order))
    except (struct.error, zlib.error, ValueError, KeyError, UnicodeDecodeError) as error:
        raise UnreadableError(
            f"{path} is a damaged MAT file, or contains something other than numbers: {error}"
        ) from error


def _arrays(data: bytes, order: str) -> Iterator[tuple[str, np.ndarray[Any, Any]]]:
    for kind, content in _elements(data, order):
        if kind == COMPRESSED:
            yield from _arrays(zlib.decompress(content), order)
        elif kind == MATRIX:
            _, (_, sizes), (_, name), (number, values), *_ = _elements(content, order)
            shape = np.frombuffer(sizes, order + "i4")
            array = np.frombuffer(values, order + DTYPES[number]).reshape(shape, order="F")
            yield name.decode("ascii"), array


def _elements(data: bytes, order: str) -> Iterator[tuple[int, bytes]]:
    position = 0
    while position < len(data):
        kind, size = struct.unpack_from(f"{order}2I", data, position)
        if kind >> 16:  # a small element: size and type in the first four bytes, data in the other four
            kind, size, start, following = kind & 0xFFFF, kind >> 16, position + 4, position + 8
        else:
            start = position + 8
            following = start + size if kind == COMPRESSED else start + -(-size // 8) * 8
        if start + size > len(data):
            raise ValueError(f"an element of {size} bytes where {len(data) - start} are left")
        yield kind, data[start : start + size]
        position = following
