"""Specializations of a region: it is compiled for what it is given, and what was compiled is kept by signature."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from operator import is_
from threading import Lock
from typing import Any

from fluidtool import locks
from fluidtool.runtime.engines.base import CompiledRegion

MOST_KEPT = 64  # compiled specializations of one region, by the shapes of its inputs; as many reasons why there is none
ROOM = 1 << 28  # bytes that the specializations of all regions of a block may take, where the newest do not take more
PATIENCE = 8  # signatures without a specialization after which a region that never had one is not tried any more
NUMBER = 36  # bytes of a number of a LoD that is kept: itself, and where it is


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why there is no specialization for a signature; `division` is what runs instead, None for the steps one by one."""

    reason: str
    division: Any


@dataclass(eq=False, slots=True)
class Specializations:
    """What a region was compiled to, by signature; and by which signatures it cannot be.

    A refusal says nothing about other signatures, unless so many were refused, and none ever compiled, that `given_up` is
    for all. share: among how many regions of the block the room is divided. Who reads or changes it holds the lock: several
    threads may run one plan.
    """

    share: int = 1
    kept: OrderedDict[Any, CompiledRegion] = field(default_factory=OrderedDict)
    constants: tuple[Any, ...] | None = None  # those that were met last
    packed: Any = None  # what the engine packed from them
    refused: OrderedDict[Any, Refusal] = field(default_factory=OrderedDict)
    failures: int | None = 0  # signatures refused in a row; None once one was compiled
    given_up: Refusal | None = None
    lock: Lock = field(default_factory=locks.lock)

    def are_of(self, constants: Sequence[Any]) -> bool:
        """Whether these are the very arrays that everything here was compiled with."""
        mine = self.constants
        same = mine is not None and (
            mine is constants or (len(mine) == len(constants) and all(map(is_, mine, constants)))
        )
        if same:
            self.constants = tuple(constants)  # the next look finds the same tuple
        return same

    def get(self, key: Any, constants: tuple[Any, ...]) -> CompiledRegion | None:
        """What was compiled for this signature and these constants."""
        found = self.kept.get(key)
        if found is None or not self.are_of(constants):
            return None
        self.kept.move_to_end(key)
        return found

    def refusal(self, key: Any) -> Refusal | None:
        """Why there is none for this signature, where that is known."""
        return self.given_up or self.refused.get(key)

    def begin(self, constants: tuple[Any, ...], packed: Any) -> None:
        """Forget what was compiled with other constants, which is of no use any more."""
        self.kept.clear()
        self.constants, self.packed = tuple(constants), packed

    def keep(self, key: Any, compiled: CompiledRegion) -> None:
        """Keep what was compiled for a signature."""
        self.failures = None
        self.kept[key] = compiled
        self.trim()

    def refuse(self, key: Any, refusal: Refusal) -> None:
        """Note why there is none for a signature."""
        self.refused[key] = refusal
        if len(self.refused) > MOST_KEPT:
            self.refused.popitem(last=False)
        if self.failures is not None:
            self.failures += 1
            if self.failures >= PATIENCE:
                self.given_up = refusal

    def trim(self) -> None:
        """Forget what was used the longest time ago, where there is too much or it takes too much room."""
        taken = {key: compiled.memory + NUMBER * numbers_of(key) for key, compiled in self.kept.items()}
        newest = next(reversed(taken))
        memory, room = sum(taken.values()), max(ROOM // self.share, 2 * taken[newest])
        for key in [key for key in taken if key != newest]:
            if len(self.kept) <= MOST_KEPT and memory <= room:
                return
            memory -= taken[key]
            del self.kept[key]


def numbers_of(signature: Any) -> int:
    """How many numbers the LoDs of a signature hold."""
    return sum(len(level) for _, _, lod in signature if isinstance(lod, tuple) for level in lod)
