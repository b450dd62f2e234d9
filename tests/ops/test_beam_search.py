"""Beam search and its decoding: equal scores, pruned sources, and what they refuse."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fluidtool.errors import OperatorError
from fluidtool.tensor import LoDTensor, LoDTensorArray
from tests.support.operators import run_op

# Two sources: the first of two prefixes, the second of one that ended (token 1) in the step before.
LOD = [[0, 2, 3], [0, 1, 2, 3]]
PREFIXES = {
    "pre_ids": LoDTensor(np.array([[5], [5], [1]]), LOD),
    "pre_scores": LoDTensor(np.array([[0.1], [0.2], [0.3]], np.float32), LOD),
    "ids": LoDTensor(np.array([[2, 3, 4], [5, 6, 7], [8, 9, 9]]), LOD),
}

WIDE_SCORES = np.float32([[0.5, 0.4, 0.3], [0.5, 0.4, 0.6], [0.5, 0.4, 0.3]])


def search(scores: list[list[float]], **attrs: Any) -> dict[str, Any]:
    inputs = {**PREFIXES, "scores": LoDTensor(np.array(scores, np.float32), LOD)}
    return run_op("beam_search", inputs, {"level": 0, "end_id": 1, **attrs})


# Numbers of Paddle 1.8.5: of equal scores the later prefix wins, and within a prefix the last one takes the last place.
@pytest.mark.parametrize(
    ("scores", "beam_size", "ids", "parents", "lod"),
    [
        ([[0.5, 0.5, 0.5], [0.5, 0.5, 0.2], [0.9, 0.1, 0.1]], 2, [5, 6], [1, 1], [[0, 2, 3], [0, 0, 2, 2]]),
        ([[0.5, 0.5, 0.5], [0.1, 0.5, 0.2], [0.9, 0.1, 0.1]], 3, [2, 3, 6], [0, 0, 1], [[0, 2, 3], [0, 2, 3, 3]]),
    ],
)
def test_equal_scores(scores: Any, beam_size: int, ids: list[int], parents: list[int], lod: Any) -> None:
    got = search(scores, beam_size=beam_size)
    assert got["selected_ids"].numpy().reshape(-1).tolist() == ids
    assert got["parent_idx"].numpy().tolist() == parents
    assert got["selected_ids"].lod() == got["selected_scores"].lod() == lod


def test_of_previous_ids_of_more_numbers_the_first_ones_count() -> None:
    wide = {"pre_ids": LoDTensor(np.array([[5, 9], [5, 9], [1, 9]]), LOD), "scores": LoDTensor(WIDE_SCORES, LOD)}
    got = run_op("beam_search", {**PREFIXES, **wide}, {"level": 0, "end_id": 1, "beam_size": 2})
    assert got["selected_ids"].numpy().reshape(-1).tolist() == [7, 5, 8, 9]
    assert got["parent_idx"].numpy().tolist() == [1, 1, 2, 2]
    assert got["selected_ids"].lod() == [[0, 2, 3], [0, 0, 2, 4]]


def test_a_source_that_ended_is_dropped_and_scores_may_be_single_steps() -> None:
    got = search([[0.25, 0.5, 0.25], [0.5, 0.25, 0.25], [0.9, 0.1, 0.1]], beam_size=1, is_accumulated=False)
    assert got["selected_ids"].numpy().tolist() == [[5]]
    np.testing.assert_allclose(got["selected_scores"].numpy(), [[0.2 + np.log(0.5)]], rtol=1e-6)
    assert got["selected_ids"].lod() == [[0, 2, 3], [0, 0, 1, 1]]


def test_nothing_left_gives_empty_selections() -> None:
    lod = [[0, 1], [0, 1]]
    inputs = {
        "pre_ids": LoDTensor(np.array([[1]]), lod),
        "pre_scores": LoDTensor(np.array([[0.5]], np.float32), lod),
        "scores": LoDTensor(np.array([[0.5, 0.4]], np.float32), lod),
    }
    got = run_op("beam_search", inputs, {"level": 0, "beam_size": 2, "end_id": 1})
    assert got["selected_ids"].numpy().shape == (0, 1) and got["selected_ids"].lod() == [[0, 1], [0, 0]]


def step(tokens: list[int], scores: list[float], lod: list[list[int]]) -> tuple[LoDTensor, LoDTensor]:
    return LoDTensor(np.array(tokens)[:, None], lod), LoDTensor(np.array(scores, np.float32)[:, None], lod)


def test_decoding_follows_every_hypothesis_back_and_puts_the_best_first() -> None:
    steps = [
        step([0], [0.0], [[0, 1], [0, 1]]),
        step([2, 3], [0.4, 0.3], [[0, 1], [0, 2]]),
        step([4, 1], [0.5, 0.6], [[0, 2], [0, 1, 2]]),
        step([5, 1], [0.9, 0.6], [[0, 2], [0, 1, 2]]),
    ]
    inputs = {"Ids": LoDTensorArray(s[0] for s in steps), "Scores": LoDTensorArray(s[1] for s in steps)}
    got = run_op("beam_search_decode", inputs, {"beam_size": 2, "end_id": 1})
    assert got["SentenceIds"].numpy().tolist() == [0, 2, 4, 5, 0, 3, 1]
    assert got["SentenceIds"].lod() == [[0, 2], [0, 4, 7]]
    np.testing.assert_allclose(got["SentenceScores"].numpy(), [0, 0.4, 0.5, 0.9, 0, 0.3, 0.6], rtol=1e-6)


def test_gather_tree_follows_the_parents() -> None:
    ids = np.array([[[2, 2], [6, 1]], [[3, 9], [6, 1]], [[0, 1], [9, 0]]])
    parents = np.array([[[0, 0], [1, 1]], [[1, 0], [1, 0]], [[0, 0], [0, 1]]])
    got = run_op("gather_tree", {"Ids": ids, "Parents": parents})["Out"].numpy()
    assert got.tolist() == [[[2, 2], [1, 6]], [[3, 3], [6, 1]], [[0, 1], [9, 0]]]


@pytest.mark.parametrize("parent", [-1, 2])
def test_gather_tree_names_parents_out_of_range(parent: int) -> None:
    parents = np.zeros((2, 1, 2), np.int64)
    parents[0, 0, 1] = parent
    with pytest.raises(OperatorError, match=r"gather_tree: Parents must lie in \[0, 2\)"):
        run_op("gather_tree", {"Ids": np.zeros((2, 1, 2), np.int64), "Parents": parents})


@pytest.mark.parametrize(
    ("changes", "attrs", "message"),
    [
        ({}, {"level": 2}, "level 2 is out of range: scores has 2 LoD levels"),
        ({}, {"beam_size": 0}, "beam_size must be positive, found 0"),
        (
            {"pre_ids": LoDTensor(np.array([[1]]))},
            {},
            r"pre_ids must have 3 values, as scores has shape \(3, 3\), found 1",
        ),
        (
            {"ids": LoDTensor(np.zeros((3, 2), np.int64))},
            {},
            r"ids must have 9 values, as scores has shape \(3, 3\), found 6",
        ),
    ],
)
def test_bad_input_of_beam_search_is_named(changes: dict[str, Any], attrs: dict[str, Any], message: str) -> None:
    inputs = {**PREFIXES, "scores": LoDTensor(np.ones((3, 3), np.float32), LOD), **changes}
    with pytest.raises(OperatorError, match=f"operator beam_search: {message}"):
        run_op("beam_search", inputs, {"level": 0, "beam_size": 2, "end_id": 1, **attrs})


def test_decoding_needs_steps_with_two_lod_levels() -> None:
    arrays = {
        "Ids": LoDTensorArray([LoDTensor(np.ones((1, 1)))]),
        "Scores": LoDTensorArray([LoDTensor(np.ones((1, 1)))]),
    }
    with pytest.raises(
        OperatorError, match="beam_search_decode: step 0 must be a selection of beam_search with two LoD"
    ):
        run_op("beam_search_decode", arrays, {"beam_size": 1, "end_id": 1})
