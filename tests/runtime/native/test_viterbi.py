"""The best paths through tags are numpy's, to the last of equal ones."""

from __future__ import annotations

from itertools import accumulate
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fluidtool.tensor import LoDTensor
from tests.runtime.native.test_operator_kernels import agree, counted

pytestmark = pytest.mark.usefixtures("native")
few = settings(max_examples=80, deadline=None)


def feeds_of(lengths: list[int], tags: int, tied: bool, seed: int) -> dict[str, Any]:
    """Scores of the tags of every word and of their transitions; whole numbers, where many paths are equally good."""
    random = np.random.default_rng(seed)
    scores, transition = random.standard_normal((sum(lengths), tags)), random.standard_normal((tags + 2, tags))
    if tied:
        scores, transition = scores.round(), transition.round()
    lod = [list(accumulate(lengths, initial=0))]
    return {"Emission": LoDTensor(scores.astype(np.float32), lod), "Transition": transition.astype(np.float32)}


@few
@given(
    st.lists(st.integers(0, 9), min_size=1, max_size=5),
    st.sampled_from([1, 2, 7, 16, 33]),
    st.booleans(),
    st.integers(0, 99),
)
def test_paths_of_sequences(lengths: list[int], tags: int, tied: bool, seed: int) -> None:
    agree("crf_decoding", feeds_of(lengths, tags, tied, seed), ["ViterbiPath"], rtol=0)


@few
@given(st.lists(st.integers(0, 6), min_size=1, max_size=4), st.sampled_from([1, 5, 18]), st.integers(0, 99))
def test_paths_of_padded_sequences(lengths: list[int], tags: int, seed: int) -> None:
    random = np.random.default_rng(seed)
    feeds = {
        "Emission": random.standard_normal((len(lengths), 6, tags)).astype(np.float32),
        "Transition": random.standard_normal((tags + 2, tags)).astype(np.float32),
        "Length": np.array(lengths, np.int64)[:, None],
    }
    agree("crf_decoding", feeds, ["ViterbiPath"], rtol=0)


def test_what_is_no_number_wins_as_in_numpy() -> None:
    feeds = feeds_of([4, 6, 3], 20, False, 0)
    feeds["Emission"].numpy()[5, 3] = np.nan
    feeds["Transition"][7, 18] = np.nan
    agree("crf_decoding", feeds, ["ViterbiPath"], rtol=0)


def test_sequences_cut_among_threads_are_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    answered = counted(monkeypatch, "crf_decoding")
    agree("crf_decoding", feeds_of([30] * 12, 50, False, 0), ["ViterbiPath"], rtol=0)
    assert answered == [True]


def test_paths_beside_labels_are_left_to_numpy(monkeypatch: pytest.MonkeyPatch) -> None:
    answered = counted(monkeypatch, "crf_decoding")
    feeds = feeds_of([3, 2], 4, False, 0)
    agree("crf_decoding", feeds | {"Label": np.ones((5, 1), np.int64)}, ["ViterbiPath"], rtol=0)
    assert answered == [False]
