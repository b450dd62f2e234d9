"""Losses over many classes that use only some of them: noise contrastive estimation, trees of classes, sampled softmax
(Paddle 1.8.5 layers/loss.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fluidtool.errors import AssertedError, UsageError
from fluidtool.fluid.checks import check_variable_and_dtype
from fluidtool.fluid.initializer import NumpyArrayInitializer
from fluidtool.fluid.layer_helper import LayerHelper
from fluidtool.fluid.layers.building import append_several, append_simple
from fluidtool.fluid.param_attr import ParamAttr
from fluidtool.ir import Variable

SAMPLERS = {"uniform": 0, "log_uniform": 1, "custom_dist": 2}


def nce(
    input: Variable,
    label: Variable,
    num_total_classes: int,
    sample_weight: Variable | None = None,
    param_attr: Any = None,
    bias_attr: Any = None,
    num_neg_samples: int | None = None,
    name: str | None = None,
    sampler: str = "uniform",
    custom_dist: Sequence[float] | None = None,
    seed: int = 0,
    is_sparse: bool = False,
) -> Variable:
    """Noise contrastive estimation (Gutmann and Hyvärinen 2010): the label's classes against sampled ones.

    input: features [batch, n]; label: int64 [batch, true classes]. sampler: uniform, log_uniform, or custom_dist with the
    probability of every class in custom_dist. num_neg_samples: classes sampled (10). is_sparse: sparse gradients.
    """
    helper = LayerHelper("nce", param_attr=param_attr, bias_attr=bias_attr, name=name)
    check_variable_and_dtype(input, "input", ["float32", "float64"], "nce")
    check_variable_and_dtype(label, "label", ["int64"], "nce")
    weight = helper.create_parameter(helper.param_attr, [num_total_classes, input.shape[1]], input.dtype)
    bias = None
    if helper.bias_attr:
        bias = helper.create_parameter(helper.bias_attr, [num_total_classes, 1], input.dtype, is_bias=True)
    outputs: dict[str, Any] = {
        slot: helper.create_variable_for_type_inference(var.dtype)
        for slot, var in (("Cost", input), ("SampleLogits", input), ("SampleLabels", label))
    }
    if sampler not in SAMPLERS:
        raise UsageError(f"Unsupported sampler type {sampler!r}: it is one of {', '.join(SAMPLERS)}.")
    inputs = {"Input": input, "Label": label, "Weight": weight, "Bias": bias, "SampleWeight": sample_weight}
    if sampler == "custom_dist":
        inputs |= _distribution(helper, custom_dist, num_total_classes)
    drawn = 10 if num_neg_samples is None else int(num_neg_samples)
    attrs = {
        "num_total_classes": int(num_total_classes),
        "num_neg_samples": drawn,
        "seed": seed,
        "sampler": SAMPLERS[sampler],
        "is_sparse": is_sparse,
        "remote_prefetch": is_sparse,
    }
    cost: Any = append_several(helper, "nce", inputs, outputs, attrs)["Cost"]
    return cost / (drawn + 1)  # type: ignore[no-any-return]


def _distribution(helper: LayerHelper, probabilities: Sequence[float] | None, classes: int) -> dict[str, Variable]:
    """The parameters that an alias sampler draws from."""
    if probabilities is None or len(probabilities) < classes:
        raise AssertedError(f"nce with sampler custom_dist needs custom_dist with {classes} probabilities")
    shares, alias = alias_table(probabilities[:classes])
    arrays = {
        "CustomDistProbs": np.array(probabilities, "float32"),
        "CustomDistAlias": np.array(alias, "int32"),
        "CustomDistAliasProbs": np.array(shares, "float32"),
    }
    made = {}
    for slot, array in arrays.items():
        made[slot] = helper.create_parameter(
            ParamAttr(), list(array.shape), array.dtype, default_initializer=NumpyArrayInitializer(array)
        )
        made[slot].stop_gradient = True
    return made


def alias_table(probabilities: Sequence[float]) -> tuple[list[float], list[int]]:
    """Walker's alias method: class i stays i with probability shares[i], else becomes alias[i] (-1: it always stays)."""
    shares, alias = [0.0] * len(probabilities), [0] * len(probabilities)
    above: list[tuple[int, float]] = []
    below: list[tuple[int, float]] = []

    def put(index: int, share: float) -> None:
        if share > 1.0:
            above.append((index, share))
        elif share < 1.0:
            below.append((index, share))
        else:
            shares[index], alias[index] = share, -1

    for index, probability in enumerate(probabilities):
        put(index, probability * len(probabilities))
    while above and below:
        (big, more), (little, less) = above.pop(0), below.pop(0)
        shares[little], alias[little] = less, big
        put(big, more + less - 1)
    for rest in (above, below):
        if rest:
            shares[rest[0][0]], alias[rest[0][0]] = 1.0, -1
    return shares, alias


def hsigmoid(
    input: Variable,
    label: Variable,
    num_classes: int,
    param_attr: Any = None,
    bias_attr: Any = None,
    name: str | None = None,
    path_table: Variable | None = None,
    path_code: Variable | None = None,
    is_custom: bool = False,
    is_sparse: bool = False,
) -> Variable:
    """The hierarchical sigmoid loss [batch, 1]: one binary choice at each node on the way to the label's leaf.

    The tree is a complete binary one over num_classes, or (is_custom) given by path_table and path_code [batch, depth]:
    the nodes on the way (num_classes of them in all) and the turn at each. is_sparse: sparse gradients, custom trees only.
    """
    check_variable_and_dtype(input, "input", ["float32", "float64"], "hsigmoid")
    check_variable_and_dtype(label, "label", ["int64"], "hsigmoid")
    helper = LayerHelper("hierarchical_sigmoid", param_attr=param_attr, bias_attr=bias_attr, name=name)
    outputs: dict[str, Any] = {
        slot: helper.create_variable_for_type_inference(input.dtype) for slot in ("Out", "PreOut")
    }
    _check_tree(num_classes, path_table, path_code, is_custom)
    is_sparse = is_sparse and is_custom
    nodes = num_classes if is_custom else num_classes - 1
    weight = helper.create_parameter(helper.param_attr, [nodes, input.shape[1]], input.dtype)
    inputs = {"X": input, "W": weight, "PathTable": path_table, "PathCode": path_code, "Label": label}
    if helper.bias_attr:
        inputs["Bias"] = helper.create_parameter(helper.bias_attr, [nodes, 1], input.dtype, is_bias=True)
    attrs = {"num_classes": num_classes, "is_sparse": is_sparse, "remote_prefetch": is_sparse}
    return append_several(helper, "hierarchical_sigmoid", inputs, outputs | {"W_Out": weight}, attrs)["Out"]


def _check_tree(classes: int, path_table: Variable | None, path_code: Variable | None, is_custom: bool) -> None:
    if not is_custom:
        if classes is None or classes < 2:
            raise UsageError("num_classes must not be less than 2 with default tree")
        if path_table is not None or path_code is not None:
            raise UsageError("only num_classes should be passed without custom tree")
        return
    for what, value in (("path_code", path_code), ("path_table", path_table), ("num_classes", classes)):
        if value is None:
            raise UsageError(f"{what} should not be None with custom tree")


def sampled_softmax_with_cross_entropy(
    logits: Variable,
    label: Variable,
    num_samples: int,
    num_true: int = 1,
    remove_accidental_hits: bool = True,
    use_customized_samples: bool = False,
    customized_samples: Variable | None = None,
    customized_probabilities: Variable | None = None,
    seed: int = 0,
) -> Variable:
    """softmax_with_cross_entropy over num_samples drawn classes and the label's (Jean et al. 2015), [batch, 1].

    With use_customized_samples the classes and their probabilities are given instead of drawn.
    """
    helper = LayerHelper("sample_logits")
    outputs: dict[str, Any] = {
        "Samples": customized_samples if use_customized_samples else "int64",
        "Probabilities": customized_probabilities if use_customized_samples else logits.dtype,
        "SampledLogits": logits.dtype,
        "SampledLabels": "int64",
    }
    outputs = {
        slot: kind if isinstance(kind, Variable) else helper.create_variable_for_type_inference(kind)
        for slot, kind in outputs.items()
    }
    one_hot = helper.create_variable_for_type_inference(logits.dtype)
    inputs = {
        "Logits": logits,
        "Labels": label,
        "CustomizedSamples": customized_samples,
        "CustomizedProbabilities": customized_probabilities,
    }
    attrs = {
        "use_customized_samples": use_customized_samples,
        "uniq": True,
        "remove_accidental_hits": remove_accidental_hits,
        "num_samples": num_samples,
        "seed": seed,
    }
    outputs |= {"LogitsDim": logits.dtype, "LabelsDim": label.type}
    sampled = append_several(helper, "sample_logits", inputs, outputs, attrs)
    kinds = {"Loss": logits.dtype, "Softmax": logits.dtype}
    results = {slot: helper.create_variable_for_type_inference(kind) for slot, kind in kinds.items()}
    append_simple(
        helper, "one_hot", {"X": sampled["SampledLabels"]}, {"depth": num_samples + 1}, dtype=None, out=one_hot
    )
    attrs = {"soft_label": True, "ignore_index": 0, "numeric_stable_mode": False}
    pair = {"Logits": sampled["SampledLogits"], "Label": one_hot}
    loss: Any = append_several(helper, "softmax_with_cross_entropy", pair, results, attrs)["Loss"]
    return loss / num_true  # type: ignore[no-any-return]
