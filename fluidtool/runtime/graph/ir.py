"""The graph of a region: values of known shapes, and nodes of few kinds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from math import prod
from types import MappingProxyType
from typing import Any

import numpy as np

from fluidtool.errors import FluidError
from fluidtool.records import dataclass

Shape = tuple[int, ...]


class UnsupportedError(FluidError):
    """The native engine has no kernel for something.

    result: the output of the operator concerned; operand: an input that no native operator can take. Without
    either, the whole region runs on numpy.
    """

    def __init__(self, message: str, *, result: str = "", operand: str = "") -> None:
        super().__init__(message)
        self.result, self.operand = result, operand


class OutsideError(FluidError):
    """A value that its operator will refuse: the operators run one by one, for the message."""


class EngineFaultError(Exception):
    """A bug of the native engine, not of the program: reported as an internal error."""


@dataclass(frozen=True, slots=True)
class Activation:
    """What a kernel applies to its results before it stores them: a number of `enum ft_activation`, and its constants."""

    kind: int = 0
    constants: tuple[float, ...] = ()


NONE = Activation()
RELU = Activation(1)


@dataclass(eq=False, slots=True)
class Value:
    """An array of the graph, of float32 or of int64. `array` is set for constants.

    short: whether whole numbers have 32 bits in the program; graphs have them as int64, which is converted where they leave one.
    """

    name: str
    shape: Shape
    array: Any = None
    integer: bool = False
    short: bool = False

    @property
    def floats(self) -> int:
        """Its size in memory, in floats."""
        return prod(self.shape) * (2 if self.integer else 1)

    @property
    def dtype(self) -> type[np.float32 | np.int64]:
        """The size of the array outside the graph."""
        return np.int64 if self.integer else np.float32


@dataclass(frozen=True, eq=False, slots=True)
class Node:
    """One computation, by `kind` and `attrs`. Nodes are immutable; a rewrite replaces them.

    multiply_adds: those of the operators that it computes, by their definition.
    """

    kind: str
    inputs: Sequence[Value]
    output: Value
    attrs: Mapping[str, Any] = field(default_factory=dict)
    activation: Activation = NONE
    residual: Value | None = None
    multiply_adds: int = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "inputs", tuple(self.inputs))
        object.__setattr__(self, "attrs", MappingProxyType(dict(self.attrs)))


@dataclass(frozen=True, slots=True)
class Graph:
    """Nodes in order, the values that come from outside, and those that are read outside."""

    inputs: Sequence[Value]
    outputs: Sequence[Value]
    nodes: Sequence[Node]

    _uses: list[Counter[Value]] = field(default_factory=list, init=False, repr=False, compare=False)

    def with_nodes(self, nodes: Iterable[Node]) -> Graph:
        """The graph with these nodes."""
        return Graph(self.inputs, self.outputs, tuple(nodes))

    def without_unread(self) -> Graph:
        """The graph without nodes whose result is never read."""
        needed = set(self.outputs)
        kept = []
        for node in reversed(self.nodes):
            if node.output in needed:
                needed.update(operands(node))
                kept.append(node)
        return self.with_nodes(reversed(kept))

    def uses(self) -> Counter[Value]:
        """How often each value is read, by a node or outside; computed once, not to be changed."""
        if not self._uses:
            found = Counter(value for node in self.nodes for value in operands(node))
            found.update(self.outputs)
            self._uses.append(found)
        return self._uses[0]


def operands(node: Node) -> Iterable[Value]:
    """The operands of a node."""
    return node.inputs if node.residual is None else (*node.inputs, node.residual)
