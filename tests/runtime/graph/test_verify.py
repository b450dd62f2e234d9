"""The verifier finds what no rewrite may leave behind, and runs after each where FLUIDTOOL_VERIFY asks for it."""

from __future__ import annotations

import numpy as np
import pytest

from fluidtool.runtime.graph import pipeline
from fluidtool.runtime.graph.ir import EngineFaultError, Graph, Node, Value
from fluidtool.runtime.graph.pipeline import NamedRewrite, rewritten
from fluidtool.runtime.graph.rewrites.rewriting import Outcome
from fluidtool.runtime.graph.verify import fault_of

X, Y, Z = Value("x", (2,)), Value("y", (2,)), Value("z", (2,))
TO_Y, TO_Z = Node("unary", [X], Y), Node("unary", [Y], Z)
CONSTANT = Value("c", (2,), np.zeros(2, np.float32))


def test_a_chain_in_order_is_a_graph() -> None:
    assert fault_of(Graph([X], [Z], [TO_Y, TO_Z])) == ""


def test_constants_need_nobody_to_compute_them() -> None:
    assert fault_of(Graph([], [Y], [Node("unary", [CONSTANT], Y)])) == ""


BROKEN = {
    "unary that computes z reads y before anything has computed it": Graph([X], [Z], [TO_Z, TO_Y]),
    "nothing computes its output z": Graph([X], [Z], [TO_Y]),
    "unary that computes y computes a value that already exists": Graph([X], [Y], [TO_Y, Node("unary", [X], Y)]),
    "unary that computes c writes to a constant": Graph([X], [CONSTANT], [Node("unary", [X], CONSTANT)]),
    "unary that computes e has a result of shape (0,)": Graph([X], [], [Node("unary", [X], Value("e", (0,)))]),
    "conv that computes y adds a value of shape (3,) to one of (2,)": Graph(
        [X], [Y], [Node("conv", [X], Y, residual=Value("r", (3,), np.zeros(3, np.float32)))]
    ),
}


@pytest.mark.parametrize("fault", BROKEN)
def test_what_is_no_graph_is_named(fault: str) -> None:
    assert fault_of(BROKEN[fault]) == fault


def lose_the_last(graph: Graph) -> Outcome:
    """Forget the last node."""
    return Outcome(Graph(graph.inputs, graph.outputs, tuple(graph.nodes)[:-1]), 1)


def test_a_rewrite_that_breaks_a_graph_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipeline, "REWRITES", (NamedRewrite("lose the last", lose_the_last),))
    monkeypatch.setenv("FLUIDTOOL_VERIFY", "1")
    with pytest.raises(EngineFaultError, match="after lose the last the graph of a region is broken: nothing computes"):
        rewritten(Graph([X], [Z], [TO_Y, TO_Z]), ())


def test_nobody_looks_where_nobody_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipeline, "REWRITES", (NamedRewrite("lose the last", lose_the_last),))
    monkeypatch.setenv("FLUIDTOOL_VERIFY", "0")
    assert len(rewritten(Graph([X], [Z], [TO_Y, TO_Z]), ()).nodes) == 1
