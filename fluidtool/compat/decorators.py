"""`paddle.fluid.wrapped_decorator`."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import contextmanager
from functools import wraps
from typing import Any

__all__ = ["signature_safe_contextmanager", "wrap_decorator"]


def wrap_decorator(decorator_func: Callable[..., Any]) -> Callable[..., Any]:
    """The decorator, which keeps the signature of the decorated function."""
    return lambda function: wraps(function)(decorator_func(function))


signature_safe_contextmanager = contextmanager
