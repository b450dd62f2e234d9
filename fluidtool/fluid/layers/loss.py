"""Losses of predictions and labels (Paddle 1.8.5 layers/loss.py and nn.py)."""

from __future__ import annotations

from typing import Any

from fluidtool.errors import AssertedError, UsageError
from fluidtool.fluid.checks import check_type, check_variable_and_dtype
from fluidtool.fluid.initializer import Constant
from fluidtool.fluid.layer_helper import LayerHelper
from fluidtool.fluid.layers.arithmetic import equal, matmul
from fluidtool.fluid.layers.building import FLOATS, append_several, append_simple
from fluidtool.fluid.layers.elementary import square
from fluidtool.fluid.layers.indexing import one_hot
from fluidtool.fluid.layers.reduction import reduce_mean, reduce_sum
from fluidtool.fluid.layers.shape import expand, reshape, transpose
from fluidtool.fluid.variable_operators import cast as as_type
from fluidtool.ir import Variable

WIDE = ("float32", "float64")
IGNORE_INDEX = -100


# ---------------------------------------------------------------- classification
def cross_entropy(
    input: Variable, label: Variable, soft_label: bool = False, ignore_index: int = IGNORE_INDEX
) -> Variable:
    """-log of the probability that `input` [..., classes] gives to `label`: class numbers [..., 1], or probabilities."""
    if not soft_label:
        return cross_entropy2(input, label, ignore_index)
    check_variable_and_dtype(input, "input", FLOATS, "cross_entropy")
    attrs = {"soft_label": soft_label, "ignore_index": ignore_index}
    helper = LayerHelper("cross_entropy")
    return append_simple(helper, "cross_entropy", {"X": [input], "Label": [label]}, attrs, dtype=input.dtype, slot="Y")


def cross_entropy2(input: Variable, label: Variable, ignore_index: int = IGNORE_INDEX) -> Variable:
    """cross_entropy of class numbers [..., 1]."""
    check_variable_and_dtype(input, "input", FLOATS, "cross_entropy2")
    return append_several(
        LayerHelper("cross_entropy2"),
        "cross_entropy2",
        {"X": [input], "Label": [label]},
        {"Y": input.dtype, "XShape": input.dtype, "MatchX": input.dtype},
        {"ignore_index": ignore_index},
    )["Y"]


def softmax_with_cross_entropy(
    logits: Variable,
    label: Variable,
    soft_label: bool = False,
    ignore_index: int = IGNORE_INDEX,
    numeric_stable_mode: bool = True,
    return_softmax: bool = False,
    axis: int = -1,
) -> Variable | tuple[Variable, Variable]:
    """cross_entropy(softmax(logits), label) along `axis`; with return_softmax also the softmax."""
    attrs = {
        "soft_label": soft_label,
        "ignore_index": ignore_index,
        "numeric_stable_mode": numeric_stable_mode,
        "axis": axis,
    }
    outputs = append_several(
        LayerHelper("softmax_with_cross_entropy"),
        "softmax_with_cross_entropy",
        {"Logits": logits, "Label": label},
        {"Softmax": logits.dtype, "Loss": logits.dtype},
        attrs,
    )
    return (outputs["Loss"], outputs["Softmax"]) if return_softmax else outputs["Loss"]


def sigmoid_cross_entropy_with_logits(
    x: Variable, label: Variable, ignore_index: int = IGNORE_INDEX, name: str | None = None, normalize: bool = False
) -> Variable:
    """Binary cross entropy of sigmoid(x) per element; normalize divides by the number of labels not ignored."""
    check_variable_and_dtype(x, "input", FLOATS, "sigmoid_cross_entropy_with_logits")
    helper = LayerHelper("sigmoid_cross_entropy_with_logits", name=name)
    attrs = {"ignore_index": ignore_index, "normalize": normalize}
    inputs = {"X": x, "Label": label}
    return append_simple(helper, "sigmoid_cross_entropy_with_logits", inputs, attrs, dtype=x.dtype)


def teacher_student_sigmoid_loss(
    input: Variable, label: Variable, soft_max_up_bound: float = 15.0, soft_max_lower_bound: float = -15.0
) -> Variable:
    """Click loss of a student [batch, 1] that also learns from a teacher's score, kept in the label."""
    check_variable_and_dtype(input, "input", WIDE, "teacher_student_sigmoid_loss")
    check_variable_and_dtype(label, "label", WIDE, "teacher_student_sigmoid_loss")
    helper = LayerHelper("teacher_student_sigmoid_loss")
    attrs = {"soft_max_lower_bound": float(soft_max_lower_bound), "soft_max_up_bound": float(soft_max_up_bound)}
    out = helper.create_variable(dtype=input.dtype)
    inputs = {"X": [input], "Label": [label]}
    return append_simple(helper, "teacher_student_sigmoid_loss", inputs, attrs, dtype=input.dtype, out=out, slot="Y")


def bpr_loss(input: Variable, label: Variable, name: str | None = None) -> Variable:
    """Bayesian personalized ranking (Hidasi et al. 2015): how far the class of the label is above the others."""
    helper = LayerHelper("bpr_loss", name=name)
    out = helper.create_variable_for_type_inference(input.dtype)
    check_variable_and_dtype(input, "input", FLOATS, "bpr_loss")
    return append_simple(helper, "bpr_loss", {"X": [input], "Label": [label]}, dtype=input.dtype, out=out, slot="Y")


def label_smooth(
    label: Variable,
    prior_dist: Variable | None = None,
    epsilon: float = 0.1,
    dtype: Any = "float32",
    name: str | None = None,
) -> Variable:
    """(1 - epsilon) * label + epsilon * prior_dist, or of 1 / classes; label is one-hot [..., classes]."""
    if epsilon > 1.0 or epsilon < 0.0:
        raise UsageError(f"The value of epsilon must be between 0 and 1, found {epsilon}")
    check_variable_and_dtype(label, "label", WIDE, "label_smooth")
    helper = LayerHelper("label_smooth", name=name)
    label.stop_gradient = True
    inputs = {"X": label, "PriorDist": prior_dist}
    return append_simple(helper, "label_smooth", inputs, {"epsilon": float(epsilon)}, dtype=dtype)


# ---------------------------------------------------------------- regression
def square_error_cost(input: Variable, label: Variable) -> Variable:
    """(input - label)² per element."""
    _check_pair(input, label, "square_error_cost")
    helper = LayerHelper("square_error_cost")
    difference = append_simple(helper, "elementwise_sub", {"X": [input], "Y": [label]}, dtype=input.dtype)
    return append_simple(helper, "square", {"X": [difference]}, dtype=input.dtype)


def mse_loss(input: Variable, label: Variable) -> Variable:
    """The mean of (input - label)²."""
    _check_pair(input, label, "mse_loss")
    return reduce_mean(square_error_cost(input, label))


def huber_loss(input: Variable, label: Variable, delta: float) -> Variable:
    """Half the square of label - input up to `delta`, linear beyond it."""
    helper = LayerHelper("huber_loss", input=input)
    _check_pair(input, label, "huber_loss")
    kinds = {"Residual": input.dtype, "Out": input.dtype}
    return append_several(helper, "huber_loss", {"X": input, "Y": label}, kinds, {"delta": delta})["Out"]


def smooth_l1(
    x: Variable,
    y: Variable,
    inside_weight: Variable | None = None,
    outside_weight: Variable | None = None,
    sigma: float | None = None,
) -> Variable:
    """The smooth L1 distance of Fast R-CNN [batch, 1], with weights within and outside the distance."""
    check_variable_and_dtype(x, "X", WIDE, "smooth_l1_loss")
    check_variable_and_dtype(y, "Y", WIDE, "smooth_l1_loss")
    inputs = {"X": x, "Y": y, "InsideWeight": inside_weight, "OutsideWeight": outside_weight}
    attrs = {"sigma": 1.0 if sigma is None else sigma}
    kinds = {"Diff": x.dtype, "Out": x.dtype}
    return append_several(LayerHelper("smooth_l1_loss"), "smooth_l1_loss", inputs, kinds, attrs)["Out"]


def log_loss(input: Variable, label: Variable, epsilon: float = 1e-4, name: str | None = None) -> Variable:
    """Binary cross entropy of probabilities [batch, 1]."""
    helper = LayerHelper("log_loss", name=name)
    check_variable_and_dtype(input, "input", ["float32"], "log_loss")
    check_variable_and_dtype(label, "label", ["float32"], "log_loss")
    inputs = {"Predicted": [input], "Labels": [label]}
    return append_simple(helper, "log_loss", inputs, {"epsilon": epsilon}, dtype=input.dtype, slot="Loss")


def kldiv_loss(x: Variable, target: Variable, reduction: str = "mean", name: str | None = None) -> Variable:
    """The Kullback-Leibler divergence of `target` from exp(x); reduction: none, batchmean, mean or sum."""
    helper = LayerHelper("kldiv_loss", name=name)
    check_variable_and_dtype(x, "x", WIDE, "kldiv_loss")
    check_variable_and_dtype(target, "target", WIDE, "kldiv_loss")
    check_type(reduction, "reduction", str, "kldiv_loss")
    inputs = {"X": x, "Target": target}
    return append_simple(helper, "kldiv_loss", inputs, {"reduction": reduction}, dtype=x.dtype, slot="Loss")


def _check_pair(input: Variable, label: Variable, layer: str) -> None:
    check_variable_and_dtype(input, "input", WIDE, layer)
    check_variable_and_dtype(label, "label", WIDE, layer)


# ---------------------------------------------------------------- ranking and metric learning
def rank_loss(label: Variable, left: Variable, right: Variable, name: str | None = None) -> Variable:
    """RankNet (Burges et al. 2005): whether `left` ranks above `right`, all [batch, 1]."""
    helper = LayerHelper("rank_loss", name=name)
    for var, what in ((label, "label"), (left, "left"), (right, "right")):
        check_variable_and_dtype(var, what, ["float32"], "rank_loss")
    return append_simple(helper, "rank_loss", {"Label": label, "Left": left, "Right": right}, dtype="float32")


def margin_rank_loss(
    label: Variable, left: Variable, right: Variable, margin: float = 0.1, name: str | None = None
) -> Variable:
    """max(0, margin - label * (left - right)) for labels of 1 and -1."""
    helper = LayerHelper("margin_rank_loss", name=name)
    check_variable_and_dtype(label, "label", ["float32"], "margin_rank_loss")
    inputs = {"Label": label, "X1": left, "X2": right}
    kinds = {"Out": left.dtype, "Activated": left.dtype}
    return append_several(helper, "margin_rank_loss", inputs, kinds, {"margin": margin})["Out"]


def center_loss(
    input: Variable,
    label: Variable,
    num_classes: int,
    alpha: float | Variable,
    param_attr: Any,
    update_center: bool = True,
) -> Variable:
    """Half the squared distance of features [batch, n] from the center of their class (Wen et al. 2016).

    alpha: the rate at which the centers follow (float, or a Variable of one element).
    """
    helper = LayerHelper("center_loss", input=input)
    centers = helper.create_parameter(param_attr, [num_classes, input.shape[1]], helper.input_dtype())
    centers.stop_gradient = True
    if not isinstance(alpha, (float, Variable)):
        raise AssertedError(f"'alpha' of center_loss must be a float or a Variable, but received {type(alpha)}")
    if isinstance(alpha, float):
        alpha = helper.create_variable(
            name="centerloss_alpha",
            shape=[1],
            dtype="float32",
            persistable=True,
            stop_gradient=True,
            initializer=Constant(alpha),
        )
    inputs = {"X": [input], "Label": [label], "Centers": [centers], "CenterUpdateRate": [alpha]}
    outputs = {"SampleCenterDiff": input.dtype, "Loss": input.dtype, "CentersOut": centers}
    attrs = {"cluster_num": num_classes, "need_update": update_center}
    return append_several(helper, "center_loss", inputs, outputs, attrs)["Loss"]


def npair_loss(anchor: Variable, positive: Variable, labels: Variable, l2_reg: float = 0.002) -> Variable:
    """N-pair loss (Sohn 2016) of embeddings [batch, n] whose labels [batch] say which belong together."""
    check_variable_and_dtype(anchor, "anchor", WIDE, "npair_loss")
    check_variable_and_dtype(positive, "positive", WIDE, "positive")
    check_variable_and_dtype(labels, "labels", (*WIDE, "int64"), "labels")
    batch = labels.shape[0]
    labels = expand(reshape(labels, [batch, 1], inplace=True), [1, batch])
    same: Any = as_type(equal(labels, transpose(labels, [1, 0])), "float32")
    shares = same / reduce_sum(same, 1, True)
    first: Any = reduce_mean(reduce_sum(square(anchor), 1))
    penalty = (first + reduce_mean(reduce_sum(square(positive), 1))) * 0.25 * l2_reg
    similarity = matmul(anchor, positive, False, True)
    errors = softmax_with_cross_entropy(similarity, shares, soft_label=True)
    return penalty + reduce_mean(reduce_sum(shares * errors, 0))  # type: ignore[no-any-return]


def dice_loss(input: Variable, label: Variable, epsilon: float = 1e-5, name: str | None = None) -> Variable:
    """1 - 2 |input ∩ label| / (|input| + |label|), the mean over samples; input [..., classes], label [..., 1]."""
    dims = list(range(1, len(input.shape)))
    wanted: Any = one_hot(label, input.shape[-1])
    inside = reduce_sum(input * wanted, dims)
    both: Any = reduce_sum(input, dims)
    both = both + reduce_sum(wanted, dims)
    return reduce_mean(1 - inside * 2 / (both + epsilon))  # type: ignore[operator]
