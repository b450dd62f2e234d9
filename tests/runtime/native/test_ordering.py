"""Nodes wait for their first reader where that needs less memory."""

from __future__ import annotations

import pytest

from fluidtool.runtime.graph.ir import Graph, Node, Value
from fluidtool.runtime.graph.rewrites.ordering import delay, most_alive
from tests.runtime.native.checking import Net, check


def step(name: str, size: int, *reads: Value, residual: Value | None = None) -> Node:
    return Node("conv", list(reads), Value(name, (size,)), residual=residual)


def names(graph: Graph) -> list[str]:
    return [node.output.name for node in graph.nodes]


def block(shortcut: int) -> Graph:
    """A shortcut and three convolutions of the same input; the last adds the shortcut to its own result."""
    x = Value("x", (10,))
    side = step("side", shortcut, x)
    first = step("first", 12, x)
    second = step("second", 2, first.output)
    last = step("last", shortcut, second.output, residual=side.output)
    return Graph([x], [last.output], [side, first, second, last])


def test_a_large_shortcut_waits_until_it_is_added() -> None:
    graph = block(20)
    assert names(delay(graph).graph) == ["first", "second", "side", "last"]


def test_a_shortcut_that_frees_more_than_it_takes_does_not_wait() -> None:
    graph = block(1)
    assert names(delay(graph).graph) == ["side", "first", "second", "last"]


def test_a_node_that_is_read_at_once_stays() -> None:
    x = Value("x", (10,))
    first = step("first", 100, x)
    second = step("second", 1, first.output)
    third = step("third", 1, second.output, first.output)
    graph = Graph([x], [third.output], [first, second, third])
    assert names(delay(graph).graph) == ["first", "second", "third"]


def test_a_result_takes_the_place_of_a_residual_that_dies() -> None:
    x, residual = Value("x", (10,)), Value("residual", (20,))
    node = step("y", 20, x, residual=residual)
    assert most_alive([node], {node.output}) == 30
    assert most_alive([node], {node.output, residual}) == 50


@pytest.mark.usefixtures("native")
def test_what_is_delayed_gives_the_same_numbers() -> None:
    net = Net()
    x = net.data(1, 16, 12, 12)
    start = net.conv(x, net.parameter(32, 16, 1, 1))
    side = net.conv(start, net.parameter(64, 32, 1, 1), strides=[2, 2])
    first = net.conv(start, net.parameter(32, 32, 1, 1))
    second = net.conv(first, net.parameter(32, 32, 3, 3), strides=[2, 2], paddings=[1, 1])
    last = net.conv(second, net.parameter(64, 32, 1, 1))
    check(net, net.op("elementwise_add", "Out", {"X": side, "Y": last}))
