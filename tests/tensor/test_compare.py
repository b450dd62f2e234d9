"""Comparing values: what counts as equal, and which differences are shown."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fluidtool.tensor import LoDTensor
from fluidtool.tensor.compare import Difference, compare

NAN, INF = float("nan"), float("inf")


def f(*values: float) -> Any:
    return np.array(values, "float32")


@pytest.mark.parametrize(
    ("found", "expected", "rtol", "atol", "agrees"),
    [
        (f(1, 2), f(1, 2), 0.0, 0.0, True),
        (f(1, 2.1), f(1, 2), 0.1, 0.0, True),
        (f(1, 2.3), f(1, 2), 0.1, 0.0, False),
        (f(0.1), f(0), 0.0, 0.2, True),
        (f(0.1), f(0), 9.0, 0.0, False),
        (f(NAN), f(NAN), 0.0, 0.0, True),
        (f(NAN), f(1), 9.0, 9.0, False),
        (f(1), f(NAN), 9.0, 9.0, False),
        (f(INF), f(INF), 0.0, 0.0, True),
        (f(INF), f(-INF), 9.0, 9.0, False),
        (f(1), f(INF), 9.0, 9.0, False),
        (np.array([1, 2]), np.array([1, 2]), 0.0, 0.0, True),
        (np.array([1, 3]), np.array([1, 2]), 9.0, 9.0, False),
        (np.array([2**62 + 1]), np.array([2**62]), 9.0, 9.0, False),
        (np.array([1], "int32"), np.array([1], "int64"), 0.0, 0.0, True),
        (np.array([True]), np.array([False]), 9.0, 9.0, False),
        (f(1), np.array([1.0], "float64"), 0.0, 0.0, True),
        (np.array([1 + 1j]), np.array([1 + 1.05j]), 0.1, 0.0, True),
        (np.zeros((0, 3), "float32"), np.zeros((0, 3), "float32"), 0.0, 0.0, True),
    ],
)
def test_what_agrees(found: Any, expected: Any, rtol: float, atol: float, agrees: bool) -> None:
    assert compare("x", found, expected, rtol, atol).agrees is agrees


@pytest.mark.parametrize(
    ("found", "expected", "fault"),
    [
        (f(1, 2), f(1), "has shape (2,), expected (1,)"),
        (f(1), np.array([1]), "is float32, expected int64"),
        (np.array([1]), np.array([True]), "is int64, expected bool"),
        (LoDTensor(f(1, 2), [[0, 2]]), LoDTensor(f(1, 2), [[0, 1, 2]]), "has LoD [[2]], expected [[1, 1]]"),
        (f(1, 2), LoDTensor(f(1, 2), [[0, 1, 2]]), "has LoD [], expected [[1, 1]]"),
    ],
)
def test_what_cannot_be_compared(found: Any, expected: Any, fault: str) -> None:
    result = compare("x", found, expected, 9.0, 9.0)
    assert result.fault == fault and not result.agrees


def test_an_expectation_without_lod_does_not_ask_for_it() -> None:
    assert compare("x", LoDTensor(f(1, 2), [[0, 2]]), f(1, 2), 0.0, 0.0).agrees


def test_the_worst_differences_come_first() -> None:
    result = compare("x", f(1, 2, 30, 4, 5.5), f(1, 2.5, 3, 4, 5), 0.0, 0.1, worst=2)
    assert (result.elements, result.differing, result.largest_error) == (5, 3, 27.0)
    assert result.worst == (Difference((2,), 30.0, 3.0, 27.0), Difference((1,), 2.0, 2.5, 0.5))


def test_places_are_indexes_of_the_array() -> None:
    found = np.zeros((2, 3), "float32")
    found[1, 2] = 1
    (difference,) = compare("x", found, np.zeros((2, 3), "float32"), 0.0, 0.0).worst
    assert difference.index == (1, 2)
