"""Pickled states (`fluid.save`, `paddle.save`): read by an interpreter of our own, written as Paddle writes them.

A pickle is a program, and Python's unpickler runs whatever it says. Here its operations are carried out one by one
(`machine.py`), of all constructors only those of plain data are known (`constructors.py`), and arrays are made of bytes
that the file holds (`arrays.py`). Nothing is imported, called or set because a file names it.
"""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from math import prod
from typing import Any

import numpy as np

from fluidtool.errors import UnreadableError, UsageError
from fluidtool.io.pickles.arrays import MOST_DIMENSIONS
from fluidtool.io.pickles.machine import Machine
from fluidtool.io.pickles.operations import MalformedError
from fluidtool.shapes import shape_text

STRUCTURED_NAMES = "StructuredToParameterName@@"
SLICED = "UnpackBigParamInfor@@"


def is_pickle(buffer: Any) -> bool:
    """Whether the bytes start like a pickle of protocol 2 or later (a parameter file starts with four zero bytes)."""
    return len(buffer) > 2 and buffer[0] == 0x80 and 2 <= buffer[1] <= 5


def load(data: bytes, source: str) -> Any:
    """The object of a pickle: arrays, dicts, lists, tuples, sets, strings and numbers.

    Raises UnsafePickleError for a pickle that asks for anything else, UnreadableError for one that is malformed, refers to
    itself, or stands for much more data than it has bytes; both name `source`.
    """
    machine = Machine(data, source)
    try:
        return machine.run()
    except MalformedError as error:
        raise UnreadableError(
            f"{source} cannot be read as a pickled state: {error} (byte {machine.at} of {len(data)}); truncated or "
            f"corrupted?"
        ) from error


def load_state(data: bytes, source: str) -> dict[str, Any]:
    """A dict of arrays by variable name: structured names of `paddle.save` are translated, other entries stay.

    Raises what `load` raises, and UnreadableError for anything but a dict with names as keys.
    """
    state = load(data, source)
    if not isinstance(state, dict) or not all(isinstance(name, str) for name in state):
        raise UnreadableError(f"{source} contains a {type(state).__name__}, not a dict of arrays by name")
    state = _joined({name: _unnamed(value) for name, value in state.items()}, source)
    names = _dict(state.pop(STRUCTURED_NAMES, {}), STRUCTURED_NAMES, source)
    if not all(isinstance(name, str) for name in names.values()):
        raise UnreadableError(f"{source} is corrupted: {STRUCTURED_NAMES} must map names to names")
    return {names.get(name, name): value for name, value in state.items()}


def _unnamed(value: Any) -> Any:
    """The array of a tensor that Paddle 2.1 and later pickle as (name, array)."""
    if isinstance(value, tuple) and len(value) == 2 and isinstance(value[0], str) and isinstance(value[1], np.ndarray):
        return value[1]
    return value


def _joined(state: dict[str, Any], source: str) -> dict[str, Any]:
    """Put together what Paddle cut into slices for pickle protocols below 4."""
    for name, info in _dict(state.pop(SLICED, {}), SLICED, source).items():
        parts, shape = _slices(info, f"{source} is corrupted: {SLICED} of {name}")
        slices = [state.pop(part, None) for part in parts]
        if not slices or not all(isinstance(piece, np.ndarray) for piece in slices):
            raise UnreadableError(f"{source} is corrupted: it lacks slices of {name}, which are {', '.join(parts[:8])}")
        whole = np.concatenate([piece.reshape(-1) for piece in slices])
        if any(size < 0 for size in shape) or prod(shape) != whole.size:
            raise UnreadableError(
                f"{source} is corrupted: the slices of {name} have {whole.size} elements, its shape is "
                f"{shape_text(shape[:32])}"
            )
        state[name] = whole.reshape(shape)
    return state


def _slices(info: Any, what: str) -> tuple[list[str], tuple[int, ...]]:
    """The names of the slices and the shape of the whole."""
    if isinstance(info, dict):
        parts: Any = info.get("slices")
        shape: Any = info.get("OriginShape")
        if _are(parts, str) and _are(shape, int) and len(shape) <= MOST_DIMENSIONS:
            return list(parts), tuple(shape)
    raise UnreadableError(f"{what} must have 'slices', names, and 'OriginShape', at most {MOST_DIMENSIONS} sizes")


def _are(items: Any, kind: type[Any]) -> bool:
    return isinstance(items, (list, tuple)) and all(type(item) is kind for item in items)


def _dict(value: Any, name: str, source: str) -> dict[Any, Any]:
    if not isinstance(value, dict):
        raise UnreadableError(f"{source} is corrupted: {name} must be a dict, found {type(value).__name__}")
    return value


LARGEST_ARRAY = 2**31  # bytes: protocol 2 writes them as text, whose length has 32 bits


def dump_state(arrays: Mapping[str, Any]) -> bytes:
    """The pickle of a dict of arrays that every Paddle reads: protocol 2, numpy's names of before version 2.

    bfloat16 is written as its bits, uint16, as Paddle does. Raises UsageError for an array too large for this protocol.
    """
    plain = {name: _plain(np.asarray(array), name) for name, array in arrays.items()}
    data = pickle.dumps(plain, protocol=2)
    return data.replace(b"cnumpy._core.multiarray\n", b"cnumpy.core.multiarray\n")


def _plain(array: Any, name: str) -> Any:
    if array.nbytes >= LARGEST_ARRAY:
        raise UsageError(
            f"{name} has {array.nbytes} bytes, more than a pickled state can hold; save it with its program, or as safetensors"
        )
    return array.view(np.uint16) if array.dtype.name == "bfloat16" else array
