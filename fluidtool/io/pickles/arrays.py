"""Arrays and data types of pickles: numbers and text of fixed sizes, made of bytes that the file holds."""

from __future__ import annotations

import re
from math import prod
from typing import Any

import numpy as np

from fluidtool.io.pickles.operations import MalformedError

Array = np.ndarray[Any, Any]
MOST_DIMENSIONS = 32
_PLAIN = re.compile(r"[<>|=]?[biufcSU][0-9]{1,9}")


class ObjectsError(Exception):
    """An array of Python objects."""


class DataType:
    """A `numpy.dtype` while the pickle makes it: REDUCE says the kind and the size, BUILD the order of the bytes."""

    __slots__ = ("dtype",)

    def __init__(self, text: Any) -> None:
        if isinstance(text, str) and re.fullmatch(r"[<>|=]?O[0-9]*", text):
            raise ObjectsError
        if not isinstance(text, str) or not _PLAIN.fullmatch(text):
            raise MalformedError(f"{_short(text)} is not a data type of numbers or text")
        try:
            self.dtype: np.dtype[Any] = np.dtype(text)
        except TypeError as error:
            raise MalformedError(f"{_short(text)} is not a data type") from error
        if not self.dtype.itemsize:
            raise MalformedError(f"the data type {text} has no size")

    def build(self, state: Any) -> None:
        """(version, order, subtype, names, fields, size, alignment, flags[, metadata]); only the order says anything new."""
        match state:
            case (int(), str("<" | ">" | "|" | "=" as order), None, None, None, int(size), int(), int(), *_) if (
                len(state) <= 9
            ):
                if size in (-1, self.dtype.itemsize):
                    self.dtype = self.dtype.newbyteorder(order)
                    return
        raise MalformedError(f"the data type {self.dtype} gets a state that no {self.dtype} can have")


class Unbuilt:
    """A `numpy.ndarray` of which the pickle has not said anything yet; `array` once it has."""

    __slots__ = ("array",)

    def __init__(self) -> None:
        self.array: Array | None = None

    def build(self, state: Any) -> Array:
        """(version, shape, data type, whether the first index runs fastest, bytes) -> the array."""
        match state:
            case (int(), tuple(shape), DataType() as kind, bool() | int() as fortran, (bytes() | str()) as data):
                self.array = array_of(kind, shape, as_bytes(data), "F" if fortran else "C")
                return self.array
        raise MalformedError("an array gets a state that no array of numbers can have")


def array_of(kind: DataType, shape: tuple[Any, ...], data: Any, order: str) -> Array:
    """The array, writable and in this machine's order of bytes; the bytes must be exactly those of the shape."""
    dtype = kind.dtype
    if len(shape) > MOST_DIMENSIONS or not all(type(size) is int and 0 <= size < 2**62 for size in shape):
        raise MalformedError(f"{_short(shape)} is not the shape of an array")
    if prod(shape) * dtype.itemsize != len(data) or prod(size or 1 for size in shape) >= 2**60:
        raise MalformedError(f"an array of {dtype} and shape {_short(shape)} is given {len(data)} bytes")
    flat = np.frombuffer(data, dtype) if len(data) else np.empty(0, dtype)
    native = flat.astype(dtype.newbyteorder("=")) if not dtype.isnative else flat.copy()
    return native.reshape(shape, order="F" if order == "F" else "C")


def scalar_of(kind: DataType, data: Any) -> Any:
    """A numpy scalar."""
    return array_of(kind, (1,), data, "C")[0]


def as_bytes(data: Any) -> bytes:
    """Bytes; text is how Python 2 wrote them."""
    if isinstance(data, str):
        try:
            return data.encode("latin1")
        except UnicodeEncodeError:
            raise MalformedError("there is text instead of bytes") from None
    return bytes(data) if isinstance(data, bytearray) else data


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
