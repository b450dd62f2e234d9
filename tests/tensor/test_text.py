"""str(LoDTensor) is Paddle's text."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fluidtool.tensor import LoDTensor


def text(array: Any, offsets: Any = None) -> list[str]:
    return str(LoDTensor(np.asarray(array), offsets)).split("\n")


def test_a_tensor_with_sequences() -> None:
    assert text(np.zeros((5, 1)), [[0, 2, 5]]) == [
        "\tlod: {{0, 2, 5}}",
        "\tdim: 5, 1",
        "\tlayout: NCHW",
        "\tdtype: double",
        "\tdata: [0 0 0 0 0]",
        "",
    ]


def test_levels_stand_side_by_side() -> None:
    assert text(np.zeros((3, 1)), [[0, 2], [0, 1, 3]])[0] == "\tlod: {{0, 2}{0, 1, 3}}"


@pytest.mark.parametrize(
    ("array", "kind", "data"),
    [
        (np.array([1.5, 1 / 7, 1e-8, 1e10, np.nan, np.inf], "float32"), "float", "1.5 0.142857 1e-08 1e+10 nan inf"),
        (np.array([True, False]), "bool", "1 0"),
        (np.array([1, -2], "int32"), "int", "1 -2"),
        (np.array([2**62], "int64"), "int64_t", "4611686018427387904"),
        (np.zeros((0, 3), "float32"), "float", ""),
    ],
)
def test_numbers_have_six_digits(array: Any, kind: str, data: str) -> None:
    assert text(array)[3:5] == [f"\tdtype: {kind}", f"\tdata: [{data}]"]


def test_a_tensor_without_memory() -> None:
    assert str(LoDTensor()) == "LoDTensor(no memory, dims=(0,))"
