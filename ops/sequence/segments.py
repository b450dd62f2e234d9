"""Sums and maxima over sequences of rows, as array expressions on any device.

Sequences are gathered into padded blocks. When the longest makes that wasteful, those of similar lengths (within a
factor of two) get a block each, so that the work stays proportional to the number of rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from fluidtool.ops.context import OpContext
from fluidtool.ops.sequence.picking import offsets_of


class Segments(NamedTuple):
    """Some sequences: their numbers (k), their rows (k, steps; the last one repeated), and which steps exist."""

    members: Any
    rows: Any
    valid: Any


def blocks(ctx: OpContext, offsets: Sequence[int]) -> Iterator[Segments]:
    """The sequences that are not empty, in groups of similar lengths (host arrays)."""
    np = ctx.np
    bounds = np.asarray(offsets, dtype=np.int64)
    starts, sizes = bounds[:-1], bounds[1:] - bounds[:-1]
    for members in _groups(ctx, sizes):
        last = sizes[members, None] - 1
        steps = np.arange(last.max() + 1)
        yield Segments(members, starts[members, None] + np.minimum(steps, last), steps <= last)


def _groups(ctx: OpContext, sizes: Any) -> list[Any]:
    """The numbers of the sequences that are not empty: all in one group, or by the power of two above their length."""
    np = ctx.np
    filled = sizes.nonzero()[0]
    if len(filled) == 0 or len(filled) * sizes.max() <= 2 * sizes.sum():
        return [filled] if len(filled) else []
    classes = np.frexp(sizes[filled] - 1)[1]
    return [filled[classes == kind] for kind in np.unique(classes)]


def segment_sum(ctx: OpContext, X: Any, offsets: Sequence[int]) -> Any:
    """Sum of the rows of every sequence: [T, …] -> [n, …]; an empty sequence gives 0."""
    out = ctx.xp.zeros((len(offsets) - 1, *X.shape[1:]), dtype=X.dtype)
    for block in blocks(ctx, offsets):
        values = X[ctx.array(block.rows)]
        if not block.valid.all():
            valid = ctx.array(block.valid.reshape(block.valid.shape + (1,) * (X.ndim - 1)))
            values = ctx.xp.where(valid, values, X.dtype.type(0))
        out[ctx.array(block.members)] = values.sum(axis=1, dtype=X.dtype)
    return out


def segment_max(ctx: OpContext, X: Any, offsets: Sequence[int], empty: Any) -> tuple[Any, Any]:
    """Maximum of the rows of every sequence and the row that holds it first: [T, …] -> [n, …], [n, …] (int32).

    An empty sequence gives `empty` and row -1.
    """
    xp = ctx.xp
    shape = (len(offsets) - 1, *X.shape[1:])
    out, rows = xp.full(shape, empty, dtype=X.dtype), xp.full(shape, -1, dtype=xp.int32)
    for block in blocks(ctx, offsets):
        members, index = ctx.array(block.members), ctx.array(block.rows)
        values = X[index]
        where = values.argmax(axis=1)
        out[members] = xp.take_along_axis(values, where[:, None], axis=1)[:, 0]
        index = index.reshape(index.shape + (1,) * (X.ndim - 1))
        rows[members] = xp.take_along_axis(xp.broadcast_to(index, values.shape), where[:, None], axis=1)[:, 0]
    return out, rows


def scatter_sum(ctx: OpContext, values: Any, targets: Any, count: int) -> Any:
    """Rows added up by target: out[targets[i]] += values[i], `targets` on the host; [m, …] -> [count, …]."""
    np = ctx.np
    order = np.argsort(targets, kind="stable")
    sizes = np.bincount(targets, minlength=count)
    return segment_sum(ctx, values[ctx.array(order)], offsets_of(sizes))
