"""`float` and `int` of an array with one element and any number of dimensions, as before numpy 2.4.

Formats (`%f`) and `math` convert in the same way. CPython reads two functions of the type, the slots `nb_float` and `nb_int`, to
which Python code has no access; so they are exchanged in memory. Arrays that are no fetched values come from everywhere:
`np.zeros(1)`, `np.exp([x])`, `np.mean(losses, axis=0)`.
"""

from __future__ import annotations

import ctypes
import sys
import warnings
from collections.abc import Callable
from types import ModuleType
from typing import Any

WORD = ctypes.sizeof(ctypes.c_void_p)
NAME = object.__basicsize__ + WORD  # of tp_name in PyTypeObject, behind PyVarObject
NUMBER = NAME + 9 * WORD  # of tp_as_number
NB_INT, NB_FLOAT = 16 * WORD, 18 * WORD  # in PyNumberMethods
Slot = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.py_object)


class NotOneElement:
    """Given in place of a number: Python raises a TypeError, which names this class. A slot in Python code cannot raise."""


def convert_single_elements(numpy: ModuleType) -> Callable[[], None]:
    """Exchange the slots; returns what puts them back. Nothing is done where numpy converts itself, or Python is not CPython."""
    array = numpy.ndarray
    if _converts(numpy) or sys.implementation.name != "cpython" or _name(array) != b"numpy.ndarray":
        return lambda: None
    number = ctypes.c_void_p.from_address(id(array) + NUMBER).value or 0
    exchanged = [_exchange(number + NB_INT, Slot(_with(int))), _exchange(number + NB_FLOAT, Slot(_with(float)))]

    def put_back() -> None:
        for undo in exchanged:
            undo()

    return put_back


def _exchange(address: int, slot: Any) -> Callable[[], None]:
    """Put a function at an address; what is returned keeps it alive until it puts the one before back."""
    place = ctypes.c_void_p.from_address(address)
    before, place.value = place.value, ctypes.cast(slot, ctypes.c_void_p).value

    def undo() -> None:
        assert slot is not None
        place.value = before

    return undo


def _with(kind: type) -> Callable[[Any], Any]:
    def convert(array: Any) -> Any:
        try:
            return kind(array.item()) if array.size == 1 else NotOneElement()
        except (TypeError, ValueError, OverflowError):
            return NotOneElement()

    return convert


def _converts(numpy: ModuleType) -> bool:
    try:
        with warnings.catch_warnings(action="ignore"):
            return float(numpy.zeros(1)) == 0
    except TypeError:
        return False


def _name(kind: type) -> bytes | None:
    return ctypes.c_char_p.from_address(id(kind) + NAME).value
