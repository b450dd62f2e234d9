"""Folding: operators that belong together become one node. Name scopes first, then sections cut where few values pass.

Both are runs of operators in the order in which they run, so that what is folded has no cycles either.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import accumulate, groupby

from fluidtool.drawing.build import LABEL, LINE, TITLE, count_text
from fluidtool.drawing.graph import Graph, Link, Node
from fluidtool.drawing.text import shortened

SECTIONS = 48  # that a graph is cut into, at most about
SMALLEST = 12  # operators of a section, about
MOST_VALUES = 60  # inputs or outputs that have a node of their own
OUTERS = 24  # values that pass the edge of a group and have a node of their own

Run = tuple[int, int]  # the first node, and the one behind the last


def folded(graph: Graph, most: int) -> Graph:
    """The graph with as many groups as it takes to show no more than about `most` nodes at once."""
    graph = _few_values(graph) if len(graph.nodes) > most else graph
    inside = [replace(node, inner=folded(node.inner, most)) if node.inner else node for node in graph.nodes]
    return _folded(Graph(tuple(inside), graph.links), most, 0)


def _folded(graph: Graph, most: int, depth: int) -> Graph:
    if len(graph.nodes) <= most:
        return graph
    runs = list(_scopes(graph.nodes, depth))
    if runs:
        graph = _grouped(
            graph, runs, most, depth + 1, [_scope_title(graph.nodes[first], depth) for first, _ in runs], "scope"
        )
    if len(graph.nodes) <= most:
        return graph
    runs = _sections(graph)
    if len(runs) < 2:
        return graph
    return _grouped(
        graph, runs, most, depth, [_section_title(graph.nodes[first:end]) for first, end in runs], "section"
    )


def _few_values(graph: Graph) -> Graph:
    """Inputs and outputs of which there are too many: one node stands for the last of them."""
    number = list(range(len(graph.nodes)))
    nodes: list[Node] = []
    for kind, run in groupby(
        range(len(graph.nodes)), key=lambda at: graph.nodes[at].kind if graph.nodes[at].is_value else ""
    ):
        positions = list(run)
        own = len(positions) if not kind or len(positions) <= MOST_VALUES else MOST_VALUES - 1
        for position in positions[: own + 1]:
            number[position] = len(nodes)
            rest = len(positions) - own
            plural = f"{rest} values" if kind == "outer" else f"{rest} {kind}s"
            nodes.append(
                graph.nodes[position]
                if position - positions[0] < own
                else Node(plural, kind, block=graph.nodes[position].block)
            )
        for position in positions[own + 1 :]:
            number[position] = len(nodes) - 1
    return graph if len(nodes) == len(graph.nodes) else Graph(tuple(nodes), _merged(graph.links, number))


# ---------------------------------------------------------------- runs
def _scopes(nodes: Sequence[Node], depth: int) -> Iterator[Run]:
    """Runs of several operators in one name scope."""
    start = 0
    for name, run in groupby(nodes, key=lambda node: node.scope[depth : depth + 1]):
        length = sum(1 for _ in run)
        if name and length > 1:
            yield start, start + length
        start += length


def _scope_title(node: Node, depth: int) -> str:
    return node.scope[depth]


def _sections(graph: Graph) -> list[Run]:
    """Operators cut into runs of similar length where few values pass."""
    inner = [number for number, node in enumerate(graph.nodes) if not node.is_value]
    if not inner:
        return []
    start, end = inner[0], inner[-1] + 1
    size = max(SMALLEST, (end - start) // SECTIONS)
    passing = _passing(graph)
    runs = []
    while end - start > size + size // 2:
        window = range(start + size - size // 3, min(start + size + size // 3, end - size // 2) + 1)
        cut = min(window, key=lambda at: (passing[at - 1], abs(at - start - size)))
        runs.append((start, cut))
        start = cut
    return [*runs, (start, end)]


def _passing(graph: Graph) -> list[int]:
    """How many links lead from each node, or one before it, to a later one."""
    change = [0] * (len(graph.nodes) + 1)
    for link in graph.links:
        change[link.source] += 1
        change[link.targets[-1]] -= 1
    return list(accumulate(change))


def _section_title(nodes: Sequence[Node]) -> str:
    places = [place for node in nodes for place in node.places() if place.block == node.block]
    if not places:
        return nodes[0].title
    return f"operators {places[0].operator}–{places[-1].operator}"


# ---------------------------------------------------------------- groups
def _grouped(graph: Graph, runs: Sequence[Run], most: int, depth: int, titles: Sequence[str], why: str) -> Graph:
    """Each run as one node."""
    number = list(range(len(graph.nodes)))
    group = [-1] * len(graph.nodes)
    for at, (first, end) in enumerate(runs):
        group[first:end] = [at] * (end - first)
    nodes: list[Node] = []
    inside: list[list[Link]] = [[] for _ in runs]
    for link in graph.links:
        for at in {group[each] for each in (link.source, *link.targets)} - {-1}:
            inside[at].append(link)
    for position, node in enumerate(graph.nodes):
        at = group[position]
        if at >= 0 and position == runs[at][0]:
            nodes.append(_group(graph, runs[at], inside[at], most, depth, titles[at], why))
        elif at < 0:
            nodes.append(node)
        number[position] = len(nodes) - 1
    return Graph(tuple(nodes), _merged(graph.links, number))


def _merged(links: Sequence[Link], number: Sequence[int]) -> tuple[Link, ...]:
    """The links between other nodes; those of the same source and targets become one."""
    shared: dict[tuple[int, tuple[int, ...]], list[Link]] = {}
    for link in links:
        source = number[link.source]
        targets = tuple(sorted({number[target] for target in link.targets} - {source}))
        if targets:
            shared.setdefault((source, targets), []).append(link)
    merged = []
    for (source, targets), same in sorted(shared.items(), key=lambda each: each[0]):
        names = tuple(dict.fromkeys(name for link in same for name in link.names))
        merged.append(Link(source, targets, names, same[0].label if len(same) == 1 else f"{len(names)} values"))
    return tuple(merged)


def _group(graph: Graph, run: Run, links: Sequence[Link], most: int, depth: int, title: str, why: str) -> Node:
    """A node with what it contains; values from outside and for outside are nodes in it."""
    first, end = run
    within = graph.nodes[first:end]
    entering = [link for link in links if not first <= link.source < end]
    leaving = [
        link for link in links if first <= link.source < end and not all(first <= each < end for each in link.targets)
    ]
    before, after = (_outers(each, within[0].block) for each in (entering, leaving))
    shift = len(before) - first
    way_in = {id(link): min(number, len(before) - 1) for number, link in enumerate(entering)}
    way_out = {id(link): end + shift + min(number, len(after) - 1) for number, link in enumerate(leaving)}
    moved = []
    for link in links:
        targets = [target + shift for target in link.targets if first <= target < end]
        targets += [way_out[id(link)]] if id(link) in way_out else []
        moved.append(Link(way_in.get(id(link), link.source + shift), tuple(targets), link.names, link.label))
    inner = _folded(Graph((*before, *within, *after), tuple(moved)), most, depth)
    lines = (count_text(inner), _types(within))
    return Node(shortened(title, TITLE), "group", lines, block=within[0].block, inner=inner, folded=why)


def _outers(links: Sequence[Link], block: int) -> list[Node]:
    """Values that pass the edge of a group; if there are many, the last node stands for all that have none of their own."""
    own = len(links) if len(links) <= OUTERS else OUTERS - 1
    nodes = [_outer(link.names, link.label, block) for link in links[:own]]
    rest = tuple(name for link in links[own:] for name in link.names)
    return [*nodes, _outer(rest, "", block)] if rest else nodes


def _outer(names: Sequence[str], label: str, block: int) -> Node:
    title = shortened(names[0], TITLE) if len(names) == 1 else f"{len(names)} values"
    lines = (shortened(label, LABEL),) if label and len(names) == 1 else ()
    return Node(title, "outer", lines, name=names[0] if len(names) == 1 else "", block=block)


def _types(nodes: Sequence[Node]) -> str:
    """'conv2d ×4, relu ×4, …', the most frequent first."""
    counts = Counter(node.title for node in nodes if not node.is_value).most_common()
    text = ""
    for name, count in counts:
        longer = ", ".join(filter(None, [text, f"{name} ×{count}" if count > 1 else name]))
        if len(longer) > LINE - 3:
            return f"{text}, …" if text else shortened(longer, LINE)
        text = longer
    return text
