"""The graph as it grows, and how the importer of an operator is found."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

from fluidtool.ir import Operator
from fluidtool.runtime.graph.ir import NONE, Activation, Node, UnsupportedError, Value

Lod = tuple[tuple[int, ...], ...]
IMPORTERS: dict[str, Callable[[GraphBuilder, Operator, dict[str, Any]], None]] = {}
RESULTS: dict[str, tuple[str, ...]] = {}  # the output slots that importers fill, where it is not the first one alone


def imports(*types: str, results: tuple[str, ...] = ()) -> Callable[[Any], Any]:
    """Register the importer of these operators, and the output slots that it fills where it is not the first one alone."""

    def register(function: Any) -> Any:
        IMPORTERS.update(dict.fromkeys(types, function))
        RESULTS.update(dict.fromkeys(types, results) if results else {})
        return function

    return register


def need(condition: Any, message: str) -> None:
    """Raise UnsupportedError unless the condition holds."""
    if not condition:
        raise UnsupportedError(message)


def axis_within(axis: Any, rank: int) -> int:
    """The axis counted from the front; raises UnsupportedError for one that is out of range, which numpy then refuses."""
    need(-rank <= int(axis) < rank, f"axis {axis} of {rank} dimensions")
    return int(axis) % rank


class GraphBuilder:
    """The graph as it grows: values, and their LoDs, by the name that they have at this point of the program."""

    def __init__(self) -> None:
        self.values: dict[str, Value] = {}
        self.nodes: list[Node] = []
        self.lods: dict[str, Lod] = {}
        self.frames: dict[Value, Value] = {}  # of volumes: the same numbers as images, one behind the other

    def get(self, op: Operator, slot: str, integer: bool = False) -> Value:
        """The value in an input slot: floats, or integers where they are asked for."""
        names = op.inputs.get(slot, [])
        need(len(names) == 1, f"{op.type} has {len(names)} variables in {slot}")
        need(names[0] in self.values, f"{names[0]} has no value")
        need(
            self.values[names[0]].integer == integer, f"{names[0]} of other numbers than {op.type} is computed on here"
        )
        return self.values[names[0]]

    def from_outside(self, op: Operator, slot: str) -> Value:
        """The integers in an input slot, which are an input of the region."""
        value = self.get(op, slot, integer=True)
        need(value.array is None and all(node.output is not value for node in self.nodes), f"{slot} that is computed")
        return value

    def maybe(self, op: Operator, slot: str) -> Value | None:
        """The value in an input slot that may be empty."""
        return self.get(op, slot) if op.inputs.get(slot) else None

    def constant(self, op: Operator, slot: str) -> Any:
        """The array of a constant in an input slot."""
        value = self.get(op, slot)
        need(value.array is not None, f"{slot} of {op.type} is computed")
        return value.array

    def add(
        self,
        kind: str,
        inputs: Sequence[Value],
        op: Operator,
        slot: str,
        shape: Sequence[int],
        activation: Activation = NONE,
        number: int = 0,
        integer: bool = False,
        **node_attrs: Any,
    ) -> Value:
        """A node whose result is what the operator writes to (the variable `number` of) an output slot."""
        name = op.outputs[slot][number]
        out = Value(name, tuple(int(size) for size in shape), integer=integer)
        need(prod(out.shape) > 0, f"{name} is empty")
        self.nodes.append(Node(kind, list(inputs), out, node_attrs, activation))
        self.values[name] = out
        return out

    def alias(self, value: Value, op: Operator, slot: str) -> None:
        """The operator's output is that value."""
        self.values[op.outputs[slot][0]] = value


ADD, SUBTRACT, MULTIPLY, DIVIDE, LARGER, SMALLER, ALONE, PRELU = range(8)
(
    SIGMOID,
    TANH,
    GELU,
    LEAKY,
    HARD_SWISH,
    SWISH,
    EXP,
    SQRT,
    SQUARE,
    AFFINE,
    HARD_SIGMOID,
    ABS,
    GELU_TANH,
    CLIP,
    SOFTSIGN,
) = range(3, 18)
