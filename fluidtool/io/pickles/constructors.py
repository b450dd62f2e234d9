"""What a pickle may call, and with which arguments: constructors of plain data, and no other."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

import numpy as np

from fluidtool.io.pickles.arrays import DataType, Unbuilt, array_of, as_bytes, scalar_of
from fluidtool.io.pickles.operations import MalformedError
from fluidtool.records import dataclass


@dataclass(frozen=True, slots=True)
class Name:
    """Something that a pickle names, by the module where Python 3 and numpy 2 have it."""

    module: str
    name: str


_MODULES = {
    "__builtin__": "builtins",
    "numpy.core.multiarray": "numpy._core.multiarray",
    "numpy.core.numeric": "numpy._core.numeric",
}
_KNOWN = {
    "builtins": ("bytes", "bytearray", "complex", "eval", "frozenset", "set", "tuple"),
    "collections": ("OrderedDict",),
    "_codecs": ("encode",),
    "numpy": ("dtype", "ndarray"),
    "numpy._core.multiarray": ("_reconstruct", "scalar"),
    "numpy._core.numeric": ("_frombuffer",),
}
_LATIN1 = ("latin1", "latin-1", "iso-8859-1")


def known(module: str, name: str) -> Name | None:
    """The constructor of that name, or None for whatever is not one of plain data."""
    module = _MODULES.get(module, module)
    return Name(module, name) if name in _KNOWN.get(module, ()) else None


def construct(what: Name, arguments: tuple[Any, ...]) -> Any:
    """The value that a constructor makes of these arguments; raises MalformedError for others than it is pickled with.

    Paddle 2 pickles a tensor outside of a program as a call of `eval`; that one expression stands for its array. Patterns name
    the class of each value first: an array, compared with one, has no single answer.
    """
    match what.name, arguments:
        case "_reconstruct", (Name(module="numpy", name="ndarray"), (int(0),), bytes(b"b") | str("b")):
            return Unbuilt()
        case "dtype", (text,) | (text, int(0 | 1), int(0 | 1)):
            return DataType(text)
        case "scalar", (DataType() as kind, (bytes() | str()) as data):
            return scalar_of(kind, as_bytes(data))
        case "_frombuffer", (
            (bytes() | bytearray()) as data,
            DataType() as kind,
            tuple(shape),
            str("C" | "F" as order),
        ):
            return array_of(kind, shape, data, order)
        case "_frombuffer", (
            (bytes() | bytearray()) as data,
            DataType() as kind,
            tuple(shape),
            str("C" | "F" as order),
            None,
        ):
            return array_of(kind, shape, data, order)
        case "_frombuffer", ((bytes() | bytearray()) as data, DataType() as kind, tuple(shape), str("K"), tuple(axes)):
            return _transposed(array_of(kind, shape, data, "C"), axes)
        case "encode", (str() as text, str() as encoding) if encoding in _LATIN1:
            return as_bytes(text)
        case "bytes", ():
            return b""
        case "bytearray", ():
            return bytearray()
        case "bytearray", (bytes() as data,):
            return bytearray(data)
        case "bytearray", (str() as text, str() as encoding) if encoding in _LATIN1:
            return bytearray(as_bytes(text))
        case "complex", (float() as real, float() as imaginary):
            return complex(real, imaginary)
        case "set" | "frozenset", ():
            return set() if what.name == "set" else frozenset()
        case "set" | "frozenset", (list(items),):
            keys = [key_of(item) for item in items]
            return set(keys) if what.name == "set" else frozenset(keys)
        case "tuple", ((list() | tuple()) as items,):
            return tuple(items)
        case "OrderedDict", ():
            return OrderedDict()
        case "OrderedDict", (list(pairs),) if all(isinstance(pair, (list, tuple)) and len(pair) == 2 for pair in pairs):
            return OrderedDict((key_of(key), value) for key, value in pairs)
        case "eval", (str("data"), {"data": np.ndarray() as array, **rest}) if not rest:
            return array
    raise MalformedError(f"{what.module}.{what.name} is called with arguments that pickle never writes for it")


def key_of(value: Any) -> Any:
    """A value that may be a key: text, bytes, a number, None, or a tuple of such."""
    for item in value if type(value) is tuple else (value,):
        if not isinstance(item, (str, bytes, int, float, complex, np.generic, type(None))):
            raise MalformedError(f"a {type(item).__name__} is used as a key")
        if type(item) is int and not -(2**60) < item < 2**60:  # larger ones share their hash with others
            raise MalformedError(f"a number of {item.bit_length()} bits is used as a key")
    return value


def _transposed(array: np.ndarray[Any, Any], axes: tuple[Any, ...]) -> np.ndarray[Any, Any]:
    if not all(type(axis) is int for axis in axes) or sorted(axes) != list(range(array.ndim)):
        raise MalformedError(f"an array of {array.ndim} dimensions has other axes")
    return array.transpose(axes)
