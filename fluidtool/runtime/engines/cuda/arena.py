"""One arena for all values of a region that are alive for a while: those that are alive at once do not overlap."""

from __future__ import annotations

from collections.abc import Sequence

from fluidtool.runtime.engines.cuda.calls import BYTES, Buffer, Call

ALIGNMENT = 256 // BYTES  # floats; what cuBLASLt and cuDNN read fastest


def lifetimes(calls: Sequence[Call]) -> dict[Buffer, tuple[int, int]]:
    """The first and the last call that use each buffer of the arena."""
    found: dict[Buffer, tuple[int, int]] = {}
    for number, call in enumerate(calls):
        for pointer in call.pointers:
            if pointer.buffer.role == "arena":
                found[pointer.buffer] = (found.get(pointer.buffer, (number, number))[0], number)
    return found


def room_of(buffer: Buffer) -> int:
    """The floats that a buffer takes."""
    return -(-buffer.floats // ALIGNMENT) * ALIGNMENT


def lay_out(calls: Sequence[Call]) -> tuple[dict[Buffer, int], int]:
    """(offset in floats of each buffer, size of the arena): the largest first, each into the lowest gap that fits."""
    alive = lifetimes(calls)
    offsets: dict[Buffer, int] = {}
    size = 0
    for buffer in sorted(alive, key=lambda each: (-each.floats, alive[each])):
        first, last = alive[buffer]
        taken = sorted(
            (offsets[other], offsets[other] + room_of(other))
            for other in offsets
            if alive[other][0] <= last and first <= alive[other][1]
        )
        offset = 0
        for start, end in taken:
            if start - offset >= room_of(buffer):
                break
            offset = max(offset, end)
        offsets[buffer] = offset
        size = max(size, offset + room_of(buffer))
    return offsets, size
