"""Metrics: corners that real Paddle was asked about, sizes beyond the golden cases, and refusals."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fluidtool.errors import OperatorError
from tests.support.operators import lod_tensor, run_op


def column(*values: int) -> np.ndarray[Any, Any]:
    return np.array(values).reshape(-1, 1)


def test_accuracy_counts_a_label_anywhere_in_its_row() -> None:
    indices = np.array([[1, 2], [0, 3], [2, 0]])
    out = run_op("accuracy", {"Out": np.zeros((3, 2), np.float32), "Indices": indices, "Label": column(2, 1, 0)})
    assert out["Accuracy"].numpy() == pytest.approx([2 / 3])
    assert [out[slot].numpy().tolist() for slot in ("Correct", "Total")] == [[2], [3]]


def auc(scores: list[float], labels: np.ndarray[Any, Any], stats: tuple[Any, Any], slide_steps: int) -> dict[str, Any]:
    predict = np.array(scores, np.float32).reshape(-1, 1)
    inputs = {"Predict": predict, "Label": labels, "StatPos": stats[0], "StatNeg": stats[1]}
    return run_op("auc", inputs, {"num_thresholds": 10, "slide_steps": slide_steps})


def test_auc_over_everything() -> None:
    nothing = np.zeros((1, 11), np.int64)
    out = auc([0.1, 0.4, 0.35, 0.8], column(0, 0, 1, 1), (nothing, nothing), 0)
    assert out["AUC"].numpy().tolist() == [0.75]
    assert out["StatPosOut"].numpy().tolist() == [[0, 0, 0, 1, 0, 0, 0, 0, 1, 0, 0]]


def test_auc_over_everything_drops_what_a_longer_variable_has_behind_the_histogram() -> None:
    longer = np.zeros(12, np.int64)
    out = auc([0.1, 0.4, 0.35, 0.8], column(0, 0, 1, 1), (longer, longer), 0)
    assert out["AUC"].numpy().tolist() == [0.75]
    assert out["StatPosOut"].numpy().tolist() == [[0, 0, 0, 1, 0, 0, 0, 0, 1, 0, 0]]


def test_auc_counts_no_labels_below_zero() -> None:
    nothing = np.zeros((1, 11), np.int64)
    out = auc([0.1, 0.4, 0.35], column(0, -1, 2), (nothing, nothing), 0)
    assert out["StatPosOut"].numpy().tolist() == [[0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0]]
    assert out["StatNegOut"].numpy().tolist() == [[0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0]]


def test_auc_forgets_batches_older_than_its_window() -> None:
    stats = (np.zeros(2 * 11 + 1, np.int64), np.zeros(2 * 11 + 1, np.int64))
    for scores, expected in (([0.9, 0.1], 0.0), ([0.1, 0.9], 1.0), ([0.1, 0.1], 0.5)):
        out = auc(scores, column(0, 1), stats, 1)
        assert out["AUC"].numpy().tolist() == [expected]
        stats = (out["StatPosOut"].numpy(), out["StatNegOut"].numpy())
    assert stats[0][-1] == 3


@pytest.mark.parametrize(("weight", "counted"), [(0.0, 0), (1.0, 1)])
def test_auc_does_not_count_a_batch_of_weight_zero(weight: float, counted: int) -> None:
    nothing = np.zeros((1, 11), np.int64)
    inputs = {"Predict": np.float32([[0.3]]), "Label": column(1), "StatPos": nothing, "StatNeg": nothing}
    more = {"InsTagWeight": np.float32([[weight]])}
    out = run_op("auc", inputs | more, {"num_thresholds": 10, "slide_steps": 0})
    assert out["StatPosOut"].numpy().sum() == counted
    window = {slot: np.zeros(2 * 11 + 1, np.int64) for slot in ("StatPos", "StatNeg")}
    stat = run_op("auc", inputs | window | more, {"num_thresholds": 10, "slide_steps": 1})["StatPosOut"].numpy()
    assert [stat[:11].sum(), stat[11:22].sum(), stat[22]] == [1, counted, 1]  # stored, as Paddle 2.6.2 does


def test_chunk_eval_counts_chunks_of_each_sequence() -> None:
    inferred, labels = column(0, 1, 4, 2, 3, 0), column(0, 1, 4, 0, 2, 3)
    inputs = {"Inference": lod_tensor(inferred, [[4, 2]]), "Label": lod_tensor(labels, [[4, 2]])}
    out = run_op("chunk_eval", inputs, {"num_chunk_types": 2})
    assert [int(out[f"Num{kind}Chunks"].numpy()[0]) for kind in ("Infer", "Label", "Correct")] == [4, 3, 1]
    assert out["F1-Score"].numpy() == pytest.approx([2 / 7])


def levenshtein(a: str, b: str) -> int:
    row = list(range(len(b) + 1))
    for i, x in enumerate(a, 1):
        above, row = row, [i]
        for j, y in enumerate(b, 1):
            row.append(min(above[j] + 1, row[-1] + 1, above[j - 1] + (x != y)))
    return row[-1]


def test_edit_distance_agrees_with_the_textbook() -> None:
    rng = np.random.default_rng(0)
    words = [["".join(rng.choice(list("abc"), size=rng.integers(0, 9))) for _ in range(40)] for _ in range(2)]
    inputs = {}
    for slot, texts in zip(("Hyps", "Refs"), words, strict=True):
        inputs[slot] = lod_tensor(column(*(ord(c) for text in texts for c in text)), [[len(text) for text in texts]])
    out = run_op("edit_distance", inputs)["Out"].numpy()
    assert out[:, 0].tolist() == [levenshtein(a, b) for a, b in zip(*words, strict=True)]


def test_edit_distance_of_padded_sequences_reads_only_their_lengths() -> None:
    inputs = {
        "Hyps": np.array([[1, 2, 9], [3, 3, 3]]),
        "Refs": np.array([[1, 3, 7, 7], [3, 3, 3, 1]]),
        "HypsLength": np.array([2, 3]),
        "RefsLength": np.array([2, 4]),
    }
    out = run_op("edit_distance", inputs, {"normalized": True})
    np.testing.assert_allclose(out["Out"].numpy(), [[0.5], [0.25]])
    assert out["SequenceNum"].numpy().tolist() == [2]


def test_mean_iou_counts_a_wrong_prediction_for_both_classes() -> None:
    inputs = {"Predictions": np.array([0, 1, 1]), "Labels": np.array([0, 0, 1])}
    out = run_op("mean_iou", inputs, {"num_classes": 3})
    assert out["OutWrong"].numpy().tolist() == [1, 1, 0]
    assert out["OutMeanIou"].numpy() == pytest.approx([0.5])


def test_positive_negative_pair_counts_equal_scores_as_neutral_and_negative() -> None:
    inputs = {
        "Score": np.array([[0.5], [0.5], [0.9], [0.1]], np.float32),
        "Label": np.array([[1], [0], [1], [0]], np.float32),
        "QueryID": column(1, 1, 2, 2),
    }
    out = run_op("positive_negative_pair", inputs)
    assert [out[f"{kind}Pair"].numpy().tolist() for kind in ("Positive", "Negative", "Neutral")] == [[1], [1], [1]]


STAT = np.zeros(11, np.int64)
AUC = {"Predict": np.full((2, 1), 0.5, np.float32), "Label": column(0, 1), "StatPos": STAT, "StatNeg": STAT}
CHUNKS = {"Inference": lod_tensor(column(0, 1), [[2]]), "Label": lod_tensor(column(0, 1), [[1, 1]])}
PAIR = {"Hyps": lod_tensor(column(1, 2), [[2]]), "Refs": lod_tensor(column(1, 2), [[0, 2]])}


@pytest.mark.parametrize(
    ("op", "inputs", "attrs", "message"),
    [
        (
            "accuracy",
            {"Out": AUC["Predict"], "Indices": column(0, 1), "Label": column(1)},
            {},
            r"Indices \(N, k\) and Label \(N, 1\) must agree in N",
        ),
        ("auc", AUC, {"num_thresholds": 10, "slide_steps": 1}, r"StatPos must hold 23 counts"),
        (
            "auc",
            AUC | {"Predict": AUC["Predict"] * 3},
            {"num_thresholds": 10, "slide_steps": 0},
            r"must lie in \[0, 1\], found 1.5",
        ),
        ("chunk_eval", CHUNKS, {"num_chunk_types": 1}, r"must have the same LoD of one level"),
        (
            "chunk_eval",
            CHUNKS,
            {"num_chunk_types": 1, "chunk_scheme": "BIO"},
            r"one of IOB, IOE, IOBES, plain, found 'BIO'",
        ),
        (
            "chunk_eval",
            {"Inference": column(3), "Label": column(0), "SeqLength": np.array([1])},
            {"num_chunk_types": 1},
            r"Inference holds 3, expected 0 to 2",
        ),
        ("edit_distance", PAIR, {}, r"equally many sequences, found 1 and 2"),
        ("edit_distance", PAIR | {"Hyps": PAIR["Refs"]}, {"normalized": True}, r"reference 0 is empty"),
        ("edit_distance", PAIR | {"Hyps": column(1)}, {}, r"input Hyps needs a LoD"),
        (
            "mean_iou",
            {"Predictions": STAT, "Labels": STAT + 5},
            {"num_classes": 5},
            r"Labels holds class 5, expected 0 to 4",
        ),
    ],
)
def test_refusals_name_the_operator_and_what_is_wrong(
    op: str, inputs: dict[str, Any], attrs: dict[str, Any], message: str
) -> None:
    with pytest.raises(OperatorError, match=f"operator {op}: .*{message}"):
        run_op(op, inputs, attrs)
