"""What is looked up once for a block and a scope, and kept until a name comes or goes there."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fluidtool.runtime.scope import Scope, ScopeVariable, Stock, StoredVariable
from fluidtool.tensor import LoDTensor


@dataclass(eq=False, slots=True)
class Bindings:
    """The persistable variables of a block in a scope whose names were of `version`; constants by what needs them, a region."""

    version: tuple[object, ...]
    holders: dict[str, ScopeVariable]
    constants: dict[object, Constants] = field(default_factory=dict)

    def constants_of(self, owner: object, names: Iterable[str]) -> Constants:
        """The constants of a region, which is their owner here: they persist, all of them."""
        found = self.constants.get(owner)
        if found is None:
            found = self.constants[owner] = Constants(tuple(self.holders[name] for name in names))
        return found


def bindings_of(names: Iterable[str], scope: Scope) -> Bindings:
    """Find persistable variables; those that are nowhere are created at the top."""
    version = scope.names_version()
    return Bindings(version, {name: scope.find_var(name) or scope.root().var(name) for name in names})


@dataclass(frozen=True, slots=True)
class Seen:
    """The arrays of constants, with what tells that they are still the same.

    stocks: those of variables that nobody had asked for their value, with their `taken` then: as long as it is the same,
    they hold what lies in their file. loose: all other variables.
    """

    arrays: tuple[Any, ...]
    complete: bool
    stocks: tuple[tuple[Stock, int], ...]
    loose: tuple[tuple[ScopeVariable, Any], ...]

    def holds(self) -> bool:
        """Whether every variable still holds its array."""
        return all(stock.taken == taken for stock, taken in self.stocks) and all(
            constant_of(holder) is array for holder, array in self.loose
        )


class Constants:
    """The parameters of a region."""

    __slots__ = ("_holders", "_seen")

    def __init__(self, holders: tuple[ScopeVariable, ...]) -> None:
        self._holders = holders
        self._seen: Seen | None = None

    def arrays(self) -> tuple[Any, ...] | None:
        """Their arrays, the same tuple as long as all are the same; None where one has none."""
        seen = self._seen
        if seen is None or not seen.holds():
            seen = self._seen = self._look()
        return seen.arrays if seen.complete else None

    def _look(self) -> Seen:
        stored = [h for h in self._holders if isinstance(h, StoredVariable)]
        stocks = tuple((stock, stock.taken) for stock in dict.fromkeys(holder.stock for holder in stored))
        resting = [holder for holder in stored if holder.load is not None]
        arrays = tuple(map(constant_of, self._holders))
        still = set(map(id, resting))
        loose = tuple((h, a) for h, a in zip(self._holders, arrays, strict=True) if id(h) not in still)
        return Seen(arrays, all(array is not None for array in arrays), stocks, loose)


def array_of(holder: Any) -> Any:
    """The array of a tensor; None for everything else."""
    value = holder.value if holder is not None else None
    return value.array if type(value) is LoDTensor and isinstance(value.array, np.ndarray) else None


def constant_of(holder: Any) -> Any:
    """The array of a parameter: where it lies in its file, if nothing has changed it; None for one with a LoD."""
    mapped = holder.mapped() if isinstance(holder, StoredVariable) else None
    if mapped is not None:
        return mapped
    value = holder.value if holder is not None else None
    return None if type(value) is LoDTensor and value.offsets else array_of(holder)
