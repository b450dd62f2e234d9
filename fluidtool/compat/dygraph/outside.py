"""What stands for classes and functions of dynamic graphs: it can be imported, extended and asked for, not used."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fluidtool.errors import UnsupportedOperatorError


def _refused(name: str) -> UnsupportedOperatorError:
    return UnsupportedOperatorError(
        f"fluid.dygraph.{name}: dynamic graphs are not supported; build a program and run it with an Executor"
    )


def outside_class(name: str) -> type:
    """A class whose objects cannot be made, nor those of classes that extend it: UnsupportedOperatorError."""

    def refuse(cls: type, *args: Any, **named: Any) -> Any:  # noqa: ARG001, RUF100 - of every signature
        raise _refused(cls.__name__)

    return type(name, (), {"__new__": refuse, "__doc__": "A class of dynamic graphs, which are not supported."})


def outside_function(name: str) -> Callable[..., Any]:
    """A function that raises UnsupportedOperatorError."""

    def refuse(*args: Any, **named: Any) -> Any:  # noqa: ARG001, RUF100 - of every signature
        raise _refused(name)

    refuse.__name__, refuse.__doc__ = name, "A function for dynamic graphs, which are not supported."
    return refuse


def outside_decorator(name: str) -> Callable[..., Any]:
    """A decorator of functions that may be defined, and raise UnsupportedOperatorError once they are called."""

    def decorate(function: Any = None, *args: Any, **named: Any) -> Any:  # noqa: ARG001, RUF100 - of every signature
        if not callable(function):
            raise _refused(name)
        return outside_function(getattr(function, "__name__", name))

    decorate.__name__, decorate.__doc__ = name, "A decorator for dynamic graphs, which are not supported."
    return decorate
