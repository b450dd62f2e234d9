"""`fluid.annotations`: functions that say that they are out of date (Paddle 1.8.5 annotations.py)."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import wraps
from typing import Any

__all__ = ["deprecated"]


def deprecated(since: str, instead: str, extra_message: str = "") -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """A decorator: each call writes to stderr since when the function is out of date, and what to use instead."""

    def decorator(func: Callable[..., Any]) -> Callable[..., Any]:
        note = f"API {func.__name__} is deprecated since {since}. Please use {instead} instead."
        note += f"\n{extra_message}" if extra_message else ""

        @wraps(func)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            sys.stderr.write(f"{note}\n")
            return func(*args, **kwargs)

        wrapper.__doc__ = f"{func.__doc__ or ''}\n    {note}"
        return wrapper

    return decorator
