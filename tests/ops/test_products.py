"""Matrix products, distances, sums and scaling: gradients, shapes, sparse and listed inputs, refusals."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fluidtool.errors import OperatorError
from fluidtool.tensor import LoDTensorArray, SelectedRows
from tests.support.later import run_later
from tests.support.operators import check_gradient, lod_tensor, run_op

RNG = np.random.default_rng(14)


def normal(*shape: int) -> np.ndarray[Any, Any]:
    return RNG.normal(size=shape)


MATMUL: list[tuple[tuple[int, ...], tuple[int, ...], dict[str, Any], tuple[int, ...]]] = [
    ((2, 3), (3, 4), {"alpha": 0.5}, (2, 4)),
    ((3, 2), (4, 3), {"transpose_X": True, "transpose_Y": True}, (2, 4)),
    ((2, 2, 3), (3, 2), {}, (2, 2, 2)),
    ((2, 3), (2, 3, 2), {}, (2, 2, 2)),
    ((2, 1, 2, 3), (2, 1, 2, 3), {"transpose_Y": True}, (2, 1, 2, 2)),
    ((3,), (3,), {}, (1,)),
    ((3,), (4,), {"transpose_X": True, "transpose_Y": True}, (3, 4)),
    ((3,), (2, 3, 2), {}, (2, 2)),
    ((2, 2, 3), (3,), {}, (2, 2)),
]


@pytest.mark.parametrize(("x", "y", "attrs", "shape"), MATMUL)
def test_matmul_and_its_gradient(x: tuple[int, ...], y: tuple[int, ...], attrs: dict[str, Any], shape: Any) -> None:
    inputs = {"X": normal(*x), "Y": normal(*y)}
    assert run_op("matmul", inputs, attrs)["Out"].numpy().shape == shape
    check_gradient("matmul", inputs, wrt=["X", "Y"], attrs=attrs)


@pytest.mark.parametrize(
    ("x", "y", "attrs"),
    [
        ((2, 1, 2, 3), (3, 3, 2), {}),
        ((3, 2), (2, 2, 3), {"trans_x": True, "trans_y": True}),
        ((3,), (2, 3, 2), {}),
        ((2, 2, 3), (3,), {"trans_x": False}),
    ],
)
def test_gradient_of_matmul_v2(x: tuple[int, ...], y: tuple[int, ...], attrs: dict[str, Any]) -> None:
    check_gradient("matmul_v2", {"X": normal(*x), "Y": normal(*y)}, wrt=["X", "Y"], attrs=attrs)


def test_product_of_two_vectors_before_and_after_paddle_2_5() -> None:
    inputs = {"X": normal(3), "Y": normal(3)}
    assert run_op("matmul_v2", inputs)["Out"].numpy().shape == (1,)
    assert run_later("matmul_v2", inputs)["Out"].shape == ()
    assert run_op("dot", inputs)["Out"].numpy().shape == (1,)
    assert run_later("dot", inputs)["Out"].shape == ()


@pytest.mark.parametrize("op_type", ["mul", "matmul", "matmul_v2"])
def test_half_precision_products_are_added_up_in_single_precision(op_type: str) -> None:
    x = np.ones((1, 4096), np.float16)
    out = run_op(op_type, {"X": x, "Y": x.T})["Out"].numpy()
    assert (out.dtype, out.tolist()) == (np.float16, [[4096]])


def test_matmul_by_heads_multiplies_parts_side_by_side() -> None:
    x, y = normal(2, 4), normal(4, 3)
    out = run_op("matmul", {"X": x, "Y": y}, {"head_number": 2})["Out"].numpy()
    np.testing.assert_allclose(out, np.concatenate([x[:, :2] @ y[:2], x[:, 2:] @ y[2:]], axis=1), rtol=1e-12)


@pytest.mark.parametrize("batch", [(), (2,)])
def test_matmul_by_heads_cuts_columns_of_y_where_it_has_the_rows_of_one_head(batch: tuple[int, ...]) -> None:
    x, y = normal(*batch, 3, 4), normal(*batch, 6, 2)
    out = run_op("matmul", {"X": x, "Y": y}, {"head_number": 2, "transpose_Y": True})["Out"].numpy()
    columns = y.swapaxes(-1, -2)
    parts = [x[..., :2] @ columns[..., :3], x[..., 2:] @ columns[..., 3:]]
    np.testing.assert_allclose(out, np.concatenate(parts, axis=-1), rtol=1e-12)


PAIRS: list[tuple[str, dict[str, Any], list[str], dict[str, Any]]] = [
    ("mul", {"X": normal(2, 2, 3), "Y": normal(3, 2, 2)}, ["X", "Y"], {"x_num_col_dims": 2}),
    ("bmm", {"X": normal(2, 2, 3), "Y": normal(2, 3, 2)}, ["X", "Y"], {}),
    ("mv", {"X": normal(2, 3), "Vec": normal(3)}, ["X", "Vec"], {}),
    ("dot", {"X": normal(2, 3), "Y": normal(2, 3)}, ["X", "Y"], {}),
    (
        "addmm",
        {"Input": normal(1, 2), "X": normal(2, 3), "Y": normal(3, 2)},
        ["Input", "X", "Y"],
        {"Alpha": 0.5, "Beta": 2.0},
    ),
    ("kron", {"X": normal(2, 2), "Y": normal(3)}, ["X", "Y"], {}),
    ("cross", {"X": normal(2, 3), "Y": normal(2, 3)}, ["X", "Y"], {"dim": -1}),
    ("fsp", {"X": normal(1, 2, 2, 2), "Y": normal(1, 3, 2, 2)}, ["X", "Y"], {}),
    ("dist", {"X": normal(2, 3), "Y": normal(3)}, ["X", "Y"], {"p": 2.5}),
    ("dist", {"X": normal(2, 3), "Y": normal(2, 1)}, ["X", "Y"], {"p": float("inf")}),
    ("inverse", {"Input": normal(2, 3, 3)}, ["Input"], {}),
    (
        "bilinear_tensor_product",
        {"X": normal(2, 3), "Y": normal(2, 2), "Weight": normal(2, 3, 2), "Bias": normal(1, 2)},
        ["X", "Y", "Weight", "Bias"],
        {},
    ),
    ("minus", {"X": normal(2, 3), "Y": normal(2, 3)}, ["X", "Y"], {}),
    ("sum", {"X": [normal(2, 3), normal(2, 3)]}, ["X"], {}),
    ("scale", {"X": normal(2, 3)}, ["X"], {"scale": 2.0, "bias": 1.0, "bias_after_scale": False}),
]


@pytest.mark.parametrize(("op_type", "inputs", "wrt", "attrs"), PAIRS)
def test_gradient_agrees_with_central_differences(op_type: str, inputs: Any, wrt: Any, attrs: Any) -> None:
    check_gradient(op_type, inputs, wrt=wrt, attrs=attrs)


@pytest.mark.parametrize("rows", [1, 3])
@pytest.mark.parametrize("op_type", ["cos_sim", "squared_l2_distance"])
def test_gradient_where_y_has_one_row_for_all(op_type: str, rows: int) -> None:
    check_gradient(op_type, {"X": normal(3, 2), "Y": normal(rows, 2)}, wrt=["X", "Y"], loss=["Out"], rtol=1e-4)


def test_second_gradient_of_mul() -> None:
    inputs = {"X": normal(2, 3), "Y": normal(3, 2), "Out@GRAD": normal(2, 2)}
    check_gradient("mul_grad", inputs, wrt=["X", "Y", "Out@GRAD"], loss=["X@GRAD", "Y@GRAD"])


@pytest.mark.parametrize(
    ("equation", "shapes"),
    [
        ("ij,jk->ik", [(2, 3), (3, 2)]),
        ("bij,bkj->bik", [(2, 2, 3), (2, 2, 3)]),
        ("ij->j", [(2, 3)]),
        ("i,j", [(2,), (3,)]),
    ],
)
def test_einsum_and_its_gradient(equation: str, shapes: list[tuple[int, ...]]) -> None:
    operands = [normal(*shape) for shape in shapes]
    inputs, outputs = {"Operands": operands}, {"InnerCache": 0, "XShape": 0}
    out = run_op("einsum", inputs, {"equation": equation}, outputs)["Out"].numpy()
    np.testing.assert_allclose(out, np.einsum(equation, *operands), rtol=1e-12)
    check_gradient("einsum", inputs, wrt=["Operands"], attrs={"equation": equation}, outputs=outputs)


def test_a_chain_of_matrices_with_vectors_at_its_ends() -> None:
    chain = [normal(3), normal(3, 4), normal(4, 2), normal(2)]
    out = run_later("multi_dot", {"X": chain})["Out"]
    np.testing.assert_allclose(out, chain[0] @ chain[1] @ chain[2] @ chain[3], rtol=1e-12)


def test_distance_of_equal_points_has_no_gradient() -> None:
    """Paddle 1.8.5 gives NaN there."""
    x = normal(2, 3)
    inputs = {"X": x, "Y": x, "Out": np.zeros(1), "Out@GRAD": np.ones(1)}
    assert not run_op("dist_grad", inputs)["X@GRAD"].numpy().any()


def test_sum_of_sparse_rows_merges_them() -> None:
    first = SelectedRows([3, 1, 3], 5, np.array([[1], [2], [3]], np.float32))
    second = SelectedRows([1, 4], 5, np.array([[10], [20]], np.float32))
    out = run_op("sum", {"X": [first, second]})["Out"]
    assert (out.rows(), out.height(), out.value.tolist()) == ([1, 3, 4], 5, [[12], [4], [20]])


def test_sum_adds_sparse_rows_into_a_tensor() -> None:
    rows, table = SelectedRows([1, 1], 3, np.ones((2, 1), np.float32)), np.ones((3, 1), np.float32)
    assert run_op("sum", {"X": [rows, table]})["Out"].numpy().tolist() == [[1], [3], [1]]
    assert table.tolist() == [[1], [1], [1]]


def test_sum_of_arrays_goes_position_by_position() -> None:
    first, second = LoDTensorArray(), LoDTensorArray()
    first.append(np.array([1.0]))
    second.append(np.array([2.0]))
    second.append(lod_tensor(np.array([3.0, 4.0]), [[1, 1]]))
    out = run_op("sum", {"X": [first, second]})["Out"]
    assert [item.numpy().tolist() for item in out] == [[3], [3, 4]]
    assert out[1].recursive_sequence_lengths() == [[1, 1]]


def test_sum_leaves_empty_tensors_out() -> None:
    assert run_op("sum", {"X": [np.zeros((0, 2)), np.ones((1, 2))]})["Out"].numpy().tolist() == [[1, 1]]


def test_scale_of_integers_cuts_the_factor() -> None:
    out = run_op("scale", {"X": np.array([3], np.int64)}, {"scale": 2.5, "bias": 1.7})["Out"].numpy()
    assert (out.dtype, out.tolist()) == (np.int64, [7])


def test_scale_of_sparse_rows_keeps_them_apart() -> None:
    rows = SelectedRows([2, 2], 4, np.array([[1], [2]], np.float32))
    out = run_op("scale", {"X": rows}, {"scale": 3.0})["Out"]
    assert (out.rows(), out.value.tolist()) == ([2, 2], [[3], [6]])


REFUSALS: list[tuple[str, dict[str, Any], dict[str, Any], str]] = [
    ("mul", {"X": normal(2, 3), "Y": normal(4, 2)}, {}, "flattens to 3 columns, Y of shape .* to 4 rows"),
    (
        "mul",
        {"X": normal(2), "Y": normal(2, 2)},
        {},
        "X of shape .2,. must have more than x_num_col_dims = 1 dimensions",
    ),
    ("matmul", {"X": normal(2, 3), "Y": normal(4, 2)}, {}, "must be equal in number; transpose_X is False"),
    ("matmul", {"X": normal(2, 2, 3), "Y": normal(3, 3, 2)}, {}, "must be equal, or one of them a single matrix"),
    ("matmul", {"X": normal(2, 3), "Y": normal(3, 2).astype(np.float32)}, {}, "X is float64 and Y is float32"),
    ("matmul", {"X": normal(2, 3), "Y": normal(3, 2)}, {"head_number": 2}, "head_number 2 must divide the 3 columns"),
    ("matmul", {"X": normal(3, 4), "Y": normal(2, 5)}, {"head_number": 2}, "must be equal in number"),
    (
        "matmul_grad",
        {"X": normal(2, 4), "Y": normal(4, 3), "Out@GRAD": normal(2, 6)},
        {"head_number": 2},
        "the gradient by heads",
    ),
    ("matmul_v2", {"X": normal(2, 2, 3), "Y": normal(3, 3, 2)}, {}, "do not broadcast together"),
    ("bmm", {"X": normal(2, 2, 3), "Y": normal(3, 3, 2)}, {}, "X must be .batch, rows, inner."),
    ("mv", {"X": normal(2, 3), "Vec": normal(2)}, {}, "Vec as long as its rows"),
    ("dot", {"X": normal(3), "Y": normal(2)}, {}, "of one shape; found .3,. and .2,."),
    ("addmm", {"Input": normal(3, 2), "X": normal(2, 3), "Y": normal(3, 2)}, {}, "must broadcast to the product"),
    ("cross", {"X": normal(2, 2), "Y": normal(2, 2)}, {}, "has no dimension of size 3"),
    ("cross", {"X": normal(2, 3), "Y": normal(2, 3)}, {"dim": 0}, "dimension 0 of X .* must be of size 3"),
    ("fsp", {"X": normal(1, 2, 2, 2), "Y": normal(1, 2, 2, 3)}, {}, "must both be .batch, channels, height, width."),
    (
        "cos_sim",
        {"X": normal(3, 2), "Y": normal(2, 2)},
        {},
        "must have rows of one length, and Y as many rows as X or one",
    ),
    ("squared_l2_distance", {"X": normal(3, 2), "Y": normal(3, 3)}, {}, "must have rows of one length"),
    ("minus", {"X": normal(2), "Y": normal(3)}, {}, "must have one shape"),
    ("sum", {"X": [normal(2), normal(3)]}, {}, "must have one shape, found .2,. and .3,."),
    ("inverse", {"Input": normal(2, 3)}, {}, "must hold square matrices"),
    ("einsum", {"Operands": [normal(2, 3)]}, {"equation": "ijk->i"}, "does not fit operands of .2. dimensions"),
    ("scale", {"X": normal(2), "ScaleTensor": normal(2)}, {}, "ScaleTensor must hold one number"),
]


@pytest.mark.parametrize(("op_type", "inputs", "attrs", "message"), REFUSALS)
def test_refusals(op_type: str, inputs: dict[str, Any], attrs: dict[str, Any], message: str) -> None:
    with pytest.raises(OperatorError, match=f"{op_type}: .*{message}"):
        run_op(op_type, inputs, attrs)


def test_sparse_rows_beyond_the_table_are_refused() -> None:
    rows = SelectedRows([7], 9, np.ones((1, 1), np.float32))
    with pytest.raises(OperatorError, match="row numbers 7 to 7 are out of range for a table of 3 rows"):
        run_op("sum", {"X": [np.ones((3, 1), np.float32), rows]})
