"""softmax: what the golden cases do not say."""

import numpy as np
import pytest

from fluidtool.errors import OperatorError
from tests.support.operators import check_gradient, run_op


def test_gradient_agrees_with_central_differences() -> None:
    x = np.random.default_rng(0).normal(size=(2, 3, 4))
    check_gradient("softmax", {"X": x}, wrt=["X"], attrs={"axis": 1})


def test_axis_out_of_range_is_named() -> None:
    with pytest.raises(OperatorError, match=r"softmax: axis 3 is out of range for X of shape \(2, 3\)"):
        run_op("softmax", {"X": np.zeros((2, 3), np.float32)}, {"axis": 3})


@pytest.mark.parametrize(("op_type", "expected"), [("softmax", 1.0), ("log_softmax", 0.0)])
@pytest.mark.parametrize("axis", [-1, 0])
def test_a_single_number_has_the_axes_of_one_dimension(op_type: str, expected: float, axis: int) -> None:
    out = run_op(op_type, {"X": np.float32(3)}, {"axis": axis})["Out"].numpy()
    assert (out.shape, out.item()) == ((), expected)
    with pytest.raises(OperatorError, match=f"{op_type}: axis 1 is out of range"):
        run_op(op_type, {"X": np.float32(3)}, {"axis": 1})


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_no_probability_is_zero(dtype: str) -> None:
    """The numbers of real Paddle 1.8.5: what is more than 64 below the largest counts as 64 below."""
    x = np.array([[0, -10, -63, -65, -200, 5]], dtype)
    expected = [6.692848633974791e-03, 3.038548470613023e-07, *[1.5930762869236508e-28] * 3, 0.9933068156242371]
    np.testing.assert_allclose(np.asarray(run_op("softmax", {"X": x})["Out"])[0], expected, rtol=5e-7)
    logarithms = np.asarray(run_op("log_softmax", {"X": x})["Out"])[0]
    np.testing.assert_allclose(logarithms, np.log(expected), rtol=2e-6, atol=1e-7)


def test_numbers_that_are_none_stay() -> None:
    assert np.isnan(np.asarray(run_op("softmax", {"X": np.array([[1.0, np.nan]])})["Out"])).all()
