"""How a graph is rewritten: a rule looks at one node and returns a rewrite, or the reason why it does not match."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

from fluidtool.records import dataclass
from fluidtool.runtime.graph.ir import Graph, Node, Value


@dataclass(frozen=True, slots=True)
class Rewrite:
    """Replaces nodes: each replaced node with the nodes computed in its place, none if it is no longer needed."""

    replacements: Mapping[Node, tuple[Node, ...]]


@dataclass(frozen=True, slots=True)
class NoMatch:
    """Why a rule does not apply to a node; '' if it is about other kinds of nodes."""

    reason: str = ""


@dataclass(frozen=True, slots=True)
class Outcome:
    """A rewritten graph: how often the rule matched, and for close misses the reason, by the name of the result."""

    graph: Graph
    done: int = 0
    no_matches: tuple[tuple[str, str], ...] = ()


ELSEWHERE = NoMatch()  # the rule is about other nodes
Producer = Callable[[Value], Node | None]
Rule = Callable[[Node, Producer], Rewrite | NoMatch]


def merged(before: Node, node: Node, into: Node) -> Rewrite:
    """Fuse a node and its producer at the place of the node: all operands exist by then."""
    multiply_adds = before.multiply_adds + node.multiply_adds
    return Rewrite({before: (), node: (replace(into, multiply_adds=multiply_adds),)})


def sweep(graph: Graph, rule: Rule) -> Outcome:
    """Apply a rule at every node, in order. It finds the producer of a value without other readers."""
    uses = graph.uses()
    producers: dict[Value, Node] = {}
    replaced: dict[Node, tuple[Node, ...]] = {}
    done, reasons = 0, []

    def alone(value: Value) -> Node | None:
        return producers.get(value) if uses[value] == 1 else None

    for node in graph.nodes:
        producers[node.output] = node
        found = rule(node, alone)
        if found is ELSEWHERE:
            continue
        if isinstance(found, NoMatch):
            reasons.append((node.output.name, found.reason))
            continue
        done += 1
        replaced.update(found.replacements)
        producers.update({new.output: new for nodes in found.replacements.values() for new in nodes})
    if not done:
        return Outcome(graph, 0, tuple(reasons))
    nodes = (new for node in graph.nodes for new in expanded(node, replaced))
    return Outcome(graph.with_nodes(nodes), done, tuple(reasons))


def expanded(node: Node, replaced: Mapping[Node, tuple[Node, ...]]) -> Iterator[Node]:
    """What stands in the place of a node, if replacements were replaced in turn."""
    waiting = [node]
    while waiting:
        node = waiting.pop()
        if node in replaced:
            waiting.extend(reversed(replaced[node]))
        else:
            yield node
