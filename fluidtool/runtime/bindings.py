"""Lookups in a scope that are kept for a block until names are added or removed."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import field
from typing import Any

import numpy as np

from fluidtool.records import dataclass
from fluidtool.runtime.scope import Scope, ScopeVariable, Stock, StoredVariable
from fluidtool.tensor import LoDTensor


@dataclass(eq=False, slots=True)
class Bindings:
    """The persistable variables of a block in a scope at `version` of its names; constants by the region that needs them."""

    version: tuple[object, ...]
    holders: dict[str, ScopeVariable]
    constants: dict[object, Constants] = field(default_factory=dict)

    def constants_of(self, owner: object, names: Iterable[str]) -> Constants:
        """The constants of a region, which owns them; all of them are persistable."""
        found = self.constants.get(owner)
        if found is None:
            found = self.constants[owner] = Constants(tuple(self.holders[name] for name in names))
        return found


def bindings_of(names: Iterable[str], scope: Scope) -> Bindings:
    """Find persistable variables; missing ones are created in the outermost scope."""
    version = scope.names_version()
    holders = {name: scope.find_var(name) for name in names}
    missing = [name for name, holder in holders.items() if holder is None]
    if missing:  # what is created makes another version
        for name in missing:
            scope.root().var(name)
        return bindings_of(holders, scope)
    return Bindings(version, {name: holder for name, holder in holders.items() if holder is not None})


@dataclass(frozen=True, slots=True)
class Seen:
    """The arrays of constants, and what shows that they are unchanged.

    stocks: those of variables whose value was never requested, with their `taken` at that time; while it is unchanged,
    they still hold what is in their file. plain: variables with a tensor that has no LoD; loose: all others.
    """

    arrays: tuple[Any, ...]
    complete: bool
    stocks: tuple[tuple[Stock, int], ...]
    plain: tuple[tuple[ScopeVariable, Any], ...]
    loose: tuple[tuple[ScopeVariable, Any], ...]

    def holds(self) -> bool:
        """Whether every variable still has its array."""
        return (
            all([stock.taken == taken for stock, taken in self.stocks])
            and all([type(v := h.value) is LoDTensor and v.array is array and not v.offsets for h, array in self.plain])
            and all([constant_of(holder) is array for holder, array in self.loose])
        )


class Constants:
    """The parameters of a region."""

    __slots__ = ("_holders", "_seen")

    def __init__(self, holders: tuple[ScopeVariable, ...]) -> None:
        self._holders = holders
        self._seen: Seen | None = None

    def unchanged(self) -> tuple[Any, ...] | None:
        """Their arrays if none has changed since they were looked at; else None."""
        seen = self._seen
        return seen.arrays if seen is not None and seen.complete and seen.holds() else None

    def arrays(self) -> tuple[Any, ...] | None:
        """Their arrays: the same tuple while all are unchanged; None if any variable has no array."""
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
        moving = [(h, a) for h, a in zip(self._holders, arrays, strict=True) if id(h) not in still]
        plain = tuple((h, a) for h, a in moving if type(h) is ScopeVariable and a is not None)
        loose = tuple((h, a) for h, a in moving if type(h) is not ScopeVariable or a is None)
        return Seen(arrays, all(array is not None for array in arrays), stocks, plain, loose)


def array_of(holder: Any) -> Any:
    """The array of a tensor; None for any other value."""
    value = holder.value if holder is not None else None
    array = value.array if type(value) is LoDTensor else None
    return array if isinstance(array, np.ndarray) or type(array).__module__.startswith("cupy") else None


def constant_of(holder: Any) -> Any:
    """The array of a parameter, in its file if unchanged; None if it has a LoD."""
    mapped = holder.mapped() if isinstance(holder, StoredVariable) else None
    if mapped is not None:
        return mapped
    value = holder.value if holder is not None else None
    return None if type(value) is LoDTensor and value.offsets else array_of(holder)
