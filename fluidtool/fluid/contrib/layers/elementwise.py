"""Layers on rows and columns, and the metrics of click prediction (Paddle 1.8.5 contrib/layers)."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np

from fluidtool.errors import UsageError
from fluidtool.fluid.checks import check_type, check_variable_and_dtype
from fluidtool.fluid.initializer import Constant
from fluidtool.fluid.layer_helper import LayerHelper
from fluidtool.fluid.layers.building import append_simple
from fluidtool.ir import Variable, unique_name

NUMBERS = ("float32", "float64", "int32", "int64")


def fused_elemwise_activation(
    x: Variable,
    y: Variable,
    functor_list: str | Sequence[str],
    axis: int = -1,
    scale: float = 0.0,
    save_intermediate_out: bool = True,
) -> Variable:
    """A binary and a unary operator in one: ['elementwise_add', 'relu'] is x + relu(y), ['relu', 'elementwise_add']
    relu(x + y). scale: for the functor 'scale'.
    """
    functors = functor_list.split(",") if isinstance(functor_list, str) else functor_list
    if not isinstance(functors, list) or len(functors) != 2:
        raise UsageError(f"functor_list should be a list of str, and the length should be 2, found {functor_list!r}")
    helper = LayerHelper("fused_elemwise_activation")
    attrs = {
        "axis": axis,
        "scale": scale,
        "save_intermediate_out": save_intermediate_out,
        "functor_list": functors,
    }
    out, intermediate = (helper.create_variable_for_type_inference(x.dtype) for _ in range(2))
    helper.append_op(
        type="fused_elemwise_activation",
        inputs={"X": x, "Y": y},
        outputs={"Out": out, "IntermediateOut": intermediate},
        attrs=attrs,
    )
    return out


def partial_concat(input: Sequence[Variable], start_index: int = 0, length: int = -1) -> Variable:
    """The columns start_index to start_index + length (-1: to the end) of every input [n, columns], side by side."""
    if not isinstance(input, list):
        warnings.warn(f"The type of input in partial_concat should be list, but received {type(input)}.", stacklevel=2)
        input = [input] if isinstance(input, Variable) else list(input)
    for number, x in enumerate(input):
        check_variable_and_dtype(x, f"input[{number}]", ("float16", *NUMBERS), "partial_concat")
    check_type(start_index, "start_index", int, "partial_concat")
    check_type(length, "length", int, "partial_concat")
    return _of_columns("partial_concat", input, start_index, length)


def partial_sum(input: Sequence[Variable], start_index: int = 0, length: int = -1) -> Variable:
    """The sum over all inputs [n, columns] of the columns start_index to start_index + length (-1: to the end)."""
    for number, x in enumerate(input):
        check_variable_and_dtype(x, f"input[{number}]", NUMBERS, "partial_sum")
    return _of_columns("partial_sum", input, start_index, length)


def _of_columns(kind: str, input: Sequence[Variable], start_index: int, length: int) -> Variable:
    helper = LayerHelper(kind, input=input)
    attrs = {"start_index": start_index, "length": length}
    return append_simple(helper, kind, {"X": list(input)}, attrs, dtype=helper.input_dtype())


def shuffle_batch(x: Variable, seed: int | Variable | None = None) -> Variable:
    """The rows of x in a random order; seed: a number or a variable int64 [1] (default: the program's, or a random one)."""
    helper = LayerHelper("shuffle_batch")
    out = helper.create_variable_for_type_inference(x.dtype)
    order = helper.create_variable_for_type_inference("int64")
    if seed is None:
        seed = helper.main_program.random_seed or int(np.random.default_rng().integers(-65536, 65535))
    attrs: dict[str, Any] = {}
    if isinstance(seed, int):
        attrs["startup_seed"] = seed
        name = unique_name.generate("shuffle_batch_seed")
        seed = helper.create_variable(name=name, dtype="int64", persistable=True)
    outputs = {"Out": out, "ShuffleIdx": order, "SeedOut": seed}
    helper.append_op(type="shuffle_batch", inputs={"X": x, "Seed": seed}, outputs=outputs, attrs=attrs)
    return out


def multiclass_nms2(
    bboxes: Variable,
    scores: Variable,
    score_threshold: float,
    nms_top_k: int,
    keep_top_k: int,
    nms_threshold: float = 0.3,
    normalized: bool = True,
    nms_eta: float = 1.0,
    background_label: int = 0,
    return_index: bool = False,
    name: str | None = None,
) -> Any:
    """`fluid.layers.multiclass_nms` that can also return the index of every box kept."""
    helper = LayerHelper("multiclass_nms2", name=name)
    attrs = {
        "background_label": background_label,
        "score_threshold": score_threshold,
        "nms_top_k": nms_top_k,
        "nms_threshold": nms_threshold,
        "nms_eta": nms_eta,
        "keep_top_k": keep_top_k,
        "normalized": normalized,
    }
    output = helper.create_variable_for_type_inference(bboxes.dtype, stop_gradient=True)
    index = helper.create_variable_for_type_inference("int32", stop_gradient=True)
    helper.append_op(
        type="multiclass_nms2",
        inputs={"BBoxes": bboxes, "Scores": scores},
        outputs={"Out": output, "Index": index},
        attrs=attrs,
    )
    return (output, index) if return_index else output


def ctr_metric_bundle(input: Variable, label: Variable) -> tuple[Variable, ...]:
    """Running sums over batches of predictions [n, 1] and labels [n, 1]: squared error, absolute error, predictions,
    sigmoid of predictions, positive labels, rows.
    """
    if input.shape != label.shape:
        raise UsageError(f"input and label must have one shape, found {input.shape} and {label.shape}")
    helper = LayerHelper("ctr_metric_bundle")

    def variable(persistable: bool, size: int = 1) -> Variable:
        return helper.create_global_variable(persistable=persistable, dtype="float32", shape=[size])

    abserr, sqrerr, prob, q, pos_num, ins_num = sums = [variable(True) for _ in range(6)]
    difference, sigmoids, ones = (variable(False, -1) for _ in range(3))
    batch = [variable(False) for _ in range(6)]
    batch_prob, batch_abserr, batch_sqrerr, batch_q, batch_pos_num, batch_ins_num = batch
    by_kind = [abserr, batch_abserr, sqrerr, batch_sqrerr, prob, batch_prob, q, batch_q]
    for var in [*by_kind, batch_pos_num, batch_ins_num, pos_num, ins_num]:
        helper.set_variable_initializer(var, Constant(0.0, force_cpu=True))

    def append(kind: str, x: Variable, out: Variable) -> None:
        helper.append_op(type=kind, inputs={"X": [x]}, outputs={"Out": [out]})

    def add_up(value: Variable, total: Variable) -> None:
        helper.append_op(type="elementwise_add", inputs={"X": [value], "Y": [total]}, outputs={"Out": [total]})

    helper.append_op(type="elementwise_sub", inputs={"X": [input], "Y": [label]}, outputs={"Out": [difference]})
    for kind, x, out, total in (
        ("squared_l2_norm", difference, batch_sqrerr, sqrerr),
        ("l1_norm", difference, batch_abserr, abserr),
        ("reduce_sum", input, batch_prob, prob),
    ):
        append(kind, x, out)
        add_up(out, total)
    append("sigmoid", input, sigmoids)
    for x, out, total in ((sigmoids, batch_q, q), (label, batch_pos_num, pos_num)):
        append("reduce_sum", x, out)
        add_up(out, total)
    helper.append_op(
        type="fill_constant_batch_size_like",
        inputs={"Input": label},
        outputs={"Out": [ones]},
        attrs={"shape": [-1, 1], "dtype": int(ones.dtype or 0), "value": 1.0},
    )
    append("reduce_sum", ones, batch_ins_num)
    add_up(batch_ins_num, ins_num)
    return sums[1], sums[0], prob, q, pos_num, ins_num
