"""`dataclass` as that of `dataclasses`, in a quarter of the time that Python 3.11 takes to make a class.

The standard library writes and compiles six methods for each frozen class. Here `__init__` is written for a class, and the other
methods are functions that look at its fields: a run of the command line makes ninety such classes before it starts.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import MISSING, Field, FrozenInstanceError, fields
from operator import attrgetter
from reprlib import recursive_repr
from typing import TYPE_CHECKING, Any, NoReturn

__all__ = ["dataclass"]

_FROM_FACTORY: Any = object()  # the default of a parameter whose value a factory makes


def _record(
    *, frozen: bool = False, slots: bool = False, eq: bool = True, repr: bool = True
) -> Callable[[type[Any]], type[Any]]:
    def made(written: type[Any]) -> type[Any]:
        cls: type[Any] = dataclasses.dataclass(init=False, repr=False, eq=False, slots=slots)(written)
        methods = _methods(cls, written, frozen=frozen, slots=slots, eq=eq, repr=repr)
        for name, method in methods.items():
            if name not in written.__dict__:
                setattr(cls, name, method)
        return cls

    return made


if TYPE_CHECKING:
    from dataclasses import dataclass
else:
    dataclass = _record


def _methods(cls: type[Any], written: type[Any], *, frozen: bool, slots: bool, eq: bool, repr: bool) -> dict[str, Any]:
    """The methods of a class by name, but for those that were written."""
    methods: dict[str, Any] = {"__init__": _initializer(cls, frozen)}
    if repr:
        methods["__repr__"] = _text
    if eq:
        values = attrgetter("__class__", *(field.name for field in fields(cls) if field.compare))
        methods |= {"__eq__": _equality(values), "__hash__": _hashing(values) if frozen else None}
    if frozen:
        methods |= {"__setattr__": _refuse_to_set, "__delattr__": _refuse_to_delete}
    if frozen and slots:  # copies and pickles would set the attributes
        methods |= {"__getstate__": _state, "__setstate__": _restore}
    return methods


def _initializer(cls: type[Any], frozen: bool) -> Callable[..., None]:
    """`__init__`, with a parameter for each field, compiled from a source."""
    names: dict[str, Any] = {"_set": object.__setattr__, "_from_factory": _FROM_FACTORY}
    parameters, lines = ["self"], []
    for field in fields(cls):
        if field.init:
            parameters.append(field.name + _default(field, names))
        if field.init or _has_default(field):
            value = _value(field, names)
            lines.append(f"_set(self, {field.name!r}, {value})" if frozen else f"self.{field.name} = {value}")
    if hasattr(cls, "__post_init__"):
        lines.append("self.__post_init__()")
    exec(f"def __init__({', '.join(parameters)}):\n " + "\n ".join(lines or ["pass"]), names)
    init: Callable[..., None] = names["__init__"]
    init.__annotations__ = {field.name: field.type for field in fields(cls) if field.init}
    init.__module__, init.__qualname__ = cls.__module__, f"{cls.__qualname__}.__init__"
    return init


def _has_default(field: Field[Any]) -> bool:
    return field.default is not MISSING or field.default_factory is not MISSING


def _default(field: Field[Any], names: dict[str, Any]) -> str:
    """The default of a parameter in the source."""
    if field.default_factory is not MISSING:
        return "=_from_factory"
    if field.default is MISSING:
        return ""
    names[f"_default_{field.name}"] = field.default
    return f"=_default_{field.name}"


def _value(field: Field[Any], names: dict[str, Any]) -> str:
    """The value of a field in the source."""
    if field.default_factory is not MISSING:
        names[f"_make_{field.name}"] = field.default_factory
        made = f"_make_{field.name}()"
        return f"{made} if {field.name} is _from_factory else {field.name}" if field.init else made
    if field.init:
        return field.name
    names[f"_default_{field.name}"] = field.default
    return f"_default_{field.name}"


def _equality(values: attrgetter[Any]) -> Callable[[Any, object], Any]:
    def equal(self: Any, other: object) -> Any:
        if other.__class__ is not self.__class__:
            return NotImplemented
        return values(self) == values(other)

    return equal


def _hashing(values: attrgetter[Any]) -> Callable[[Any], int]:
    return lambda self: hash(values(self))


@recursive_repr()
def _text(self: Any) -> str:
    shown = (f"{field.name}={getattr(self, field.name)!r}" for field in fields(self) if field.repr)
    return f"{self.__class__.__qualname__}({', '.join(shown)})"


def _refuse_to_set(self: Any, name: str, value: object) -> NoReturn:
    raise FrozenInstanceError(f"cannot assign to field {name!r}")


def _refuse_to_delete(self: Any, name: str) -> NoReturn:
    raise FrozenInstanceError(f"cannot delete field {name!r}")


def _state(self: Any) -> list[Any]:
    return [getattr(self, field.name) for field in fields(self)]


def _restore(self: Any, state: list[Any]) -> None:
    for field, value in zip(fields(self), state, strict=True):
        object.__setattr__(self, field.name, value)
