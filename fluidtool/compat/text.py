"""`paddle.compat`: text and numbers that are the same in Python 2 and 3 (Paddle 1.8.5 compat.py)."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from fluidtool.errors import AssertedError

__all__ = ["floor_division", "get_exception_message", "int_type", "long_type", "round", "to_bytes", "to_text"]

int_type = long_type = int


def to_text(obj: Any, encoding: str = "utf-8", inplace: bool = False) -> Any:
    """Bytes as text: alone, or in a list, a set or a dict; inplace: the same container."""
    return _converted(obj, lambda item: item.decode(encoding) if isinstance(item, bytes) else item, inplace)


def to_bytes(obj: Any, encoding: str = "utf-8", inplace: bool = False) -> Any:
    """Text as bytes: alone, or in a list, a set or a dict; inplace: the same container."""
    return _converted(obj, lambda item: item.encode(encoding) if isinstance(item, str) else item, inplace)


def _converted(obj: Any, convert: Callable[[Any], Any], inplace: bool) -> Any:
    if isinstance(obj, dict):
        made: Any = {convert(key): convert(value) for key, value in obj.items()}
    elif isinstance(obj, (list, set)):
        made = type(obj)(convert(item) for item in obj)
    else:
        return convert(obj)
    if not inplace:
        return made
    obj.clear()
    (obj.extend if isinstance(obj, list) else obj.update)(made)
    return obj


def round(x: float, d: int = 0) -> float:
    """x rounded to d digits, halves away from zero."""
    if not x:
        return math.copysign(0.0, x)
    power = 10.0**d
    shifted = x * power + math.copysign(0.5, x)
    return float(math.floor(shifted) if x > 0 else math.ceil(shifted)) / power


def floor_division(x: Any, y: Any) -> Any:
    """x // y."""
    return x // y


def get_exception_message(exc: BaseException | None) -> str:
    """The message of an exception; raises AssertedError for None."""
    if exc is None:
        raise AssertedError("get_exception_message takes an exception, found None")
    return str(exc)
