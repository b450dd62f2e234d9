"""Whole numbers that must be within bounds: ids of tables, tags, classes, lengths."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from fluidtool.errors import OperatorError
from fluidtool.records import dataclass
from fluidtool.runtime.graph.ir import OutsideError

Column = tuple[int, int]
ALL: Column = (0, 1)  # numbers are not in columns, or it does not matter
COMPUTED = ""  # in the place of the name of numbers that a region or a step computes itself


@dataclass(frozen=True, slots=True)
class Bound:
    """Numbers that must be in [0, rows), or `ignored`.

    name: COMPUTED for those at which only kernels look. lengths: the name of how many numbers of each line count; '' if all do.
    of_table: whether they are ids of a table, of which a region says itself what is wrong; else their operator does.
    column: which one of so many columns has them.
    """

    name: str
    rows: int
    ignored: int | None = None
    lengths: str = ""
    of_table: bool = False
    column: Column = ALL


def are_within(bound: Bound, given: Mapping[str, Any]) -> bool:
    """Whether all numbers that count are within. given: they, and their lengths, by name; lengths are on the host."""
    number, columns = bound.column
    ids = given[bound.name] if bound.column == ALL else given[bound.name].reshape(-1)[number::columns]
    if not ids.size or (int(ids.min()) >= 0 and int(ids.max()) < bound.rows):
        return True
    wrong = (ids < 0) | (ids >= bound.rows)
    if bound.ignored is not None:
        wrong &= ids != bound.ignored
    if bound.lengths:
        lengths = given[bound.lengths].reshape(-1, 1)
        lines = wrong.reshape(len(lengths), -1)
        wrong = lines & (np.arange(lines.shape[1]) < lengths)
    return not wrong.any()


def check_bounds(bounds: Iterable[Bound], given: Mapping[str, Any]) -> None:
    """Raise OperatorError for an id out of range for its table, OutsideError for what its operator will refuse."""
    for bound in bounds:
        if are_within(bound, given):
            continue
        if not bound.of_table:
            raise OutsideError(f"{bound.name} holds numbers beyond {bound.rows - 1}")
        ids = given[bound.name]
        raise OperatorError(
            f"{bound.name} holds an id of {int(ids.min())} to {int(ids.max())}, the table has {bound.rows} rows"
        )
