"""The multiply-adds of an operator, by its definition, stored in one of its nodes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from fluidtool.ir import Operator
from fluidtool.ops.multiply_adds import UnknownShapeError, known_multiply_adds
from fluidtool.ops.registry import get_op
from fluidtool.runtime.graph.importers.registry import GraphBuilder
from fluidtool.runtime.graph.ir import Node, Shape


def multiply_adds_of(builder: GraphBuilder, op: Operator, results: Sequence[tuple[str, int, Shape]]) -> int:
    """The multiply-adds of the operator to import; results: its output shapes by slot and number."""
    count = get_op(op.type).multiply_adds
    if count is None:
        return 0
    made = {(">" + slot, number): shape for slot, number, shape in results}

    def shape(slot: str, index: int = 0, rank: int = 0) -> Shape:
        found = made.get((slot, index)) if slot.startswith(">") else _input_shape(builder, op, slot, index)
        if found is None or len(found) < rank or min(found, default=0) < 0:
            raise UnknownShapeError
        return found

    return known_multiply_adds(count, op, shape)


def _input_shape(builder: GraphBuilder, op: Operator, slot: str, index: int) -> Shape | None:
    names = op.inputs.get(slot, [])
    value = builder.values.get(names[index]) if index < len(names) else None
    return None if value is None else value.shape


def with_multiply_adds(made: Sequence[Node], multiply_adds: int) -> list[Node]:
    """The nodes of an operator, with its multiply-adds in the one that computes: the node with weights, else the last."""
    if not multiply_adds or not made:
        return list(made)
    computes = next((node for node in made if "weights" in node.attrs), made[-1])
    return [replace(node, multiply_adds=multiply_adds) if node is computes else node for node in made]
