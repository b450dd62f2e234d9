"""Quantisation: rounding as in Paddle 1.8.5 and 2.6.2, running scales, and refusals."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fluidtool.errors import OperatorError
from tests.support.later import run_later
from tests.support.operators import OneOp, run_op


def single(*values: Any) -> np.ndarray[Any, Any]:
    return np.array(values, np.float32)


HALVES = single(0.5, 1.5, 2.5, -0.5, -1.5, 127)


@pytest.mark.parametrize(
    ("attrs", "expected"),
    [
        ({}, [0, 2, 2, 0, -2, 127]),
        ({"round_type": 0}, [0, 2, 2, 0, -2, 127]),
        ({"round_type": 1}, [1, 2, 3, -1, -2, 127]),
    ],
)
def test_ties_go_to_even_or_as_round_type_says(attrs: dict[str, Any], expected: list[float]) -> None:
    out = run_op("fake_quantize_abs_max", {"X": HALVES}, attrs)
    assert out["Out"].numpy().tolist() == expected
    assert out["OutScale"].numpy().tolist() == [127]


def linear(x: Any, scale: Any, **attrs: Any) -> list[Any]:
    inputs = {"X": x, "Scale": scale, "ZeroPoint": single(0)}
    found: list[Any] = run_op("quantize_linear", inputs, attrs, fetch=["Y"])["Y"].numpy().tolist()
    return found


def test_quantize_linear_lets_minus_128_through_with_ties_to_even() -> None:
    x = single(-200, 200, 1.5)
    assert linear(x, single(127), quant_axis=-1) == [-128, 127, 2]
    assert linear(x, single(127), quant_axis=-1, round_type=1) == [-127, 127, 2]


def test_quantize_linear_has_a_scale_per_channel() -> None:
    x = single([1, 1], [2, 2])
    assert linear(x, single(127, 254), quant_axis=0, round_type=1) == [[1, 1], [1, 1]]
    assert linear(x, single(127, 254), quant_axis=1, round_type=1) == [[1, 1], [2, 1]]


def test_dequantize_linear_takes_int8() -> None:
    inputs = {"X": np.array([[127, -127], [64, 1]], np.int8), "Scale": single(2, 4), "ZeroPoint": single(0)}
    out = run_op("dequantize_linear", inputs, {"quant_axis": 0}, fetch=["Y"])["Y"].numpy()
    assert out.dtype == np.float32
    np.testing.assert_allclose(out, single([2, -2], [256 / 127, 4 / 127]), rtol=1e-6)


def test_a_tensor_of_zeros_stays_zero() -> None:
    for op in ("fake_quantize_abs_max", "fake_quantize_dequantize_abs_max"):
        assert run_op(op, {"X": np.zeros(3, np.float32)})["Out"].numpy().tolist() == [0, 0, 0]


def test_the_moving_average_decays() -> None:
    inputs = {"X": single(-4, 2), "InScale": single(1), "InAccum": single(3), "InState": single(1)}
    out = run_op("fake_quantize_dequantize_moving_average_abs_max", inputs, {"moving_rate": 0.5})
    assert [out[slot].numpy()[0] for slot in ("OutState", "OutAccum")] == [1.5, 5.5]
    assert out["OutScale"].numpy() == pytest.approx([5.5 / 1.5])
    np.testing.assert_allclose(
        out["Out"].numpy(), [-5.5 / 1.5, round(2 * 127 * 1.5 / 5.5) * 5.5 / 1.5 / 127], rtol=1e-6
    )


def test_the_range_scale_is_the_largest_of_its_window() -> None:
    inputs = {"X": single(3), "InScale": single(2), "Iter": np.array([5])}
    out = run_op("fake_quantize_range_abs_max", inputs, {"window_size": 4})
    assert out["OutScale"].numpy().tolist() == [3]
    assert out["OutScales"].numpy().tolist() == [0, 3, 0, 0]


def test_testing_leaves_the_scales_alone() -> None:
    inputs = {"X": single(3), "InScale": single(3)}
    out = OneOp("fake_quantize_range_abs_max", inputs, {"is_test": True}).run(fetch=["Out0@out", "OutScale0@out"])
    assert out[0].numpy().tolist() == [127]
    assert not out[1].is_initialized()


def test_the_gradient_passes_rounding_by() -> None:
    one = OneOp("stright_throuth_estimator_grad", {"Out@GRAD": single(1, 2)})
    assert one.run(fetch=["X@GRAD0@out"])[0].numpy().tolist() == [1, 2]


def test_dequantize_log_mirrors_negative_codes() -> None:
    table = np.arange(128, dtype=np.float32)
    out = run_op("dequantize_log", {"X": np.array([5, -123, -128], np.int8), "Dict": table})["Out"].numpy()
    assert out.tolist() == [5, -5, 0]


MATRIX = single([1, 2], [3, 4])


@pytest.mark.parametrize(
    ("op", "inputs", "attrs", "message"),
    [
        ("fake_quantize_abs_max", {"X": MATRIX}, {"bit_length": 17}, r"bit_length must be between 1 and 16, found 17"),
        ("fake_quantize_abs_max", {"X": MATRIX[:0]}, {}, r"X must not be empty"),
        (
            "fake_quantize_moving_average_abs_max",
            {"X": MATRIX, "InScale": MATRIX},
            {},
            r"needs the inputs InAccum and InState",
        ),
        ("fake_quantize_range_abs_max", {"X": MATRIX, "InScale": MATRIX}, {}, r"needs the input Iter"),
        (
            "fake_channel_wise_quantize_dequantize_abs_max",
            {"X": MATRIX},
            {"quant_axis": 2},
            r"quant_axis must be 0 or 1",
        ),
        (
            "fake_channel_wise_dequantize_max_abs",
            {"X": MATRIX, "Scales": [single(1)]},
            {},
            r"must hold 2 numbers, one per",
        ),
        (
            "fake_dequantize_max_abs",
            {"X": MATRIX, "Scale": MATRIX},
            {"max_range": 0.0},
            r"max_range must not be 0, found 0.0",
        ),
        ("dequantize_log", {"X": np.array([1], np.int8), "Dict": MATRIX}, {}, r"Dict must hold 128 numbers"),
    ],
)
def test_refusals_name_the_operator_and_what_is_wrong(
    op: str, inputs: dict[str, Any], attrs: dict[str, Any], message: str
) -> None:
    with pytest.raises(OperatorError, match=f"operator {op}: .*{message}"):
        run_op(op, inputs, attrs)


# ---------------------------------------------------------------- 8 bits, numbers of Paddle 1.8.5 and 2.6.2
VALUES = np.float32([[-3, -1.5, -1.25, -0.75, -0.25, 0, 0.25, 0.5, 0.75, 1.25, 1.5, 2.5, 3, 100]])
SIGNED = np.array([[-128, -5, 0, 7, 5, 127]], np.int8)
UNSIGNED = np.array([[0, 5, 200, 255]], np.uint8)


@pytest.mark.parametrize(
    ("attrs", "kind", "expected"),
    [
        ({"is_negative_input": True}, "int8", [-6, -3, -2, -2, 0, 0, 0, 1, 2, 2, 3, 5, 6, 127]),
        ({"is_negative_input": False}, "uint8", [0, 0, 0, 0, 0, 0, 0, 1, 2, 2, 3, 5, 6, 200]),
        ({"is_negative_input": True, "Shift": 3.0}, "uint8", [0, 0, 0, 2, 2, 3, 4, 4, 4, 6, 6, 8, 9, 203]),
        ({"Shift": 128.0}, "uint8", [122, 125, 126, 126, 128, 128, 128, 129, 130, 130, 131, 133, 134, 255]),
    ],
)
def test_quantize_rounds_halves_to_even_and_saturates(attrs: dict[str, Any], kind: str, expected: list[int]) -> None:
    got = run_later("quantize", {"Input": VALUES}, {"Scale": 2.0, **attrs})["Output"]
    assert (got.dtype.name, got.tolist()) == (kind, [expected])


def test_dequantize_multiplies_by_the_reciprocal() -> None:
    assert run_op("dequantize", {"Input": SIGNED}, {"Scale": 2.0})["Output"].numpy().tolist() == [
        [-64, -2.5, 0, 3.5, 2.5, 63.5]
    ]
    got = run_op("dequantize", {"Input": UNSIGNED}, {"Scale": 3.0})["Output"].numpy()
    assert got.tolist() == [[0.0, 1.6666667461395264, 66.66667175292969, 85.0]]
    got = run_later("dequantize", {"Input": UNSIGNED}, {"Scale": 2.0, "Shift": 128.0})["Output"]
    assert got.tolist() == [[-64, -61.5, 36, 63.5]]


@pytest.mark.parametrize(
    ("values", "scales", "expected"),
    [
        (SIGNED, (2, 3), [-128, -8, 0, 10, 8, 127]),
        (SIGNED, (3, 1), [-43, -2, 0, 2, 2, 42]),
        (UNSIGNED, (2, 3), [0, 8, 255, 255]),
    ],
)
def test_requantize_stays_in_its_8_bits(values: Any, scales: tuple[int, int], expected: list[int]) -> None:
    attrs = {"Scale_in": float(scales[0]), "Scale_out": float(scales[1])}
    got = run_op("requantize", {"Input": values}, attrs)["Output"].numpy()
    assert (got.dtype, got.tolist()) == (values.dtype, [expected])


@pytest.mark.parametrize(
    ("op_type", "values", "attrs", "message"),
    [
        ("quantize", VALUES, {"Scale": 0.0}, "Scale must not be 0"),
        ("quantize", VALUES.astype(np.float64), {}, "must be float32, found float64"),
        ("quantize", VALUES, {"bfloat16": True}, "bfloat16 is not supported"),
        ("dequantize", UNSIGNED, {"Scale": 0.0}, "Scale must not be 0"),
        ("dequantize", VALUES, {}, "must be int8 or uint8, found float32"),
        ("requantize", VALUES, {}, "must be int8 or uint8, found float32"),
        ("requantize", UNSIGNED, {"Scale_in": 0.0}, "Scale_in must not be 0"),
        ("requantize", UNSIGNED, {"Shift_in": 1.0}, "Shift_in and Shift_out are not supported"),
    ],
)
def test_what_8_bits_cannot_hold_is_refused(op_type: str, values: Any, attrs: dict[str, Any], message: str) -> None:
    with pytest.raises(OperatorError, match=f"operator {op_type}: .*{message}"):
        run_later(op_type, {"Input": values}, attrs)
