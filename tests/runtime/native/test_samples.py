"""Deformable convolutions and products of few rows: native kernels give numpy's numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fluidtool.errors import OperatorError
from tests.runtime.native.test_operator_kernels import agree, counted, outputs_of

pytestmark = pytest.mark.usefixtures("native")
few = settings(max_examples=60, deadline=None)


def deformable(images: int, groups: int, moved: int, size: tuple[int, int], reach: float, seed: int) -> dict[str, Any]:
    """The inputs of a 3 x 2 kernel, padded by one; some cells are moved far outside."""
    random = np.random.default_rng(seed)

    def floats(*shape: int) -> Any:
        return random.standard_normal(shape).astype(np.float32)

    channels, (height, width) = 2 * groups * moved, size
    windows = height, width + 1
    return {
        "Input": floats(images, channels, height, width),
        "Offset": np.float32(reach) * floats(images, 12 * moved, *windows),
        "Mask": floats(images, 6 * moved, *windows),
        "Filter": floats(3 * groups, channels // groups, 3, 2),
    }


@few
@given(
    st.integers(1, 2),
    st.integers(1, 2),
    st.integers(1, 2),
    st.tuples(st.integers(1, 9), st.integers(1, 11)),
    st.sampled_from([0.0, 0.5, 6.0]),
    st.booleans(),
    st.integers(0, 99),
)
def test_deformable_convolution(
    images: int, groups: int, moved: int, size: tuple[int, int], reach: float, masked: bool, seed: int
) -> None:
    feeds = deformable(images, groups, moved, size, reach, seed)
    type = "deformable_conv" if masked else "deformable_conv_v1"
    if not masked:
        del feeds["Mask"]
    attrs = {"paddings": [1, 1], "groups": groups, "deformable_groups": moved}
    agree(type, feeds, ["Output"], scale=10.0, **attrs)


def test_deformable_convolutions_are_answered_but_for_offsets_that_are_no_numbers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    answered = counted(monkeypatch, "deformable_conv")
    feeds = deformable(2, 2, 2, (30, 20), 1.0, 0)
    attrs = {"paddings": [1, 1], "groups": 2, "deformable_groups": 2}
    agree("deformable_conv", feeds, ["Output"], scale=10.0, **attrs)
    feeds["Offset"][0, 0, 0, 0] = np.nan
    outputs_of("deformable_conv", feeds, ["Output"], "native", **attrs)
    assert answered == [True, False]


@few
@given(st.integers(2, 16), st.integers(256, 300), st.integers(256, 400), st.integers(0, 99))
def test_mul_of_few_rows(rows: int, depth: int, columns: int, seed: int) -> None:
    random = np.random.default_rng(seed)
    x, y = (random.standard_normal(shape).astype(np.float32) for shape in ((rows, depth), (depth, columns)))
    agree("mul", {"X": x, "Y": y}, ["Out"], scale=depth**0.5)


def test_mul_of_few_rows_cut_among_threads_is_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    answered = counted(monkeypatch, "mul")
    random = np.random.default_rng(0)
    x, y = (random.standard_normal(shape).astype(np.float32) for shape in ((1, 3, 10, 20), (200, 7, 300)))
    agree("mul", {"X": x, "Y": y}, ["Out"], scale=10.0, x_num_col_dims=2, y_num_col_dims=1)
    assert answered == [True]


@pytest.mark.parametrize(("rows", "depth", "columns"), [(1, 256, 256), (7, 256, 256), (4, 100, 100), (2, 2049, 64)])
def test_mul_of_one_row_of_four_to_seven_or_by_a_small_or_deep_matrix_is_left_to_numpy(
    rows: int, depth: int, columns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    answered = counted(monkeypatch, "mul")
    feeds = {"X": np.ones((rows, depth), np.float32), "Y": np.ones((depth, columns), np.float32)}
    outputs_of("mul", feeds, ["Out"], "native")
    assert answered == [False]


@pytest.mark.parametrize("engine", ["numpy", "native"])
def test_mul_says_what_does_not_fit(engine: str) -> None:
    feeds = {"X": np.zeros((3, 4), np.float32), "Y": np.zeros((5, 4), np.float32)}
    with pytest.raises(OperatorError):
        outputs_of("mul", feeds, ["Out"], engine)
