"""Variables into buffers: which variables use one piece of memory after the other, so that all pieces are small in sum.

Variables that are in use at the same time never share. With one shape for all (level 0) the number of buffers is the
least possible; for different sizes (level 1) that is a hard problem ("max-coloring of interval graphs"), for which
several orders are tried and the best result is taken.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Candidate:
    """A variable: what must be equal to share, its size, and the positions where it is in use, as bits of a number."""

    name: str
    kind: Hashable
    size: int
    occupied: int

    @property
    def first(self) -> int:
        """The first position."""
        return (self.occupied & -self.occupied).bit_length()

    @property
    def last(self) -> int:
        """The last position."""
        return self.occupied.bit_length()


@dataclass(slots=True)
class Buffer:
    """Variables that share memory, in the order in which they were put in."""

    kind: Hashable
    size: int
    occupied: int
    members: list[Candidate]

    def gap(self, candidate: Candidate) -> int:
        """How long the buffer lies unused before or after the candidate, whichever is shorter."""
        before = self.occupied & ((1 << candidate.first) - 1)
        after = self.occupied >> candidate.last
        return min(
            candidate.first - before.bit_length() if before else candidate.first + candidate.last,
            (after & -after).bit_length() if after else candidate.first + candidate.last,
        )

    def misfit(self, candidate: Candidate) -> tuple[int, int]:
        """How much the buffer would have to grow, then how much of it would lie unused."""
        return max(candidate.size - self.size, 0), abs(self.size - candidate.size)


Order = Callable[[Candidate], tuple[int, ...]]
Preference = Callable[[Buffer, Candidate], tuple[int, ...]]

ORDERS: tuple[Order, ...] = (
    lambda c: (-c.size, c.first),
    lambda c: (-c.size, -c.occupied.bit_count()),
    lambda c: (c.first,),
    lambda c: (-c.last,),
)
PREFERENCES: tuple[Preference, ...] = (
    lambda buffer, c: buffer.misfit(c),
    lambda buffer, c: (buffer.gap(c),),
    lambda buffer, c: (0,),
)


def share(candidates: Sequence[Candidate]) -> list[Buffer]:
    """Put candidates into buffers: the cheapest of the results of every order and preference, the first of equals."""
    results = [_share(sorted(candidates, key=order), prefer) for order in ORDERS for prefer in PREFERENCES]
    return min(results, key=lambda buffers: sum(buffer.size for buffer in buffers))


def _share(candidates: Sequence[Candidate], prefer: Preference) -> list[Buffer]:
    """One after the other into the buffer preferred of those that are free; a new buffer only when none is."""
    buffers: list[Buffer] = []
    for candidate in candidates:
        free = [b for b in buffers if b.kind == candidate.kind and not b.occupied & candidate.occupied]
        if not free:
            buffers.append(Buffer(candidate.kind, candidate.size, candidate.occupied, [candidate]))
            continue
        chosen = min(free, key=lambda buffer: prefer(buffer, candidate))
        chosen.size = max(chosen.size, candidate.size)
        chosen.occupied |= candidate.occupied
        chosen.members.append(candidate)
    return buffers
