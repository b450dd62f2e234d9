"""Regions as data: which kernels and calls a graph becomes, and where its values are. Neither a GPU nor a stand-in takes part."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest

import fluidtool.runtime.engines.cuda.convolutions  # noqa: F401  (what lowers convolutions)
from fluidtool.runtime.engines.cuda.arena import ALIGNMENT, lay_out, lifetimes, room_of
from fluidtool.runtime.engines.cuda.calls import Buffer, Call, Launch, Pointer, channels_last, row_major, same_strides
from fluidtool.runtime.engines.cuda.lowering import LARGEST, Lowered, lower
from fluidtool.runtime.graph.importers.registry import ADD, EXP, TANH
from fluidtool.runtime.graph.ir import NONE, RELU, Activation, Graph, Node, UnsupportedError, Value

BOTH = frozenset({"cublaslt", "cudnn"})


def value(*shape: int) -> Value:
    return Value("v", shape)


def unary(x: Value, kind: int) -> Node:
    return Node("unary", [x], value(*x.shape), {}, Activation(kind))


def add(x: Value, y: Value) -> Node:
    return Node("binary", [x, y], value(*x.shape), {"operation": ADD, "y_shape": y.shape})


def graph(inputs: list[Value], *nodes: Node) -> Graph:
    return Graph(inputs, [nodes[-1].output], nodes)


def launches(lowered: Lowered) -> list[Launch]:
    found = [call for call in lowered.calls if isinstance(call, Launch)]
    assert len(found) == len(lowered.calls)
    return found


# ---------------------------------------------------------------- clusters
def test_elementwise_nodes_with_one_reader_are_one_kernel() -> None:
    x, other = value(4, 5), value(4, 5)
    first = unary(x, EXP)
    second = add(first.output, other)
    (launch,) = launches(lower(graph([x, other], first, second, unary(second.output, TANH)), BOTH))
    assert "tanhf((expf(" in launch.source
    assert [pointer.buffer.role for pointer in launch.pointers] == ["input", "input", "output"]


def test_a_value_that_two_nodes_read_is_stored() -> None:
    x = value(4, 5)
    first = unary(x, EXP)
    found = launches(lower(graph([x], first, add(first.output, first.output)), BOTH))
    assert len(found) == 2


def test_a_value_that_is_broadcast_is_computed_once() -> None:
    x, small = value(400, 5), value(5)
    first = unary(small, EXP)
    node = Node("binary", [x, first.output], value(400, 5), {"operation": ADD, "y_shape": (1, 5)})
    assert len(launches(lower(graph([x, small], first, node), BOTH))) == 2


def test_moves_are_no_kernels() -> None:
    x = value(4, 6)
    turned = Node("transpose", [x], value(6, 4), {"axes": [1, 0]})
    part = Node("slice", [turned.output], value(2, 4), {"starts": [3, 0], "sizes": [2, 4]})
    (launch,) = launches(lower(graph([x], turned, part, unary(part.output, EXP)), BOTH))
    assert launch.pointers[0].offset == 3


def test_kernels_that_are_alike_have_one_name() -> None:
    x = value(4, 5)
    first = unary(x, EXP)
    nodes = [first, unary(first.output, EXP)]
    both = Graph([x], [node.output for node in nodes], nodes)
    one, two = launches(lower(both, BOTH))
    assert one.name == two.name and one.source == two.source


def test_threads_are_in_the_order_of_the_memory_that_they_write() -> None:
    x, weights = value(1, 2, 3, 3), np.ones((4, 2, 1, 1), np.float32)
    attrs = {"weights": weights, "scale": None, "shift": None, "strides": (1, 1), "dilations": (1, 1), "pads": (0,) * 4}
    conv = Node("conv", [x], value(1, 4, 3, 3), {**attrs, "groups": 1}, RELU)
    lowered = lower(graph([x], conv), BOTH)
    assert [type(call).__name__ for call in lowered.calls] == ["Launch", "Convolution", "Launch"]
    copy = lowered.calls[0]
    assert isinstance(copy, Launch) and "out[i3 + i1 * 6 + i2 * 2] = p0[i3 * 9 + i1 * 3 + i2]" in copy.source


# ---------------------------------------------------------------- refusals
@pytest.mark.parametrize(
    ("kind", "libraries", "reason"),
    [
        ("deformable", BOTH, "deformable has no kernel for GPUs"),
        ("conv", BOTH - {"cudnn"}, "a convolution needs cuDNN"),
        ("product", BOTH - {"cublaslt"}, "a product needs cuBLASLt"),
    ],
)
def test_what_has_no_kernel_is_named(kind: str, libraries: frozenset[str], reason: str) -> None:
    x = value(2, 3)
    node = Node(
        kind, [x], Value("result", (2, 3)), {"weights": np.ones((3, 3), np.float32), "matrix": (2, 3), "shift": None}
    )
    with pytest.raises(UnsupportedError, match=reason) as found:
        lower(graph([x], node), libraries)
    assert found.value.result == "result"


def test_values_beyond_an_index_of_32_bits_are_refused() -> None:
    x = value(LARGEST, 2)
    with pytest.raises(UnsupportedError, match="of more than"):
        lower(graph([x], unary(x, EXP)), BOTH)


# ---------------------------------------------------------------- memory
def chain(count: int) -> tuple[Call, ...]:
    """Calls of which each reads what the one before wrote."""
    buffers = [Buffer(100 + number) for number in range(count + 1)]
    return tuple(Launch("k", "", (Pointer(a), Pointer(b)), 1, 1) for a, b in pairwise(buffers))


def overlapping(calls: tuple[Call, ...]) -> list[tuple[Buffer, Buffer]]:
    """Pairs of buffers that are alive at once in the same memory."""
    alive, (offsets, _) = lifetimes(calls), lay_out(calls)
    found = []
    for a in offsets:
        for b in offsets:
            at_once = alive[a][0] <= alive[b][1] and alive[b][0] <= alive[a][1]
            if a is not b and at_once and offsets[a] < offsets[b] + room_of(b) and offsets[b] < offsets[a] + room_of(a):
                found.append((a, b))
    return found


def test_a_chain_needs_the_memory_of_two_values() -> None:
    _, size = lay_out(chain(20))
    assert size == 2 * room_of(Buffer(120))


@pytest.mark.parametrize("seed", range(20))
def test_values_that_are_alive_at_once_do_not_overlap(seed: int) -> None:
    random = np.random.default_rng(seed)
    buffers = [Buffer(int(size)) for size in random.integers(1, 1000, 30)]
    calls: tuple[Call, ...] = tuple(
        Launch("k", "", tuple(Pointer(buffers[i]) for i in random.integers(0, 30, 3)), 1, 1) for _ in range(40)
    )
    assert overlapping(calls) == []
    offsets, size = lay_out(calls)
    assert all(offset % ALIGNMENT == 0 for offset in offsets.values())
    assert size <= sum(room_of(buffer) for buffer in offsets)


def test_inputs_outputs_and_constants_are_not_in_the_arena() -> None:
    x, y = value(4, 5), Value("c", (5,), np.ones(5, np.float32))
    node = Node("binary", [x, y], value(4, 5), {"operation": ADD, "y_shape": (1, 5)})
    assert lay_out(lower(graph([x], node), BOTH).calls) == ({}, 0)


@pytest.mark.parametrize(
    ("shape", "same"), [((1, 1, 3, 3), True), ((1, 4, 1, 1), True), ((2, 4, 3, 3), False), ((2, 1, 3, 3), True)]
)
def test_axes_of_size_1_say_nothing_of_the_order(shape: Any, same: bool) -> None:
    assert same_strides(row_major(shape), channels_last(shape), shape) is same


def test_nothing_is_activated_without_an_activation() -> None:
    x = value(3, 3)
    weights = {"weights": np.ones((3, 3), np.float32), "matrix": (3, 3), "shift": None}
    kinds = []
    for activation in (NONE, RELU, Activation(TANH)):
        node = Node("product", [x], value(3, 3), weights, activation)
        kinds.append([type(call).__name__ for call in lower(graph([x], node), BOTH).calls])
    assert kinds == [["Product"], ["Product"], ["Product", "Launch"]]
