"""Operators between `quantize` and `dequantize`, as MKL-DNN computes them; every number was computed by Paddle 1.8.5."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fluidtool.errors import OperatorError
from tests.support.operators import run_op

IMAGE = np.float32([[[[-3, 1.3], [0.4, 2]], [[1, -0.7], [2.2, -1.1]]]])
FILTER = np.float32([[[[1]], [[-0.5]]], [[[0.25]], [[2]]]])
BIAS = np.float32([0.33, -0.77])
RESIDUAL = np.float32([[[[1, 2], [3, 4]], [[-1, -2], [-3, -4]]]])
ROWS = np.float32([[-3, 1.3, 0.4], [2, 1, -0.7]])
WEIGHTS = np.float32([[1, -0.5], [0.25, 2], [-1, 0.1]])
SCALES: dict[str, Any] = {"Scale_in": 40.0, "Scale_weights": [100.0, 50.0], "Scale_out": 10.0}


def of_8_bits(values: Any, scale: float) -> Any:
    return run_op("quantize", {"Input": values}, {"Scale": scale, "is_negative_input": True})["Output"].numpy()


def check(op_type: str, inputs: dict[str, Any], attrs: dict[str, Any], kind: str, expected: Any) -> None:
    (got,) = (value.numpy() for slot, value in run_op(op_type, inputs, attrs).items() if slot in ("Output", "Out"))
    assert got.dtype.name == kind
    np.testing.assert_allclose(got, expected, rtol=1e-6, atol=0)


@pytest.mark.parametrize(
    ("more", "attrs", "kind", "expected"),
    [
        ({}, {}, "int8", [[[-35, 16], [-7, 26]], [[13, -11], [45, -17]]]),
        ({"Bias": BIAS}, {"fuse_activation": "relu"}, "uint8", [[[0, 20], [0, 29]], [[5, 0], [37, 0]]]),
        (
            {"Bias": BIAS},
            {"force_fp32_output": True},
            "float32",
            [[[-3.17, 1.98], [-0.37, 2.88]], [[0.51, -1.858], [3.726, -2.49]]],
        ),
        (
            {"ResidualData": of_8_bits(RESIDUAL, 20)},
            {"fuse_residual_connection": True, "Scale_in_eltwise": 20.0},
            "int8",
            [[[-25, 36], [23, 66]], [[3, -31], [15, -57]]],
        ),
    ],
)
def test_convolution(more: dict[str, Any], attrs: dict[str, Any], kind: str, expected: Any) -> None:
    check("conv2d", {"Input": of_8_bits(IMAGE, 40), "Filter": FILTER, **more}, SCALES | attrs, kind, [expected])


@pytest.mark.parametrize(
    ("attrs", "kind", "expected"),
    [
        ({"activation_type": "relu"}, "uint8", [[0, 34], [33, 2]]),
        ({"force_fp32_output": True}, "float32", [[-2.745, 3.37], [3.28, 0.16]]),
    ],
)
def test_fc(attrs: dict[str, Any], kind: str, expected: Any) -> None:
    check("fc", {"Input": of_8_bits(ROWS, 40), "W": WEIGHTS, "Bias": BIAS}, SCALES | attrs, kind, expected)


def test_matmul() -> None:
    attrs = {"Scale_x": 40.0, "Scale_y": 50.0, "Scale_out": 10.0, "alpha": 0.5}
    check("matmul", {"X": of_8_bits(ROWS, 40), "Y": of_8_bits(WEIGHTS, 50)}, attrs, "int8", [[-15, 21], [15, 5]])


@pytest.mark.parametrize(
    ("attrs", "kind", "expected"),
    [
        ({"scale_out": 10.0}, "int8", [[-31, 41], [29, 9]]),
        ({"force_fp32_output": True}, "float32", [[-3.088, 4.14], [2.94, 0.93]]),
    ],
)
def test_mul(attrs: dict[str, Any], kind: str, expected: Any) -> None:
    scales = {"scale_x": 40.0, "scale_y": [50.0]}
    check("mul", {"X": of_8_bits(ROWS, 40), "Y": WEIGHTS}, scales | attrs, kind, expected)


@pytest.mark.parametrize("scale", [[0.0], [1.0, 2.0, 3.0]])
def test_scales_of_mul_that_do_not_fit_are_refused(scale: list[float]) -> None:
    with pytest.raises(OperatorError, match="scale_y one or 2 numbers, none of them 0; found"):
        run_op("mul", {"X": of_8_bits(ROWS, 40), "Y": WEIGHTS}, {"scale_x": 40.0, "scale_y": scale})


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("max", [[[-30, 13, 13], [4, 20, 20], [4, 20, 20]], [[10, 10, -7], [22, 22, -7], [22, 22, -11]]]),
        ("avg", [[[-30, -8, 13], [-13, 2, 16], [4, 12, 20]], [[10, 2, -7], [16, 4, -9], [22, 6, -11]]]),
    ],
)
def test_pooling_knows_no_paddings(kind: str, expected: Any) -> None:
    attrs = {"pooling_type": kind, "ksize": [2, 2], "strides": [1, 1], "paddings": [1, 1]}
    check("pool2d", {"X": of_8_bits(IMAGE, 10)}, attrs, "int8", [expected])


@pytest.mark.parametrize(
    ("attrs", "message"),
    [
        ({"Scale_weights": [1.0, 2.0, 3.0]}, "Scale_weights must hold 1 or 2 numbers, found 3"),
        ({"Scale_weights": [1.0, 0.0]}, "Scale_in and Scale_weights must not be 0"),
    ],
)
def test_scales_that_do_not_fit_are_refused(attrs: dict[str, Any], message: str) -> None:
    with pytest.raises(OperatorError, match=f"operator conv2d: .*{message}"):
        run_op("conv2d", {"Input": of_8_bits(IMAGE, 40), "Filter": FILTER}, SCALES | attrs)
