"""What callers give of variables: one or several, by name or themselves."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from fluidtool.errors import ArgumentTypeError, ProgramError
from fluidtool.ir import Variable


def names(items: Iterable[Variable | str] | None, what: str) -> list[str]:
    """The names of variables; raises ArgumentTypeError for anything else."""
    if items is None:
        return []
    if not isinstance(items, (set, frozenset, list, tuple)):
        raise ArgumentTypeError(f"The type of {what} should be set or list or tuple, but received {type(items)}")
    found = []
    for item in items:
        if not isinstance(item, (Variable, str)):
            raise ArgumentTypeError(
                f"The type of {what}'s member must be paddle.fluid.Variable or str, but received {type(item)}."
            )
        found.append(item if isinstance(item, str) else item.name)
    return found


def sequence(value: Any) -> Sequence[Any]:
    """A list or tuple as it is, anything else as the only item."""
    return value if isinstance(value, (list, tuple)) else [value]


def variables(value: Any, what: str) -> list[Variable]:
    """One variable or several; raises ArgumentTypeError for anything else, ProgramError for none."""
    items = list(sequence(value))
    for item in items:
        if not isinstance(item, Variable):
            raise ArgumentTypeError(
                f"The type of '{what}' in fluid.backward.gradients must be Variable or a list of them, "
                f"but received {type(item).__name__}."
            )
    if not items:
        raise ProgramError(f"fluid.backward.gradients needs at least one of '{what}'")
    return items
