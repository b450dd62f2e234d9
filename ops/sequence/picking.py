"""Index arithmetic on LoD offsets, on the host: which rows make up which sequences."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from fluidtool.ops.context import OpContext
from fluidtool.tensor.lod import LoD


def sequence_offsets(ctx: OpContext, slot: str, rows: int, index: int = 0) -> list[int]:
    """The offsets of the last LoD level of an input of `rows` rows; raises OperatorError when they do not fit."""
    offsets = ctx.sequences(slot, index)
    check_rows(ctx, slot, offsets, rows)
    return offsets


def single_level(ctx: OpContext, slot: str, rows: int, index: int = 0) -> list[int]:
    """The offsets of an input of `rows` rows that must have exactly one LoD level."""
    levels = len(ctx.lod(slot, index))
    if levels != 1:
        raise ctx.error(f"input {slot} needs a LoD of one level, found {levels}; feed it with sequence lengths")
    return sequence_offsets(ctx, slot, rows, index)


def check_rows(ctx: OpContext, slot: str, offsets: Sequence[int], rows: int) -> None:
    """Raise OperatorError unless the offsets end at the number of rows."""
    if offsets[-1] != rows:
        raise ctx.error(
            f"the LoD of input {slot} covers {offsets[-1]} rows, but it has {rows}; feed lengths that add up to its rows"
        )


def offsets_of(lengths: Iterable[int]) -> list[int]:
    """[2, 3] -> [0, 2, 5]."""
    offsets = [0]
    for length in lengths:
        offsets.append(offsets[-1] + int(length))
    return offsets


def row_sequences(ctx: OpContext, offsets: Sequence[int]) -> Any:
    """For every row the number of its sequence: [0, 2, 5] -> [0, 0, 1, 1, 1] (host, int64)."""
    return ctx.np.repeat(ctx.np.arange(len(offsets) - 1), ctx.np.diff(offsets))


def row_positions(ctx: OpContext, offsets: Sequence[int]) -> Any:
    """For every row its position within its sequence: [0, 2, 5] -> [0, 1, 0, 1, 2] (host, int64)."""
    return ctx.np.arange(offsets[-1]) - ctx.np.repeat(offsets[:-1], ctx.np.diff(offsets))


def ranges(ctx: OpContext, starts: Any, sizes: Any) -> Any:
    """Ranges end to end: starts [5, 1], sizes [2, 3] -> [5, 6, 1, 2, 3] (host, int64)."""
    sizes = ctx.np.asarray(sizes, dtype=ctx.np.int64)
    ends = ctx.np.cumsum(sizes)
    total = int(ends[-1]) if len(ends) else 0
    return ctx.np.repeat(ctx.np.asarray(starts, dtype=ctx.np.int64) - (ends - sizes), sizes) + ctx.np.arange(total)


def take_sequences(ctx: OpContext, lod: Sequence[Sequence[int]], picks: Any) -> tuple[LoD, Any]:
    """The sequences `picks` of the first level of `lod`, in that order: their LoD and their rows (host, int64).

    Without a LoD every row is a separate sequence.
    """
    taken: LoD = []
    items = ctx.np.asarray(picks, dtype=ctx.np.int64)
    for level in lod:
        offsets = ctx.np.asarray(level, dtype=ctx.np.int64)
        sizes = offsets[items + 1] - offsets[items]
        taken.append(offsets_of(sizes))
        items = ranges(ctx, offsets[items], sizes)
    return taken, items


def join_lods(lods: Sequence[Sequence[Sequence[int]]]) -> LoD:
    """The LoD of concatenated tensors with the same number of levels."""
    if not lods:
        return []
    joined: LoD = []
    for levels in zip(*lods, strict=True):
        offsets = [0]
        for level in levels:
            base = offsets[-1]
            offsets += [base + offset for offset in level[1:]]
        joined.append(offsets)
    return joined
