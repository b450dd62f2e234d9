"""Order nodes to need less memory: values that are used late are computed later."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from math import prod

from fluidtool.runtime.graph.ir import Graph, Node, Value, operands
from fluidtool.runtime.graph.rewrites.rewriting import Outcome

PATIENCE = 64  # nodes to look at per node, on average: nodes that are used very late stay in place
AT_LEAST = 1 << 16


def delay(graph: Graph) -> Outcome:
    """Move nodes to their first reader if that lowers the memory in use."""
    nodes, outputs, moved = list(graph.nodes), set(graph.outputs), 0
    patience = AT_LEAST + PATIENCE * len(nodes)
    places = {node: place for place, node in enumerate(nodes)}
    readers: dict[Value, list[Node]] = {value: [] for node in nodes for value in (node.output, *operands(node))}
    for node in nodes:
        for value in operands(node):
            readers[value].append(node)
    for node in reversed(nodes.copy()):
        first = places[node]
        last = min((places[reader] for reader in readers[node.output]), default=first) - 1
        patience -= last - first
        if last <= first or patience < 0:
            continue
        before, later = nodes[first : last + 1], [*nodes[first + 1 : last + 1], node]
        kept = {value for other in before for value in (other.output, *operands(other))}
        kept = {value for value in kept if any(places[reader] > last for reader in readers[value])} | outputs
        if most_alive(later, kept) < most_alive(before, kept):
            nodes[first : last + 1] = later
            places |= {other: first + number for number, other in enumerate(later)}
            moved += 1
    return Outcome(graph.with_nodes(nodes), moved) if moved else Outcome(graph)


def most_alive(nodes: Sequence[Node], kept: set[Value]) -> int:
    """The peak number of elements in use at these nodes; `kept` are read after them.

    Values alive throughout are left out. A residual that dies gives its memory to the result.
    """
    left = Counter(value for node in nodes for value in operands(node) if value.array is None)
    left.update(kept)
    made = {node.output for node in nodes}
    size = most = sum(prod(value.shape) for value in left if value not in made)
    for node in nodes:
        in_place = node.residual is not None and left[node.residual] == 1
        size += 0 if in_place else prod(node.output.shape)
        most = max(most, size)
        for value in operands(node):
            left[value] -= 1
            if left[value] == 0 and not (in_place and value is node.residual):
                size -= prod(value.shape)
    return most
