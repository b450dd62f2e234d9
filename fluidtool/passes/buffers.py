"""Variables into buffers: which variables use one piece of memory after the other, so that all pieces are small in sum.

Variables that are in use at the same time never share. With one size for all (level 0) the number of buffers is the
least possible; for different sizes (level 1) that is a hard problem ("max-coloring of interval graphs"), for which
several orders are tried and the best result is taken, as long as there are not too many variables.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import defaultdict
from collections.abc import Callable, Hashable, Sequence
from dataclasses import field
from heapq import heappop, heappush
from itertools import accumulate

from fluidtool.passes.liveness import Spans
from fluidtool.passes.timeline import Mask, Timeline, lowest
from fluidtool.records import dataclass

TRIED = 10_000  # up to so many variables every order is tried


@dataclass(frozen=True, slots=True)
class Candidate:
    """A variable: what must be equal to share, its size, and the positions where it is in use."""

    name: str
    kind: Hashable
    size: int
    occupied: Spans

    @property
    def first(self) -> int:
        """The first position."""
        return self.occupied[0][0]

    @property
    def last(self) -> int:
        """The last position."""
        return self.occupied[-1][1]

    @property
    def duration(self) -> int:
        """The number of positions."""
        return sum(last - first + 1 for first, last in self.occupied)


@dataclass(slots=True)
class Buffer:
    """Variables that share memory, in the order in which they were put in."""

    kind: Hashable
    size: int
    members: list[Candidate]


def share(candidates: Sequence[Candidate]) -> list[Buffer]:
    """Put candidates into buffers: the cheapest of the results of every order and preference, the first of equals."""
    sizes: defaultdict[Hashable, set[int]] = defaultdict(set)
    for candidate in candidates:
        sizes[candidate.kind].add(candidate.size)
    largest = {kind: max(found) for kind, found in sizes.items()}
    optimal = all(len(found) == 1 for found in sizes.values()) and all(len(c.occupied) == 1 for c in candidates)
    if optimal or len(candidates) > TRIED:
        return _in_turn(sorted(candidates, key=lambda c: (-largest[c.kind], c.first)))
    least, best = _least(candidates), list[Buffer]()
    for order in ORDERS:
        ordered = sorted(candidates, key=order)
        for prefer in PREFERENCES:
            found = _share(ordered, prefer)
            if not best or _cost(found) < _cost(best):
                best = found
            if _cost(best) == least:
                return best
    return best


def _cost(buffers: Sequence[Buffer]) -> int:
    return sum(buffer.size for buffer in buffers)


def _least(candidates: Sequence[Candidate]) -> int:
    """What no result can be cheaper than: of each kind the most that is in use at once."""
    changes: defaultdict[Hashable, list[tuple[int, int]]] = defaultdict(list)
    for candidate in candidates:
        for first, last in candidate.occupied:
            changes[candidate.kind] += [(first, candidate.size), (last + 1, -candidate.size)]
    return sum(max(accumulate(change for _, change in sorted(found))) for found in changes.values())


# ---------------------------------------------------------------- in the order of use
@dataclass(slots=True)
class _Row:
    """The buffers of one kind while variables come in the order of their first use.

    in_use: (last position, number) of those in use. free: the numbers of the others, by size.
    """

    buffers: list[Buffer] = field(default_factory=list)
    in_use: list[tuple[int, int]] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)
    free: dict[int, list[int]] = field(default_factory=dict)

    def end(self, position: int) -> None:
        """Free the buffers whose last use is before a position."""
        while self.in_use and self.in_use[0][0] < position:
            number = heappop(self.in_use)[1]
            size = self.buffers[number].size
            if size not in self.free:
                insort(self.sizes, size)
            heappush(self.free.setdefault(size, []), number)

    def take(self, size: int) -> int | None:
        """The number of a free buffer, the first of those that fit best; None when there is none."""
        if not self.sizes:
            return None
        place = min(bisect_left(self.sizes, size), len(self.sizes) - 1)
        found = self.sizes[place]
        number = heappop(self.free[found])
        if not self.free[found]:
            del self.free[found], self.sizes[place]
        return number


def _in_turn(candidates: Sequence[Candidate]) -> list[Buffer]:
    """One after the other into a buffer whose last use is over, by kinds each in the order of first use.

    The least number of buffers for variables that are in use once.
    """
    rows: defaultdict[Hashable, _Row] = defaultdict(_Row)
    buffers: list[Buffer] = []
    for candidate in candidates:
        row = rows[candidate.kind]
        row.end(candidate.first)
        number = row.take(candidate.size)
        if number is None:
            number = len(row.buffers)
            row.buffers.append(Buffer(candidate.kind, 0, []))
            buffers.append(row.buffers[number])
        buffer = row.buffers[number]
        buffer.size = max(buffer.size, candidate.size)
        buffer.members.append(candidate)
        heappush(row.in_use, (candidate.last, number))
    return buffers


# ---------------------------------------------------------------- in any order
@dataclass(slots=True)
class _Pool:
    """The buffers of one kind, when each is in use, and by size."""

    timeline: Timeline
    buffers: list[Buffer] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)
    of_size: dict[int, Mask] = field(default_factory=dict)

    def free(self, candidate: Candidate) -> Mask:
        """The buffers that are not in use when the candidate is."""
        taken = 0
        for first, last in candidate.occupied:
            taken |= self.timeline.taken(first, last)
        return (1 << len(self.buffers)) - 1 & ~taken

    def put(self, number: int, candidate: Candidate) -> None:
        """Put a candidate into a buffer."""
        buffer = self.buffers[number]
        buffer.members.append(candidate)
        if buffer.size < candidate.size:
            self._resize(number, buffer, candidate.size)
        for first, last in candidate.occupied:
            self.timeline.take(first, last, 1 << number)

    def _resize(self, number: int, buffer: Buffer, size: int) -> None:
        if buffer.size:
            self.of_size[buffer.size] ^= 1 << number
            if not self.of_size[buffer.size]:
                del self.of_size[buffer.size], self.sizes[bisect_left(self.sizes, buffer.size)]
        if size not in self.of_size:
            insort(self.sizes, size)
        self.of_size[size] = self.of_size.get(size, 0) | 1 << number
        buffer.size = size


Order = Callable[[Candidate], tuple[int, ...]]
Preference = Callable[[_Pool, Candidate, Mask], int]  # the number of one of the buffers of a mask, which is not 0


def _best_fitting(pool: _Pool, candidate: Candidate, free: Mask) -> int:
    """The one that has to grow least, of those the one of which least lies unused."""
    place = bisect_left(pool.sizes, candidate.size)
    sizes = (*pool.sizes[place:], *reversed(pool.sizes[:place]))
    return lowest(next(mask for mask in (pool.of_size[size] & free for size in sizes) if mask))


def _closest(pool: _Pool, candidate: Candidate, free: Mask) -> int:
    """The one that lies unused for the shortest time before or after the candidate."""
    before = pool.timeline.last_before(candidate.first, free)
    after = pool.timeline.first_after(candidate.last, free)
    found = [(candidate.first - before, before)] if before is not None else []
    if after is not None and (found or after - candidate.last < candidate.first + candidate.last + 2):
        found.append((after - candidate.last, after))
    shortest = min((distance for distance, _ in found), default=0)
    masks = [pool.timeline.taken(place, place) & free for distance, place in found if distance == shortest]
    return lowest(masks[0] | masks[-1] if masks else free)


def _any(pool: _Pool, candidate: Candidate, free: Mask) -> int:
    """The first one."""
    return lowest(free)


ORDERS: tuple[Order, ...] = (
    lambda c: (-c.size, c.first),
    lambda c: (-c.size, -c.duration),
    lambda c: (c.first,),
    lambda c: (-c.last,),
)
PREFERENCES: tuple[Preference, ...] = (_best_fitting, _closest, _any)


def _share(candidates: Sequence[Candidate], prefer: Preference) -> list[Buffer]:
    """One after the other into the buffer preferred of those that are free; a new buffer only when none is."""
    spans: defaultdict[Hashable, list[Spans]] = defaultdict(list)
    for candidate in candidates:
        spans[candidate.kind].append(candidate.occupied)
    pools = {kind: _Pool(Timeline(span for each in found for span in each)) for kind, found in spans.items()}
    buffers: list[Buffer] = []
    for candidate in candidates:
        pool = pools[candidate.kind]
        free = pool.free(candidate)
        if free:
            pool.put(prefer(pool, candidate, free), candidate)
            continue
        buffers.append(Buffer(candidate.kind, 0, []))
        pool.buffers.append(buffers[-1])
        pool.put(len(pool.buffers) - 1, candidate)
    return buffers
