"""The graph between a program and its steps: values of known shapes, and nodes of few kinds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from math import prod
from typing import Any

import numpy as np

from fluidtool.errors import FluidError

Shape = tuple[int, ...]


class UnsupportedError(FluidError):
    """Something that the native engine has no kernel for.

    result: the output of the operator that it is about; operand: an input that no native operator can take. Without
    either, the whole region is left to numpy.
    """

    def __init__(self, message: str, *, result: str = "", operand: str = "") -> None:
        super().__init__(message)
        self.result, self.operand = result, operand


class EngineFaultError(Exception):
    """A fault of the native engine itself, which is no fault of the program: reported as an internal error."""


@dataclass(frozen=True, slots=True)
class Activation:
    """What a kernel does to its results before it stores them: a number of `enum ft_activation`, and its constants."""

    kind: int = 0
    constants: tuple[float, ...] = ()


NONE = Activation()
RELU = Activation(1)


@dataclass(eq=False, slots=True)
class Value:
    """An array of the graph, of float32 or of int64. `array` is set for constants."""

    name: str
    shape: Shape
    array: Any = None
    integer: bool = False

    @property
    def floats(self) -> int:
        """Its memory in floats."""
        return prod(self.shape) * (2 if self.integer else 1)

    @property
    def dtype(self) -> type[np.float32 | np.int64]:
        """Of the array outside."""
        return np.int64 if self.integer else np.float32


@dataclass(eq=False, slots=True)
class Node:
    """One computation: `kind` says which (lowering.py), `attrs` how."""

    kind: str
    inputs: list[Value]
    output: Value
    attrs: dict[str, Any] = field(default_factory=dict)
    activation: Activation = NONE
    residual: Value | None = None


@dataclass(slots=True)
class Graph:
    """Nodes in order, the values that come from outside, and those that somebody outside reads."""

    inputs: list[Value]
    outputs: list[Value]
    nodes: list[Node]

    def drop_unread(self) -> None:
        """Forget nodes whose result nobody reads."""
        needed = set(self.outputs)
        kept = []
        for node in reversed(self.nodes):
            if node.output in needed:
                needed.update(operands(node))
                kept.append(node)
        self.nodes = kept[::-1]

    def uses(self) -> Counter[Value]:
        """How often each value is read, by a node or from outside."""
        return Counter(value for node in self.nodes for value in operands(node)) + Counter(self.outputs)


def operands(node: Node) -> Iterable[Value]:
    """What a node reads."""
    return (*node.inputs, *(() if node.residual is None else (node.residual,)))
