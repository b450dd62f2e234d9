"""Indices of an array of the device: what cupy takes, and what it makes of those beyond the end."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from tests.gpu.standin.events import to_device


@dataclass(frozen=True, slots=True)
class Chosen:
    """A key as numpy takes it, its arrays and its masks counted, and its arrays that were on the device."""

    key: Any
    arrays: int
    masks: int
    on_device: tuple[Any, ...]


def read(key: Any, shape: tuple[int, ...]) -> Chosen:
    """The key; raises TypeError or IndexError for what cupy refuses. Numbers in arrays wrap around."""
    parts = list(key) if isinstance(key, tuple) else [key]
    found = [_array(part) if _is_array(part) else _plain(part) for part in parts]
    axes = _axes(found, len(shape))
    wrapped = [_wrap(part, shape, axis) for part, axis in zip(found, axes, strict=True)]
    arrays = [part for part in wrapped if isinstance(part, np.ndarray)]
    return Chosen(
        tuple(wrapped) if isinstance(key, tuple) else wrapped[0],
        len(arrays),
        sum(part.dtype.kind == "b" for part in arrays),
        tuple(part for part in parts if hasattr(part, "host")),
    )


def assign(target: Any, chosen: Chosen, value: Any) -> None:
    """target[key] = value; of repeated indices the first wins here, as any may on a device."""
    key, parts = chosen.key, chosen.key if isinstance(chosen.key, tuple) else (chosen.key,)
    if isinstance(value, np.ndarray):
        value = value.astype(target.dtype, copy=False)
    if chosen.arrays and not chosen.masks and all(isinstance(part, np.ndarray) for part in parts):
        numbers = np.broadcast_arrays(*parts)
        if numbers[0].ndim:
            value = np.broadcast_to(value, target[tuple(numbers)].shape)[::-1]
            key = tuple(number[::-1] for number in numbers)
    target[key] = value


def _is_array(part: Any) -> bool:
    return isinstance(part, (np.ndarray, list, tuple)) or hasattr(part, "host")


def _array(part: Any) -> Any:
    """A part of a key as an array of numpy."""
    if hasattr(part, "host"):
        part = part.host
    else:
        if isinstance(part, (list, tuple)) and any(hasattr(item, "host") for item in part):
            raise TypeError("a list of arrays of the device as an index")
        to_device()
        part = np.array(part, dtype=np.int32 if isinstance(part, (list, tuple)) and not part else None)
    if part.dtype.kind not in "biu":
        raise IndexError(f"arrays used as indices must be of integer or boolean type. (actual: {part.dtype.type})")
    return part


def _plain(part: Any) -> Any:
    """A number, a slice, None or an ellipsis; raises TypeError for a slice whose end is on the device."""
    if isinstance(part, slice) and any(hasattr(end, "host") for end in (part.start, part.stop, part.step)):
        raise TypeError("slice indices must be integers or None or have an __index__ method")
    return part


def _axes(parts: list[Any], rank: int) -> list[int]:
    """The axis that each part begins at."""
    taken = [_width(part) for part in parts]
    found, axis = [], 0
    for part, width in zip(parts, taken, strict=True):
        found.append(axis)
        axis += rank - sum(taken) if part is Ellipsis else width
    return found


def _width(part: Any) -> int:
    """How many axes a part takes."""
    if part is None or part is Ellipsis:
        return 0
    return part.ndim if isinstance(part, np.ndarray) and part.dtype.kind == "b" else 1


def _wrap(part: Any, shape: tuple[int, ...], axis: int) -> Any:
    if not isinstance(part, np.ndarray) or part.dtype.kind == "b" or axis >= len(shape):
        return part
    return wrap(part, shape[axis])


def wrap(numbers: Any, size: int) -> Any:
    """Numbers of elements, those beyond the ends wrapped around; an empty axis has none to take."""
    return np.mod(numbers.astype(np.int64), size) if size else numbers
