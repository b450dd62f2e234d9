"""The formats of numpy.save and numpy.savez, read: a header is text of one known form, and no size is believed.

numpy's own reader evaluates the header as an expression and makes room for whatever shape it names.
"""

from __future__ import annotations

import re
import struct
import sys
import zipfile
import zlib
from collections.abc import Iterable
from math import prod
from typing import Any, BinaryIO, Protocol

import numpy as np

from fluidtool.errors import UnreadableError
from fluidtool.shapes import shape_text

Array = np.ndarray[Any, Any]
NPY, NPZ = b"\x93NUMPY", b"PK"
LONGEST_HEADER = 1 << 16
MOST_DIMENSIONS = 32
CHUNK = 1 << 20
MOST_EXPANDED = 1100  # times the size of deflated data; 1032 is the most that deflating gives

_ENTRY = r"""\s*+['"](?:descr|fortran_order|shape)['"]\s*+:\s*+(?:'[^']*+'|"[^"]*+"|True|False|\([\d\sL,]*+\))\s*+"""
_HEADER = re.compile(rf"\{{{_ENTRY},{_ENTRY},{_ENTRY},?+\s*+\}}\s*+")
_DATA_TYPE = re.compile(r"""['"]descr['"]\s*+:\s*+['"]([<>|=]?[biufcSUV][0-9]{1,9}|\|?O8?)['"]""")
_FORTRAN = re.compile(r"""['"]fortran_order['"]\s*+:\s*+(True|False)""")
_SHAPE = re.compile(r"""['"]shape['"]\s*+:\s*+\(([\d\sL,]*+)\)""")
_BROKEN = (zipfile.BadZipFile, zlib.error, struct.error, EOFError, OSError, ValueError, RuntimeError, OverflowError)


class Readable(Protocol):
    """What bytes come from, one after the other."""

    def read(self, count: int, /) -> bytes:
        """The next bytes, none at the end."""


def read_array(file: Readable, size: int | None, source: str) -> Array:
    """The array of a .npy file, writable and in the order of bytes of the file.

    size: the bytes that the file has, None where only reading it can tell (then no more is made room for than comes).
    Raises UnreadableError, which names `source`, for arrays of Python objects and records too.
    """
    start = _exactly(file, 10, source)
    if start[:6] != NPY or start[6] not in (1, 2, 3):
        raise _broken(source, f"it starts with {start[:8]!r}, unlike any version of .npy")
    length = start[8:] if start[6] == 1 else start[8:] + _exactly(file, 2, source)
    header = int.from_bytes(length, "little")
    if header > LONGEST_HEADER:
        raise _broken(source, f"its header claims {header} bytes, more than that of any array")
    dtype, fortran, shape = _header(_exactly(file, header, source), source)
    nbytes = prod(shape) * dtype.itemsize
    left = None if size is None else size - 8 - len(length) - header
    if left is not None and nbytes > left:
        raise _broken(
            source, f"an array of {dtype} {shape_text(shape)} takes {nbytes} bytes, but {max(left, 0)} are left"
        )
    data = _fill(file, nbytes, source) if left is not None else _gather(file, nbytes, source)
    if dtype.kind == "U":
        _check_text(data, dtype, source)
    flat = data.view(dtype) if nbytes else np.empty(0, dtype)
    return flat.reshape(shape, order="F" if fortran else "C")


def read_archive(file: BinaryIO, size: int, source: str) -> dict[str, Array]:
    """The arrays of a .npz file of `size` bytes, by name; raises UnreadableError."""
    try:
        archive = zipfile.ZipFile(file)
    except _BROKEN as error:
        raise _broken(source, str(error)) from error
    with archive:
        members = archive.infolist()
        _check_members(members, size, source)
        arrays: dict[str, Array] = {}
        for member in members:
            name = member.filename.removesuffix(".npy")
            if name in arrays:
                raise _fault(source, f"it has two arrays called {name}")
            arrays[name] = _member(archive, member, f"{member.filename} in {source}")
    return arrays


def _member(archive: zipfile.ZipFile, member: zipfile.ZipInfo, source: str) -> Array:
    try:
        with archive.open(member) as opened:
            return read_array(opened, member.file_size, source)
    except UnreadableError:
        raise
    except _BROKEN as error:
        raise _broken(source, str(error)) from error


def _check_members(members: Iterable[zipfile.ZipInfo], size: int, source: str) -> None:
    """Refuse members that only seem to be there: encrypted, longer than what they are made of, or one inside the other."""
    together = 0
    for member in members:
        packed, together = member.compress_size, together + member.compress_size
        if member.flag_bits & 1:
            raise _fault(source, f"its member {member.filename} is encrypted")
        if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise _fault(source, f"its member {member.filename} is compressed by a method that numpy does not use")
        expanded = 1 if member.compress_type == zipfile.ZIP_STORED else MOST_EXPANDED
        if member.file_size > packed * expanded:
            raise _broken(source, f"its member {member.filename} claims to unpack {packed} bytes to {member.file_size}")
    if together > size:
        raise _broken(source, f"its members take {together} bytes, the whole file has {size}")


def _header(text: bytes, source: str) -> tuple[np.dtype[Any], bool, tuple[int, ...]]:
    """Data type, whether the first index runs fastest, and shape."""
    header = text.decode("latin1")
    kind, fortran, sizes = (form.search(header) for form in (_DATA_TYPE, _FORTRAN, _SHAPE))
    if kind is not None and "O" in kind[1]:
        raise _fault(source, "it contains pickled objects")
    if kind is None or fortran is None or sizes is None or not _HEADER.fullmatch(header):
        raise _fault(source, f"{header[:60]!r} is not the header of an array of numbers or text")
    try:
        dtype = np.dtype(kind[1])
    except TypeError as error:
        raise _broken(source, f"{kind[1]} is not a data type") from error
    return dtype, fortran[1] == "True", _shape(sizes[1], dtype, source)


def _shape(text: str, dtype: np.dtype[Any], source: str) -> tuple[int, ...]:
    sizes = [item.strip().removesuffix("L") for item in text.split(",") if item.strip()]
    if len(sizes) <= MOST_DIMENSIONS and all(size.isdecimal() and len(size) < 20 for size in sizes):
        shape = tuple(map(int, sizes))
        if prod(size or 1 for size in shape) * (dtype.itemsize or 1) < 2**62 and (dtype.itemsize or not prod(shape)):
            return shape
    raise _broken(source, f"({text[:60]}) is not the shape of an array of {dtype}")


def _check_text(data: Array, dtype: np.dtype[Any], source: str) -> None:
    """Refuse numbers that are no characters: numpy takes them, but fails when it shows the text."""
    points = data.view(np.dtype(np.uint32).newbyteorder(dtype.byteorder))
    if points.size and (largest := int(points.max())) > sys.maxunicode:
        raise _broken(source, f"an array of {dtype} has a character of number {largest}; the last is {sys.maxunicode}")


def _exactly(file: Readable, count: int, source: str) -> bytes:
    data = file.read(count)
    if len(data) != count:
        raise _broken(source, f"it ends within the header, {count - len(data)} bytes too soon")
    return data


def _fill(file: Readable, count: int, source: str) -> Array:
    """So many bytes, which the file should have."""
    data, at = np.empty(count, np.uint8), 0
    while at < count:
        chunk = file.read(min(count - at, CHUNK))
        if not chunk:
            raise _broken(source, f"it ends {count - at} bytes too soon")
        data[at : at + len(chunk)] = np.frombuffer(chunk, np.uint8)
        at += len(chunk)
    return data


def _gather(file: Readable, count: int, source: str) -> Array:
    """So many bytes, if they come."""
    data = bytearray()
    while len(data) < count:
        chunk = file.read(min(count - len(data), CHUNK))
        if not chunk:
            raise _broken(source, f"it ends {count - len(data)} bytes too soon")
        data += chunk
    return np.frombuffer(data, np.uint8)


def _broken(source: str, fault: str) -> UnreadableError:
    return _fault(source, f"it is truncated or corrupted ({fault})")


def _fault(source: str, fault: str) -> UnreadableError:
    return UnreadableError(f"{source} cannot be read as numpy arrays: {fault}")
