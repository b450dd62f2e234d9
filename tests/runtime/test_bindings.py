"""What an executor keeps between runs: the variables of a scope, and what the constants of a region held."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import fluidtool
from fluidtool.errors import FeedError
from fluidtool.model import Model
from fluidtool.runtime.bindings import Constants
from fluidtool.runtime.scope import Scope, ScopeVariable, StoredVariable
from fluidtool.tensor import LoDTensor

DIGITS = Path(__file__).resolve().parents[2] / "samples" / "digits"
NUMBERS = np.arange(6, dtype=np.float32)
ENGINES = pytest.mark.parametrize("engine", ["auto", "numpy"])


def resting(name: str = "w") -> StoredVariable:
    return StoredVariable(name, NUMBERS, lambda: LoDTensor(NUMBERS.copy()))


def holding(array: np.ndarray) -> ScopeVariable:
    variable = ScopeVariable("b")
    variable.value = LoDTensor(array)
    return variable


def digits(engine: str) -> tuple[Model, dict[str, np.ndarray]]:
    model = fluidtool.load(DIGITS, engine=engine)
    block = model.program.global_block()
    generator = np.random.default_rng(1)
    feed = {
        name: generator.random([2 if size < 0 else size for size in block.vars[name].shape], np.float32)
        for name in model.feeds
    }
    return model, feed


def result(model: Model, feed: dict[str, np.ndarray]) -> np.ndarray:
    return np.asarray(next(iter(model.run(feed).values())))


def parameters(model: Model) -> list[str]:
    return list(model.files.parameters)


def holder(model: Model, name: str) -> ScopeVariable:
    found = model.scope.find_var(name)
    assert found is not None
    return found


# -- names
@pytest.mark.parametrize(
    "change",
    [
        lambda scope: scope.var("new"),
        lambda scope: scope.erase(["old"]),
        lambda scope: scope.hold(resting()),
        lambda scope: scope.parent.var("new"),
        lambda scope: scope.parent.erase(["above"]),
    ],
    ids=["created", "erased", "taken in", "created above", "erased above"],
)
def test_a_name_that_comes_or_goes_makes_another_version(change: Callable[[Scope], object]) -> None:
    top = Scope()
    top.var("above")
    scope = top.new_scope()
    scope.var("old")
    before = scope.names_version()
    change(scope)
    assert scope.names_version() != before


def test_values_and_scopes_below_leave_the_version_as_it_is() -> None:
    scope = Scope()
    variable = scope.var("w")
    before = scope.names_version()
    variable.value = LoDTensor(NUMBERS)
    assert scope.var("w") is variable
    scope.new_scope().var("w")
    scope.drop_kids()
    assert scope.names_version() == before


# -- constants
def test_the_same_arrays_are_the_same_tuple() -> None:
    constants = Constants((resting(), holding(NUMBERS)))
    assert constants.arrays() is constants.arrays()


def test_a_file_is_not_read_to_see_whether_it_changed() -> None:
    variable = resting()
    constants = Constants((variable,))
    assert constants.arrays() is constants.arrays() and variable.load is not None


def test_a_value_that_is_looked_at_is_still_the_one_in_the_file() -> None:
    variable = resting()
    constants = Constants((variable,))
    before = constants.arrays()
    assert variable.value is not None and before is not None
    after = constants.arrays()
    assert after is not None and after[0] is before[0] is NUMBERS


@pytest.mark.parametrize("looked_at", [False, True])
@pytest.mark.parametrize("make", [resting, lambda: holding(NUMBERS)], ids=["stored", "plain"])
@pytest.mark.parametrize(
    "put",
    [
        lambda variable, array: variable.get_tensor().set(array),
        lambda variable, array: variable.set_tensor(array, []),
        lambda variable, array: setattr(variable, "value", LoDTensor(array)),
    ],
    ids=["set", "set_tensor", "value"],
)
def test_another_value_is_seen(
    make: Callable[[], ScopeVariable], put: Callable[[ScopeVariable, np.ndarray], None], looked_at: bool
) -> None:
    variable = make()
    constants = Constants((resting("other"), variable))
    assert constants.arrays() is not None
    if looked_at:
        assert variable.value is not None and constants.arrays() is not None
    for number in range(3):
        put(variable, NUMBERS + number)
        arrays = constants.arrays()
        assert arrays is not None and arrays[1][0] == number


def test_a_constant_without_a_value_makes_none_of_all() -> None:
    empty = ScopeVariable("w")
    constants = Constants((resting(), empty))
    assert constants.arrays() is None
    empty.value = LoDTensor(NUMBERS)
    assert constants.arrays() is not None


# -- runs
@ENGINES
def test_a_parameter_that_is_erased_and_put_in_again_counts(engine: str) -> None:
    model, feed = digits(engine)
    before = result(model, feed)
    kept = {name: np.asarray(holder(model, name).value).copy() for name in parameters(model)}
    model.scope.erase(parameters(model))
    for name, array in kept.items():
        model.scope.var(name).get_tensor().set(array * 0)
    flat = result(model, feed)
    assert np.ptp(flat) < 1e-6 < np.ptp(before)
    for name, array in kept.items():
        holder(model, name).get_tensor().set(array)
    np.testing.assert_allclose(result(model, feed), before, rtol=1e-6)


@ENGINES
def test_a_scope_of_its_own_has_parameters_of_its_own(engine: str) -> None:
    model, feed = digits(engine)
    before = result(model, feed)
    other = model.scope.new_scope()

    def run(scope: Scope) -> np.ndarray:
        return np.asarray(model.executor.run(model.program, feed, model.fetches, scope)[0])

    np.testing.assert_array_equal(run(other), before)
    for name in parameters(model):
        other.var(name).get_tensor().set(np.zeros_like(np.asarray(holder(model, name).value)))
    assert np.ptp(run(other)) < 1e-6
    np.testing.assert_array_equal(run(model.scope), before)
    other.erase(parameters(model))
    np.testing.assert_array_equal(run(other), before)


@ENGINES
def test_threads_with_scopes_of_their_own_do_not_mix_parameters(engine: str) -> None:
    model, feed = digits(engine)
    result(model, feed)
    factors = [0.0, 0.5, 1.0, 2.0]
    scopes = [Scope() for _ in factors]
    for factor, scope in zip(factors, scopes, strict=True):
        for name in parameters(model):
            scope.var(name).get_tensor().set(factor * np.asarray(holder(model, name).value))

    def run(scope: Scope) -> np.ndarray:
        return np.asarray(model.executor.run(model.program, feed, model.fetches, scope)[0])

    expected = [run(scope) for scope in scopes]
    wrong: list[int] = []

    def work(number: int) -> None:
        for _ in range(20):
            if not np.array_equal(run(scopes[number]), expected[number]):
                wrong.append(number)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(len(factors))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == [] and not np.array_equal(expected[0], expected[3])


@ENGINES
def test_a_scope_that_nobody_holds_is_not_kept(engine: str) -> None:
    model, feed = digits(engine)
    result(model, feed)
    scope = model.scope.new_scope()
    model.executor.run(model.program, feed, model.fetches, scope)
    gone = weakref.ref(scope)
    model.scope.drop_kid(scope)
    del scope
    gc.collect()
    assert gone() is None


@ENGINES
def test_a_feed_that_fitted_does_not_let_another_pass(engine: str) -> None:
    model, feed = digits(engine)
    name = model.feeds[0]
    result(model, feed)
    result(model, feed)
    for wrong in (feed[name].astype("float64"), feed[name][..., :-1], LoDTensor(feed[name][..., :-1].copy())):
        with pytest.raises(FeedError, match=name):
            model.run({name: wrong})
    result(model, feed)


def test_names_are_found_anew_when_the_program_changes() -> None:
    model, feed = digits("auto")
    assert model.feeds == model.feeds and model.feeds is not model.feeds
    block = model.program.global_block()
    fetched = model.fetches
    block.ops = [op for op in block.ops if op.type != "fetch"]
    source = block.ops[-1].input_arg_names[0]
    block.append_op(type="fetch", inputs={"X": [source]}, outputs={"Out": ["fetch"]}, attrs={"col": 0})
    assert model.fetches == [source] != fetched
    assert list(model.run(feed)) == [source]
