"""Statistics of arrays against numpy's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fluidtool.tensor.statistics import Statistics, statistics


@pytest.mark.parametrize("chunk", [3, 1 << 20])
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "int8", "uint8", "int64"])
def test_numbers(dtype: str, chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fluidtool.tensor.statistics.CHUNK", chunk)
    array = np.array([[5, 0, 7], [1, 0, 2]], dtype)
    found = statistics(array)
    assert (found.elements, found.minimum, found.maximum, found.zeros) == (6, 0, 7, 2)
    assert found.mean == pytest.approx(2.5, rel=1e-12)
    assert found.deviation == pytest.approx(array.astype("f8").std(), rel=1e-12)
    assert found.nans == found.infinities == 0


def test_only_finite_numbers_count() -> None:
    found = statistics(np.array([1, np.nan, 3, np.inf, -np.inf], "float32"))
    assert (found.minimum, found.maximum, found.mean, found.nans, found.infinities) == (1.0, 3.0, 2.0, 1, 2)


@pytest.mark.parametrize("array", [np.zeros((0, 4), "float32"), np.array([np.nan])])
def test_nothing_finite(array: Any) -> None:
    found = statistics(array)
    assert found.minimum is found.maximum is found.mean is found.deviation is None


def test_truth_values() -> None:
    assert statistics(np.array([True, False, True, True])) == Statistics(
        4, 0, 1, 0.75, pytest.approx(0.4330127), 1, 0, 0
    )


def test_large_integers_stay_exact() -> None:
    assert statistics(np.array([2**62 + 1, -(2**62)])).maximum == 2**62 + 1


def test_complex_numbers_count_by_their_size() -> None:
    assert statistics(np.array([3 + 4j, 0])).maximum == 5.0


def test_a_scalar() -> None:
    assert statistics(np.float32(2.5)).mean == 2.5
