"""Pickled states (`fluid.save`, `paddle.save`): read through a closed unpickler, written as Paddle writes them.

A pickle can run any code when it is loaded. This unpickler knows numpy arrays, their data types, dicts, lists, strings
and numbers; anything else is refused by name before it is built.
"""

from __future__ import annotations

import io
import pickle
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

import numpy as np

from fluidtool.errors import UnreadableError, UnsafePickleError

STRUCTURED_NAMES = "StructuredToParameterName@@"
_RECONSTRUCT: Any = np.empty(0).__reduce__()[0]


def _encode(text: str, encoding: str) -> bytes:
    """Python 2 and 3 pickle bytes as latin-1 text."""
    return text.encode("latin1")


def _frombuffer(buffer: Any, dtype: Any, shape: Any, order: str) -> Any:
    return np.frombuffer(buffer, dtype=dtype).reshape(shape, order="F" if order == "F" else "C")


def _scalar(dtype: Any, data: Any = b"") -> Any:
    return np.frombuffer(data.encode("latin1") if isinstance(data, str) else data, dtype=dtype)[0]


_ALLOWED: dict[tuple[str, str], Any] = {
    ("collections", "OrderedDict"): OrderedDict,
    ("_codecs", "encode"): _encode,
    ("builtins", "set"): set,
    ("builtins", "frozenset"): frozenset,
    ("builtins", "complex"): complex,
    ("builtins", "bytearray"): bytearray,
    ("numpy", "ndarray"): np.ndarray,
    ("numpy", "dtype"): np.dtype,
    **{(f"numpy.{core}.multiarray", "_reconstruct"): _RECONSTRUCT for core in ("core", "_core")},
    **{(f"numpy.{core}.multiarray", "scalar"): _scalar for core in ("core", "_core")},
    **{(f"numpy.{core}.numeric", "_frombuffer"): _frombuffer for core in ("core", "_core")},
}


class ClosedUnpickler(pickle.Unpickler):
    """An unpickler that finds nothing but the constructors of plain data."""

    def __init__(self, file: Any, source: str) -> None:
        super().__init__(file, encoding="latin1")
        self._source = source

    def find_class(self, module: str, name: str) -> Any:
        """The constructor; raises UnsafePickleError for anything but data."""
        found = _ALLOWED.get((module, name)) or _ALLOWED.get((module.replace("__builtin__", "builtins"), name))
        if found is None:
            raise UnsafePickleError(
                f"{self._source} is a pickle that asks for {module}.{name}; fluidtool reads only arrays, dicts, strings and "
                "numbers from pickles and executes nothing. If you trust the file, convert it with the software that wrote "
                "it (for example to .npz)"
            )
        return found

    def persistent_load(self, pid: Any) -> Any:
        """Persistent ids refer to things outside the file; refused."""
        raise UnsafePickleError(f"{self._source} is a pickle with persistent ids, which fluidtool does not follow")


def load(data: bytes, source: str) -> Any:
    """The object of a pickle; raises UnsafePickleError or UnreadableError naming `source`."""
    try:
        value = ClosedUnpickler(io.BytesIO(data), source).load()
    except UnsafePickleError:
        raise
    except Exception as error:  # a malformed pickle can raise anything
        raise UnreadableError(
            f"{source} cannot be read as a pickled state: {error}; truncated or corrupted?"
        ) from error
    return _checked(value, source)


def _checked(value: Any, source: str) -> Any:
    """Refuse arrays of objects, which numpy's own constructor could still hold."""
    if isinstance(value, np.ndarray) and value.dtype.hasobject:
        raise UnsafePickleError(
            f"{source} is a pickle with an array of Python objects; only arrays of numbers are read"
        )
    if isinstance(value, Mapping):
        for item in value.values():
            _checked(item, source)
    elif isinstance(value, (list, tuple, set, frozenset)):
        for item in value:
            _checked(item, source)
    return value


def load_state(data: bytes, source: str) -> dict[str, Any]:
    """A dict of arrays by variable name: structured names of `paddle.save` are translated, other entries stay."""
    state = load(data, source)
    if not isinstance(state, Mapping) or not all(isinstance(name, str) for name in state):
        raise UnreadableError(f"{source} holds a {type(state).__name__}, not a dict of arrays by name")
    state = dict(_joined(dict(state)))
    names = state.pop(STRUCTURED_NAMES, {})
    return {str(names.get(name, name)): value for name, value in state.items()}


def _joined(state: dict[str, Any]) -> dict[str, Any]:
    """Put together what Paddle cut into slices for pickle protocols below 4 (`UnpackBigParamInfor@@`)."""
    for name, info in dict(state.pop("UnpackBigParamInfor@@", {})).items():
        slices = [np.asarray(state.pop(part)).reshape(-1) for part in info["slices"]]
        state[name] = np.concatenate(slices).reshape(info["OriginShape"])
    return state


def dump_state(arrays: Mapping[str, Any]) -> bytes:
    """The pickle of a dict of arrays that every Paddle reads: protocol 2, numpy's names of before version 2."""
    plain = {name: np.asarray(array) for name, array in arrays.items()}
    data = pickle.dumps(plain, protocol=2)
    return data.replace(b"cnumpy._core.multiarray\n", b"cnumpy.core.multiarray\n")
