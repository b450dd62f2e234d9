"""Operators and corners of Paddle 2 programs; every number was computed by Paddle 2.6.2."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fluidtool.errors import OperatorError
from tests.support.later import run_later


def f(*shape: int) -> np.ndarray[Any, Any]:
    return np.arange(np.prod(shape), dtype=np.float32).reshape(shape)


def ids(*values: Any) -> np.ndarray[Any, Any]:
    return np.array(values, np.int64)


Case = tuple[str, dict[str, Any], dict[str, Any], Any]

NEW: list[Case] = [
    ("flatten_contiguous_range", {"X": f(2, 1, 2)}, {"start_axis": 0, "stop_axis": 1}, [[0, 1], [2, 3]]),
    ("expand_v2", {"X": f(2, 1)}, {"shape": [2, -1, 2]}, [[[0, 0], [1, 1]]] * 2),
    ("expand_v2", {"X": np.float32(3)}, {"shape": [2]}, [3, 3]),
    ("expand_as_v2", {"X": f(2), "Y": f(2, 2)}, {"target_shape": [2, 2]}, [[0, 1], [0, 1]]),
    ("tile", {"X": f(3)}, {"repeat_times": [2, 1]}, [[0, 1, 2], [0, 1, 2]]),
    ("tile", {"X": f(1, 2)}, {"repeat_times": [2]}, [[0, 1, 0, 1]]),
    ("top_k_v2", {"X": f(2, 2)}, {"k": 1, "axis": 0, "largest": False}, [[0, 1]]),
    (
        "set_value",
        {"Input": f(3), "ValueTensor": f(2) + 5},
        {"axes": [0], "starts": [2], "ends": [-10], "steps": [-2]},
        [6, 1, 5],
    ),
    ("fill_any", {"X": f(2)}, {"value": 2.5}, [2.5, 2.5]),
    ("diag_v2", {"X": f(2)}, {"offset": 1, "padding_value": 9.0}, [[9, 0, 9], [9, 9, 1], [9, 9, 9]]),
    ("diag_v2", {"X": f(3, 4)}, {"offset": -1}, [4, 9]),
    ("diagonal", {"Input": f(2, 3, 4)}, {"offset": 1, "axis1": 1, "axis2": 2}, [[1, 6, 11], [13, 18, 23]]),
    ("fill_diagonal", {"X": f(3, 3)}, {"value": 9.0, "offset": 1}, [[0, 9, 2], [3, 4, 9], [6, 7, 8]]),
    ("repeat_interleave", {"X": f(2, 2)}, {"Repeats": 2, "dim": 1}, [[0, 0, 1, 1], [2, 2, 3, 3]]),
    ("repeat_interleave", {"X": f(2, 2), "RepeatsTensor": ids(0, 2)}, {"dim": 0}, [[2, 3], [2, 3]]),
    ("masked_select", {"X": f(2, 2), "Mask": np.array([[True, False], [False, True]])}, {}, [0, 3]),
    ("take_along_axis", {"Input": f(3, 4), "Index": ids([0, 1, 2, 0])}, {"Axis": 0}, [[0, 5, 10, 3]]),
    ("put_along_axis", {"Input": f(2, 2), "Index": ids([1, 0]), "Value": f(1, 2) + 5}, {"Axis": 0}, [[0, 6], [5, 3]]),
    (
        "put_along_axis",
        {"Input": f(3, 2) + 1, "Index": ids([0, 0], [1, 1], [0, 1]), "Value": f(3, 2) + 2},
        {"Axis": 1, "Reduce": "mul"},
        [[6, 2], [3, 80], [30, 42]],
    ),
    (
        "searchsorted",
        {"SortedSequence": f(5), "Values": np.float32([[1, 2.5], [9, -1]])},
        {"right": True},
        [[2, 3], [5, 0]],
    ),
    ("bincount", {"X": ids(1, 1, 3)}, {"minlength": 0}, [0, 2, 0, 1]),
    ("tril_indices", {}, {"rows": 2, "cols": 3, "offset": 0}, [[0, 1, 1], [0, 0, 1]]),
    ("index_add", {"X": f(2, 2), "Index": ids(0, 0), "AddValue": f(2, 2)}, {"axis": 0}, [[2, 5], [2, 3]]),
    ("channel_shuffle", {"X": f(1, 4, 1, 1)}, {"groups": 2}, [[[[0]], [[2]], [[1]], [[3]]]]),
    (
        "pad3d",
        {"X": f(1, 1, 1, 2, 2)},
        {"paddings": [1, 0, 0, 1, 0, 0], "value": 9.0},
        [[[[[9, 0, 1], [9, 2, 3], [9, 9, 9]]]]],
    ),
    (
        "pad3d",
        {"X": f(1, 1, 1, 1, 3)},
        {"paddings": [2, 1, 0, 0, 0, 0], "mode": "circular"},
        [[[[[1, 2, 0, 1, 2, 0]]]]],
    ),
]

CHANGED: list[Case] = [
    ("squeeze2", {"X": f(2, 1)}, {"axes": [0]}, [[0], [1]]),
    ("slice", {"Input": f(3)}, {"axes": [0], "starts": [1], "ends": [2], "decrease_axis": [0]}, 1),
    ("slice", {"Input": f(3)}, {"axes": [0], "starts": [2], "ends": [2]}, []),
    ("slice", {"Input": f(3)}, {"axes": [0], "starts": [5], "ends": [9]}, []),
    ("strided_slice", {"Input": f(5)}, {"axes": [0], "starts": [4], "ends": [0], "strides": [-2]}, [4, 2]),
    ("strided_slice", {"Input": f(5)}, {"axes": [0], "starts": [-1], "ends": [-10], "strides": [-1]}, [4, 3, 2, 1]),
    ("strided_slice", {"Input": f(5)}, {"axes": [0], "starts": [2], "ends": [2], "strides": [1]}, []),
    ("arg_max", {"X": f(5, 2)}, {"axis": 0, "flatten": True}, 9),
    ("arg_max", {"X": f(5, 2)}, {"axis": 0, "flatten": True, "keepdims": True}, [[9]]),
    ("gather", {"X": f(3, 4), "Index": ids(0, 2), "Axis": ids(1)}, {"axis": 0}, [[0, 2], [4, 6], [8, 10]]),
    ("gather", {"X": f(3, 4), "Index": np.array(1)}, {"axis": 1}, [1, 5, 9]),
    ("roll", {"X": f(2, 2)}, {"shifts": [1], "axis": []}, [[3, 0], [1, 2]]),
    ("roll", {"X": f(2, 2), "ShiftsTensor": ids(1)}, {"shifts": [0], "axis": [1]}, [[1, 0], [3, 2]]),
    ("flip", {"X": f(2, 2)}, {"axis": [0, -1]}, [[3, 2], [1, 0]]),
    ("trace", {"Input": f(3, 4)}, {"axis1": 0, "axis2": 1}, 15),
    ("linspace", {"Start": f(1), "Stop": f(1) + 10, "Num": ids(4)}, {"dtype": 3}, [0, 3, 6, 10]),
    ("size", {"Input": f(2, 2)}, {}, 4),
    ("pixel_shuffle", {"X": f(1, 1, 1, 4)}, {"upscale_factor": 2, "data_format": "NHWC"}, [[[[0], [1]], [[2], [3]]]]),
    ("assign_value", {}, {"shape": [2], "dtype": 6, "fp64_values": [1.5, 2.5]}, [1.5, 2.5]),
    ("fill_constant", {}, {"shape": [], "dtype": 5, "value": 1.0}, 1),
    ("fill_constant", {}, {"shape": [1], "dtype": 3, "str_value": "1e3"}, [1000]),
]


@pytest.mark.parametrize(
    ("op_type", "inputs", "attrs", "expected"), NEW + CHANGED, ids=[f"{c[0]}-{i}" for i, c in enumerate(NEW + CHANGED)]
)
def test_the_first_output(op_type: str, inputs: dict[str, Any], attrs: dict[str, Any], expected: Any) -> None:
    out = next(iter(run_later(op_type, inputs, attrs).values()))
    assert out.tolist() == expected


def test_a_share_of_right_answers_has_no_dimensions() -> None:
    inputs = {"Out": f(2, 1), "Indices": ids([0], [1]), "Label": ids([0], [0])}
    out = run_later("accuracy", inputs)
    assert [(out[slot].shape, out[slot].tolist()) for slot in ("Accuracy", "Correct", "Total")] == [
        ((), 0.5),
        ((), 1),
        ((), 2),
    ]


def test_set_value_writes_numbers_into_one_element() -> None:
    attrs = {"axes": [0, 1], "starts": [0, 1], "ends": [1, 2], "steps": [1, 1], "decrease_axes": [0, 1]}
    for name in ("values", "fp32_values"):
        out = run_later("set_value", {"Input": f(2, 2)}, {**attrs, "shape": [1], name: [7.0]})["Out"]
        assert out.tolist() == [[0, 7], [2, 3]]


def test_set_value_takes_its_range_from_tensors() -> None:
    inputs = {"Input": f(3, 2), "ValueTensor": f(2) + 5}
    inputs |= {"StartsTensorList": [ids(1)], "EndsTensorList": [ids(2)], "StepsTensorList": [ids(1)]}  # type: ignore[dict-item]
    out = run_later("set_value", inputs, {"axes": [0], "decrease_axes": [0]})["Out"]
    assert out.tolist() == [[0, 1], [5, 6], [4, 5]]


def test_sorted_unique_numbers_with_everything_about_them() -> None:
    attrs = {
        "dtype": 3,
        "is_sorted": True,
        "return_index": True,
        "return_inverse": True,
        "return_counts": True,
        "axis": [],
    }
    out = run_later("unique", {"X": ids(2, 3, 3, 1, 5, 3)}, attrs)
    assert out["Out"].tolist() == [1, 2, 3, 5]
    assert out["Index"].tolist() == [1, 2, 2, 0, 3, 2]


def test_unique_rows_in_a_row() -> None:
    out = run_later("unique_consecutive", {"X": ids([2, 3], [2, 3], [1, 1])}, {"axis": [0], "dtype": 3})
    assert out["Out"].tolist() == [[2, 3], [1, 1]]
    assert out["Index"].tolist() == [0, 0, 1]
    assert out["Counts"].tolist() == [2, 1]


def test_the_k_th_smallest_number() -> None:
    x = np.float32([[3, 1, 2, 4], [9, 8, 6, 7]])
    out = run_later("kthvalue", {"X": x}, {"k": 2, "axis": -1})
    assert (out["Out"].tolist(), out["Indices"].tolist()) == ([2, 7], [2, 3])
    kept = run_later("kthvalue", {"X": x}, {"k": 2, "axis": 0, "keepdim": True})
    assert kept["Indices"].tolist() == [[1, 1, 1, 1]]


def test_the_most_frequent_number_is_the_smallest_of_several_and_the_last_of_its_kind() -> None:
    x = np.float32([[3, 1, 2, 2], [9, 8, 8, 7], [1, 1, 3, 3]])
    out = run_later("mode", {"X": x}, {"axis": -1})
    assert (out["Out"].tolist(), out["Indices"].tolist()) == ([2, 8, 1], [3, 2, 1])


def test_complex_numbers() -> None:
    made = run_later("as_complex", {"X": f(2, 2)})["Out"]
    assert made.dtype == np.complex64
    assert made.tolist() == [1j, 2 + 3j]
    assert run_later("as_real", {"X": made})["Out"].tolist() == [[0, 1], [2, 3]]
    assert run_later("conj", {"X": made})["Out"].tolist() == [-1j, 2 - 3j]
    assert run_later("complex", {"X": f(2), "Y": f(2)})["Out"].tolist() == [0, 1 + 1j]
    assert run_later("imag", {"X": made})["Out"].dtype == np.float32


def test_elements_put_at_index_tensors() -> None:
    inputs = {"x": f(2, 3), "indices": [ids(0, -1), ids(0, 2)], "value": f(2) + 9}
    assert run_later("index_put", inputs)["out"].tolist() == [[9, 1, 2], [3, 4, 10]]


def test_stacked_numbers_without_dimensions_make_a_vector() -> None:
    assert run_later("stack", {"X": [np.float32(1), np.float32(2)]}, {"axis": 0})["Y"].tolist() == [1, 2]


SIGNALS: list[Case] = [
    ("frame", {"X": f(5)}, {"frame_length": 3, "hop_length": 2, "axis": -1}, [[0, 2], [1, 3], [2, 4]]),
    ("frame", {"X": f(5)}, {"frame_length": 3, "hop_length": 2, "axis": 0}, [[0, 1, 2], [2, 3, 4]]),
    ("overlap_add", {"X": f(2, 2)}, {"hop_length": 1, "axis": -1}, [0, 3, 3]),
    ("histogram", {"X": ids(1, 2, 1)}, {"bins": 4, "min": 0, "max": 3}, [0, 2, 1, 0]),
    ("fft_r2c", {"X": np.float32([1, 0, 0, 0])}, {"axes": [0]}, [1, 1, 1]),
    ("fft_c2r", {"X": np.complex64([1, 1, 1])}, {"axes": [0], "forward": False, "last_dim_size": 4}, [1, 0, 0, 0]),
    ("fill_diagonal_tensor", {"X": f(2, 2), "Y": f(2) + 5}, {"dim1": 0, "dim2": 1}, [[5, 1], [2, 6]]),
    ("pixel_unshuffle", {"X": f(1, 1, 2, 2)}, {"downscale_factor": 2}, [[[[0]], [[1]], [[2]], [[3]]]]),
]


@pytest.mark.parametrize(
    ("op_type", "inputs", "attrs", "expected"), SIGNALS, ids=[f"{c[0]}-{i}" for i, c in enumerate(SIGNALS)]
)
def test_signals(op_type: str, inputs: dict[str, Any], attrs: dict[str, Any], expected: Any) -> None:
    out = next(iter(run_later(op_type, inputs, attrs).values()))
    assert out.tolist() == expected


def test_a_short_time_transform_is_that_of_its_frames() -> None:
    x, window = f(1, 9), np.float32([1, 2, 2, 1])
    out = run_later("stft", {"X": x, "Window": window}, {"n_fft": 4, "hop_length": 2})["Out"]
    frames = run_later("frame", {"X": x}, {"frame_length": 4, "hop_length": 2, "axis": -1})["Out"]
    expected = np.fft.rfft(frames * window[:, None], axis=1)
    assert out.dtype == np.complex64
    np.testing.assert_allclose(out, expected, rtol=1e-5, atol=1e-5)


def test_a_frame_longer_than_the_signal_is_refused() -> None:
    with pytest.raises(OperatorError, match="frame: frame_length must be positive and not above the length 5"):
        run_later("frame", {"X": f(5)}, {"frame_length": 6, "hop_length": 1})
