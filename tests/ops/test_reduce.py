"""Reductions, norms and running sums: gradients, shapes in the versions of Paddle, types, refusals."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fluidtool.errors import OperatorError
from fluidtool.tensor import SelectedRows
from tests.support.later import run_later
from tests.support.operators import check_gradient, lod_tensor, run_op

RNG = np.random.default_rng(13)
X = RNG.normal(size=(2, 3, 2))

GRADIENTS: list[tuple[str, dict[str, Any]]] = [
    ("reduce_sum", {"dim": [1]}),
    ("reduce_sum", {"reduce_all": True}),
    ("reduce_mean", {"dim": [0, -1], "keep_dim": True}),
    ("reduce_max", {"dim": [1]}),
    ("reduce_min", {"dim": [-1]}),
    ("reduce_prod", {"dim": [0, 2]}),
    ("reduce_amax", {"dim": [1]}),
    ("reduce_amin", {"dim": [0]}),
    ("frobenius_norm", {"dim": [1, 2]}),
    ("logsumexp", {"axis": [1], "keepdim": True}),
    ("p_norm", {"porder": 1.0, "axis": 1}),
    ("p_norm", {"porder": 2.5, "axis": -1, "keepdim": True}),
    ("p_norm", {"porder": float("inf"), "axis": 1}),
    ("p_norm", {"porder": float("-inf"), "axis": 0}),
    ("cumsum", {"axis": 1, "exclusive": True, "reverse": True}),
    ("cumprod", {"dim": 1}),
    ("cumprod", {"dim": 1, "exclusive": True, "reverse": True}),
    ("mean", {}),
    ("l1_norm", {}),
    ("squared_l2_norm", {}),
    ("clip", {"min": -0.5, "max": 0.7}),
]


@pytest.mark.parametrize(("op_type", "attrs"), GRADIENTS)
def test_gradient_agrees_with_central_differences(op_type: str, attrs: dict[str, Any]) -> None:
    check_gradient(op_type, {"X": X}, wrt=["X"], attrs=attrs)


@pytest.mark.parametrize(("op_type", "slot"), [("cummax", "out"), ("cummin", "out")])
def test_gradient_of_running_extremes(op_type: str, slot: str) -> None:
    check_gradient(op_type, {"x": X}, wrt=["x"], attrs={"axis": 1}, loss=[slot])


def test_gradient_of_norm() -> None:
    check_gradient("norm", {"X": X}, wrt=["X"], attrs={"axis": 1, "epsilon": 1e-3}, loss=["Out"])


@pytest.mark.parametrize("op_type", ["reduce_sum", "reduce_mean"])
def test_second_gradient_is_the_reduction_itself(op_type: str) -> None:
    grad = RNG.normal(size=(2, 2))
    check_gradient(f"{op_type}_grad", {"X": X, "Out@GRAD": grad}, wrt=["Out@GRAD"], attrs={"dim": [1]})


def test_gradient_of_a_product_with_zeros() -> None:
    inputs = {"X": np.array([[2.0, 0.0, 3.0], [0.0, 0.0, 5.0]]), "Out": np.zeros(2), "Out@GRAD": np.ones(2)}
    got = run_op("reduce_prod_grad", inputs, {"dim": [1]})["X@GRAD"].numpy()
    assert got.tolist() == [[0, 6, 0], [0, 0, 0]]


def test_equal_maxima_all_get_the_gradient_or_share_it() -> None:
    inputs = {"X": np.array([[1.0, 3.0, 3.0]]), "Out": np.array([3.0]), "Out@GRAD": np.array([1.0])}
    assert run_op("reduce_max_grad", inputs, {"dim": [1]})["X@GRAD"].numpy().tolist() == [[0, 1, 1]]
    assert run_op("reduce_amax_grad", inputs, {"dim": [1]})["X@GRAD"].numpy().tolist() == [[0, 0.5, 0.5]]


def test_gradient_is_of_in_dtype_where_it_is_given() -> None:
    inputs = {"X": np.zeros((2, 3)), "Out@GRAD": np.ones(2)}
    grad = run_op("reduce_sum_grad", inputs, {"dim": [1], "in_dtype": 5, "out_dtype": 6})["X@GRAD"].numpy()
    assert grad.dtype == np.float32


@pytest.mark.parametrize(
    ("attrs", "before", "later"),
    [
        ({"dim": [0]}, (3,), (3,)),
        ({"dim": [0, 1]}, (1,), ()),
        ({"reduce_all": True}, (1,), ()),
        ({"dim": [0, 1], "keep_dim": True}, (1, 1), (1, 1)),
    ],
)
def test_shapes_before_and_after_paddle_2_5(attrs: dict[str, Any], before: Any, later: Any) -> None:
    inputs = {"X": np.ones((2, 3), np.float32)}
    assert run_op("reduce_sum", inputs, attrs)["Out"].numpy().shape == before
    assert run_later("reduce_sum", inputs, attrs)["Out"].shape == later


def test_naming_every_dimension_sums_them_all() -> None:
    """Paddle 1.8.5 leaves zero there."""
    assert run_op("reduce_sum", {"X": np.ones((2, 3))}, {"dim": [0, 1]})["Out"].numpy().tolist() == [6]


def test_mean_of_integers_is_cut_towards_zero() -> None:
    x = np.array([[3, -4, 5], [1, 2, 2]], np.int32)
    assert run_op("reduce_mean", {"X": x}, {"dim": [0]})["Out"].numpy().tolist() == [2, -1, 3]


def test_sum_of_int32_is_int64_in_later_programs() -> None:
    inputs = {"X": np.ones(3, np.int32)}
    assert run_op("reduce_sum", inputs)["Out"].numpy().dtype == np.int32
    assert run_later("reduce_sum", inputs)["Out"].dtype == np.int64


def test_lod_stays_where_rows_stay() -> None:
    x = lod_tensor(np.ones((3, 2), np.float32), [[1, 2]])
    assert run_op("reduce_sum", {"X": x}, {"dim": [1]})["Out"].recursive_sequence_lengths() == [[1, 2]]
    assert run_op("reduce_sum", {"X": x}, {"dim": [0]})["Out"].recursive_sequence_lengths() == []


def test_half_precision_sums_do_not_overflow_on_the_way() -> None:
    x = np.full(4096, 16, np.float16)
    assert run_op("mean", {"X": x})["Out"].numpy().tolist() == [16]
    assert run_op("reduce_mean", {"X": x})["Out"].numpy().tolist() == [16]


def test_clip_by_norm_leaves_zeros_alone() -> None:
    """Paddle 1.8.5 divides zero by zero there."""
    assert not run_op("clip_by_norm", {"X": np.zeros(3, np.float32)}, {"max_norm": 1.0})["Out"].numpy().any()


def test_clipping_merges_sparse_rows_first() -> None:
    rows = SelectedRows([3, 1, 3], 5, np.array([[1], [2], [3]], np.float32))
    out = run_op("clip", {"X": rows}, {"min": 0.0, "max": 3.0})["Out"]
    assert (out.rows(), out.height(), out.value.tolist()) == ([1, 3], 5, [[2], [3]])


def test_increment_stays_an_integer() -> None:
    out = run_op("increment", {"X": np.array([3], np.int32)}, {"step": 2.5})["Out"].numpy()
    assert (out.dtype, out.tolist()) == (np.int32, [5])


@pytest.mark.parametrize(
    ("op_type", "x", "attrs", "message"),
    [
        ("reduce_sum", np.zeros((2, 3)), {"dim": [2]}, r"dim \[2\] is out of range for X of shape \(2, 3\)"),
        ("reduce_max", np.zeros((0, 3)), {"dim": [0]}, r"X of shape \(0, 3\) has no elements to take the maximum of"),
        ("reduce_mean", np.zeros((0, 3)), {"dim": [0]}, "has no elements to take the mean of"),
        ("mean", np.zeros((0, 3)), {}, "has no elements"),
        ("norm", np.zeros((2, 3)), {"axis": 2}, "axis 2 is out of range for an X of 2 dimensions"),
        ("p_norm", np.zeros((2, 3)), {"axis": 2}, "is out of range for X of shape"),
        ("cumsum", np.zeros((2, 3)), {"axis": 2}, r"axis 2 is out of range for X of shape \(2, 3\)"),
        ("cumprod", np.zeros((2, 3)), {"dim": -3}, r"dim -3 is out of range for X of shape \(2, 3\)"),
        ("increment", np.zeros(2), {}, r"X must hold one number, found shape \(2,\)"),
        ("clip", np.zeros(2), {"min": 1.0, "max": 0.0}, "min 1.0 must not be above max 0.0"),
        ("clip_by_norm", np.zeros(2), {"max_norm": -1.0}, "max_norm must be greater than 0, found -1.0"),
    ],
)
def test_refusals(op_type: str, x: Any, attrs: dict[str, Any], message: str) -> None:
    with pytest.raises(OperatorError, match=f"{op_type}: .*{message}"):
        run_op(op_type, {"X": x}, attrs)
