"""Losses: gradients by central differences, corners that real Paddle was asked about, and refusals."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fluidtool.errors import OperatorError
from tests.support.operators import check_gradient, lod_tensor, run_op

RNG = np.random.default_rng(0)
LOGITS = RNG.normal(size=(4, 3))
PROBABILITIES = np.exp(LOGITS) / np.exp(LOGITS).sum(axis=1, keepdims=True)
CLASSES = np.array([[1], [0], [2], [1]])
COLUMN, OTHER = RNG.normal(size=(4, 1)), RNG.normal(size=(4, 1))
YES_NO = np.array([[1.0], [0.0], [0.0], [1.0]])
WEIGHTS = RNG.uniform(0.5, 1.5, (4, 3))

GRADIENTS: list[tuple[str, dict[str, Any], list[str], dict[str, Any], list[str] | None]] = [
    ("cross_entropy", {"X": PROBABILITIES, "Label": CLASSES}, ["X"], {}, None),
    ("cross_entropy", {"X": PROBABILITIES, "Label": WEIGHTS}, ["X"], {"soft_label": True}, None),
    ("cross_entropy2", {"X": PROBABILITIES, "Label": CLASSES}, ["X"], {"ignore_index": 2}, ["Y"]),
    ("softmax_with_cross_entropy", {"Logits": LOGITS, "Label": CLASSES}, ["Logits"], {}, ["Loss"]),
    (
        "softmax_with_cross_entropy",
        {"Logits": LOGITS, "Label": PROBABILITIES},
        ["Logits"],
        {"soft_label": True},
        ["Loss"],
    ),
    ("sigmoid_cross_entropy_with_logits", {"X": LOGITS, "Label": WEIGHTS}, ["X"], {"normalize": True}, None),
    ("bce_loss", {"X": PROBABILITIES, "Label": WEIGHTS}, ["X"], {}, None),
    ("bpr_loss", {"X": LOGITS, "Label": CLASSES}, ["X"], {}, None),
    ("kldiv_loss", {"X": LOGITS, "Target": PROBABILITIES}, ["X"], {"reduction": "batchmean"}, None),
    ("hinge_loss", {"Logits": COLUMN, "Labels": YES_NO}, ["Logits"], {}, None),
    ("huber_loss", {"X": LOGITS, "Y": WEIGHTS}, ["X", "Y"], {"delta": 0.7}, ["Out"]),
    ("log_loss", {"Predicted": PROBABILITIES[:, :1], "Labels": YES_NO}, ["Predicted"], {"epsilon": 1e-3}, None),
    ("margin_rank_loss", {"X1": COLUMN, "X2": OTHER, "Label": 2 * YES_NO - 1}, ["X1", "X2"], {"margin": 0.2}, ["Out"]),
    ("modified_huber_loss", {"X": COLUMN, "Y": YES_NO}, ["X"], {}, ["Out"]),
    ("nll_loss", {"X": LOGITS, "Label": CLASSES[:, 0], "Weight": WEIGHTS[0]}, ["X"], {}, ["Out"]),
    ("rank_loss", {"Label": YES_NO, "Left": COLUMN, "Right": OTHER}, ["Left", "Right"], {}, None),
    (
        "smooth_l1_loss",
        {"X": LOGITS, "Y": 3 * WEIGHTS, "InsideWeight": WEIGHTS, "OutsideWeight": PROBABILITIES},
        ["X", "Y"],
        {"sigma": 2.0},
        ["Out"],
    ),
    (
        "center_loss",
        {"X": LOGITS, "Label": CLASSES, "Centers": WEIGHTS, "CenterUpdateRate": np.array([0.1])},
        ["X"],
        {"cluster_num": 4, "need_update": True},
        ["Loss"],
    ),
    ("label_smooth", {"X": LOGITS}, ["X"], {"epsilon": 0.25}, None),
]


@pytest.mark.parametrize(("op", "inputs", "wrt", "attrs", "loss"), GRADIENTS)
def test_gradient_agrees_with_central_differences(
    op: str, inputs: dict[str, Any], wrt: list[str], attrs: dict[str, Any], loss: list[str] | None
) -> None:
    check_gradient(op, inputs, wrt, attrs, loss=loss, rtol=1e-5, atol=1e-6)


def test_softmax_with_cross_entropy_takes_no_probability_below_exp_of_minus_64() -> None:
    logits = np.array([[0.0, 100.0]], np.float32)
    out = run_op("softmax_with_cross_entropy", {"Logits": logits, "Label": np.array([[0]])})
    np.testing.assert_allclose(out["Loss"].numpy(), [[64.0]], rtol=1e-6)
    np.testing.assert_allclose(out["Softmax"].numpy(), [[1.6038109e-28, 1.0]], rtol=1e-6)


def softmax_gradient(attrs: dict[str, Any]) -> np.ndarray[Any, Any]:
    softmax = np.array([[0.2689414322376251, 0.7310585975646973]], np.float32)
    inputs = {"Label": np.array([[1]]), "Softmax": softmax, "Loss@GRAD": np.ones((1, 1), np.float32)}
    found: np.ndarray[Any, Any] = run_op("softmax_with_cross_entropy_grad", inputs, attrs)["Logits@GRAD"].numpy()
    return found


def test_an_ignored_class_gets_a_gradient_as_in_paddle_1_8_5_on_the_cpu() -> None:
    found = softmax_gradient({"ignore_index": 1})
    np.testing.assert_allclose(found, [[0.2689414322376251, -0.26894140243530273]], rtol=1e-6)


def test_an_ignored_class_gets_no_gradient_in_programs_of_paddle_2() -> None:
    np.testing.assert_array_equal(softmax_gradient({"ignore_index": 1, "use_softmax": True}), [[0.0, 0.0]])


def test_probabilities_may_stand_for_logits_in_programs_of_paddle_2() -> None:
    inputs = {"Logits": np.array([[0.1, 0.9]], np.float32), "Label": np.array([[0]])}
    out = run_op("softmax_with_cross_entropy", inputs, {"use_softmax": False})
    np.testing.assert_allclose(out["Loss"].numpy(), [[2.302585]], rtol=1e-6)


def test_cross_entropy_of_an_impossible_class_is_1e20() -> None:
    out = run_op("cross_entropy", {"X": np.array([[0.0, 1.0]], np.float32), "Label": np.array([[0]])})
    np.testing.assert_allclose(out["Y"].numpy(), [[1e20]], rtol=1e-6)


def test_cvm_gives_each_row_the_counts_of_its_sequence() -> None:
    x = lod_tensor(np.ones((3, 3), np.float32), [[2, 1]])
    inputs = {"X": x, "CVM": np.array([[1, 2], [3, 4]], np.float32), "Y@GRAD": np.full((3, 3), 9, np.float32)}
    found = run_op("cvm_grad", inputs, {"use_cvm": True})["X@GRAD"]
    np.testing.assert_array_equal(found.numpy(), [[1, 2, 9], [1, 2, 9], [3, 4, 9]])
    assert found.recursive_sequence_lengths() == [[2, 1]]


def test_teacher_student_sigmoid_loss_gradient_stops_at_the_bounds() -> None:
    label = np.array([[-2], [-1], [0.3]], np.float32)
    inputs = {"X": np.array([[2], [0], [-3]], np.float32), "Label": label, "Y@GRAD": np.ones((3, 1), np.float32)}
    attrs = {"soft_max_up_bound": 2.0, "soft_max_lower_bound": -1.0}
    found = run_op("teacher_student_sigmoid_loss_grad", inputs, attrs)["X@GRAD"].numpy()
    np.testing.assert_allclose(found, [[0.0], [-0.5], [0.0]], atol=1e-7)


FLOAT32 = PROBABILITIES.astype(np.float32)


@pytest.mark.parametrize(
    ("op", "inputs", "attrs", "message"),
    [
        ("cross_entropy", {"X": FLOAT32, "Label": CLASSES + 1}, {}, r"Label holds class 3, expected 0 to 2"),
        ("cross_entropy", {"X": FLOAT32, "Label": CLASSES[:3]}, {}, r"Label must have shape \(4, 1\) or \(4,\)"),
        ("cross_entropy", {"X": FLOAT32, "Label": CLASSES.astype(np.float32)}, {}, r"must hold class numbers"),
        ("cross_entropy2", {"X": FLOAT32, "Label": CLASSES - 1}, {}, r"class -1, expected 0 to 2 or ignore_index"),
        ("softmax_with_cross_entropy", {"Logits": FLOAT32, "Label": CLASSES}, {"axis": 2}, r"axis 2 is out of range"),
        (
            "softmax_with_cross_entropy",
            {"Logits": FLOAT32, "Label": CLASSES[:, 0]},
            {},
            r"shape \(4, 1\).*found \(4,\)",
        ),
        (
            "sigmoid_cross_entropy_with_logits",
            {"X": FLOAT32, "Label": FLOAT32[:2]},
            {},
            r"X and Label must have the same",
        ),
        ("bce_loss", {"X": FLOAT32 + 1, "Label": FLOAT32}, {}, r"X must lie in \[0, 1\]"),
        ("bpr_loss", {"X": FLOAT32[:, :1], "Label": CLASSES}, {}, r"needs at least two classes"),
        (
            "kldiv_loss",
            {"X": FLOAT32, "Target": FLOAT32},
            {"reduction": "max"},
            r"none, batchmean, sum, mean, found 'max'",
        ),
        ("hinge_loss", {"Logits": FLOAT32, "Labels": FLOAT32}, {}, r"Logits must have shape \(N, 1\), found \(4, 3\)"),
        (
            "nll_loss",
            {"X": FLOAT32, "Label": CLASSES[:, 0], "Weight": FLOAT32[0, :2]},
            {},
            r"one number per class \(3\)",
        ),
        ("rank_loss", {"Label": YES_NO, "Left": COLUMN, "Right": OTHER[:2]}, {}, r"found Right of shape \(2, 1\)"),
        ("smooth_l1_loss", {"X": FLOAT32, "Y": FLOAT32, "InsideWeight": FLOAT32}, {}, r"must be given together"),
        ("label_smooth", {"X": FLOAT32, "PriorDist": FLOAT32}, {}, r"PriorDist must have shape \(1, 3\)"),
        ("cvm", {"X": FLOAT32[:, :1], "CVM": FLOAT32}, {}, r"at least the two columns show and click"),
    ],
)
def test_refusals_name_the_operator_and_what_is_wrong(
    op: str, inputs: dict[str, Any], attrs: dict[str, Any], message: str
) -> None:
    with pytest.raises(OperatorError, match=f"operator {op}: .*{message}"):
        run_op(op, inputs, attrs)


def test_a_label_that_is_ignored_is_compared_as_an_integer() -> None:
    # Numbers of Paddle 1.8.5, which cuts labels to integers there, but counts those that are not exactly ignore_index.
    x, label = np.full((1, 5), 0.5, np.float32), np.float32([[0.3, -0.7, 0, 1.2, -1]])
    inputs, attrs = {"X": x, "Label": label}, {"ignore_index": 0}
    out = run_op("sigmoid_cross_entropy_with_logits", inputs, attrs)["Out"].numpy()
    np.testing.assert_allclose(out, [[0, 0, 0, 0.374077, 1.474077]], rtol=1e-5)
    shared = run_op("sigmoid_cross_entropy_with_logits", inputs, attrs | {"normalize": True})["Out"].numpy()
    np.testing.assert_allclose(shared, out / 4, rtol=1e-6)


def test_weights_of_positives_multiply_the_logarithm() -> None:
    # Numbers of Paddle 2.6.2.
    x, label, weight = np.float32([[-1, 0, 2]]), np.float32([[0, 0.5, 1]]), np.float32([[2, 3, 4]])
    inputs = {"X": x, "Label": label, "pos_weight": weight}
    out = run_op("sigmoid_cross_entropy_with_logits", inputs)["Out"].numpy()
    np.testing.assert_allclose(out, [[0.6265234, 2.0794415, 0.50771207]], rtol=1e-6)
    doubles = {slot: value.astype(np.float64) + 0.25 for slot, value in inputs.items()}
    check_gradient("sigmoid_cross_entropy_with_logits", doubles, ["X"])
    with pytest.raises(OperatorError, match="pos_weight"):
        run_op("sigmoid_cross_entropy_with_logits", inputs | {"pos_weight": weight[0]})
