"""Which convolutions of float32 have their channels first, which last: what takes the least time, with copies between them."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from dataclasses import replace
from math import inf, prod
from typing import TypeVar

from fluidtool.runtime.engines.cuda.calls import Call, Choice, Convolution
from fluidtool.runtime.graph.ir import Node, Shape, Value, operands

Key = TypeVar("Key", bound=Hashable)
Seconds = tuple[float, float]  # with channels last, and first
LEAST = 1 << 26  # multiply-adds of a convolution that is measured: some microseconds, as a copy takes
CONVOLUTIONS = frozenset({"conv", "convolution", "conv3d", "conv_transpose"})
TURNS = frozenset({"view", "transpose"})
"""Nodes that say nothing of how what they read should lie."""


def channels_first(
    nodes: Sequence[Node],
    outputs: Collection[Value],
    calls: Sequence[Call],
    results: Sequence[Value | None],
    of_convolution: Callable[[Convolution], float],
    of_copy: Callable[[Shape], float],
) -> frozenset[Value]:
    """The values whose channels lie first, in a region that was lowered with all channels last. Empty where none gains by that.

    nodes, outputs: of its graph; what comes from outside, and what is read there, has its channels first. calls, results: those of
    the lowered region. of_convolution, of_copy: the seconds of a call, and of a copy of a shape to the other layout.
    """
    found = {}
    for call, value in zip(calls, results, strict=True):
        bare = _bare(call)
        if bare is not None and value is not None and multiply_adds(bare) >= LEAST:
            found[value] = of_convolution(bare), of_convolution(replace(bare, channels_first=True))
    if not any(first < last for last, first in found.values()):
        return frozenset()
    return cheapest(*_weighed(nodes, outputs, found, of_copy))


def _bare(call: Call) -> Convolution | None:
    """The convolution of images of a call, without what follows it: that costs the same in both layouts."""
    call = call.first if isinstance(call, Choice) else call
    if not isinstance(call, Convolution) or len(call.images) != 4:
        return None
    return replace(call, bias=None, added=None, activation=None)


def multiply_adds(call: Convolution) -> int:
    """The multiply-adds of a convolution."""
    return prod(call.results) * prod(call.filters[1:])


def _weighed(
    nodes: Sequence[Node],
    outputs: Collection[Value],
    measured: Mapping[Value, Seconds],
    of_copy: Callable[[Shape], float],
) -> tuple[dict[Value, Seconds], dict[tuple[Value, Value], float]]:
    """(the seconds of every image of a graph in each layout, those of a copy between two of them)."""
    seconds: dict[Value, Seconds] = {}
    links: dict[tuple[Value, Value], float] = {}
    for node in nodes:
        value = node.output
        if len(value.shape) != 4:
            continue
        last, first = measured.get(value, (0.0, inf if node.kind in CONVOLUTIONS else 0.0))
        if value in outputs:
            last += of_copy(value.shape)
        for each in dict.fromkeys(operands(node)):
            if len(each.shape) != 4 or node.kind in TURNS:
                continue
            if each in seconds:
                links[each, value] = of_copy(each.shape)
            elif each.array is None:
                last += of_copy(each.shape)
        seconds[value] = last, first
    return seconds, links


# ---------------------------------------------------------------- the least sum
def cheapest(seconds: Mapping[Key, Seconds], links: Mapping[tuple[Key, Key], float]) -> frozenset[Key]:
    """Those that are first, so that the seconds of all, and those of links between a first and a last one, are the least.

    That is a least cut between two ends, one of which stands for each layout: as much as can flow from one to the other.
    """
    room: dict[object, dict[object, float]] = defaultdict(dict)

    def join(a: object, b: object, there: float, back: float = 0.0) -> None:
        room[a][b] = room[a].get(b, 0.0) + there
        room[b][a] = room[b].get(a, 0.0) + back

    start, end = object(), object()
    for key, (last, first) in seconds.items():
        if last < first:
            join(start, key, first - last)
        elif first < last:
            join(key, end, last - first)
    for (one, other), cost in links.items():
        join(one, other, cost, cost)
    while (path := _path(room, start, end)) is not None:
        flow = min(room[a][b] for a, b in path)
        for a, b in path:
            room[a][b] -= flow
            room[b][a] += flow
    back = {a: {b: room[b][a] for b in near} for a, near in room.items()}
    return frozenset(seconds.keys() & _reached(back, end).keys())


def _reached(room: Mapping[object, Mapping[object, float]], start: object) -> dict[object, object]:
    """What can be reached from a start where there is room, and from where."""
    found: dict[object, object] = {start: start}
    waiting = deque([start])
    while waiting:
        at = waiting.popleft()
        for near, left in room.get(at, {}).items():
            if left > 0 and near not in found:
                found[near] = at
                waiting.append(near)
    return found


def _path(
    room: Mapping[object, Mapping[object, float]], start: object, end: object
) -> list[tuple[object, object]] | None:
    """The steps of a shortest way where there is room; None if there is none."""
    found = _reached(room, start)
    if end not in found:
        return None
    steps: list[tuple[object, object]] = []
    at = end
    while at is not start:
        steps.append((found[at], at))
        at = found[at]
    return steps
