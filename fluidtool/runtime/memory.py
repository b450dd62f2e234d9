"""Memory that the values of a run take: an observer that looks at the variables after every step."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from fluidtool.runtime.scope import Scope
from fluidtool.runtime.step import BoundStep
from fluidtool.tensor import LoDTensor, LoDTensorArray, SelectedRows


class MemoryMeter:
    """Pass `observe` to a run; then `peak` is the most bytes in use at once and `largest` the most per name.

    Counts what lives in the scopes of the run: fed values and temporaries, not persistable variables. Memory that
    several variables share counts once in `peak`.
    """

    def __init__(self) -> None:
        self.peak = 0
        self.largest: dict[str, int] = {}
        self._scope: Scope | None = None

    def observe(self, step: BoundStep, block: int) -> None:
        """Run a step and look at all variables, before dead ones are released."""
        if block == 0 or self._scope is None:
            self._scope = step.context.scope
        step.run()
        owners = {id(owner) for array in _kept(self._scope) for owner in [_owner(array)]}
        in_use: dict[int, int] = {}
        for name, array in _temporaries(self._scope):
            self.largest[name] = max(self.largest.get(name, 0), int(array.nbytes))
            owner = _owner(array)
            if id(owner) not in owners:
                in_use[id(owner)] = int(owner.nbytes)
        self.peak = max(self.peak, sum(in_use.values()))


def _temporaries(scope: Scope) -> Iterator[tuple[str, Any]]:
    """The arrays in a scope and those below, with the names of their variables."""
    for name in scope.local_var_names():
        found = scope.find_local_var(name)
        for array in _arrays(None if found is None else found.value):
            yield name, array
    for kid in scope.kids:
        yield from _temporaries(kid)


def _kept(scope: Scope) -> Iterator[Any]:
    """The arrays in the scopes above: persistable variables."""
    above = scope.parent
    while above is not None:
        for name in above.local_var_names():
            found = above.find_local_var(name)
            yield from _arrays(None if found is None else found.value)
        above = above.parent


def _arrays(value: Any) -> Iterator[Any]:
    if isinstance(value, LoDTensor):
        if value.array is not None:
            yield value.array
    elif isinstance(value, LoDTensorArray):
        for item in value:
            yield from _arrays(item)
    elif isinstance(value, SelectedRows):
        yield value.value


def _owner(array: Any) -> Any:
    """The array that owns the memory of this view."""
    owner = array
    while type(owner.base) is type(array):
        owner = owner.base
    return owner
