"""Elementwise operators, comparison and logic: broadcasting, gradients of any order, types, refusals."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fluidtool.errors import OperatorError
from fluidtool.tensor import SelectedRows
from tests.support.later import run_later
from tests.support.operators import check_gradient, lod_tensor, run_op

RNG = np.random.default_rng(12)
BROADCASTS = [
    ((2, 3, 4), (3,), 1),
    ((2, 3, 4), (3, 1), 1),
    ((2, 3), (1,), -1),
    ((3,), (2, 3, 2), 1),
    ((2, 1), (2, 3), -1),
]


def normal(*shape: int) -> np.ndarray[Any, Any]:
    return RNG.normal(size=shape)


@pytest.mark.parametrize(("x", "y", "axis"), BROADCASTS)
@pytest.mark.parametrize("name", ["add", "sub", "mul", "div", "max", "min"])
def test_gradient_where_one_side_is_repeated(name: str, x: tuple[int, ...], y: tuple[int, ...], axis: int) -> None:
    inputs = {"X": normal(*x), "Y": RNG.uniform(0.5, 2, y)}
    check_gradient(f"elementwise_{name}", inputs, wrt=["X", "Y"], attrs={"axis": axis})


@pytest.mark.parametrize("op_type", ["elementwise_fmax", "elementwise_fmin", "grad_add"])
def test_gradient_of_later_operators(op_type: str) -> None:
    check_gradient(op_type, {"X": normal(2, 3), "Y": normal(3)}, wrt=["X", "Y"])


def test_gradient_of_powers() -> None:
    inputs = {"X": RNG.uniform(0.5, 2, (2, 3)), "Y": normal(2)}
    check_gradient("elementwise_pow", inputs, wrt=["X", "Y"], attrs={"axis": 0})


def test_gradient_of_the_step_goes_to_y_where_x_is_zero() -> None:
    inputs = {"X": np.array([-1.0, 0.0, 2.0]), "Y": normal(3), "Out@GRAD": np.array([1.0, 2.0, 3.0])}
    got = run_op("elementwise_heaviside_grad", inputs)
    assert got["X@GRAD"].numpy().tolist() == [0, 0, 0]
    assert got["Y@GRAD"].numpy().tolist() == [0, 2, 0]


def test_gradient_of_atan2() -> None:
    check_gradient("atan2", {"X1": normal(2, 3), "X2": normal(3)}, wrt=["X1", "X2"])


def test_gradient_of_lerp() -> None:
    check_gradient("lerp", {"X": normal(2, 3), "Y": normal(3), "Weight": normal(1)}, wrt=["X", "Y"])


@pytest.mark.parametrize(("name", "loss"), [("add", ["X@GRAD", "Y@GRAD"]), ("sub", ["X@GRAD", "Y@GRAD"])])
def test_second_gradient_of_sums(name: str, loss: list[str]) -> None:
    inputs = {"X": normal(2, 3), "Y": normal(3), "Out@GRAD": normal(2, 3)}
    check_gradient(f"elementwise_{name}_grad", inputs, wrt=["Out@GRAD"], loss=loss)


def test_second_gradient_of_a_product() -> None:
    inputs = {"X": normal(2, 3), "Y": normal(2), "Out@GRAD": normal(2, 3)}
    wrt, loss = ["X", "Y", "Out@GRAD"], ["X@GRAD", "Y@GRAD"]
    check_gradient("elementwise_mul_grad", inputs, wrt=wrt, attrs={"axis": 0}, loss=loss)


def test_second_gradient_of_a_quotient() -> None:
    """dX = dOut / Y and dY = -dX * Out, so that DX and Out may be taken as given."""
    x, y, dout, ddx, ddy = (RNG.uniform(0.5, 2, 4) for _ in range(5))
    inputs = {"Y": y, "Out": x / y, "DX": dout / y, "DDX": ddx, "DDY": ddy}
    got = {slot: value.numpy() for slot, value in run_op("elementwise_div_grad_grad", inputs).items()}
    np.testing.assert_allclose(got["DDOut"], ddx / y - x / y * ddy / y, rtol=1e-12)
    np.testing.assert_allclose(got["DOut"], -dout / y * ddy, rtol=1e-12)
    np.testing.assert_allclose(got["Y@GRAD"], dout / y * (x / y * ddy - ddx) / y, rtol=1e-12)


def test_an_absent_second_gradient_counts_as_zeros() -> None:
    x, y, dout, ddx = normal(2, 3), normal(2, 3), normal(2, 3), normal(2, 3)
    got = run_op("elementwise_mul_grad_grad", {"X": x, "Y": y, "DOut": dout, "DDX": ddx})
    np.testing.assert_allclose(got["DDOut"].numpy(), ddx * y, rtol=1e-12)
    assert not got["X@GRAD"].numpy().any()


def test_lod_of_gradients_comes_from_the_output_and_from_y() -> None:
    inputs = {
        "X": lod_tensor(normal(3, 2), [[1, 2]]),
        "Y": lod_tensor(normal(3, 2), [[2, 1]]),
        "Out@GRAD": lod_tensor(normal(3, 2), [[1, 1, 1]]),
    }
    got = run_op("elementwise_add_grad", inputs)
    assert got["X@GRAD"].recursive_sequence_lengths() == [[1, 1, 1]]
    assert got["Y@GRAD"].recursive_sequence_lengths() == [[2, 1]]


@pytest.mark.parametrize(
    ("op_type", "before", "later"),
    [
        ("elementwise_div", [-3, -3, 3, 3, 0], [-3, -3, 3, 3, 0]),
        ("elementwise_floordiv", [-3, -3, 3, 3, 0], [-4, -4, 3, 3, 0]),
        ("elementwise_mod", [-1, 1, -1, 1, 0], [1, -1, -1, 1, 0]),
        ("elementwise_pow", [49, 0, 0, 49, 0], [49, 0, 0, 49, 0]),
    ],
)
def test_integers_before_and_after_paddle_2(op_type: str, before: list[int], later: list[int]) -> None:
    inputs = {"X": np.array([-7, 7, -7, 7, 0], np.int32), "Y": np.array([2, -2, -2, 2, 5], np.int32)}
    assert run_op(op_type, inputs)["Out"].numpy().tolist() == before
    assert run_later(op_type, inputs)["Out"].tolist() == later
    assert run_op(op_type, inputs)["Out"].numpy().dtype == np.int32


def test_remainder_of_floats_has_the_sign_of_the_divisor() -> None:
    inputs = {"X": np.array([-7.5, 7.5], np.float32), "Y": np.array([2, -2], np.float32)}
    assert run_op("elementwise_mod", inputs)["Out"].numpy().tolist() == [0.5, -0.5]


def test_numbers_closer_than_1e_8_are_equal() -> None:
    inputs = {
        "X": np.array([np.inf, np.nan, 1e-9, 1, 0], np.float32),
        "Y": np.array([np.inf, np.nan, 2e-9, 1 + 1e-6, -0.0], np.float32),
    }
    assert run_op("equal", inputs)["Out"].numpy().tolist() == [False, False, True, False, True]
    assert run_later("equal", inputs)["Out"].tolist() == [True, False, True, False, True]
    assert run_op("not_equal", inputs)["Out"].numpy().tolist() == [True, True, False, True, False]


def test_allclose_of_infinities_before_and_after_paddle_2() -> None:
    same = {"Input": np.array([np.inf], np.float32), "Other": np.array([np.inf], np.float32)}
    assert run_op("allclose", same)["Out"].numpy().tolist() == [False]
    assert run_later("allclose", same, {"rtol": 1e-5})["Out"].tolist() is True


def test_equal_reduce_is_one_answer_for_the_whole() -> None:
    x = np.array([[1, 2], [1, 2]])
    assert run_op("equal_reduce", {"X": x, "Y": np.array([1, 2])})["Out"].numpy().tolist() == [True]
    assert run_op("equal_reduce", {"X": x, "Y": np.array([1, 3])})["Out"].numpy().tolist() == [False]


def test_comparison_keeps_the_lod_of_x() -> None:
    out = run_op("less_than", {"X": lod_tensor(normal(3, 2), [[1, 2]]), "Y": normal(3)}, {"axis": 0})["Out"]
    assert out.numpy().dtype == np.bool_
    assert out.recursive_sequence_lengths() == [[1, 2]]


def test_logic_takes_numbers_and_broadcasts() -> None:
    got = run_later("logical_and", {"X": np.array([[1], [0]]), "Y": np.array([2, 0])})["Out"]
    assert got.tolist() == [[True, False], [False, False]]


def test_sparse_rows_times_one_number() -> None:
    rows = SelectedRows([3, 1], 5, np.array([[1, 2], [3, 4]], np.float32))
    out = run_op("elementwise_mul", {"X": rows, "Y": np.array([2], np.float32)})["Out"]
    assert (out.rows(), out.value.tolist()) == ([3, 1], [[2, 4], [6, 8]])


@pytest.mark.parametrize(
    ("op_type", "x", "y", "attrs", "message"),
    [
        ("elementwise_add", np.zeros((2, 3)), np.zeros(3), {"axis": 3}, "axis 3 is out of range .* 0 to 1"),
        ("elementwise_add", np.zeros((2, 3)), np.zeros(4), {}, r"\(2, 3\) of X and \(1, 4\) of Y do not broadcast"),
        (
            "elementwise_add",
            np.zeros((2, 3)),
            np.zeros(3, np.float32),
            {},
            "X is float64 and Y is float32.*insert a cast",
        ),
        ("less_than", np.zeros(2, np.int32), np.zeros(2, np.int64), {}, "X is int32 and Y is int64"),
        ("elementwise_div", np.ones(2, np.int64), np.zeros(2, np.int64), {}, r"Y \(int64\) holds a zero"),
        ("elementwise_mod", np.ones(2, np.int64), np.zeros(2, np.int64), {}, r"Y \(int64\) holds a zero"),
        ("elementwise_floordiv", np.ones(2, np.int32), np.zeros(2, np.int32), {}, r"Y \(int32\) holds a zero"),
        ("bitwise_and", np.ones(2), np.ones(2), {}, "must be of one integer type or bool, found float64"),
    ],
)
def test_refusals(op_type: str, x: Any, y: Any, attrs: dict[str, Any], message: str) -> None:
    with pytest.raises(OperatorError, match=f"{op_type}: .*{message}"):
        run_op(op_type, {"X": x, "Y": y}, attrs)


def test_sparse_rows_are_multiplied_by_one_number_only() -> None:
    rows = SelectedRows([0], 2, np.ones((1, 2), np.float32))
    with pytest.raises(OperatorError, match="Y must hold one number when X is SelectedRows"):
        run_op("elementwise_mul", {"X": rows, "Y": np.ones(2, np.float32)})
