"""Rows of recurrent layers in the order of the steps, and the states before the first step and after the last."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fluidtool.ir import Operator
from fluidtool.records import dataclass
from fluidtool.runtime.engines.cuda.lowering import Lowering, lowers
from fluidtool.runtime.engines.cuda.sequences import packed_rows
from fluidtool.runtime.engines.cuda.training.building import StepBuilder
from fluidtool.runtime.engines.cuda.training.recurrent import columns_of
from fluidtool.runtime.engines.cuda.training.sequences import taken
from fluidtool.runtime.graph.importers.registry import need
from fluidtool.runtime.graph.importers.sequences import offsets_of
from fluidtool.runtime.graph.ir import Node, Value

Attrs = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Packed:
    """How the rows of a layer are packed, step by step, the longest sequence first.

    starts: the first packed row of each step, then their number. rows: the row that each packed row is. places: the packed row
    that each row is. before: for each packed row that of the same sequence one step before, or -1.
    """

    starts: Any
    rows: Any

    @property
    def places(self) -> Any:
        """Rows -> packed rows."""
        found = np.empty_like(self.rows)
        found[self.rows] = np.arange(len(self.rows))
        return found

    @property
    def before(self) -> Any:
        """Packed rows -> those of the step before."""
        step = np.repeat(np.arange(len(self.starts) - 1), np.diff(self.starts))
        place = np.arange(len(self.rows)) - self.starts[step]
        return np.where(step > 0, self.starts[np.maximum(step - 1, 0)] + place, -1)


def packed_of(b: StepBuilder, op: Operator, slot: str, attrs: Attrs) -> tuple[Packed, dict[str, Any]]:
    """The packing of the sequences of an input, and what its nodes know of it."""
    name, rows = op.inputs[slot][0], b.get(op, slot).shape[0]
    need(len(b.lods.get(name, ())) == 1, "a recurrent layer over anything but sequences of one level")
    starts, order = packed_rows(offsets_of(b, op, slot, rows), bool(attrs["is_reverse"]))
    return Packed(starts, order), {"starts": starts, "rows": order}


def initial_of(b: StepBuilder, op: Operator, slot: str, layer: str, size: int) -> list[Value]:
    """The states before the first step, in the order of its rows; nothing where there are none. layer: the slot with the LoD."""
    if not b.has(op, slot):
        return []
    value, order = b.get(op, slot), sequences_of(b, op, layer)
    need(
        value.shape == (len(b.lods[op.inputs[layer][0]][0]) - 1, size), f"{slot} that is not a state for each sequence"
    )
    return [taken(b, value, order)]


def sequences_of(b: StepBuilder, op: Operator, slot: str) -> Any:
    """The sequence of each row of the first step: the longest first, without those that have no rows."""
    lengths = np.diff(b.lods[op.inputs[slot][0]][0])
    order = np.argsort(-lengths, kind="stable")
    return order[lengths[order] > 0]


def states_before(b: StepBuilder, states: Value, initial: Sequence[Value], packed: Packed) -> Value:
    """For each packed row the state of its sequence one step before: the initial one, or zeros, for those of the first step."""
    before = packed.before
    if not initial:
        return taken(b, states, before)
    alive, (rows, size) = int(packed.starts[1]), states.shape
    both = b.node("concat", [states, *initial], (rows + alive, size), axis=0)
    return taken(b, both, np.where(before < 0, rows + np.arange(rows), before))


def put_initial_gradients(b: StepBuilder, op: Operator, found: Value, layer: str, sizes: Mapping[str, int]) -> None:
    """The gradients of initial states, which those of a layer leave beside their result; zeros for sequences without rows."""
    order = sequences_of(b, op, layer)
    count = len(b.lods[op.inputs[layer][0]][0]) - 1
    rows = np.full(count, -1)
    rows[order] = np.arange(len(order))
    for slot, size in sizes.items():
        if b.wants(op, f"{slot}@GRAD"):
            first = b.node("beside", [found], (len(order), size), name=slot)
            b.put(op, f"{slot}@GRAD", taken(b, first, rows))


@lowers("beside")
def _beside(low: Lowering, node: Node) -> None:
    low.places[node.output] = low.beside[node.inputs[0], node.attrs["name"]]


def put_states(
    b: StepBuilder, op: Operator, found: Value, packed: Packed, columns: Mapping[str, tuple[int, int]]
) -> None:
    """States as outputs, in the order of the rows; the gradient takes them in that of the steps. columns: first, how many."""
    for slot, (start, count) in columns.items():
        column = columns_of(b, found, start, count)
        b.packed[op.outputs[slot][0]] = column
        b.put(op, slot, taken(b, column, packed.places))


def in_steps(b: StepBuilder, op: Operator, slot: str, packed: Packed) -> Value:
    """The rows of an input in the order of the steps, in which the layer has left them if it is in this step."""
    value = b.get(op, slot)
    found = b.packed.get(op.inputs[slot][0])
    return taken(b, value, packed.rows) if found is None else found
