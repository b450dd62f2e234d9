"""Specializations of a region: compiled per signature, and kept."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import field
from operator import is_
from threading import Lock
from typing import Any
from weakref import ref

from fluidtool import locks
from fluidtool.errors import OutOfMemoryError
from fluidtool.records import dataclass
from fluidtool.runtime.arrivals import Arrivals
from fluidtool.runtime.engines.base import CompiledRegion

MOST_KEPT = 64  # specializations kept per region, and as many refusals
ROOM = 1 << 28  # bytes for the specializations of all regions of a block, unless the newest take more
AT_ONCE = 8  # sets of constants, the first ones, that are compiled whenever they come
PATIENCE = 8  # refused signatures after which a region without any specialization is given up
NUMBER = 36  # bytes per kept LoD number: itself, and its place


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a signature has no specialization; `division` is what runs instead, None for single steps."""

    reason: str
    division: Any


@dataclass(eq=False, slots=True)
class Specializations:
    """The specializations of a region by signature, and the refused signatures.

    A refusal says nothing about other signatures, unless many were refused and none compiled: then `given_up`
    is for all. share: the number of regions of the block that share the memory. arrivals: of a region in a loop.
    Readers and writers hold the lock: several
    threads may run one plan.
    """

    share: int = 1
    kept: OrderedDict[Any, CompiledRegion] = field(default_factory=OrderedDict)
    constants: tuple[Any, ...] | None = None  # the latest ones
    packed: Any = None  # what the engine packed from them
    rounded: dict[Any, Any] = field(default_factory=dict)  # the weights that operators rounded of them
    runs_to_pay: int = 0  # of the latest specialization
    first: list[tuple[ref[Any], ...]] = field(default_factory=list)  # the first sets of constants
    waiting: int = 0  # runs of the steps one by one, before these constants are compiled
    refused: OrderedDict[Any, Refusal] = field(default_factory=OrderedDict)
    failures: int | None = 0  # signatures refused in a row; None once one was compiled
    given_up: Refusal | None = None
    arrivals: Arrivals | None = None
    lock: Lock = field(default_factory=locks.lock)

    def are_of(self, constants: Sequence[Any]) -> bool:
        """Whether these are the very arrays that everything here was compiled with."""
        mine = self.constants
        same = mine is not None and (
            mine is constants or (len(mine) == len(constants) and all(map(is_, mine, constants)))
        )
        if same:
            self.constants = tuple(constants)  # the next check finds the same tuple
        return same

    def get(self, key: Any, constants: tuple[Any, ...]) -> CompiledRegion | None:
        """The specialization for this signature and these constants."""
        found = self.kept.get(key)
        if found is None or not self.are_of(constants):
            return None
        self.kept.move_to_end(key)
        if self.arrivals is not None:
            self.arrivals.note(key)
        return found

    def is_due(self, key: Any) -> bool:
        """Whether to compile for a signature now."""
        if self.arrivals is None or not self.kept:
            return True
        taken = self._taken()
        last = taken[next(reversed(taken))]
        is_full = len(taken) >= MOST_KEPT or sum(taken.values()) + last > max(ROOM // self.share, 2 * last)
        return self.arrivals.is_due(key, len(taken), next(iter(taken)) if is_full else None)

    def refusal(self, key: Any) -> Refusal | None:
        """Why this signature has none, if known."""
        return self.given_up or self.refused.get(key)

    def begin(self, constants: tuple[Any, ...], packed: Any) -> None:
        """Drop what was compiled with other constants, which is of no use any more.

        A program that is tested while it trains has other constants in every run: they wait until compiling would have paid.
        The first sets do not: scopes that take turns, or parameters that somebody sets, get the same bits in every run.
        """
        self.kept.clear()
        self.rounded.clear()
        self.constants, self.packed = tuple(constants), packed
        self.waiting = 0 if self._is_first(constants) else self.runs_to_pay

    def _is_first(self, constants: tuple[Any, ...]) -> bool:
        """Whether these are one of the first sets, of which there may be more."""
        known = any(all(each() is now for each, now in zip(before, constants, strict=True)) for before in self.first)
        if known or len(self.first) == AT_ONCE:
            return known
        self.first.append(tuple(map(ref, constants)))
        return True

    def waits(self) -> bool:
        """Whether this run of the latest constants takes the steps one by one."""
        if not self.waiting:
            return False
        self.waiting -= 1
        return True

    def in_memory(self, compile: Callable[[], CompiledRegion]) -> CompiledRegion:
        """A new specialization, in the memory of the others if there is no more."""
        try:
            return compile()
        except OutOfMemoryError:
            if not self.kept:
                raise
        self.kept.clear()
        return compile()

    def keep(self, key: Any, compiled: CompiledRegion) -> None:
        """Keep the specialization for a signature."""
        self.failures, self.runs_to_pay = None, compiled.runs_to_pay
        self.kept[key] = compiled
        self.trim()

    def refuse(self, key: Any, refusal: Refusal) -> None:
        """Record why a signature has none."""
        self.refused[key] = refusal
        if len(self.refused) > MOST_KEPT:
            self.refused.popitem(last=False)
        if self.failures is not None:
            self.failures += 1
            if self.failures >= PATIENCE:
                self.given_up = refusal

    def trim(self) -> None:
        """Drop the least recently used while there are too many or they take too much memory."""
        taken = self._taken()
        newest = next(reversed(taken))
        memory, room = sum(taken.values()), max(ROOM // self.share, 2 * taken[newest])
        for key in [key for key in taken if key != newest]:
            if len(self.kept) <= MOST_KEPT and memory <= room:
                return
            memory -= taken[key]
            del self.kept[key]

    def _taken(self) -> dict[Any, int]:
        """The memory that each takes, the least recently used first."""
        return {key: compiled.memory + NUMBER * numbers_of(key) for key, compiled in self.kept.items()}


def numbers_of(signature: Any) -> int:
    """How many numbers the LoDs of a signature hold."""
    return sum(len(level) for _, _, lod in signature if isinstance(lod, tuple) for level in lod)
