"""Dense gradients of tables that only an update reads: computed as the rows that the ids name.

A batch names few rows of a table. Its dense gradient, as tall as the table, is zeros elsewhere, and so are the gradients of
several lookups that a `sum` adds up. Where nobody sees them, they are SelectedRows, and the update, which is told, means
by them what it would mean by the dense gradient.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace

from fluidtool.ir import Program
from fluidtool.ops.distributed.tables import NO_PADDING
from fluidtool.runtime.dependencies import names_used
from fluidtool.runtime.step import Step

LOOKUPS = frozenset({"lookup_table_grad", "lookup_table_v2_grad"})
Mentions = Mapping[str, Sequence[int]]


def with_rows_as_gradients(
    program: Program, steps: list[Step], kept: Collection[str], updates: Callable[[str], Mapping[str, str]]
) -> list[Step]:
    """The steps, with rows for dense gradients where these stay between lookups and updates.

    kept: names needed afterwards; updates: not empty for types of operators whose kernels take such rows.
    """
    if not any(step.op.type in LOOKUPS for step in steps):
        return steps
    mentions: dict[str, list[int]] = defaultdict(list)
    for number, step in enumerate(steps):
        for name in names_used(program, step.op):
            mentions[name].append(number)
    changed = list(steps)
    for number, step in enumerate(steps):
        plain = updates(step.op.type) and not step.op.variable_attrs()
        grads = step.op.input("Grad") if plain else []
        makers = _makers(steps, mentions, kept, grads[0]) if len(grads) == 1 else None
        if makers:
            changed[number] = replace(step, attrs={**step.attrs, "stands_for_dense": True})
            for maker in makers:
                changed[maker] = replace(steps[maker], attrs={**steps[maker].attrs, "is_sparse": True})
    return changed


def _makers(steps: Sequence[Step], mentions: Mentions, kept: Collection[str], name: str) -> list[int] | None:
    """The lookups' gradients that a gradient is or is the sum of; None if it is anything else, or read elsewhere."""
    if name in kept or len(mentions[name]) != 2:
        return None
    place, step = mentions[name][0], steps[mentions[name][0]]
    if step.op.type in LOOKUPS and step.op.output("W@GRAD") == [name]:
        plain = not step.attrs["is_sparse"] and step.attrs["padding_idx"] == NO_PADDING
        return [place] if plain and not step.op.variable_attrs() else None
    if step.op.type != "sum" or step.op.output("Out") != [name]:
        return None
    parts = [_makers(steps, mentions, kept, part) for part in step.op.input("X")]
    return [maker for part in parts for maker in part or ()] if all(parts) else None
