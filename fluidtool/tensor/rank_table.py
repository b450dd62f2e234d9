"""LoDRankTable: the sequences of one LoD level, longest first (the order that dynamic RNNs run in)."""

from __future__ import annotations

from collections.abc import Sequence

from fluidtool.errors import LoDError
from fluidtool.records import dataclass


@dataclass(frozen=True, slots=True)
class LoDRankTable:
    """`ranked` are (index, length) pairs by descending length, ties by index; `coarse_lod` are the levels above."""

    ranked: tuple[tuple[int, int], ...]
    level: int
    coarse_lod: tuple[tuple[int, ...], ...] = ()

    def items(self) -> list[tuple[int, int]]:
        """The (index, length) pairs in order."""
        return list(self.ranked)

    @classmethod
    def from_lod(cls, lod: Sequence[Sequence[int]], level: int) -> LoDRankTable:
        """Rank the sequences of `lod[level]` (offsets); raises LoDError when that level does not exist."""
        if not 0 <= level < len(lod):
            raise LoDError(
                f"a rank table of level {level} needs a LoD of at least {level + 1} levels, found {len(lod)}"
            )
        offsets = lod[level]
        lengths = [(i, offsets[i + 1] - offsets[i]) for i in range(len(offsets) - 1)]
        ranked = tuple(sorted(lengths, key=lambda item: -item[1]))
        return cls(ranked, level, tuple(tuple(above) for above in lod[:level]))
