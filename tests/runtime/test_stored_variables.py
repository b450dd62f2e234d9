"""Parameters stay in their file until somebody asks for them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import fluidtool
from fluidtool.runtime.scope import Scope, ScopeVariable, StoredVariable
from fluidtool.tensor import LoDTensor
from fluidtool.tensor.files import file_of, forget, map_file

DIGITS = Path(__file__).resolve().parents[2] / "samples" / "digits"
NUMBERS = np.arange(6, dtype=np.float32)


def stored(calls: list[str]) -> StoredVariable:
    def load() -> LoDTensor:
        calls.append("load")
        return LoDTensor(NUMBERS.copy())

    return StoredVariable("w", NUMBERS, load)


def test_a_stored_variable_is_read_once_when_asked_for() -> None:
    calls: list[str] = []
    variable = stored(calls)
    assert variable.mapped() is NUMBERS and calls == []
    assert variable.is_initialized() and variable.get_tensor() is variable.value
    np.testing.assert_array_equal(variable.value.array, NUMBERS)
    assert calls == ["load"] and variable.mapped() is NUMBERS


@pytest.mark.parametrize("before", [False, True])
def test_what_is_put_in_replaces_what_the_file_has(before: bool) -> None:
    variable = stored([])
    if before:
        assert variable.value is not None
    variable.value = LoDTensor(NUMBERS + 1)
    assert variable.mapped() is None and variable.value.array[0] == 1


def test_a_tensor_that_is_set_replaces_what_the_file_has() -> None:
    variable = stored([])
    variable.get_tensor().set(NUMBERS * 2)
    assert variable.mapped() is None and variable.value.array[1] == 2


def test_a_scope_keeps_its_own_variable() -> None:
    scope = Scope()
    own = scope.var("w")
    scope.hold(stored([]))
    assert scope.find_var("w") is own and type(own) is ScopeVariable
    np.testing.assert_array_equal(own.value.array, NUMBERS)


@pytest.mark.parametrize("engine", ["auto", "numpy"])
def test_parameters_of_a_model_are_in_its_scope(engine: str) -> None:
    model = fluidtool.load(DIGITS, engine=engine)
    first = model.run({"image": np.ones((1, 1, 8, 8), np.float32)})
    for name, value in model.files.parameters.items():
        variable = model.scope.find_var(name)
        assert variable is not None
        np.testing.assert_array_equal(variable.get_tensor().numpy(), value.numpy())
    second = model.run({"image": np.ones((1, 1, 8, 8), np.float32)})
    for name in first:
        np.testing.assert_array_equal(np.asarray(first[name]), np.asarray(second[name]))


@pytest.mark.parametrize("engine", ["auto", "numpy"])
def test_a_parameter_that_is_changed_counts(engine: str) -> None:
    model = fluidtool.load(DIGITS, engine=engine)
    feed = {"image": np.ones((1, 1, 8, 8), np.float32)}
    (before,) = (np.asarray(value) for value in model.run(feed).values())
    for name in model.files.parameters:
        tensor = model.scope.var(name).get_tensor()
        tensor.set(np.zeros_like(tensor.numpy()))
    (after,) = (np.asarray(value) for value in model.run(feed).values())
    assert np.abs(before - 0.1).max() > 1e-3
    np.testing.assert_allclose(after, 0.1, rtol=0, atol=1e-7)


def test_what_was_forgotten_can_be_read_again(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(np.arange(10000, dtype=np.float32).tobytes())
    mapped = map_file(tmp_path / "file")
    view = np.frombuffer(mapped, np.float32, 9000, 7 * 4).reshape(90, 100)
    assert file_of(np.frombuffer(mapped, np.uint8)) is not None
    for array in (view, view.T, view[:, 3:50], view[:0], np.arange(3)):
        want = array.copy()
        forget(array)
        np.testing.assert_array_equal(array, want)
