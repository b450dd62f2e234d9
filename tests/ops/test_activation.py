"""Activations and elementary functions: gradients of Paddle 2.x's, second gradients, corners, refusals."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fluidtool.errors import OperatorError
from fluidtool.ops.registry import get_op
from fluidtool.tensor import SelectedRows
from tests.support.later import run_later
from tests.support.operators import check_gradient, run_op

RNG = np.random.default_rng(11)
LATER = {
    "log2": (0.2, 3),
    "log10": (0.2, 3),
    "expm1": (-2, 2),
    "silu": (-3, 3),
    "celu": (-3, 3),
    "tan": (-1, 1),
    "sinh": (-2, 2),
    "cosh": (-2, 2),
    "asinh": (-2, 2),
    "acosh": (1.2, 3),
    "atanh": (-0.9, 0.9),
    "erfinv": (-0.9, 0.9),
    "lgamma": (0.3, 5),
    "digamma": (0.3, 5),
    "log_softmax": (-2, 2),
    "logit": (0.1, 0.9),
}


def float32(*values: Any) -> np.ndarray[Any, Any]:
    return np.array(values, np.float32)


@pytest.mark.parametrize("op_type", LATER)
def test_gradient_of_a_later_operator_agrees_with_central_differences(op_type: str) -> None:
    low, high = LATER[op_type]
    check_gradient(op_type, {"X": RNG.uniform(low, high, (2, 3))}, wrt=["X"])


@pytest.mark.parametrize("attrs", [{"groups": 2, "axis": 1}, {"groups": 2, "axis": 3}])
def test_gradient_of_maxout(attrs: dict[str, Any]) -> None:
    check_gradient("maxout", {"X": RNG.normal(size=(2, 4, 2, 4))}, wrt=["X"], attrs=attrs)


@pytest.mark.parametrize(("mode", "slopes"), [("all", (1,)), ("channel", (3,)), ("element", (1, 3, 2))])
def test_gradient_of_prelu(mode: str, slopes: tuple[int, ...]) -> None:
    x = RNG.normal(size=(2, 3, 2))
    check_gradient("prelu", {"X": x, "Alpha": RNG.uniform(0.1, 1, slopes)}, wrt=["X", "Alpha"], attrs={"mode": mode})


@pytest.mark.parametrize("op_type", ["relu", "leaky_relu"])
def test_second_gradient_by_the_gradient_of_the_output(op_type: str) -> None:
    inputs = {"Out": RNG.normal(size=(2, 3)), "Out@GRAD": RNG.normal(size=(2, 3))}
    check_gradient(f"{op_type}_grad", inputs, wrt=["Out@GRAD"])


@pytest.mark.parametrize("op_type", ["square", "elu"])
def test_second_gradient_by_the_input(op_type: str) -> None:
    inputs = {"X": RNG.normal(size=(2, 3)), "Out@GRAD": RNG.normal(size=(2, 3))}
    check_gradient(f"{op_type}_grad", inputs, wrt=["X", "Out@GRAD"])


def test_second_gradient_of_sqrt_is_given_by_its_output() -> None:
    out, dx, ddx = float32(2.0), float32(3.0), float32(5.0)
    got = run_op("sqrt_grad_grad", {"Out": out, "DX": dx, "DDX": ddx})
    assert got["DOut"].numpy().tolist() == [-7.5]
    assert got["DDOut"].numpy().tolist() == [1.25]


def test_leaky_relu_is_a_maximum_in_1_8_and_a_leak_later() -> None:
    inputs, attrs = {"X": float32(-2, 1)}, {"alpha": 2.0}
    assert run_op("leaky_relu", inputs, attrs)["Out"].numpy().tolist() == [-2, 2]
    assert run_later("leaky_relu", inputs, attrs)["Out"].tolist() == [-4, 1]


def test_round_sends_halves_to_even_in_whole_registers_and_away_from_zero_in_the_rest() -> None:
    halves = [-2.5, -1.5, -0.5, 0.5, 1.5, 2.5, 3.5]
    single = run_op("round", {"X": np.array(halves, np.float32)})["Out"].numpy()
    double = run_op("round", {"X": np.array(halves, np.float64)})["Out"].numpy()
    assert single.tolist() == [-3, -2, -1, 1, 2, 3, 4]
    assert double.tolist() == [-2, -2, 0, 0, 2, 3, 4]


def test_round_of_the_number_below_one_half_is_zero() -> None:
    assert run_op("round", {"X": float32(0.49999997)})["Out"].numpy().tolist() == [0]


@pytest.mark.parametrize(
    ("op_type", "attrs", "expected"),
    [
        ("exp", {}, [0, 0, 1, 2, 7]),
        ("abs", {}, [3, 1, 0, 1, 2]),
        ("square", {}, [9, 1, 0, 1, 4]),
        ("pow", {"factor": 1.5}, [-3, -1, 0, 1, 2]),
        ("pow", {"factor": 0.5}, [1, 1, 1, 1, 1]),
    ],
)
def test_integers_stay_integers_and_are_cut(op_type: str, attrs: dict[str, Any], expected: list[int]) -> None:
    out = run_op(op_type, {"X": np.array([-3, -1, 0, 1, 2], np.int32)}, attrs)["Out"].numpy()
    assert out.dtype == np.int32
    assert out.tolist() == expected


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("op_type", ["sigmoid", "gelu", "hard_swish", "selu", "softplus", "erf", "rsqrt", "mish"])
def test_data_type_is_kept(op_type: str, dtype: Any) -> None:
    assert run_op(op_type, {"X": np.array([0.5, 2.0], dtype)})["Out"].numpy().dtype == dtype


@pytest.mark.parametrize("op_type", ["sigmoid", "tanh", "softplus", "logsigmoid", "swish"])
def test_large_arguments_do_not_overflow(op_type: str) -> None:
    out = run_op(op_type, {"X": float32(-200, 200)})["Out"].numpy()
    assert np.isfinite(out).all()


def test_softplus_of_later_programs_has_a_slope_and_a_threshold() -> None:
    out = run_later("softplus", {"X": float32(0.5, 30)}, {"beta": 2.0, "threshold": 20.0})["Out"]
    np.testing.assert_allclose(out, [np.log1p(np.e) / 2, 30], rtol=1e-6)


def test_prelu_of_later_programs_takes_channels_last() -> None:
    x = -np.ones((1, 2, 3), np.float32)
    out = run_later("prelu", {"X": x, "Alpha": float32(1, 2, 3)}, {"mode": "channel", "data_format": "NHWC"})["Out"]
    assert out[0].tolist() == [[-1, -2, -3]] * 2


def test_sparse_rows_are_squared_in_place_of_a_tensor() -> None:
    rows = SelectedRows([3, 1, 3], 5, np.array([[1], [2], [3]], np.float32))
    out = run_op("square", {"X": rows})["Out"]
    assert (out.rows(), out.height(), out.value.tolist()) == ([3, 1, 3], 5, [[1], [4], [9]])


def test_sparse_rows_are_refused_by_most_activations() -> None:
    with pytest.raises(OperatorError, match="relu: X is SelectedRows, expected a tensor"):
        run_op("relu", {"X": SelectedRows([0], 2, np.ones((1, 1), np.float32))})


def test_integers_are_refused_where_paddle_has_no_kernel() -> None:
    with pytest.raises(OperatorError, match="sigmoid: X must be floating point, found int64; insert a cast"):
        run_op("sigmoid", {"X": np.array([1, 2])})


@pytest.mark.parametrize(
    ("shape", "attrs", "message"),
    [
        ((2, 4, 2), {"groups": 2}, r"maxout: X must have 4 dimensions, found shape \(2, 4, 2\)"),
        ((1, 4, 1, 1), {"groups": 3}, "maxout: 4 channels cannot be split into groups of 3"),
        ((1, 4, 1, 1), {"groups": 2, "axis": 2}, "maxout: axis must be 1, 3 or -1, found 2"),
    ],
)
def test_maxout_refuses(shape: tuple[int, ...], attrs: dict[str, Any], message: str) -> None:
    with pytest.raises(OperatorError, match=message):
        run_op("maxout", {"X": np.zeros(shape, np.float32)}, attrs)


@pytest.mark.parametrize(
    ("mode", "message"),
    [
        ("channel", r"Alpha of shape \(2,\) must hold 3 slopes for mode channel"),
        ("each", "mode must be all, channel or element, found 'each'"),
    ],
)
def test_prelu_refuses(mode: str, message: str) -> None:
    with pytest.raises(OperatorError, match=message):
        run_op("prelu", {"X": np.zeros((2, 3), np.float32), "Alpha": float32(1, 2)}, {"mode": mode})


def test_log_softmax_names_an_axis_out_of_range() -> None:
    with pytest.raises(OperatorError, match=r"log_softmax: axis 2 is out of range for X of shape \(2, 3\)"):
        run_op("log_softmax", {"X": np.zeros((2, 3), np.float32)}, {"axis": 2})


def test_pow_takes_one_factor_only() -> None:
    with pytest.raises(OperatorError, match=r"pow: FactorTensor must hold one number, found shape \(2,\)"):
        run_op("pow", {"X": float32(1), "FactorTensor": float32(1, 2)})


def test_sign_has_a_zero_gradient_as_a_scale() -> None:
    assert get_op("sign").maker is not None
    check_gradient("sign", {"X": np.array([-1.5, 2.0])}, wrt=["X"])
