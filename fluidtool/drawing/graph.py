"""What is drawn: operators, inputs and outputs as nodes, and which values lead from one to another."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from fluidtool.records import dataclass


class Place(NamedTuple):
    """An operator: its block, and its position there."""

    block: int
    operator: int


@dataclass(frozen=True, slots=True)
class Node:
    """A card: its title, smaller lines below it, and what it is.

    kind: what colors it, one of `kinds.KINDS`, or 'input', 'output', 'outer' (a value from outside a block), 'group', 'unknown'.
    place: of an operator. name: the variable of an input or output. inner: what a group contains, and `folded` why it is a group:
    'block', 'scope' or 'section'. scope: the name scope that an operator was made in.
    """

    title: str
    kind: str
    lines: tuple[str, ...] = ()
    place: Place | None = None
    name: str = ""
    block: int = 0
    scope: tuple[str, ...] = ()
    inner: Graph | None = None
    folded: str = ""

    @property
    def is_value(self) -> bool:
        """Whether this is an input or output, not an operator or group."""
        return self.kind in ("input", "output", "outer")

    @property
    def number(self) -> str:
        """The position of an operator in its block; '' for other nodes."""
        return "" if self.place is None or self.is_value else str(self.place.operator)

    def places(self) -> Iterator[Place]:
        """The operators in this node: itself, and those within."""
        if self.place is not None:
            yield self.place
        if self.inner is not None:
            yield from self.inner.places()


@dataclass(frozen=True, slots=True)
class Link:
    """Values that one node produces and the same nodes read. Targets have higher numbers than the source."""

    source: int
    targets: tuple[int, ...]
    names: tuple[str, ...]
    label: str


@dataclass(frozen=True, slots=True)
class Graph:
    """Nodes and links: inputs first, then operators and groups in the order in which they run, then outputs."""

    nodes: tuple[Node, ...]
    links: tuple[Link, ...]

    def places(self) -> Iterator[Place]:
        """The operators of all nodes."""
        for node in self.nodes:
            yield from node.places()

    def groups(self) -> Iterator[Node]:
        """Every group, at any depth."""
        for node in self.nodes:
            if node.inner is not None:
                yield node
                yield from node.inner.groups()
