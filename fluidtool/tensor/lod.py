"""Level of detail (LoD): how the rows of a tensor group into sequences, sequences of sequences, and so on.

Stored as offsets, one list per level, outermost first: [[0, 2, 3], [0, 4, 5, 9]] is two outer sequences, of two and
one inner sequences, of 4, 1 and 4 rows. Users mostly write lengths: [[2, 1], [4, 1, 4]].
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise

from fluidtool.errors import LoDError

LoD = list[list[int]]


def lengths_to_offsets(lengths: Sequence[Sequence[int]]) -> LoD:
    """[[2, 1], [4, 1, 4]] -> [[0, 2, 3], [0, 4, 5, 9]]."""
    return [list(accumulate((int(length) for length in level), initial=0)) for level in lengths]


def offsets_to_lengths(lod: Sequence[Sequence[int]]) -> LoD:
    """[[0, 2, 3], [0, 4, 5, 9]] -> [[2, 1], [4, 1, 4]].

    Scratch outputs such as BatchGate carry levels that do not ascend; like Paddle's unsigned sizes they wrap around.
    """
    return [[(int(end) - int(start)) % 2**64 for start, end in pairwise(level)] for level in lod]


def lod_fault(lod: Sequence[Sequence[int]], rows: int | None) -> str | None:
    """Why `lod` (offsets) cannot describe a tensor of `rows` rows, or None when it can (rows None: not asked)."""
    for depth, level in enumerate(lod):
        if len(level) < 2:
            return f"level {depth} has {len(level)} offsets; at least two are needed"
        if level[0] != 0:
            return f"level {depth} starts at {level[0]}; it must start at 0"
        if any(end < start for start, end in pairwise(level)):
            return f"level {depth} is not ascending: {list(level)[:12]}"
        below = len(lod[depth + 1]) - 1 if depth + 1 < len(lod) else rows
        if below is not None and level[-1] != below:
            unit = f"sequences at level {depth + 1}" if depth + 1 < len(lod) else "rows of the tensor"
            return f"level {depth} ends at {level[-1]}, but there are {below} {unit}"
    return None


def check_lod(lod: Sequence[Sequence[int]], rows: int | None, what: str) -> None:
    """Raise LoDError naming `what` when `lod` (offsets) does not fit a tensor of `rows` rows."""
    fault = lod_fault(lod, rows)
    if fault:
        raise LoDError(f"invalid LoD for {what}: {fault}; give lengths that add up to the number of rows")
