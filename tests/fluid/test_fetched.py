"""Fetched values are numbers where old scripts take an array of one element for one, and plain arrays otherwise."""

from __future__ import annotations

import copy
import io
import math
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from fluidtool import fluid
from fluidtool.fluid.fetched import FetchedArray, fetched_array

ONE = fetched_array(np.array([[1.5]], "float32"))
THREE = fetched_array(np.array([[1], [2], [3]], "int64"))


def fetch(value: np.ndarray[Any, Any]) -> Any:
    with fluid.program_guard(fluid.Program(), fluid.Program()):
        x = fluid.data("x", list(value.shape), str(value.dtype))
        [fetched] = fluid.Executor().run(feed={"x": value}, fetch_list=[fluid.layers.scale(x, 2.0)])
    return fetched


def test_a_fetched_value_of_one_element_is_a_number() -> None:
    loss = fetch(np.array([0.75], "float32"))
    assert isinstance(loss, np.ndarray)
    assert loss.shape == (1,)
    assert (float(loss), int(loss), complex(loss), math.isnan(loss)) == (1.5, 1, 1.5 + 0j, False)
    assert ("%f %d" % (loss, loss), f"{loss:.2f}", f"{loss}") == ("1.500000 1", "1.50", "[1.5]")  # noqa: UP031


def test_one_fetched_integer_counts() -> None:
    assert list(range(fetch(np.array([1], "int64")))) == [0, 1]


def test_fetched_by_a_compiled_program_and_by_name() -> None:
    with fluid.program_guard(fluid.Program(), fluid.Program()), fluid.scope_guard(fluid.Scope()):
        loss = fluid.layers.fill_constant([1], "float32", 2.5)
        loss.persistable = True
        compiled = fluid.CompiledProgram(fluid.default_main_program()).with_data_parallel(places=[fluid.CPUPlace()] * 2)
        values = fluid.Executor().run(compiled, fetch_list=[loss], return_merged=False)
        assert [float(value) for value in values[0]] == [2.5, 2.5]
        assert float(fluid.fetch_var(loss.name)) == 2.5


@pytest.mark.parametrize("convert", [float, int, complex, range, "{:.2f}".format])
def test_several_elements_are_no_number(convert: Callable[[Any], Any]) -> None:
    with pytest.raises(TypeError):
        convert(THREE)


def test_a_fraction_is_no_index() -> None:
    with pytest.raises(TypeError):
        range(ONE)  # type: ignore[call-overload]


@pytest.mark.parametrize(
    "value",
    [
        ONE + 1,
        2 * ONE,
        np.sqrt(ONE),
        THREE[0],
        THREE[1:2],
        THREE.T,
        THREE.sum(axis=0),
        np.concatenate([THREE, [[4]]]),
        ONE.copy(),
    ],
)
def test_what_is_computed_or_cut_out_is_fetched_too(value: Any) -> None:
    assert type(value) is FetchedArray


@pytest.mark.parametrize(
    "value", [THREE.sum(), THREE.mean(), np.max(THREE), THREE[0, 0], THREE[0][0], np.squeeze(ONE) + 1]
)
def test_what_has_no_dimensions_is_a_scalar_as_of_plain_arrays(value: Any) -> None:
    assert isinstance(value, np.generic)
    hash(value)


def test_squeezed_to_no_dimension_it_is_still_an_array() -> None:
    assert np.squeeze(ONE).shape == ()
    assert isinstance(np.squeeze(ONE), np.ndarray)


def test_printed_it_is_a_plain_array() -> None:
    assert (repr(ONE), str(THREE)) == ("array([[1.5]], dtype=float32)", "[[1]\n [2]\n [3]]")


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_pickled_it_is_a_plain_array(protocol: int) -> None:
    data = pickle.dumps(THREE, protocol)
    assert b"fluidtool" not in data
    assert type(pickle.loads(data)) is np.ndarray
    assert (pickle.loads(data) == THREE).all()


def test_saved_and_loaded_it_is_a_plain_array() -> None:
    file = io.BytesIO()
    np.save(file, THREE)
    file.seek(0)
    assert type(np.load(file)) is np.ndarray


def test_copies_are_fetched_and_independent() -> None:
    other = copy.deepcopy(THREE)
    other[0] = 9
    assert THREE[0, 0] == 1


def test_it_shares_its_numbers() -> None:
    plain = np.ones(4)
    assert np.shares_memory(fetched_array(plain), plain)


def test_fed_again_it_is_a_plain_array_to_operators() -> None:
    seen = []
    with fluid.program_guard(fluid.Program(), fluid.Program()):
        x = fluid.data("x", [1, 1], "float32")
        out = fluid.default_main_program().current_block().create_var(name="out", dtype="float32", shape=[1, 1])
        fluid.layers.py_func(lambda value: seen.append(type(value.array)) or np.array(value), x, out)
        fluid.Executor().run(feed={"x": ONE}, fetch_list=[out])
    assert seen == [np.ndarray]
