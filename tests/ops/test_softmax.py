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
