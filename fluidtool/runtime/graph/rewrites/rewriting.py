"""How a graph is rewritten: a rule looks at one node and answers with a rewrite, or with why there is none."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

from fluidtool.runtime.graph.ir import Graph, Node, Value


@dataclass(frozen=True, slots=True)
class Rewrite:
    """Other nodes in the place of some: by each, those that are computed where it was; none where it is not needed any more."""

    replacements: Mapping[Node, tuple[Node, ...]]


@dataclass(frozen=True, slots=True)
class NoMatch:
    """Why a rule leaves a node as it is; '' for one that it is not about."""

    reason: str = ""


@dataclass(frozen=True, slots=True)
class Outcome:
    """A graph rewritten: how often, and why not at other nodes that looked fit, by the name of what they compute."""

    graph: Graph
    done: int = 0
    no_matches: tuple[tuple[str, str], ...] = ()


ELSEWHERE = NoMatch()  # the rule is about other nodes
Producer = Callable[[Value], Node | None]
Rule = Callable[[Node, Producer], Rewrite | NoMatch]


def merged(before: Node, node: Node, into: Node) -> Rewrite:
    """A node and the one before it become one, at the place of the later: all that it reads is there by then."""
    multiply_adds = before.multiply_adds + node.multiply_adds
    return Rewrite({before: (), node: (replace(into, multiply_adds=multiply_adds),)})


def sweep(graph: Graph, rule: Rule) -> Outcome:
    """Ask a rule at every node, in order. It finds the producer of a value that nobody but the node at hand reads."""
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
    """What there is in the place of a node, where others may have taken the place of those, too."""
    waiting = [node]
    while waiting:
        node = waiting.pop()
        if node in replaced:
            waiting.extend(reversed(replaced[node]))
        else:
            yield node
