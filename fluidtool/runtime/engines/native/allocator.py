"""Places buffers in one arena: buffers that are alive at the same time do not overlap."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate

from fluidtool.runtime.engines.native.calls import KernelCall
from fluidtool.runtime.engines.native.layouts import Buffer
from fluidtool.runtime.engines.native.memory import ALIGNMENT

Place = tuple[int, int]  # offset and end
OVERLAPS, AT_LEAST = 64, 1 << 20  # average buffers alive per step, and minimum in all


def lifetimes(kernel_calls: Sequence[KernelCall]) -> dict[Buffer, tuple[int, int]]:
    """The first and the last step that use each buffer of the arena."""
    found: dict[Buffer, tuple[int, int]] = {}
    for number, kernel_call in enumerate(kernel_calls):
        for buffer in kernel_call.buffers():
            if buffer.role == "arena":
                found[buffer] = (found.get(buffer, (number, number))[0], number)
    return found


def lay_out(kernel_calls: Sequence[KernelCall]) -> tuple[dict[Buffer, int], int]:
    """(offset in floats of each buffer, size of the arena): the largest first, each into the lowest gap that fits.

    If very many buffers live very long, those needed first are placed first instead, which takes less time.
    """
    alive = lifetimes(kernel_calls)
    placed: list[list[Place]] = [[] for _ in kernel_calls]  # by step, the buffers alive
    if sum(last - first + 1 for first, last in alive.values()) > AT_LEAST + OVERLAPS * len(kernel_calls):
        return _in_turn(alive, len(kernel_calls))
    offsets: dict[Buffer, int] = {}
    size = 0
    for buffer in sorted(alive, key=lambda b: (-b.size, alive[b])):
        first, last = alive[buffer]
        needed = room_of(buffer)
        offset = _lowest_gap({place for step in range(first, last + 1) for place in placed[step]}, needed)
        offsets[buffer] = offset
        size = max(size, offset + needed)
        for step in range(first, last + 1):
            placed[step].append((offset, offset + needed))
    return offsets, size


def room_of(buffer: Buffer) -> int:
    """The size of a buffer in the arena, in floats."""
    return -(-buffer.size // ALIGNMENT) * ALIGNMENT


def _lowest_gap(taken: Iterable[Place], size: int) -> int:
    """The lowest offset followed by this many free floats."""
    offset = 0
    for start, end in sorted(taken):
        if start - offset >= size:
            break
        offset = max(offset, end)
    return offset


def _in_turn(alive: Mapping[Buffer, tuple[int, int]], steps: int) -> tuple[dict[Buffer, int], int]:
    """Buffers placed as steps need them, each in a freed one of its size, else at the end."""
    begins: list[list[Buffer]] = [[] for _ in range(steps)]
    ends: list[list[Buffer]] = [[] for _ in range(steps)]
    for buffer, (first, last) in alive.items():
        begins[first].append(buffer)
        ends[last].append(buffer)
    offsets: dict[Buffer, int] = {}
    given_back = defaultdict[int, list[int]](list)
    size = 0
    for coming, going in zip(begins, ends, strict=True):
        for buffer in coming:
            needed = room_of(buffer)
            free = given_back[needed]
            offsets[buffer] = free.pop() if free else size
            size = max(size, offsets[buffer] + needed)
        for buffer in going:
            given_back[room_of(buffer)].append(offsets[buffer])
    return offsets, size


def lower_bound(kernel_calls: Sequence[KernelCall]) -> int:
    """The peak of floats alive at one step: a lower bound for any arrangement."""
    changes = [0] * (len(kernel_calls) + 1)
    for buffer, (first, last) in lifetimes(kernel_calls).items():
        changes[first] += buffer.size
        changes[last + 1] -= buffer.size
    return max(accumulate(changes))
