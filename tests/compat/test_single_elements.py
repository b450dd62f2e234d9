"""Under the stand-in an array of one element is a number, wherever it comes from, as before numpy 2.4."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from fluidtool.compat.removed.single_elements import convert_single_elements

LOSSES = [np.full(1, 2.0), np.full(1, 4.0)]


@pytest.fixture
def old() -> Iterator[None]:
    put_back = convert_single_elements(np)
    yield
    put_back()


@pytest.mark.usefixtures("old")
@pytest.mark.parametrize(
    ("array", "number"),
    [
        (np.zeros(1), 0),
        (np.mean(LOSSES, axis=0), 3),
        (np.sqrt([9.0]), 3),
        (np.array([[[5]]]), 5),
        (np.array(7.0), 7),
        (np.array(["2"]), 2),
    ],
)
def test_one_element_is_a_number(array: Any, number: int) -> None:
    assert float(array) == number
    assert int(array) == number


@pytest.mark.usefixtures("old")
def test_formats_and_mathematics_take_it() -> None:
    assert "%.1f %d" % (np.exp([0.0]), np.ones((1, 1))) == "1.0 1"  # noqa: UP031
    assert math.sqrt(np.full(1, 4.0)) == 2


@pytest.mark.usefixtures("old")
@pytest.mark.parametrize("convert", [float, int, math.isnan])
@pytest.mark.parametrize("array", [np.zeros(2), np.zeros(0), np.array(["x"])])
def test_other_arrays_are_refused(convert: Callable[[Any], Any], array: Any) -> None:
    with pytest.raises(TypeError, match="NotOneElement"):
        convert(array)


def test_numpy_is_as_it_was_afterwards() -> None:
    def refused() -> bool:
        try:
            float(np.zeros(1))
        except TypeError:
            return True
        return False

    before = refused()
    first = convert_single_elements(np)
    second = convert_single_elements(np)
    assert not refused()
    second()
    assert not refused()
    first()
    assert refused() == before
