"""Packing: the rows of all sequences in the order of time steps, so that one step of a recurrent layer is one product.

Sequences {s0: a b, s1: c d e} pack to c a | d b | e: longest first, at each step one row per sequence still running.
Paddle calls this the batch form of a LoDTensor (`LoDTensor2Batch`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from fluidtool.ops.context import OpContext
from fluidtool.records import dataclass


@dataclass(frozen=True, slots=True)
class Packing:
    """Where packed rows come from.

    starts: the first packed row of every step, then the number of rows. rows: the row of the input that each packed
    row is. order: the sequences, longest first (ties as they stand). previous: for every packed row from step 1 on,
    the packed row of the same sequence one step before. `rows` and `order` are host arrays, the `*_index` device ones.
    """

    starts: list[int]
    rows: Any
    order: Any
    row_index: Any
    order_index: Any
    previous_index: Any
    last_index: Any

    @property
    def first(self) -> int:
        """How many rows the first step has: the number of sequences that are not empty."""
        return self.starts[1] if len(self.starts) > 1 else 0

    def steps(self) -> Iterator[tuple[int, int, int]]:
        """(first row, end row, first row of the step before) of every step; -1 before the first."""
        before = -1
        for begin, end in zip(self.starts, self.starts[1:], strict=False):
            yield begin, end, before
            before = begin

    def backward_steps(self) -> Iterator[tuple[int, int, int]]:
        """The same, last step first."""
        return reversed(list(self.steps()))

    def pack(self, array: Any) -> Any:
        """A copy of the rows in packed order."""
        return array[self.row_index]

    def unpack(self, xp: Any, packed: Any, rows: int | None = None) -> Any:
        """The packed rows back in the order of the sequences; of `rows` rows, those of no sequence are zero."""
        out = xp.empty_like(packed) if rows is None else xp.zeros((rows, *packed.shape[1:]), dtype=packed.dtype)
        out[self.row_index] = packed
        return out

    def ordered(self, initial: Any) -> Any:
        """Rows by sequence [sequences, ...] -> longest sequence first; None stays None."""
        return None if initial is None else initial[self.order_index]

    def unordered(self, xp: Any, ordered: Any) -> Any:
        """Undo `ordered`."""
        out = xp.empty_like(ordered)
        out[self.order_index] = ordered
        return out

    def one_step_before(self, xp: Any, packed: Any, initial: Any) -> Any:
        """For every packed row the row of the step before; `initial` (ordered), or zeros, before the first step."""
        head = xp.zeros_like(packed[: self.first]) if initial is None else initial[: self.first]
        return xp.concatenate([head, packed[self.previous_index]])

    def lod(self) -> list[list[int]]:
        """What Paddle stores as the LoD of packed tensors: starts, rows, order."""
        return [self.starts, self.rows.tolist(), self.order.tolist()]


def pack_sequences(ctx: OpContext, slot: str, rows: int, is_reverse: bool = False) -> Packing:
    """The packing of the sequences of input `slot` ([rows, ...], LoD of one level).

    is_reverse: every sequence runs from its last row to its first. Raises OperatorError for another LoD.
    """
    lod = ctx.lod(slot)
    if len(lod) != 1:
        raise ctx.error(
            f"input {slot} needs a LoD of exactly one level, found {len(lod)}; feed it with sequence lengths"
        )
    offsets = lod[0]
    if offsets[-1] != rows:
        raise ctx.error(f"the LoD of input {slot} ends at {offsets[-1]}, but it has {rows} rows; the two must agree")
    bounds = ctx.np.asarray(offsets, dtype=ctx.np.int64)
    return pack_runs(ctx, bounds[:-1], ctx.np.diff(bounds), is_reverse)


def pack_runs(ctx: OpContext, firsts: Any, lengths: Any, is_reverse: bool = False, stride: int = 1) -> Packing:
    """The packing of sequences given by their first rows and their lengths (host integer arrays).

    stride: how many rows lie between one step of a sequence and the next.
    """
    np = ctx.np
    order = np.argsort(-lengths, kind="stable")
    firsts, lengths = firsts[order], lengths[order]
    longest = int(lengths[0]) if len(lengths) else 0
    alive = np.searchsorted(-lengths, -np.arange(longest), side="left")
    starts = np.concatenate([[0], np.cumsum(alive)]).astype(np.int64)
    step = np.repeat(np.arange(longest), alive)
    place = np.arange(starts[-1]) - starts[step]
    rows = firsts[place] + stride * (lengths[place] - 1 - step if is_reverse else step)
    filled = lengths[lengths > 0]
    later = step > 0
    return Packing(
        starts=starts.tolist(),
        rows=rows,
        order=order,
        row_index=ctx.array(rows),
        order_index=ctx.array(order),
        previous_index=ctx.array(starts[step[later] - 1] + place[later]),
        last_index=ctx.array(starts[filled - 1] + np.arange(len(filled))),
    )
