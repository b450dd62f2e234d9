"""Runs of a plan that is one native region go to the library without a scope of their own."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import fluidtool
from fluidtool import fluid
from fluidtool.errors import OperatorError
from fluidtool.model import Model
from fluidtool.runtime import Scope
from fluidtool.runtime.straight import run_straight
from fluidtool.tensor import LoDTensor

DIGITS = Path(__file__).resolve().parents[2] / "samples" / "digits"

pytestmark = pytest.mark.usefixtures("native")


def digits() -> tuple[Model, dict[str, np.ndarray]]:
    model = fluidtool.load(DIGITS)
    (name,) = model.feeds
    shape = [2 if size < 0 else size for size in model.program.global_block().vars[name].shape]
    return model, {name: np.random.default_rng(1).random(shape, np.float32)}


def straight(model: Model, feed: dict[str, object]) -> list[LoDTensor] | None:
    plan = model.executor.plan(model.program, model.fetches, True)
    return run_straight(plan, feed, model.scope, model.executor.device)


def test_the_second_run_goes_straight_and_gives_the_same() -> None:
    model, feed = digits()
    assert straight(model, feed) is None
    first = np.asarray(next(iter(model.run(feed).values())))
    (second,) = straight(model, feed) or ()
    np.testing.assert_array_equal(np.asarray(second), first)
    assert model.scope.kids == []


def test_results_are_not_those_of_the_run_before() -> None:
    model, feed = digits()
    model.run(feed)
    (one,), (other,) = straight(model, feed) or (), straight(model, feed) or ()
    expected = np.array(other)
    np.asarray(one)[...] = -1
    np.testing.assert_array_equal(np.asarray(other), expected)


@pytest.mark.parametrize("change", ["another shape", "a list", "one more", "nothing"])
def test_what_was_not_compiled_goes_the_long_way(change: str) -> None:
    model, feed = digits()
    model.run(feed)
    ((name, array),) = feed.items()
    changed: dict[str, dict[str, object]] = {
        "another shape": {name: np.concatenate([array, array])},
        "a list": {name: array.tolist()},
        "one more": feed | {model.fetches[0]: array},
        "nothing": {},
    }
    assert straight(model, changed[change]) is None
    assert straight(model, feed) is not None


def test_another_parameter_counts_at_once() -> None:
    model, feed = digits()
    before = np.asarray(next(iter(model.run(feed).values())))
    for name in model.files.parameters:
        holder = model.scope.find_var(name)
        assert holder is not None
        holder.value = LoDTensor(np.asarray(holder.value) * 2)
    assert straight(model, feed) is None
    assert not np.array_equal(np.asarray(next(iter(model.run(feed).values()))), before)


def test_a_failure_still_says_where() -> None:
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup):
        ids = fluid.data("ids", [-1, 1], "int64")
        out = fluid.layers.fc(fluid.layers.embedding(ids, [5, 4]), 3)
    executor, scope = fluid.Executor(fluid.CPUPlace()), Scope()
    with fluid.scope_guard(scope):
        executor.run(startup)
        for _ in range(2):
            executor.run(main, feed={"ids": np.array([[1], [4]])}, fetch_list=[out])
        with pytest.raises(OperatorError, match=r"an id of 1 to 5.*block 0"):
            executor.run(main, feed={"ids": np.array([[1], [5]])}, fetch_list=[out])
