"""Gradients of the tensor operators against central differences in float64.

A mean loss gives every output the same gradient, which hides a wrong order; here each output has a weight of its own.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fluidtool.ops.gradient import make_grad_ops
from tests.support.operators import OneOp, check_gradient, run_op

RNG = np.random.default_rng(5)


def normal(*shape: int) -> np.ndarray[Any, Any]:
    return RNG.normal(size=shape)


def ints(*values: Any) -> np.ndarray[Any, Any]:
    return np.array(values, np.int32)


PLAIN: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "reshape": ("reshape", {"X": normal(2, 3)}, {"shape": [3, -1]}),
    "reshape2": ("reshape2", {"X": normal(2, 3)}, {"shape": [0, 1, 3]}),
    "flatten": ("flatten", {"X": normal(2, 3, 2)}, {"axis": 2}),
    "flatten2": ("flatten2", {"X": normal(2, 3, 2)}, {"axis": 0}),
    "flatten_contiguous_range": (
        "flatten_contiguous_range",
        {"X": normal(2, 3, 2)},
        {"start_axis": 0, "stop_axis": 1},
    ),
    "squeeze": ("squeeze", {"X": normal(2, 1, 2)}, {"axes": [1]}),
    "squeeze2": ("squeeze2", {"X": normal(2, 1, 2)}, {"axes": []}),
    "unsqueeze": ("unsqueeze", {"X": normal(2, 2)}, {"axes": [1]}),
    "unsqueeze2": ("unsqueeze2", {"X": normal(2, 2)}, {"axes": [0, -1]}),
    "transpose": ("transpose", {"X": normal(2, 3, 2)}, {"axis": [1, 2, 0]}),
    "transpose2": ("transpose2", {"X": normal(2, 3, 2)}, {"axis": [2, 0, 1]}),
    "slice": ("slice", {"Input": normal(4, 3)}, {"axes": [0, 1], "starts": [1, -2], "ends": [3, 9]}),
    "slice of one row": (
        "slice",
        {"Input": normal(3, 2)},
        {"axes": [0], "starts": [1], "ends": [2], "decrease_axis": [0]},
    ),
    "strided_slice": (
        "strided_slice",
        {"Input": normal(5, 3)},
        {"axes": [0, 1], "starts": [4, 0], "ends": [0, 3], "strides": [-2, 2], "infer_flags": [1, 1]},
    ),
    "crop": ("crop", {"X": normal(3, 4)}, {"offsets": [1, 0], "shape": [2, 3]}),
    "crop_tensor": ("crop_tensor", {"X": normal(3, 4)}, {"offsets": [1, 1], "shape": [-1, 2]}),
    "pad": ("pad", {"X": normal(2, 2)}, {"paddings": [1, 0, 2, 1], "pad_value": 3.0}),
    "pad2d constant": ("pad2d", {"X": normal(1, 1, 3, 3)}, {"paddings": [1, -1, 0, 2]}),
    "pad2d reflect": ("pad2d", {"X": normal(1, 1, 3, 3)}, {"paddings": [2, 1, 1, 2], "mode": "reflect"}),
    "pad2d reflect, one side cut": ("pad2d", {"X": normal(1, 1, 3, 3)}, {"paddings": [-1, 1, 0, 0], "mode": "reflect"}),
    "pad2d edge NHWC": (
        "pad2d",
        {"X": normal(1, 2, 2, 1)},
        {"paddings": [2, 1, 0, 3], "mode": "edge", "data_format": "NHWC"},
    ),
    "pad3d circular": ("pad3d", {"X": normal(1, 1, 2, 2, 2)}, {"paddings": [1, 2, 0, 1, 1, 1], "mode": "circular"}),
    "pad3d replicate": ("pad3d", {"X": normal(1, 1, 2, 2, 2)}, {"paddings": [1, 2, 0, 1, 1, 1], "mode": "replicate"}),
    "expand": ("expand", {"X": normal(2, 3)}, {"expand_times": [2, 3]}),
    "expand_v2": ("expand_v2", {"X": normal(3, 1)}, {"shape": [2, -1, 4]}),
    "tile": ("tile", {"X": normal(2, 3)}, {"repeat_times": [2, 1, 2]}),
    "tile of fewer": ("tile", {"X": normal(2, 3)}, {"repeat_times": [2]}),
    "flip": ("flip", {"X": normal(2, 3)}, {"dims": [0, -1]}),
    "reverse": ("reverse", {"X": normal(2, 3)}, {"axis": [1]}),
    "roll": ("roll", {"X": normal(3, 4)}, {"shifts": [1, -2], "dims": [0, 1]}),
    "trace": ("trace", {"Input": normal(3, 4)}, {"offset": 1, "dim1": 0, "dim2": 1}),
    "trace of a stack": ("trace", {"Input": normal(3, 2, 4)}, {"offset": -1, "dim1": -1, "dim2": 0}),
    "diagonal": ("diagonal", {"Input": normal(2, 3, 3)}, {"offset": -1, "axis1": 2, "axis2": 1}),
    "tril_triu": ("tril_triu", {"X": normal(2, 3, 3)}, {"diagonal": -1, "lower": True}),
    "pixel_shuffle": ("pixel_shuffle", {"X": normal(1, 4, 2, 1)}, {"upscale_factor": 2}),
    "shuffle_channel": ("shuffle_channel", {"X": normal(1, 6, 1, 2)}, {"group": 3}),
    "space_to_depth": ("space_to_depth", {"X": normal(1, 4, 2, 4)}, {"blocksize": 2}),
    "temporal_shift": ("temporal_shift", {"X": normal(6, 4, 1, 2)}, {"seg_num": 3, "shift_ratio": 0.25}),
    "top_k": ("top_k", {"X": normal(2, 5)}, {"k": 3}),
    "top_k_v2": ("top_k_v2", {"X": normal(4, 2)}, {"k": 2, "axis": 0, "largest": False}),
    "argsort": ("argsort", {"X": normal(3, 4)}, {"axis": 0, "descending": True}),
    "kthvalue": ("kthvalue", {"X": normal(3, 4)}, {"k": 2, "axis": 0}),
}


@pytest.mark.parametrize("case", PLAIN)
def test_gradient_by_the_one_input(case: str) -> None:
    op_type, inputs, attrs = PLAIN[case]
    check_gradient(op_type, inputs, wrt=list(inputs), attrs=attrs)


INDEXED: dict[str, tuple[str, dict[str, Any], list[str], dict[str, Any]]] = {
    "expand_as": ("expand_as", {"X": normal(2, 1), "target_tensor": normal(4, 3)}, ["X"], {}),
    "expand_as_v2": ("expand_as_v2", {"X": normal(2, 1), "Y": normal(3, 2, 4)}, ["X"], {"target_shape": [3, 2, 4]}),
    "pad_constant_like": ("pad_constant_like", {"X": normal(3, 4), "Y": normal(2, 3)}, ["Y"], {"pad_value": 2.0}),
    "gather": ("gather", {"X": normal(4, 2), "Index": ints(2, 0)}, ["X"], {"overwrite": True}),
    "gather, added up": ("gather", {"X": normal(3, 2), "Index": ints(1, 1, 0)}, ["X"], {"overwrite": False}),
    "gather_nd": ("gather_nd", {"X": normal(3, 2), "Index": ints([1, 1], [0, 0], [1, 1])}, ["X"], {}),
    "gather_nd of everything": ("gather_nd", {"X": normal(2, 2), "Index": np.zeros((3, 0), np.int32)}, ["X"], {}),
    "scatter": ("scatter", {"X": normal(4, 2), "Ids": ints(3, 1), "Updates": normal(2, 2)}, ["Updates"], {}),
    "scatter_nd_add": (
        "scatter_nd_add",
        {"X": normal(3, 2), "Index": ints([1], [1]), "Updates": normal(2, 2)},
        ["X", "Updates"],
        {},
    ),
    "where": (
        "where",
        {"Condition": np.array([True, False, True]), "X": normal(3), "Y": normal(3)},
        ["X", "Y"],
        {},
    ),
    "index_select": ("index_select", {"X": normal(2, 3), "Index": ints(2, 2, 0)}, ["X"], {"dim": 1}),
    "index_sample": ("index_sample", {"X": normal(2, 3), "Index": ints([2, 2], [0, 1])}, ["X"], {}),
    "take_along_axis": ("take_along_axis", {"Input": normal(2, 3), "Index": ints([1, 1, 0])}, ["Input"], {"Axis": 0}),
    "masked_select": (
        "masked_select",
        {"X": normal(2, 2), "Mask": np.array([[True, False], [True, True]])},
        ["X"],
        {},
    ),
    "set_value": (
        "set_value",
        {"Input": normal(3, 4), "ValueTensor": normal(2)},
        ["Input", "ValueTensor"],
        {"axes": [0, 1], "starts": [1, 0], "ends": [3, 4], "steps": [1, 2]},
    ),
}


@pytest.mark.parametrize("case", INDEXED)
def test_gradient_with_indexes_and_other_inputs(case: str) -> None:
    op_type, inputs, wrt, attrs = INDEXED[case]
    check_gradient(op_type, inputs, wrt=wrt, attrs=attrs)


SEVERAL: dict[str, tuple[str, dict[str, Any], dict[str, Any], dict[str, int]]] = {
    "concat": ("concat", {"X": [normal(2, 1), normal(2, 3)]}, {"axis": -1}, {}),
    "stack": ("stack", {"X": [normal(2, 3), normal(2, 3)]}, {"axis": 1}, {}),
    "split": ("split", {"X": normal(2, 5)}, {"axis": 1, "sections": [2, 3]}, {"Out": 2}),
    "unstack": ("unstack", {"X": normal(2, 3)}, {"axis": 1, "num": 3}, {"Y": 3}),
    "unbind": ("unbind", {"X": normal(2, 3)}, {"axis": 0}, {"Out": 2}),
    "meshgrid": ("meshgrid", {"X": [normal(2), normal(3)]}, {}, {"Out": 2}),
    "broadcast_tensors": ("broadcast_tensors", {"X": [normal(2, 1), normal(3)]}, {}, {"Out": 2}),
    "partial_concat": ("partial_concat", {"X": [normal(2, 4), normal(2, 4)]}, {"start_index": 1, "length": 2}, {}),
    "partial_sum": ("partial_sum", {"X": [normal(2, 4), normal(2, 4)]}, {"start_index": -2, "length": -1}, {}),
}


@pytest.mark.parametrize("case", SEVERAL)
def test_gradient_of_several_tensors(case: str) -> None:
    op_type, inputs, attrs, outputs = SEVERAL[case]
    check_gradient(op_type, inputs, wrt=["X"], attrs=attrs, outputs=outputs)


def test_gradient_of_multiplex() -> None:
    inputs = {"Ids": ints([1], [0], [1]), "X": [normal(3, 2), normal(3, 2)]}
    check_gradient("multiplex", inputs, wrt=["X"])


def test_the_gradient_of_mode_goes_to_the_element_that_was_taken() -> None:
    x, grad = np.array([[3.0, 1.0, 2.0, 2.0]]), np.array([5.0])
    out = run_op("mode_grad", {"X": x, "Indices": np.array([3]), "Out@GRAD": grad}, {"axis": -1})
    assert out["X@GRAD"].numpy().tolist() == [[0.0, 0.0, 0.0, 5.0]]


def test_the_gradient_of_as_complex_is_the_pairs() -> None:
    grad = np.array([1 + 2j, 3 - 4j])
    assert run_op("as_complex_grad", {"Out@GRAD": grad})["X@GRAD"].numpy().tolist() == [[1.0, 2.0], [3.0, -4.0]]


def test_the_gradient_of_shuffle_batch_goes_back_to_where_the_rows_came_from() -> None:
    grad, order = np.array([[1.0], [2.0], [3.0]]), np.array([2, 0, 1])
    out = run_op("shuffle_batch_grad", {"ShuffleIdx": order, "Out@GRAD": grad})
    assert out["X@GRAD"].numpy().tolist() == [[2.0], [3.0], [1.0]]


def test_of_an_index_that_comes_twice_gather_keeps_the_last_gradient() -> None:
    inputs = {"X": np.zeros((3, 1)), "Index": ints(1, 1), "Out@GRAD": np.array([[5.0], [7.0]])}
    assert run_op("gather_grad", inputs, {"overwrite": True})["X@GRAD"].numpy().tolist() == [[0.0], [7.0], [0.0]]


def test_scatter_lets_replaced_rows_keep_their_gradient_as_paddle_1_8_5_does() -> None:
    inputs = {"Ids": ints(1, 1), "Updates": np.zeros((2, 1)), "Out@GRAD": np.array([[5.0], [6.0], [7.0]])}
    out = run_op("scatter_grad", inputs, {"overwrite": True})
    assert out["X@GRAD"].numpy().tolist() == [[5.0], [6.0], [7.0]]
    assert out["Updates@GRAD"].numpy().tolist() == [[6.0], [6.0]]


def test_second_gradients_are_wired_as_in_paddle_1_8_5() -> None:
    block = OneOp("reshape2", {"X": normal(2, 3)}, {"shape": [6]}).program.global_block()
    grad = block.append_op(
        type="reshape2_grad",
        inputs={"XShape": ["XShape0@out"], "Out@GRAD": ["Out0@out@GRAD"]},
        outputs={"X@GRAD": ["X0@GRAD"]},
        attrs={"shape": [6]},
    )
    (second,) = make_grad_ops(grad)
    assert second.type == "reshape2_grad_grad"
    assert second.inputs == {"DOut": ["Out0@out@GRAD"], "DDX": ["X0@GRAD@GRAD"]}
    assert second.outputs == {"DDOut": ["Out0@out@GRAD@GRAD"]}


def test_the_second_gradient_of_reshape2_is_a_reshape() -> None:
    x = normal(2, 3)
    out = run_op("reshape2_grad_grad", {"DOut": np.zeros(6), "DDX": x})
    np.testing.assert_array_equal(out["DDOut"].numpy(), x.reshape(6))
