"""Scores of predictions: accuracy, area under the curve, mean intersection over union (Paddle 1.8.5 layers/metric_op.py)."""

from __future__ import annotations

from typing import Any

from fluidtool.fluid.checks import check_variable_and_dtype
from fluidtool.fluid.initializer import Constant
from fluidtool.fluid.layer_helper import LayerHelper
from fluidtool.fluid.layers.building import FLOATS, append_several
from fluidtool.fluid.layers.reduction import topk
from fluidtool.ir import Variable


def accuracy(
    input: Variable,
    label: Variable,
    k: int | Variable = 1,
    correct: Variable | None = None,
    total: Variable | None = None,
) -> Variable:
    """The share of rows of input [batch, classes] whose label [batch, 1] is among the k best, float32 [1].

    correct, total: variables for the counts (int32).
    """
    helper = LayerHelper("accuracy")
    check_variable_and_dtype(input, "input", FLOATS, "accuracy")
    values, indices = topk(input, k)
    outputs: dict[str, Any] = {"Accuracy": "float32", "Correct": correct, "Total": total}
    outputs |= {slot: "int32" for slot in ("Correct", "Total") if outputs[slot] is None}
    inputs = {"Out": [values], "Indices": [indices], "Label": [label]}
    return append_several(helper, "accuracy", inputs, outputs)["Accuracy"]


def auc(
    input: Variable,
    label: Variable,
    curve: str = "ROC",
    num_thresholds: int = 2**12 - 1,
    topk: int = 1,
    slide_steps: int = 1,
) -> tuple[Variable, Variable, list[Variable]]:
    """The area under the curve (ROC or PR) of probabilities [batch, 2] so far, that of the last slide_steps batches, and
    the variables that hold the counts: batch positive, batch negative, positive, negative.
    """
    helper = LayerHelper("auc")
    check_variable_and_dtype(input, "input", ["float32", "float64"], "auc")
    check_variable_and_dtype(label, "label", ["int32", "int64"], "auc")
    areas = [helper.create_variable_for_type_inference("float64") for _ in range(2)]
    buckets = num_thresholds + 1
    shapes = [[(1 + slide_steps) * buckets + 1]] * 2 + [[1, buckets]] * 2
    states = [helper.create_global_variable(persistable=True, dtype="int64", shape=shape) for shape in shapes]
    for state in states:
        helper.set_variable_initializer(state, Constant(0.0, force_cpu=False))
    for area, positive, negative, steps in ((areas[1], *states[:2], slide_steps), (areas[0], *states[2:], 0)):
        inputs = {"Predict": [input], "Label": [label], "StatPos": [positive], "StatNeg": [negative]}
        outputs = {"AUC": area, "StatPosOut": positive, "StatNegOut": negative}
        attrs = {"curve": curve, "num_thresholds": num_thresholds, "slide_steps": steps}
        append_several(helper, "auc", inputs, outputs, attrs)
    return areas[0], areas[1], states


def mean_iou(input: Variable, label: Variable, num_classes: int) -> tuple[Variable, Variable, Variable]:
    """Mean intersection over union of predicted classes, and the wrong and correct predictions of each class."""
    helper = LayerHelper("mean_iou")
    check_variable_and_dtype(input, "Predictions", ["int32", "int64"], "mean_iou")
    check_variable_and_dtype(label, "Labels", ["int32", "int64"], "mean_iou")
    kinds = {"OutMeanIou": "float32", "OutWrong": "int32", "OutCorrect": "int32"}
    inputs = {"Predictions": input, "Labels": label}
    results = append_several(helper, "mean_iou", inputs, kinds, {"num_classes": num_classes})
    return results["OutMeanIou"], results["OutWrong"], results["OutCorrect"]
