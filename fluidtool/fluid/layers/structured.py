"""Sequences of labels: conditional random fields, connectionist temporal classification, chunks, edit distances, and other
structured scores (Paddle 1.8.5 layers/nn.py and loss.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fluidtool.errors import UsageError
from fluidtool.fluid.checks import check_type, check_variable_and_dtype
from fluidtool.fluid.layer_helper import LayerHelper
from fluidtool.fluid.layers.building import FLOATS, append_several, append_simple
from fluidtool.fluid.layers.reduction import topk
from fluidtool.fluid.layers.shape import squeeze
from fluidtool.ir import Variable
from fluidtool.proto.enums import VarType

WIDE = ("float32", "float64")


# ---------------------------------------------------------------- conditional random fields
def linear_chain_crf(
    input: Variable, label: Variable, param_attr: Any = None, length: Variable | None = None
) -> Variable:
    """The negative log likelihood of a linear chain CRF, one number per sequence.

    input: scores of tags, sequences [total, tags] or, with `length` [batch, 1], padded [batch, steps, tags]. The parameter
    [tags + 2, tags] holds start, end and transition scores.
    """
    check_variable_and_dtype(input, "input", WIDE, "linear_chain_crf")
    check_variable_and_dtype(label, "label", ["int64"], "linear_chain_crf")
    helper = LayerHelper("linear_chain_crf", param_attr=param_attr)
    tags = input.shape[1] if length is None else input.shape[2]
    transition = helper.create_parameter(helper.param_attr, [tags + 2, tags], input.dtype)
    inputs = {"Emission": [input], "Transition": transition, "Label": [label], "Length": length}
    slots = ("Alpha", "EmissionExps", "TransitionExps", "LogLikelihood")
    return append_several(helper, "linear_chain_crf", inputs, dict.fromkeys(slots, input.dtype))["LogLikelihood"]


def crf_decoding(
    input: Variable, param_attr: Any, label: Variable | None = None, length: Variable | None = None
) -> Variable:
    """The best tags by Viterbi's algorithm, int64, with the transition parameter named by param_attr; with `label`,
    whether each tag is right.
    """
    check_variable_and_dtype(input, "input", WIDE, "crf_decoding")
    helper = LayerHelper("crf_decoding", param_attr=param_attr)
    transition = helper.get_parameter(param_attr.name)
    inputs = {"Emission": [input], "Transition": transition, "Label": label, "Length": length}
    return append_simple(helper, "crf_decoding", inputs, dtype=VarType.INT64, slot="ViterbiPath")


def chunk_eval(
    input: Variable,
    label: Variable,
    chunk_scheme: str,
    num_chunk_types: int,
    excluded_chunk_types: Sequence[int] | None = None,
    seq_length: Variable | None = None,
) -> tuple[Variable, ...]:
    """Precision, recall, F1 and the numbers of inferred, labeled and correct chunks; chunk_scheme: IOB, IOE, IOBES, plain."""
    helper = LayerHelper("chunk_eval")
    check_variable_and_dtype(input, "input", ["int64"], "chunk_eval")
    check_variable_and_dtype(label, "label", ["int64"], "chunk_eval")
    scores = dict.fromkeys(("Precision", "Recall", "F1-Score"), "float32")
    counts = dict.fromkeys(("NumInferChunks", "NumLabelChunks", "NumCorrectChunks"), "int64")
    attrs = {
        "num_chunk_types": num_chunk_types,
        "chunk_scheme": chunk_scheme,
        "excluded_chunk_types": list(excluded_chunk_types or ()),
    }
    inputs = {"Inference": [input], "Label": [label], "SeqLength": seq_length}
    return tuple(append_several(helper, "chunk_eval", inputs, scores | counts, attrs).values())


# ---------------------------------------------------------------- connectionist temporal classification
def warpctc(
    input: Variable,
    label: Variable,
    blank: int = 0,
    norm_by_times: bool = False,
    input_length: Variable | None = None,
    label_length: Variable | None = None,
) -> Variable:
    """The CTC loss (Graves et al. 2006), [sequences, 1].

    input: unscaled scores, sequences [total, classes + 1] or, with both lengths, padded [steps, batch, classes + 1].
    label: int32 classes without blanks. norm_by_times: gradients divided by the steps.
    """
    helper = LayerHelper("warpctc")
    check_variable_and_dtype(input, "input", ["float32"], "warpctc")
    check_variable_and_dtype(label, "label", ["int32"], "warpctc")
    inputs = {"Logits": [input], "Label": [label]}
    if input_length is not None and label_length is not None:
        check_variable_and_dtype(input_length, "LogitsLength", ["int64"], "warpctc")
        check_variable_and_dtype(label_length, "LabelLength", ["int64"], "warpctc")
        inputs |= {"LogitsLength": [input_length], "LabelLength": [label_length]}
    attrs = {"blank": blank, "norm_by_times": norm_by_times}
    kinds = {"Loss": input.dtype, "WarpCTCGrad": input.dtype}
    return append_several(helper, "warpctc", inputs, kinds, attrs)["Loss"]


def ctc_greedy_decoder(
    input: Variable,
    blank: int,
    input_length: Variable | None = None,
    padding_value: int = 0,
    name: str | None = None,
) -> Variable | tuple[Variable, Variable]:
    """The most likely class of each step, repeats merged and blanks dropped.

    With input_length: of padded input [batch, steps, classes + 1], and the remaining lengths.
    """
    helper = LayerHelper("ctc_greedy_decoder", name=name)
    _, best = topk(input, 1)
    attrs = {"merge_repeated": True, "blank": blank}
    if input_length is None:
        return append_simple(helper, "ctc_align", {"Input": [best]}, attrs, dtype="int64", slot="Output")
    outputs: dict[str, Any] = {
        slot: helper.create_variable_for_type_inference("int64") for slot in ("Output", "OutputLength")
    }
    inputs = {"Input": [squeeze(best, [2])], "InputLength": [input_length]}
    results = append_several(helper, "ctc_align", inputs, outputs, attrs | {"padding_value": padding_value})
    return results["Output"], results["OutputLength"]


def edit_distance(
    input: Variable,
    label: Variable,
    normalized: bool = True,
    ignored_tokens: Sequence[int] | None = None,
    input_length: Variable | None = None,
    label_length: Variable | None = None,
) -> tuple[Variable, Variable]:
    """Levenshtein's distance of each sequence from its label [sequences, 1], and the number of sequences.

    normalized: divided by the label's length. ignored_tokens: removed first.
    """
    check_variable_and_dtype(input, "input", ["int64"], "edit_distance")
    check_variable_and_dtype(label, "label", ["int64"], "edit_distance")
    helper = LayerHelper("edit_distance")
    if ignored_tokens:
        erased = [helper.create_variable_for_type_inference("int64") for _ in range(2)]
        attrs = {"tokens": list(ignored_tokens)}
        input, label = (
            append_simple(helper, "sequence_erase", {"X": [var]}, attrs, dtype="int64", out=out)
            for var, out in zip((input, label), erased, strict=True)
        )
    inputs = {"Hyps": [input], "Refs": [label]}
    if input_length is not None and label_length is not None:
        inputs |= {"HypsLength": [input_length], "RefsLength": [label_length]}
    kinds = {"Out": "int64", "SequenceNum": "int64"}
    results = append_several(helper, "edit_distance", inputs, kinds, {"normalized": normalized})
    return results["Out"], results["SequenceNum"]


# ---------------------------------------------------------------- products, positions, tags
def bilinear_tensor_product(
    x: Variable,
    y: Variable,
    size: int,
    act: str | None = None,
    name: str | None = None,
    param_attr: Any = None,
    bias_attr: Any = None,
) -> Variable:
    """x W_i yᵀ + b_i for i in size: [batch, m] and [batch, n] give [batch, size]."""
    helper = LayerHelper("bilinear_tensor_product", act=act, name=name, param_attr=param_attr, bias_attr=bias_attr)
    weight = helper.create_parameter(helper.param_attr, [size, x.shape[1], y.shape[1]], x.dtype)
    out = helper.create_variable_for_type_inference(x.dtype)
    inputs = {"X": x, "Y": y, "Weight": weight}
    if helper.bias_attr:
        inputs["Bias"] = helper.create_parameter(helper.bias_attr, [1, size], x.dtype, is_bias=True)
    return helper.append_activation(append_simple(helper, "bilinear_tensor_product", inputs, dtype=x.dtype, out=out))


def fsp_matrix(x: Variable, y: Variable) -> Variable:
    """The flow of solution procedure between two feature maps (Yim et al. 2017): [n, cx, h, w], [n, cy, h, w] -> [n, cx, cy]."""
    check_variable_and_dtype(x, "x", WIDE, "fsp_matrix")
    check_variable_and_dtype(y, "y", WIDE, "fsp_matrix")
    return append_simple(LayerHelper("fsp_matrix"), "fsp", {"X": x, "Y": y}, dtype=x.dtype)


def add_position_encoding(input: Variable, alpha: float, beta: float, name: str | None = None) -> Variable:
    """alpha * input + beta * the sinusoids of its positions (Vaswani et al. 2017)."""
    helper = LayerHelper("add_position_encoding", name=name)
    check_variable_and_dtype(input, "input", WIDE, "add_position_encoding")
    attrs = {"alpha": alpha, "beta": beta}
    return append_simple(helper, "add_position_encoding", {"X": input}, attrs, dtype=input.dtype)


def similarity_focus(input: Variable, axis: int, indexes: list[int], name: str | None = None) -> Variable:
    """A mask of the largest elements of some channels (He and Lin 2016), like input [n, a, b, c]; axis 1, 2 or 3."""
    helper = LayerHelper("similarity_focus", name=name)
    check_variable_and_dtype(input, "input", WIDE, "similarity_focus")
    check_type(axis, "axis", int, "similarity_focus")
    check_type(indexes, "indexes", list, "similarity_focus")
    if axis not in (1, 2, 3):
        raise UsageError(f"axis must be 1, 2 or 3, found {axis}")
    if not indexes:
        raise UsageError("indexes can not be empty.")
    return append_simple(
        helper, "similarity_focus", {"X": input}, {"axis": axis, "indexes": indexes}, dtype=input.dtype
    )


def continuous_value_model(input: Variable, cvm: Variable, use_cvm: bool = True) -> Variable:
    """Embeddings [batch, n] whose first two columns become the logarithms of shows and clicks, or are left out."""
    helper = LayerHelper("cvm")
    out = helper.create_variable(dtype=input.dtype)
    check_variable_and_dtype(input, "input", FLOATS, "cvm")
    inputs = {"X": [input], "CVM": [cvm]}
    return append_simple(helper, "cvm", inputs, {"use_cvm": use_cvm}, dtype=input.dtype, out=out, slot="Y")


def filter_by_instag(
    ins: Variable, ins_tag: Variable, filter_tag: Variable, is_lod: bool, out_val_if_empty: int = 0
) -> list[Variable]:
    """The instances that carry one of the tags, and a weight for each: 0 where nothing was left, else 1."""
    outputs = {"Out": ins.dtype, "LossWeight": np.float64, "IndexMap": ins_tag.dtype}
    inputs = {"Ins": ins, "Ins_tag": ins_tag, "Filter_tag": filter_tag}
    attrs = {"is_lod": is_lod, "out_val_if_empty": out_val_if_empty}
    results = append_several(LayerHelper("filter_by_instag"), "filter_by_instag", inputs, outputs, attrs)
    return [results["Out"], results["LossWeight"]]
