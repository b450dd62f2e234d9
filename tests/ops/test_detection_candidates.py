"""The boxes that suppression starts from: the highest scores, equal ones in order."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fluidtool.ops.detection.suppression import candidates

EIGHTHS = st.integers(-8, 8).map(lambda number: number / 8)
SCORES = st.lists(EIGHTHS | st.sampled_from([float("nan"), float("inf"), float("-inf")]), max_size=40)


@given(SCORES, EIGHTHS, st.integers(-1, 45), st.sampled_from(["float32", "float64"]))
def test_they_are_those_of_sorting_everything(scores: list[float], threshold: float, top_k: int, dtype: str) -> None:
    above = [position for position, score in enumerate(scores) if score > threshold]
    ordered = sorted(above, key=lambda position: -scores[position])
    found = candidates(np, np.array(scores, dtype), threshold, top_k)
    assert found.tolist() == (ordered if top_k < 0 else ordered[:top_k])


@pytest.mark.parametrize("top_k", [0, 1, 2, 5])
def test_equal_scores_keep_their_order(top_k: int) -> None:
    assert candidates(np, np.full(11, 0.5, np.float32), 0.1, top_k).tolist() == list(range(top_k))
