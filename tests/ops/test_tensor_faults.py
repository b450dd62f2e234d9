"""Bad input to the tensor operators: one clear message that names the operator, the slot or attribute, and what is wrong."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fluidtool.errors import ArgumentTypeError, OperatorError
from tests.support.later import run_later
from tests.support.operators import run_op


def f(*shape: int) -> np.ndarray[Any, Any]:
    return np.zeros(shape, np.float32)


def ids(*values: Any) -> np.ndarray[Any, Any]:
    return np.array(values, np.int64)


Case = tuple[str, dict[str, Any], dict[str, Any], str]

SHAPES: list[Case] = [
    ("reshape2", {"X": f(2, 3)}, {"shape": [-1, -1]}, "only one size of shape can be -1"),
    ("reshape2", {"X": f(2, 3)}, {"shape": [4, -1]}, "6 elements cannot be divided by 4"),
    ("reshape2", {"X": f(2, 3)}, {"shape": [2, 3, 0]}, "0 stands for the size of X at index 2, which X does not have"),
    ("reshape2", {"X": f(2, 3)}, {"shape": [3, -2]}, "sizes of shape must be at least -1"),
    ("reshape2", {"X": f(2, 3)}, {"shape": [5]}, "5 elements requested, but X has 6"),
    ("reshape2", {"X": f(0, 3)}, {"shape": [0, -1]}, "-1 beside a size of 0 could stand for any size"),
    ("squeeze2", {"X": f(2, 1)}, {"axes": [0]}, "axis 0 to be squeezed must have size 1, found 2"),
    ("squeeze2", {"X": f(2, 1)}, {"axes": [2]}, r"every axis of axes must be in \[-2, 2\), found 2"),
    ("unsqueeze2", {"X": f(2, 1)}, {"axes": [4]}, r"every axis of axes must be in \[-3, 2\]"),
    ("flatten2", {"X": f(2, 1)}, {"axis": -1}, r"axis must be in \[0, 2\]"),
    ("flatten_contiguous_range", {"X": f(2, 1)}, {"start_axis": 1, "stop_axis": 0}, "stop_axis must not lie before"),
    ("transpose2", {"X": f(2, 3)}, {"axis": [0, 0]}, "axis must name each of the 2 dimensions of X once"),
    ("transpose2", {"X": f(2, 3)}, {"axis": [0]}, r"once, found \[0\]"),
    (
        "slice",
        {"Input": f(2, 3)},
        {"axes": [0], "starts": [1], "ends": [1]},
        "the range 1:1 of axis 0 of size 2 is empty",
    ),
    ("slice", {"Input": f(2, 3)}, {"axes": [5], "starts": [0], "ends": [1]}, "every axis of axes must be in"),
    (
        "slice",
        {"Input": f(2, 3)},
        {"axes": [0], "starts": [0, 1], "ends": [1]},
        "must be of one length, found 1, 2 and 1",
    ),
    (
        "slice",
        {"Input": f(2, 3)},
        {"axes": [0], "starts": [0], "ends": [2], "decrease_axis": [0]},
        "axis 0 of decrease_axis must be cut to size 1, found 2",
    ),
    (
        "strided_slice",
        {"Input": f(5)},
        {"axes": [0], "starts": [0], "ends": [3], "strides": [0]},
        "the range 0:3:0 of an axis of size 5 has the stride 0",
    ),
    (
        "strided_slice",
        {"Input": f(5)},
        {"axes": [0], "starts": [1], "ends": [3], "strides": [-1]},
        "its end is not in the stride's direction",
    ),
    ("concat", {"X": [f(2, 3), f(2, 2)]}, {"axis": 0}, r"X\[1\] of shape \(2, 2\) and X\[0\] .* differ at axis 1"),
    ("concat", {"X": [f(2, 3), f(2)]}, {"axis": 0}, "differ in rank"),
    ("concat", {"X": [f(2), ids(1, 2)]}, {"axis": 0}, "must have one data type, found float32 and int64"),
    ("concat", {"X": [f(2), f(2)]}, {"axis": 1}, r"axis must be in \[-1, 1\), found 1"),
    ("stack", {"X": [f(2), f(3)]}, {"axis": 0}, "must have one shape"),
    ("stack", {"X": [f(2)]}, {"axis": 2}, r"axis must be in \[-2, 2\), found 2"),
    ("pad", {"X": f(2)}, {"paddings": [-1, 0]}, r"paddings must not be negative, found \[-1, 0\]"),
    ("pad", {"X": f(2)}, {"paddings": [1]}, "paddings must hold 2 numbers"),
    ("pad2d", {"X": f(2, 2)}, {"paddings": [0] * 4}, "X must have four dimensions, found 2"),
    (
        "pad2d",
        {"X": f(1, 1, 2, 2)},
        {"paddings": [0] * 4, "mode": "wrap"},
        "mode must be one of constant, reflect, edge",
    ),
    ("pad2d", {"X": f(1, 1, 2, 2)}, {"paddings": [3, 0, 0, 0], "mode": "reflect"}, "too wide for mode reflect"),
    ("pad2d", {"X": f(1, 1, 2, 2)}, {"paddings": [-1, -1, 0, 0]}, "remove all of X"),
    ("pad_constant_like", {"X": f(3, 4), "Y": f(4, 3)}, {}, r"Y of shape \(4, 3\) must fit into X of shape \(3, 4\)"),
    ("expand", {"X": f(2, 3)}, {"expand_times": [2]}, "one number per dimension of X, 2"),
    ("expand", {"X": f(2, 3)}, {"expand_times": [0, 1]}, "expand_times must be positive"),
    ("expand", {"X": f(2, 3)}, {"expand_times": [2**30, 2**30]}, "does not fit in memory"),
    ("expand_as", {"X": f(2, 3), "target_tensor": f(2, 4)}, {}, "must be a multiple of X"),
    ("expand_v2", {"X": f(2, 3)}, {"shape": [3, 3]}, r"X of shape \(2, 3\) cannot be expanded to shape \(3, 3\)"),
    ("tile", {"X": f(2, 3)}, {"repeat_times": [0]}, "repeat_times must be positive"),
]

INDEXES: list[Case] = [
    (
        "gather",
        {"X": f(3, 2), "Index": ids(0, 3)},
        {},
        r"Index must lie in \[0, 3\), the size of axis 0 of X, found 3",
    ),
    ("gather", {"X": f(3, 2), "Index": ids(-1)}, {}, "found -1"),
    ("gather", {"X": f(3, 2), "Index": ids([0, 1])}, {}, r"Index must have the shape \(n,\) or \(n, 1\)"),
    ("gather", {"X": f(3, 2), "Index": f(1)}, {}, "Index must hold int32 or int64, found float32"),
    ("gather_nd", {"X": f(3, 2), "Index": ids([0, 2])}, {}, r"Index\[\.\.\., 1\] must lie in \[0, 2\)"),
    ("gather_nd", {"X": f(3), "Index": ids([0, 2])}, {}, "the last size of Index is 2"),
    ("scatter", {"X": f(3, 2), "Ids": ids(3), "Updates": f(1, 2)}, {}, r"Ids must lie in \[0, 3\)"),
    ("scatter", {"X": f(3, 2), "Ids": ids(1), "Updates": f(2, 2)}, {}, r"Updates must have the shape \(1, 2\)"),
    ("scatter_nd_add", {"X": f(3), "Index": ids([1]), "Updates": f(2)}, {}, r"Updates must have the shape \(1,\)"),
    ("index_select", {"X": f(3), "Index": ids(3)}, {"dim": 0}, r"Index must lie in \[0, 3\)"),
    ("index_select", {"X": f(3), "Index": ids(1)}, {"dim": 1}, r"dim must be in \[-1, 1\), found 1"),
    ("index_sample", {"X": f(2, 3), "Index": ids([1, 3], [0, 0])}, {}, r"Index must lie in \[0, 3\)"),
    ("index_sample", {"X": f(2, 3), "Index": ids([1, 2])}, {}, "matrices with the same number of rows"),
    ("one_hot", {"X": ids([3])}, {"depth": 3}, r"X must lie in \[0, 3\), the depth, found 3"),
    ("one_hot", {"X": ids(1, 2)}, {"depth": 3}, "the last size of X must be 1"),
    ("one_hot_v2", {"X": ids(-1)}, {"depth": 3}, "found -1; set allow_out_of_range"),
    ("one_hot_v2", {"X": ids(0)}, {"depth": 0}, "depth must be positive, found 0"),
    ("where", {"Condition": f(2), "X": f(2), "Y": f(2)}, {}, "Condition must be bool, found float32"),
    (
        "where",
        {"Condition": np.array([[True]]), "X": f(2), "Y": f(2)},
        {},
        "Condition, X and Y must have one shape",
    ),
    ("multiplex", {"Ids": ids([0], [2]), "X": [f(2, 1), f(2, 1)]}, {}, r"Ids must lie in \[0, 2\)"),
    ("multiplex", {"Ids": ids([0]), "X": [f(2, 1), f(2, 1)]}, {}, "for each of the 2 rows of X"),
    ("shard_index", {"X": ids(9)}, {"index_num": 9, "nshards": 3, "shard_id": 0}, r"X must lie in \[0, 9\)"),
    ("shard_index", {"X": ids(1)}, {"index_num": 9, "nshards": 0, "shard_id": 0}, "nshards must be positive"),
    ("shard_index", {"X": ids(1)}, {"index_num": 9, "nshards": 3, "shard_id": 3}, r"shard_id must be in \[0, 3\)"),
    ("take_along_axis", {"Input": f(2, 2), "Index": ids([0, -1])}, {"Axis": 0}, "Index must lie in"),
    ("masked_select", {"X": f(2), "Mask": f(2)}, {}, "Mask must be bool"),
    ("unique", {"X": f(0)}, {"dtype": 2}, "X is empty"),
    ("unique", {"X": f(2, 2)}, {"dtype": 2}, "X must have one dimension"),
    ("unique", {"X": f(2)}, {"dtype": 5}, "dtype must be INT32 or INT64, found 5"),
]

CREATION: list[Case] = [
    ("fill_constant", {}, {"shape": [-1, 2], "dtype": 5}, "shape must have no negative size"),
    ("fill_constant", {}, {"shape": [2**40, 2**20], "dtype": 5}, "does not fit in memory"),
    ("fill_constant", {}, {"shape": [1], "dtype": 5, "str_value": "many"}, "str_value 'many' is not a number"),
    ("fill_constant", {"ValueTensor": f(2)}, {"shape": [1], "dtype": 5}, "ValueTensor must hold one number"),
    ("fill_any_like", {"X": f(2)}, {"value": 1e30, "dtype": 2}, "out of the range of int32"),
    ("fill_any_like", {"X": f(2)}, {"value": float("nan")}, "value must be a number, found nan"),
    (
        "fill_constant_batch_size_like",
        {"Input": f(2, 2)},
        {"shape": [1, 3], "input_dim_idx": 2},
        r"input_dim_idx must be in \[0, 2\), found 2",
    ),
    ("assign_value", {}, {"shape": [3], "dtype": 5, "fp32_values": [1.0]}, "1 values do not fill the shape"),
    ("assign_value", {}, {"shape": [1], "dtype": 4, "fp32_values": [1.0]}, "dtype must be one of BOOL, FP32"),
    ("range", {"Start": f(1), "End": f(1) + 5, "Step": f(1)}, {}, "Step must not be 0"),
    ("range", {"Start": f(1), "End": f(1) + 5, "Step": f(1) - 1}, {}, "does not lead from Start 0.0 to End 5.0"),
    ("range", {"Start": f(2), "End": f(1), "Step": f(1)}, {}, "input Start must hold one number"),
    ("linspace", {"Start": f(1), "Stop": f(1), "Num": ids(0)}, {}, "Num must be positive, found 0"),
    ("eye", {}, {"num_rows": -2}, "num_rows must be at least 0"),
    ("diag", {"Diagonal": f(2, 2)}, {}, "Diagonal must have one dimension"),
    ("diag_embed", {"Input": f(2)}, {"dim1": 1, "dim2": -1}, "dim1 and dim2 must be different axes"),
    ("tril_triu", {"X": f(2)}, {"lower": True}, "X must have at least two dimensions"),
    ("roll", {"X": f(2, 2)}, {"shifts": [1, 2], "dims": [0]}, "must be of one length"),
    ("roll", {"X": f(2, 2)}, {"shifts": [1], "dims": [2]}, r"every axis of dims must be in \[-2, 2\), found 2"),
    ("reverse", {"X": f(2, 2)}, {"axis": [0, 3]}, "every axis of axis must be in"),
    (
        "pixel_shuffle",
        {"X": f(1, 3, 2, 2)},
        {"upscale_factor": 2},
        "the channels of X must be a multiple of 4, found 3",
    ),
    ("pixel_shuffle", {"X": f(1, 4, 2, 2)}, {"upscale_factor": 0}, "upscale_factor must be positive"),
    ("shuffle_channel", {"X": f(1, 4, 1, 1)}, {"group": 3}, "must be a multiple of 3, found 4"),
    ("space_to_depth", {"X": f(1, 4, 3, 2)}, {"blocksize": 2}, "the height of X must be a multiple of 2, found 3"),
    ("space_to_depth", {"X": f(1, 4, 2, 2)}, {"blocksize": 0}, "blocksize must be above 1"),
    ("temporal_shift", {"X": f(3, 4, 1, 1)}, {"seg_num": 2}, "the batch size of X must be a multiple of 2"),
    (
        "temporal_shift",
        {"X": f(2, 4, 1, 1)},
        {"seg_num": 2, "shift_ratio": 0.5},
        r"shift_ratio must be in \(0, 0\.5\)",
    ),
    ("partial_concat", {"X": [f(2, 3), f(2, 4)]}, {}, "the matrices of X must have one shape"),
    ("partial_sum", {"X": [f(2, 3)]}, {"start_index": 1, "length": 3}, "columns 1 to 4 are requested, but X has 3"),
]


@pytest.mark.parametrize(
    ("op_type", "inputs", "attrs", "text"),
    SHAPES + INDEXES + CREATION,
    ids=[f"{case[0]}-{i}" for i, case in enumerate(SHAPES + INDEXES + CREATION)],
)
def test_bad_input_is_refused(op_type: str, inputs: dict[str, Any], attrs: dict[str, Any], text: str) -> None:
    with pytest.raises(OperatorError, match=f"operator {op_type}: .*{text}"):
        run_op(op_type, inputs, attrs)


def test_a_split_into_pieces_that_do_not_add_up_is_refused() -> None:
    with pytest.raises(OperatorError, match=r"split: sections \[1, 1\] do not add up to the size 4"):
        run_op("split", {"X": f(4)}, {"sections": [1, 1]}, {"Out": 2})


def test_a_split_into_pieces_that_do_not_divide_is_refused() -> None:
    with pytest.raises(OperatorError, match=r"split: 3 equal parts requested, but .* has size 4"):
        run_op("split", {"X": f(4)}, {"num": 3}, {"Out": 3})


def test_unstacking_another_number_of_pieces_is_refused() -> None:
    with pytest.raises(OperatorError, match="unstack: num must be the size 3 of axis 1 of X, found 5"):
        run_op("unstack", {"X": f(2, 3)}, {"axis": 1, "num": 5}, {"Y": 5})


def test_a_cast_to_what_is_no_data_type_is_refused() -> None:
    with pytest.raises(ArgumentTypeError, match="99 is not a data type of tensors"):
        run_op("cast", {"X": f(2)}, {"in_dtype": 5, "out_dtype": 99})


def test_a_range_that_runs_backwards_is_refused_in_later_programs_too() -> None:
    with pytest.raises(OperatorError, match="slice: the range 2:1 of axis 0 of size 3 is empty"):
        run_later("slice", {"Input": f(3)}, {"axes": [0], "starts": [2], "ends": [1]})


# The published security advisories of Paddle are kernels that lacked these checks: diagonal, flip, trace, argmin and
# argmax, mode, topk, searchsorted, put_along_axis, broadcast_tensors, repeat_interleave, crop.
ADVISORIES: list[Case] = [
    ("diagonal", {"Input": f(2, 2)}, {"axis1": 5, "axis2": 1}, r"axis1 must be in \[-2, 2\), found 5"),
    ("diagonal", {"Input": f(2)}, {}, "Input must have at least two dimensions"),
    ("flip", {"X": f(2, 2)}, {"dims": [2**31 - 1]}, "every axis of dims must be in"),
    ("flip", {"X": f(2, 2)}, {"dims": [0, 0]}, "dims must name every axis once"),
    ("trace", {"Input": f(2)}, {}, "Input must have at least two dimensions, found 1"),
    ("trace", {"Input": f(2, 2)}, {"dim1": 2, "dim2": 0}, r"dim1 must be in \[-2, 2\), found 2"),
    ("arg_min", {"X": f(0)}, {"axis": 0}, "is empty along axis 0"),
    ("arg_max", {"X": f(2, 0)}, {"axis": 1}, "is empty along axis 1"),
    ("arg_max", {"X": f(2, 2)}, {"axis": 5}, r"axis must be in \[-2, 2\), found 5"),
    ("arg_max", {"X": f(2, 2)}, {"axis": 0, "dtype": 5}, "dtype must be INT32, INT64 or -1, found 5"),
    ("mode", {"X": f(2, 0)}, {"axis": 1}, "is empty along axis 1"),
    ("kthvalue", {"X": f(2, 2)}, {"axis": 1, "k": 3}, r"k must be in \[1, 2\]"),
    ("top_k", {"X": f(2, 3)}, {"k": 4}, r"k must be in \[1, 3\], the size of axis -1 of X, found 4"),
    ("top_k", {"X": f(2, 3)}, {"k": 0}, "found 0"),
    ("top_k", {"X": f(2, 0)}, {"k": 1}, "found 1"),
    ("top_k", {"X": f(2, 3), "K": ids(-5)}, {}, "found -5"),
    ("top_k_v2", {"X": f(2, 3)}, {"k": 1, "axis": 2}, r"axis must be in \[-2, 2\), found 2"),
    ("top_k_v2", {"X": f(0, 3)}, {"k": 1, "axis": 0}, r"k must be in \[1, 0\]"),
    ("argsort", {"X": f(2, 3)}, {"axis": -3}, r"axis must be in \[-2, 2\), found -3"),
    ("searchsorted", {"SortedSequence": f(2, 3), "Values": f(3, 3)}, {}, "must agree in all sizes but the last"),
    (
        "put_along_axis",
        {"Input": f(2, 3), "Index": ids([5, 0, 0]), "Value": f(1, 3)},
        {"Axis": 0},
        r"Index must lie in \[0, 2\)",
    ),
    (
        "put_along_axis",
        {"Input": f(2, 3), "Index": ids([0, 0, 0]), "Value": f(2, 3)},
        {"Axis": 0},
        "Value of shape .* must broadcast to the shape of Index",
    ),
    ("broadcast_tensors", {"X": []}, {}, "X must have at least one tensor"),
    ("broadcast_tensors", {"X": [f(2), f(3)]}, {}, "do not broadcast"),
    ("repeat_interleave", {"X": f(2, 3)}, {"Repeats": -1}, "Repeats must be positive, found -1"),
    ("repeat_interleave", {"X": f(2, 3), "RepeatsTensor": ids(1, -2)}, {}, "none negative"),
    ("repeat_interleave", {"X": f(2, 3), "RepeatsTensor": ids(1)}, {}, "must hold 2 numbers"),
    ("crop", {"X": f(2, 3)}, {"offsets": [2**31 - 1, 0], "shape": [1, 1]}, r"exceed X of shape \(2, 3\) at axis 0"),
    ("crop", {"X": f(2, 3)}, {"offsets": [0], "shape": [1, 1]}, "offsets must hold one number per dimension"),
    ("crop_tensor", {"X": f(2, 3)}, {"offsets": [1, 0], "shape": [2, 3]}, r"exceed X of shape \(2, 3\) at axis 0"),
]


@pytest.mark.parametrize(
    ("op_type", "inputs", "attrs", "text"), ADVISORIES, ids=[f"{case[0]}-{i}" for i, case in enumerate(ADVISORIES)]
)
def test_what_crashed_paddle_is_refused(op_type: str, inputs: dict[str, Any], attrs: dict[str, Any], text: str) -> None:
    with pytest.raises(OperatorError, match=f"operator {op_type}: .*{text}"):
        run_op(op_type, inputs, attrs)


@pytest.mark.parametrize("offset", [2, -2, 2**31 - 1, -(2**31)])
def test_a_diagonal_beyond_the_edge_is_empty(offset: int) -> None:
    assert run_op("diagonal", {"Input": f(2, 2)}, {"offset": offset})["Out"].shape() == [0]
    assert run_op("trace", {"Input": f(2, 2)}, {"offset": offset})["Out"].numpy().tolist() == [0.0]


def test_an_empty_tensor_can_be_flipped() -> None:
    assert run_op("flip", {"X": f(0, 2)}, {"dims": [0, 1]})["Out"].shape() == [0, 2]
