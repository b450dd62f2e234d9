"""WeightedAverage, as in Paddle 1.8.5."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fluidtool.errors import UsageError
from fluidtool.fluid.average import WeightedAverage


def test_values_count_by_their_weight() -> None:
    average = WeightedAverage()
    average.add(2.0, 1)
    average.add(4.0, 2)
    assert average.eval() == pytest.approx(10 / 3)


def test_arrays_are_averaged_by_element() -> None:
    average = WeightedAverage()
    average.add(np.array([1.0, 3.0]), np.array([1]))
    average.add(np.array([3.0, 5.0]), 1)
    np.testing.assert_array_equal(average.eval(), [2.0, 4.0])


def test_what_was_added_stays_as_it_is() -> None:
    average, value = WeightedAverage(), np.array([1.0, 3.0])
    average.add(value, 1)
    average.add(value, 1)
    np.testing.assert_array_equal(value, [1.0, 3.0])


def test_reset_begins_anew() -> None:
    average = WeightedAverage()
    average.add(2.0, 1)
    average.reset()
    average.add(4.0, 1)
    assert average.eval() == 4.0


@pytest.mark.parametrize("value", ["2", [1.0], None])
def test_values_are_numbers_or_arrays(value: Any) -> None:
    with pytest.raises(ValueError, match="The 'value' must be a number"):
        WeightedAverage().add(value, 1)


@pytest.mark.parametrize("weight", ["2", np.ones(2), None])
def test_weights_are_numbers(weight: Any) -> None:
    with pytest.raises(ValueError, match="The 'weight' must be a number"):
        WeightedAverage().add(1.0, weight)


def test_there_must_be_something_to_average() -> None:
    with pytest.raises(UsageError, match="There is no data to be averaged"):
        WeightedAverage().eval()
