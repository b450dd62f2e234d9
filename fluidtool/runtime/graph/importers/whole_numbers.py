"""Whole numbers that must name a row, a class or a tag, in regions on a GPU: kernels mark those that do not."""

from __future__ import annotations

from typing import Protocol

from fluidtool.ir import Operator
from fluidtool.records import dataclass
from fluidtool.runtime.graph.bounds import ALL, COMPUTED, Bound, Column
from fluidtool.runtime.graph.importers.registry import GraphBuilder, need
from fluidtool.runtime.graph.ir import Value


class Ids(Protocol):
    """How an importer gets whole numbers: from a region or from a training step."""

    def __call__(
        self,
        op: Operator,
        slot: str,
        rows: int,
        ignored: int | None = None,
        lengths: Value | None = None,
        column: Column = ALL,
    ) -> Value:
        """Those in a slot of an operator: each is below `rows`, or the one that is `ignored`. Of lines with `lengths` those
        beyond the length may be anything, and so may be those of other columns than `column`.
        """


@dataclass(frozen=True, slots=True)
class Marked:
    """Those of a region, whose `bounds` are noted: kernels mark what is out of range. They may be computed, except of lines."""

    builder: GraphBuilder
    bounds: list[Bound]

    def __call__(
        self,
        op: Operator,
        slot: str,
        rows: int,
        ignored: int | None = None,
        lengths: Value | None = None,
        column: Column = ALL,
    ) -> Value:
        """The numbers in a slot."""
        found, name = self.builder.get(op, slot, integer=True), self.builder.given_name
        is_given = self.builder.is_from_outside(found)
        need(is_given or lengths is None, f"{slot} that is computed")
        self.bounds.append(
            Bound(
                name(found) if is_given else COMPUTED,
                rows,
                ignored,
                "" if lengths is None else name(lengths),
                column=column,
            )
        )
        return found
