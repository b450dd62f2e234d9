"""Corners of the tensor operators that golden cases do not have; every number was computed by Paddle 1.8.5."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from fluidtool.ir import Program
from fluidtool.ops.inference import infer_operator
from fluidtool.ops.schema import TensorMeta
from fluidtool.proto.enums import VarType
from fluidtool.tensor import LoDTensor, LoDTensorArray, SelectedRows
from tests.support.operators import lod_tensor, run_op


def f(*shape: int) -> np.ndarray[Any, Any]:
    return np.arange(np.prod(shape), dtype=np.float32).reshape(shape)


def ids(*values: Any) -> np.ndarray[Any, Any]:
    return np.array(values, np.int32)


ROWS = lod_tensor(f(3, 4), [[2, 1]])
LOD = [[0, 2, 3]]


@pytest.mark.parametrize(
    ("op_type", "inputs", "attrs", "lod"),
    [
        ("reshape2", {"X": ROWS}, {"shape": [-1, 2, 2]}, LOD),
        ("reshape2", {"X": ROWS}, {"shape": [4, 3]}, []),
        ("squeeze2", {"X": lod_tensor(f(3, 1, 4), [[2, 1]])}, {"axes": [1]}, LOD),
        ("unsqueeze2", {"X": ROWS}, {"axes": [1]}, LOD),
        ("unsqueeze2", {"X": ROWS}, {"axes": [0]}, []),
        ("flatten2", {"X": ROWS}, {"axis": 1}, LOD),
        ("transpose2", {"X": ROWS}, {"axis": [0, 1]}, []),
        ("slice", {"Input": ROWS}, {"axes": [1], "starts": [1], "ends": [3]}, LOD),
        ("slice", {"Input": ROWS}, {"axes": [0], "starts": [1], "ends": [3]}, []),
        ("slice", {"Input": ROWS}, {"axes": [0, 1], "starts": [0, 0], "ends": [3, 2]}, []),
        ("slice", {"Input": ROWS}, {"axes": [-2], "starts": [0], "ends": [9]}, []),
        ("slice", {"Input": ROWS}, {"axes": [1, 0], "starts": [0, 0], "ends": [2, 3]}, LOD),
        ("slice", {"Input": ROWS}, {"axes": [1], "starts": [1], "ends": [2], "decrease_axis": [1]}, LOD),
        ("concat", {"X": [ROWS, lod_tensor(f(4, 4), [[1, 3]])]}, {"axis": 0}, [[0, 2, 3, 4, 7]]),
        ("concat", {"X": [f(3, 2), ROWS]}, {"axis": 1}, []),
        ("concat", {"X": [ROWS, f(3, 2)]}, {"axis": -1}, LOD),
        ("expand", {"X": ROWS}, {"expand_times": [1, 2]}, LOD),
        ("expand", {"X": ROWS}, {"expand_times": [2, 1]}, []),
        ("pad", {"X": ROWS}, {"paddings": [0, 0, 1, 2]}, LOD),
        ("pad", {"X": ROWS}, {"paddings": [1, 0, 0, 0]}, []),
        ("gather", {"X": ROWS, "Index": ids(0, 1, 2)}, {}, []),
        ("index_select", {"X": ROWS, "Index": ids(0, 2)}, {"dim": 1}, LOD),
        ("argsort", {"X": ROWS}, {"axis": 1}, LOD),
        ("arg_max", {"X": ROWS}, {"axis": 1}, []),
        ("reverse", {"X": ROWS}, {"axis": [1]}, []),
        ("flip", {"X": ROWS}, {"dims": [1]}, LOD),
        ("fill_any_like", {"X": ROWS}, {"value": 1.0}, LOD),
    ],
)
def test_the_lod_passes_with_unchanged_rows(
    op_type: str, inputs: dict[str, Any], attrs: dict[str, Any], lod: list[list[int]]
) -> None:
    assert run_op(op_type, inputs, attrs, fetch=["Out"])["Out"].lod() == lod


@pytest.mark.parametrize(("axes", "level"), [([0], 0), ([0, 1], 0), ([1], 1), ([1, 0], 1), ([-2], 0)])
def test_a_slice_whose_first_axis_is_that_of_the_rows_is_declared_without_lod(axes: list[int], level: int) -> None:
    attrs = {"axes": axes, "starts": [0] * len(axes), "ends": [99] * len(axes)}
    block = Program().global_block()
    op = block.append_op(type="slice", inputs={"Input": ["x"]}, outputs={"Out": ["out"]}, attrs=attrs)
    found = infer_operator(op, {"x": TensorMeta((-1, 4), VarType.FP32, 1)}.get)
    assert found["out"].lod_level == level


def test_x_shape_has_dimensions_and_lod_but_no_memory() -> None:
    out = run_op("reshape2", {"X": ROWS}, {"shape": [12]})["XShape"]
    assert (out.shape(), out.lod(), out.is_initialized()) == ([0, 3, 4], LOD, False)


def test_a_concatenation_of_sequences_and_plain_rows_has_no_lod() -> None:
    # Paddle keeps the LoD of the first, which no longer fits the rows.
    assert run_op("concat", {"X": [ROWS, f(2, 4)]}, {"axis": 0})["Out"].lod() == []


@pytest.mark.parametrize(
    ("start", "end", "stride", "expected"),
    [
        (3, 0, -2, [3, 1]),
        (4, 0, -2, [3, 1]),
        (4, -10, -2, [4, 2, 0]),
        (-1, -10, -1, [4, 3, 2, 1, 0]),
        (4, -1, -1, [4, 3, 2, 1, 0]),
        (1, -1, 2, [1, 3]),
        (0, 10, 3, [0, 3]),
        (-10, 10, 2, [0, 2, 4]),
        (10, 0, -3, [4, 1]),
    ],
)
def test_strided_slice(start: int, end: int, stride: int, expected: list[float]) -> None:
    attrs = {"axes": [0], "starts": [start], "ends": [end], "strides": [stride], "infer_flags": [1]}
    assert run_op("strided_slice", {"Input": f(5)}, attrs)["Out"].numpy().tolist() == expected


def test_slices_that_drop_every_axis_leave_one_number() -> None:
    attrs = {"axes": [0, 1], "starts": [1, -1], "ends": [2, 10000], "decrease_axis": [0, 1]}
    assert run_op("slice", {"Input": f(3, 4)}, attrs)["Out"].numpy().tolist() == [7.0]


def test_squeezing_everything_leaves_a_number_without_dimensions() -> None:
    out = run_op("squeeze2", {"X": f(1, 1)}, {"axes": []})
    assert out["Out"].shape() == []


def test_inputs_stand_in_for_sizes() -> None:
    x = f(3, 4)
    assert run_op("reshape2", {"X": x, "Shape": ids(4, 3)}, {"shape": [3, 4]})["Out"].shape() == [4, 3]
    assert run_op("reshape2", {"X": x, "ShapeTensor": [ids(4), ids(3)]}, {"shape": [-1, 3]})["Out"].shape() == [4, 3]
    assert run_op("expand", {"X": x, "expand_times_tensor": [ids(2), ids(1)]}, {})["Out"].shape() == [6, 4]
    assert run_op("top_k", {"X": x, "K": ids(2)}, {"k": 1})["Out"].shape() == [3, 2]
    crop = run_op("crop_tensor", {"X": x, "Shape": ids(2, -1)}, {"offsets": [1, 1]})["Out"]
    assert crop.numpy().tolist() == [[5.0, 6.0, 7.0], [9.0, 10.0, 11.0]]
    starts = {"Input": x, "StartsTensor": ids(1), "EndsTensor": ids(2)}
    out = run_op("slice", starts, {"axes": [0], "starts": [0], "ends": [0], "infer_flags": [-1]})["Out"]
    assert out.numpy().tolist() == [[4.0, 5.0, 6.0, 7.0]]


@pytest.mark.parametrize(
    ("row", "k", "places"),
    [
        ([3, 1, 3, 2], 3, [2, 0, 3]),
        ([0, 5, 5, 5], 3, [3, 1, 2]),
        ([1, 1, 1, 1], 3, [0, 1, 2]),
        ([0] * 20, 5, [3, 4, 1, 0, 2]),
        ([2, 1, 0, 2, 1], 4, [0, 3, 4, 1]),
    ],
)
def test_top_k_leaves_equal_numbers_in_the_order_of_paddle(row: list[float], k: int, places: list[int]) -> None:
    assert run_op("top_k", {"X": np.float32([row])}, {"k": k})["Indices"].numpy().tolist() == [places]


def test_top_k_of_a_long_row_is_that_of_a_full_sort() -> None:
    x = np.random.default_rng(0).normal(size=(3, 5000)).astype(np.float32)
    out = run_op("top_k", {"X": x}, {"k": 7})
    order = np.argsort(-x, axis=1)[:, :7]
    np.testing.assert_array_equal(out["Indices"].numpy(), order)
    np.testing.assert_array_equal(out["Out"].numpy(), np.take_along_axis(x, order, 1))


def test_not_a_number_is_never_the_largest_or_smallest() -> None:
    x = np.float32([[np.nan, 2, 1, np.nan]])
    assert run_op("arg_min", {"X": x}, {"axis": 1})["Out"].numpy().tolist() == [2]
    assert run_op("arg_max", {"X": x}, {"axis": 1})["Out"].numpy().tolist() == [1]


def test_range_adds_step_by_step_in_the_data_type_of_start() -> None:
    out = run_op("range", {"Start": np.float32([0]), "End": np.float32([1]), "Step": np.float32([0.1])})["Out"].numpy()
    expected = [
        0.0,
        0.1,
        0.2,
        0.30000001192092896,
        0.4,
        0.5,
        0.6000000238418579,
        0.7000000476837158,
        0.8000000715255737,
    ]
    np.testing.assert_array_equal(out, np.float32([*expected, 0.9000000953674316]))


def test_range_may_run_down_and_may_be_empty() -> None:
    assert run_op("range", {"Start": ids(5), "End": ids(0), "Step": ids(-2)})["Out"].numpy().tolist() == [5, 3, 1]
    assert run_op("range", {"Start": ids(5), "End": ids(5), "Step": ids(2)})["Out"].shape() == [0]


def test_a_diagonal_counts_rows_along_the_axis_in_front() -> None:
    out = run_op("trace", {"Input": f(2, 3, 4)}, {"offset": 1, "dim1": -1, "dim2": 0})["Out"]
    assert out.numpy().tolist() == [15.0, 23.0, 31.0]


def test_unique_keeps_the_order_of_first_appearance() -> None:
    out = run_op("unique_with_counts", {"X": np.array([2, 3, 3, 1, 5, 3])}, {"dtype": 2})
    assert out["Out"].numpy().tolist() == [2, 3, 1, 5]
    assert out["Index"].numpy().tolist() == [0, 1, 1, 2, 3, 1]
    assert out["Count"].numpy().tolist() == [1, 3, 1, 1]
    assert out["Count"].numpy().dtype == np.int32


def test_space_to_depth_has_the_order_of_darknet() -> None:
    out = run_op("space_to_depth", {"X": f(1, 4, 2, 2)}, {"blocksize": 2})["Out"].numpy()
    assert out.reshape(-1).tolist() == [0, 4, 1, 5, 8, 12, 9, 13, 2, 6, 3, 7, 10, 14, 11, 15]


def test_borders_mirror_and_cut() -> None:
    x = f(1, 1, 2, 2)
    out = run_op("pad2d", {"X": x}, {"paddings": [2, 0, 1, 1], "mode": "reflect"})["Out"].numpy()
    assert out[0, 0].tolist() == [[1, 0, 1, 0], [3, 2, 3, 2], [1, 0, 1, 0], [3, 2, 3, 2]]
    assert run_op("pad2d", {"X": x}, {"paddings": [-1, 0, 0, 0]})["Out"].numpy().tolist() == [[[[2.0, 3.0]]]]


def test_constants() -> None:
    big = {"shape": [1], "dtype": 3, "str_value": "9007199254740993"}
    assert run_op("fill_constant", {}, big)["Out"].numpy().tolist() == [9007199254740993]
    assert run_op("fill_constant", {}, {"shape": [1], "dtype": 2, "value": 3.7})["Out"].numpy().tolist() == [3]
    exact = run_op("fill_constant", {}, {"shape": [1], "dtype": 6, "value": 0.1})["Out"].numpy()
    assert exact.tolist() == [0.10000000149011612]
    assert run_op("fill", {}, {"shape": [2], "dtype": 2, "value": [1.7, 2.2]})["Out"].numpy().tolist() == [1, 2]


def test_the_batch_size_of_sequences_is_their_number() -> None:
    out = run_op("fill_constant_batch_size_like", {"Input": ROWS}, {"shape": [-1, 3], "dtype": 3, "value": 2.0})["Out"]
    assert out.numpy().tolist() == [[2, 2, 2], [2, 2, 2]]


def test_casts_cut_towards_zero() -> None:
    x = np.float32([1.7, -1.7, 0.2])
    assert run_op("cast", {"X": x}, {"in_dtype": 5, "out_dtype": 2})["Out"].numpy().tolist() == [1, -1, 0]
    assert run_op("cast", {"X": x}, {"in_dtype": 5, "out_dtype": 0})["Out"].numpy().tolist() == [True, True, True]
    half = run_op("cast", {"X": x}, {"in_dtype": 5, "out_dtype": 22})["Out"].numpy()
    assert half.dtype == ml_dtypes.bfloat16


def test_casts_to_shorter_floats_round_to_the_nearest() -> None:
    x = np.float32([0.4359949, 1.0009])
    assert run_op("cast", {"X": x}, {"in_dtype": 5, "out_dtype": 4})["Out"].numpy().tolist() == [
        0.43603515625,
        1.0009765625,
    ]


def test_bfloat16_moves_like_any_other_type() -> None:
    x = f(2, 3).astype(ml_dtypes.bfloat16)
    for op_type, attrs in (
        ("transpose2", {"axis": [1, 0]}),
        ("reshape2", {"shape": [6]}),
        ("pad", {"paddings": [1, 0, 0, 0]}),
    ):
        assert run_op(op_type, {"X": x}, attrs, fetch=["Out"])["Out"].numpy().dtype == ml_dtypes.bfloat16


def test_assign_takes_arrays_and_selected_rows() -> None:
    rows = run_op("assign", {"X": SelectedRows([1, 4], 9, f(2, 3))})["Out"]
    assert isinstance(rows, SelectedRows)
    assert (rows.rows(), rows.height()) == ([1, 4], 9)
    items = LoDTensorArray([LoDTensor(f(2)), LoDTensor(f(1, 2), [[0, 1]])])
    copy = run_op("assign", {"X": items})["Out"]
    assert [item.lod() for item in copy] == [[], [[0, 1]]]
    assert copy is not items


def test_arrays_are_cut_by_items() -> None:
    items = LoDTensorArray([LoDTensor(f(i + 1)) for i in range(4)])
    cut = run_op("slice", {"Input": items}, {"axes": [0], "starts": [1], "ends": [-1]})["Out"]
    assert [item.shape() for item in cut] == [[2], [3]]
    one = run_op("slice", {"Input": items}, {"axes": [0], "starts": [2], "ends": [3], "decrease_axis": [0]})["Out"]
    assert one.numpy().tolist() == [0.0, 1.0, 2.0]
    zeros = run_op("fill_zeros_like", {"X": items})["Out"]
    assert [item.numpy().tolist() for item in zeros] == [[0.0] * (i + 1) for i in range(4)]


def test_the_shape_of_selected_rows_is_that_of_their_values() -> None:
    assert run_op("shape", {"Input": SelectedRows([1, 4], 9, f(2, 3))})["Out"].numpy().tolist() == [2, 3]


@pytest.mark.parametrize(
    ("op_type", "slot", "shape", "attrs", "expected"),
    [
        ("reshape2", "X", (-1, 3, 4), {"shape": [0, -1]}, (-1, 12)),
        ("reshape2", "X", (-1, 12), {"shape": [-1, 3, 4]}, (-1, 3, 4)),
        ("flatten2", "X", (-1, 3, 4), {"axis": 1}, (-1, 12)),
        ("flatten2", "X", (-1, 3, 4), {"axis": 2}, (-1, 4)),
        ("transpose2", "X", (-1, 3, 4), {"axis": [2, 0, 1]}, (4, -1, 3)),
        ("slice", "Input", (-1, 8), {"axes": [0, 1], "starts": [0, 2], "ends": [5, -1]}, (-1, 5)),
        ("squeeze2", "X", (-1, 1, 4), {"axes": [1]}, (-1, 4)),
        ("unsqueeze2", "X", (-1, 4), {"axes": [1]}, (-1, 1, 4)),
        ("expand", "X", (-1, 4), {"expand_times": [1, 3]}, (-1, 12)),
        ("top_k", "X", (-1, 9), {"k": 2}, (-1, 2)),
        ("arg_max", "X", (-1, 9), {"axis": -1}, (-1,)),
        ("one_hot", "X", (-1, 1), {"depth": 7}, (-1, 7)),
        ("pad2d", "X", (-1, 3, 8, 8), {"paddings": [1, 1, 2, 2]}, (-1, 3, 10, 12)),
        ("where_index", "Condition", (-1, 4), {}, (-1, 2)),
        ("shape", "Input", (-1, 4, 4), {}, (3,)),
        ("strided_slice", "Input", (-1, 9), {"axes": [1], "starts": [0], "ends": [9], "strides": [2]}, (-1, 5)),
    ],
)
def test_shapes_follow_without_running(
    op_type: str, slot: str, shape: tuple[int, ...], attrs: dict[str, Any], expected: tuple[int, ...]
) -> None:
    block = Program().global_block()
    op = block.append_op(type=op_type, inputs={slot: ["x"]}, outputs={"Out": ["out"]}, attrs=attrs)
    found = infer_operator(op, {"x": TensorMeta(shape, VarType.FP32)}.get)
    assert found["out"].shape == expected


def test_zeros_of_a_constant_keep_their_sign() -> None:
    made = [run_op("fill_constant", {}, {"shape": [2], "dtype": int(VarType.FP32), "value": v}) for v in (0.0, -0.0)]
    assert [np.signbit(each["Out"].numpy()).tolist() for each in made] == [[False] * 2, [True] * 2]
