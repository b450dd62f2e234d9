"""Rules answer with a rewrite or with why there is none; a sweep puts it into the graph and leaves the nodes as they were."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fluidtool.runtime.graph.importers.registry import ADD, AFFINE
from fluidtool.runtime.graph.ir import NONE, RELU, Activation, Graph, Node, Value
from fluidtool.runtime.graph.pipeline import REWRITES, by_rule
from fluidtool.runtime.graph.rewrites.fusion import fold_activation, fold_affine, fold_factor, fold_residual
from fluidtool.runtime.graph.rewrites.joining import merge_products
from fluidtool.runtime.graph.rewrites.pooling import pool_lookups
from fluidtool.runtime.graph.rewrites.rewriting import Outcome, Rule, sweep

IMAGE = (1, 8, 4, 4)


def value(name: str, *shape: int) -> Value:
    return Value(name, shape or IMAGE)


def conv(x: Value, name: str, **attrs: Any) -> Node:
    usual = {"weights": np.ones((8, 8, 1, 1), np.float32), "scale": None, "shift": None}
    return Node("conv", [x], value(name), usual | attrs)


def relu(x: Value, name: str) -> Node:
    return Node("unary", [x], value(name), {}, RELU)


def add(x: Value, y: Value, name: str) -> Node:
    return Node("binary", [x, y], value(name), {"operation": ADD, "y_shape": y.shape})


def after(rule: Rule, *nodes: Node, outputs: tuple[Value, ...] = ()) -> Outcome:
    return sweep(Graph([], outputs or (nodes[-1].output,), nodes), rule)


def shown(outcome: Outcome) -> list[str]:
    return [f"{node.kind} {node.output.name}" for node in outcome.graph.nodes]


def test_an_activation_goes_into_the_convolution_before_it() -> None:
    first = conv(value("x"), "a")
    outcome = after(fold_activation, first, relu(first.output, "b"))
    assert shown(outcome) == ["conv b"] and outcome.done == 1
    assert outcome.graph.nodes[0].activation == RELU and first.activation == NONE  # nodes do not change


def test_nodes_and_graphs_cannot_be_changed() -> None:
    node = conv(value("x"), "a")
    with pytest.raises(AttributeError):
        node.kind = "pool"  # type: ignore[misc]
    with pytest.raises(TypeError):
        node.attrs["scale"] = 1  # type: ignore[index]
    with pytest.raises(AttributeError):
        Graph([], [], []).nodes = []  # type: ignore[misc]


def test_what_is_read_elsewhere_stays_and_the_rule_says_so() -> None:
    first = conv(value("x"), "a")
    second = relu(first.output, "b")
    outcome = after(fold_activation, first, second, outputs=(first.output, second.output))
    assert shown(outcome) == ["conv a", "unary b"]
    assert outcome.no_matches == (("b", "the producer is an input, or has other readers"),)


def test_a_second_activation_stays_and_the_rule_says_so() -> None:
    first = conv(value("x"), "a")
    second = relu(first.output, "b")
    outcome = after(fold_activation, first, second, relu(second.output, "c"))
    assert shown(outcome) == ["conv b", "unary c"]
    assert outcome.no_matches == (("c", "the producer has an activation"),)


def test_a_rule_that_is_about_other_nodes_says_nothing() -> None:
    outcome = after(fold_affine, conv(value("x"), "a"))
    assert (outcome.done, outcome.no_matches) == (0, ())


def test_a_factor_and_a_shift_by_channel_go_into_the_weights() -> None:
    first = conv(value("x"), "a", shift=np.full(8, 2.0, np.float32))
    line = {"scale": np.full(8, 3.0), "shift": np.full(8, 5.0)}
    (node,) = after(fold_affine, first, Node("affine", [first.output], value("b"), line)).graph.nodes
    np.testing.assert_array_equal(node.attrs["scale"], np.full(8, 3.0))
    np.testing.assert_array_equal(node.attrs["shift"], np.full(8, 11.0))
    assert first.attrs["scale"] is None


def test_a_long_run_of_factors_and_shifts_goes_into_one() -> None:
    nodes = [conv(value("x"), "a")]
    for number in range(2000):
        line = {"scale": np.ones(8), "shift": np.ones(8)}
        nodes.append(Node("affine", [nodes[-1].output], value(f"{number}"), line))
    outcome = after(fold_affine, *nodes)
    assert shown(outcome) == ["conv 1999"] and outcome.graph.nodes[0].attrs["shift"][0] == 2000


def test_of_two_that_can_add_the_one_with_the_smaller_input_does() -> None:
    large, small = value("large", 1, 8, 8, 8), value("small")
    one, other = conv(large, "a"), conv(small, "b")
    outcome = after(fold_residual, one, other, add(one.output, other.output, "c"))
    assert shown(outcome) == ["conv a", "conv c"]
    assert outcome.graph.nodes[1].residual is one.output


def test_both_nodes_may_stay_where_a_rewrite_changes_both() -> None:
    scores = Node("matmul", [value("q"), value("k")], value("s"), {"swap_y": True}, Activation(AFFINE, (0.5, 0.0)))
    softmax = Node("softmax", [scores.output], value("p"), {"factor": 2.0, "mask_shape": None})
    one, other = after(fold_factor, scores, softmax).graph.nodes
    assert (one.kind, one.activation) == ("matmul", NONE) and other.attrs["factor"] == 1.0


def product(x: Value, name: str, weights: Any) -> Node:
    return Node("product", [x], value(name, 3, 4), {"weights": weights, "shift": None, "matrix": (3, 2)})


def test_products_by_the_same_numbers_are_computed_once() -> None:
    x, weights = value("x", 3, 2), np.ones((2, 4), np.float32)
    first, second = product(x, "a", weights), product(x, "b", weights.copy())
    both = Node("binary", [first.output, second.output], value("c", 3, 4), {"operation": ADD, "y_shape": (3, 4)})
    outcome = merge_products(Graph([x], [both.output], [first, second, both]))
    assert shown(outcome) == ["product a", "binary c"]
    assert outcome.graph.nodes[1].inputs == (first.output, first.output)


def test_the_rule_for_lookups_says_what_it_is_for() -> None:
    assert by_rule("pool lookups", pool_lookups(())).purpose.startswith("A lookup")


def test_every_rewrite_has_a_name_of_its_own_and_says_what_it_is_for() -> None:
    names = [rewrite.name for rewrite in REWRITES]
    assert len(set(names)) == len(names) > 15
    assert all(rewrite.purpose.endswith(".") for rewrite in REWRITES)


@pytest.mark.parametrize("rewrite", REWRITES, ids=[rewrite.name for rewrite in REWRITES])
def test_a_graph_without_a_match_comes_back_as_it_is(rewrite: Any) -> None:
    x = value("x")
    graph = Graph([x], [node.output for node in [conv(x, "a")]], [])
    outcome = rewrite.apply(graph)
    assert outcome.graph is graph and not outcome.done
