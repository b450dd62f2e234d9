"""Operators that ONNX lacks in older opsets or for sizes known only at run time, put together from others."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.onnx_export.support import OneOperator, check, require_onnx

require_onnx()

RNG = np.random.default_rng(7)


def floats(*shape: int) -> Any:
    return RNG.uniform(-1, 1, shape).astype("float32")


@pytest.mark.parametrize("opset", [13, 17, 20])
@pytest.mark.parametrize("corners", [False, True])
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("mode", ["bilinear", "nearest"])
@pytest.mark.parametrize("sizes", [(5, 4), (3, 5, 4)])
def test_samples_of_a_grid(sizes: tuple[int, ...], mode: str, padding: str, corners: bool, opset: int) -> None:
    x, grid = floats(2, 3, *sizes), floats(2, *(n + 1 for n in sizes), len(sizes)) * 1.7
    attrs = {"mode": mode, "padding_mode": padding, "align_corners": corners}
    check(OneOperator("grid_sampler", {"X": x, "Grid": grid}, attrs), opset, rtol=1e-5)


def test_deformable_convolutions_before_opset_16() -> None:
    inputs = {"Input": floats(2, 4, 6, 5), "Offset": floats(2, 18, 6, 5) * 2, "Mask": floats(2, 9, 6, 5)}
    one = OneOperator("deformable_conv", {**inputs, "Filter": floats(3, 4, 3, 3)}, {"paddings": [1, 1]})
    check(one, 13, rtol=1e-5)


@pytest.mark.parametrize("opset", [13, 17, 18])
@pytest.mark.parametrize("dtype", ["uint8", "int8", "int32", "int64"])
@pytest.mark.parametrize("type", ["bitwise_and", "bitwise_or", "bitwise_xor"])
def test_operations_on_bits(type: str, dtype: str, opset: int) -> None:
    ends = np.iinfo(dtype)
    x, y = (RNG.integers(ends.min, ends.max, 9, dtype=dtype, endpoint=True) for _ in range(2))
    x[:2], y[:2] = [ends.min, ends.max], [ends.max, ends.min]
    check(OneOperator(type, {"X": x, "Y": y}), opset)


@pytest.mark.parametrize("counts", [[2, 4], [3, 3], [7, 1]])
def test_places_of_maxima_in_windows_of_different_sizes(counts: list[int]) -> None:
    attrs = {"ksize": counts, "adaptive": True}
    check(OneOperator("max_pool2d_with_index", {"X": floats(2, 3, 7, 9)}, attrs, {"Out": 1, "Mask": 1}))


SIZES_AT_RUN_TIME: list[tuple[str, dict[str, Any], dict[str, Any], dict[str, list[int]]]] = [
    ("unfold", {"X": floats(2, 3, 7, 6)},
     {"kernel_sizes": [3, 2], "strides": [2, 1], "paddings": [1, 0, 2, 1], "dilations": [1, 2]}, {"X": [-1, 3, -1, -1]}),
    ("conv2d_transpose", {"Input": floats(2, 3, 5, 4), "Filter": floats(3, 4, 3, 2)},
     {"strides": [2, 3], "paddings": [1, 1], "output_size": [10, 11]}, {"Input": [-1, 3, -1, -1]}),
    ("squeeze2", {"X": floats(1, 3, 1, 2)}, {"axes": []}, {"X": [1, -1, -1, 2]}),
    ("im2sequence", {"X": floats(1, 3, 7, 6)}, {"kernels": [3, 2], "strides": [2, 1], "paddings": [1, 0, 2, 1]},
     {"X": [1, 3, -1, -1]}),
]  # fmt: skip


@pytest.mark.parametrize("row", SIZES_AT_RUN_TIME, ids=lambda row: row[0])
def test_sizes_known_only_at_run_time(row: tuple[str, Any, Any, Any]) -> None:
    type, inputs, attrs, declared = row
    outputs = {"Out": 1} if type == "squeeze2" else {}
    check(OneOperator(type, inputs, attrs, outputs, declared=declared), rtol=1e-5)


def test_bicubic_samples_need_grid_sample() -> None:
    one = OneOperator("grid_sampler", {"X": floats(1, 1, 4, 4), "Grid": floats(1, 2, 2, 2)}, {"mode": "bicubic"})
    (blocker,) = one.export(13).blockers
    assert blocker.reason == "the mode bicubic needs opset 16"
