"""Where in one arena each buffer lies: buffers that live at the same time do not overlap."""

from __future__ import annotations

from collections.abc import Sequence

from fluidtool.runtime.engines.native.steps import ALIGNMENT, Buffer, Draft


def lifetimes(drafts: Sequence[Draft]) -> dict[Buffer, tuple[int, int]]:
    """The first and the last step that touch each buffer of the arena."""
    found: dict[Buffer, tuple[int, int]] = {}
    for number, draft in enumerate(drafts):
        for buffer in draft.buffers():
            if buffer.role == "arena":
                found[buffer] = (found.get(buffer, (number, number))[0], number)
    return found


def lay_out(drafts: Sequence[Draft]) -> tuple[dict[Buffer, int], int]:
    """(offset in floats of each buffer, size of the arena): the largest first, each into the lowest gap that fits."""
    alive = lifetimes(drafts)
    placed: list[tuple[int, int, int, int]] = []  # offset, end, first step, last step
    offsets: dict[Buffer, int] = {}
    for buffer in sorted(alive, key=lambda b: (-b.size, alive[b])):
        first, last = alive[buffer]
        size = -(-buffer.size // ALIGNMENT) * ALIGNMENT
        offset = 0
        for start, end, other_first, other_last in sorted(placed):
            if other_last < first or last < other_first:
                continue
            if start - offset >= size:
                break
            offset = max(offset, end)
        offsets[buffer] = offset
        placed.append((offset, offset + size, first, last))
    return offsets, max((end for _, end, _, _ in placed), default=0)


def lower_bound(drafts: Sequence[Draft]) -> int:
    """The most floats that are alive at one step: no arrangement needs less."""
    alive = lifetimes(drafts)
    return max(
        (sum(b.size for b, (first, last) in alive.items() if first <= step <= last) for step in range(len(drafts))),
        default=0,
    )
