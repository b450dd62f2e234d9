"""Names of Fluid 0.11 to 0.15 that Paddle 1.8.5 no longer has: evaluator.Accuracy, io.get_inference_program, is_test of fc."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import fluidtool.fluid as fluid
from fluidtool.errors import UsageError

L: Any = fluid.layers


@pytest.fixture(autouse=True)
def fresh_programs() -> Iterator[None]:
    guards = fluid.program_guard(fluid.Program(), fluid.Program()), fluid.scope_guard(fluid.Scope())
    with guards[0], guards[1], fluid.unique_name.guard():
        yield


def scores(labels: list[int]) -> dict[str, Any]:
    """A feed in which the first class always has the highest score."""
    x = np.tile(np.array([0.7, 0.2, 0.1], "float32"), (len(labels), 1))
    return {"x": x, "label": np.array(labels, "int64").reshape(-1, 1)}


def accuracy(**named: Any) -> tuple[Any, Any]:
    evaluator = fluid.evaluator.Accuracy(input=L.data("x", [3]), label=L.data("label", [1], dtype="int64"), **named)
    executor = fluid.Executor(fluid.CPUPlace())
    executor.run(fluid.default_startup_program())
    evaluator.reset(executor)
    return evaluator, executor


def test_accuracy_counts_over_batches() -> None:
    evaluator, executor = accuracy()
    of_batches = [executor.run(feed=scores(each), fetch_list=evaluator.metrics)[0] for each in ([0, 1], [0, 0, 2, 1])]
    assert [float(each.item()) for each in of_batches] == [0.5, 0.5]
    executor.run(feed=scores([0, 0]))
    assert evaluator.eval(executor).tolist() == [0.625]


def test_accuracy_of_the_best_k() -> None:
    evaluator, executor = accuracy(k=2)
    executor.run(feed=scores([0, 1, 2, 2]))
    assert evaluator.eval(executor).tolist() == [0.5]


def test_reset_begins_anew() -> None:
    evaluator, executor = accuracy()
    executor.run(feed=scores([1]))
    evaluator.reset(executor)
    executor.run(feed=scores([0]))
    assert evaluator.eval(executor).tolist() == [1.0]


def test_accuracy_counts_in_the_program_that_is_named() -> None:
    x, label = L.data("x", [3]), L.data("label", [1], dtype="int64")
    tested = fluid.default_main_program().clone()
    evaluator = fluid.evaluator.Accuracy(input=x, label=label, main_program=tested)
    program = fluid.io.get_inference_program(evaluator, tested)
    executor = fluid.Executor(fluid.CPUPlace())
    evaluator.reset(executor)
    executor.run(program, feed=scores([0, 1]))
    assert evaluator.eval(executor).tolist() == [0.5]
    assert fluid.default_main_program().global_block().ops == []


def test_accuracy_belongs_in_the_root_block() -> None:
    x, label = L.data("x", [3]), L.data("label", [1], dtype="int64")
    loop = L.While(L.less_than(L.fill_constant([1], "int64", 0), L.fill_constant([1], "int64", 1)))
    with pytest.raises(UsageError, match="You can only invoke Evaluator in root block"), loop.block():
        fluid.evaluator.Accuracy(input=x, label=label)


def test_the_inference_program_computes_its_targets_alone() -> None:
    x, y = L.data("x", [3]), L.data("y", [1])
    prediction = L.dropout(L.fc(x, 1), 0.5)
    fluid.optimizer.SGD(0.1).minimize(L.mean(L.square_error_cost(prediction, y)))
    program = fluid.io.get_inference_program([prediction])
    assert [op.type for op in program.global_block().ops] == ["mul", "elementwise_add", "dropout"]
    assert program.global_block().ops[-1].attr("is_test") is True


def test_the_inference_program_of_an_evaluator_counts_on() -> None:
    evaluator, executor = accuracy()
    program = fluid.io.get_inference_program(evaluator)
    executor.run(program, feed=scores([0, 1]))
    assert evaluator.eval(executor).tolist() == [0.5]


def test_the_inference_program_is_that_of_the_named_program() -> None:
    other = fluid.Program()
    with fluid.program_guard(other):
        target = L.scale(L.data("x", [3]), 2.0)
    assert [op.type for op in fluid.io.get_inference_program(target, other).global_block().ops] == ["scale"]


def test_fc_takes_is_test_which_changed_nothing() -> None:
    x = L.data("x", [3])
    L.fc(x, 2, is_test=True)
    assert [op.type for op in fluid.default_main_program().global_block().ops] == ["mul", "elementwise_add"]
