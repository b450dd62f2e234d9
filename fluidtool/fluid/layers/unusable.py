"""What layer functions say of arguments that they cannot compute with, where Paddle's code ends in errors of Python's own."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from inspect import signature
from typing import Any, ParamSpec, TypeVar

from fluidtool.errors import FluidError, UnusableArgumentError

P = ParamSpec("P")
T = TypeVar("T")
LONGEST_ARGUMENT = 60


def explained(module: str) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """A decorator of functions of `module`: whatever Python raises of their arguments is an UnusableArgumentError."""
    return lambda function: _explained(function, module)


def _explained(function: Callable[P, T], module: str) -> Callable[P, T]:
    @wraps(function)
    def layer(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return function(*args, **kwargs)
        except FluidError:
            raise
        except (TypeError, ValueError, AttributeError, IndexError, ZeroDivisionError) as error:
            traceback = error.__traceback__
            if traceback is None or traceback.tb_next is None:  # not even called: Python names the missing argument
                raise
            given = signature(function).bind(*args, **kwargs).arguments
            raise UnusableArgumentError(
                f"{function.__name__} cannot use its arguments {_listed(given)}: {error}",
                hint=f"help({module.removeprefix('fluidtool.')}.{function.__name__}) says what each must be",
            ) from error

    layer.__module__ = module
    return layer


def _listed(arguments: dict[str, Any]) -> str:
    return ", ".join(f"{name}={_short(value)}" for name, value in arguments.items())


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= LONGEST_ARGUMENT else text[:LONGEST_ARGUMENT] + "…"
