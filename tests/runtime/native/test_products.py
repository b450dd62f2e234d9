"""mul, matmul and their gradients by the native kernel: numpy's numbers, from factors as they lie in memory."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fluidtool.runtime.engines.native.kernels.extents import LONGEST_SHARE, TILED_ROWS
from fluidtool.runtime.engines.native.kernels.products import Matrices, cut, matrices, product
from fluidtool.runtime.engines.native.library import Library, library
from tests.runtime.native.test_operator_kernels import agree, counted, outputs_of

pytestmark = pytest.mark.usefixtures("native")
few = settings(max_examples=25, deadline=None)
GRADS = ["X@GRAD", "Y@GRAD"]


def floats(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def engine() -> Library:
    found = library()
    assert found is not None
    return found


def close(found: Any, wanted: Any, depth: int) -> None:
    """To the rounding of sums of so many terms near 1."""
    np.testing.assert_allclose(found, wanted, rtol=0, atol=2e-6 * depth**0.5)


@few
@given(st.integers(8, 300), st.sampled_from([31, 767, 1151, 1152, 2000]), st.sampled_from([2, 47, 49, 400, 1000]))
def test_mul_and_its_gradients(rows: int, depth: int, columns: int) -> None:
    feeds = {"X": floats(rows, depth), "Y": floats(depth, columns, seed=1)}
    agree("mul", feeds, ["Out"], scale=depth**0.5)
    feeds["Out@GRAD"] = floats(rows, columns, seed=2)
    agree("mul_grad", feeds, GRADS, scale=max(rows, columns) ** 0.5)


def test_no_share_of_a_depth_is_longer_than_the_memory_for_it() -> None:
    shares = {depth: max(1, (depth + 768 // 2 - 1) // 768) for depth in range(1, 10_000)}  # as shares_of of products.c
    assert max(-(-depth // count) for depth, count in shares.items()) == LONGEST_SHARE


@few
@given(
    st.lists(st.integers(1, 3), max_size=3), st.integers(8, 70), st.integers(1, 70), st.integers(2, 70), st.booleans(),
    st.booleans(), st.sampled_from([1.0, 0.125, -2.0]),
)  # fmt: skip
def test_matmul_and_its_gradients(
    outer: list[int], rows: int, depth: int, columns: int, turned_x: bool, turned_y: bool, alpha: float
) -> None:
    x = floats(*outer, *((depth, rows) if turned_x else (rows, depth)))
    y = floats(*outer, *((columns, depth) if turned_y else (depth, columns)), seed=1)
    attrs = {"transpose_X": turned_x, "transpose_Y": turned_y, "alpha": alpha}
    agree("matmul", {"X": x, "Y": y}, ["Out"], scale=depth**0.5, **attrs)
    grad = floats(*outer, rows, columns, seed=2)
    agree("matmul_grad", {"X": x, "Y": y, "Out@GRAD": grad}, GRADS, scale=max(rows, columns) ** 0.5, **attrs)


@pytest.mark.parametrize(
    ("x", "y"), [((0, 18), (18, 4)), ((3, 1), (1, 0)), ((2, 3, 0), (2, 0, 5)), ((0, 3, 4), (0, 4, 5))]
)
def test_empty_matrices_are_left_to_numpy(x: tuple[int, ...], y: tuple[int, ...]) -> None:
    feeds = {"X": floats(*x), "Y": floats(*y, seed=1)}
    agree("matmul", feeds, ["Out"])
    agree("matmul_grad", {**feeds, "Out@GRAD": floats(*x[:-1], y[-1], seed=2)}, GRADS)


@pytest.mark.parametrize("type", ["mul", "matmul"])
def test_products_and_gradients_that_are_large_enough_are_answered(type: str, monkeypatch: pytest.MonkeyPatch) -> None:
    answered, of_gradient = counted(monkeypatch, type), counted(monkeypatch, f"{type}_grad")
    feeds = {"X": floats(17, 256), "Y": floats(256, 256, seed=1)}
    agree(type, feeds, ["Out"], scale=16.0)
    agree(f"{type}_grad", {**feeds, "Out@GRAD": floats(17, 256, seed=2)}, GRADS, scale=16.0)
    assert answered == of_gradient == [True]


@pytest.mark.parametrize("wanted", GRADS)
def test_one_gradient_alone_is_computed(wanted: str) -> None:
    feeds = {"X": floats(3, 20, 40), "Y": floats(3, 40, 200, seed=1), "Out@GRAD": floats(3, 20, 200, seed=2)}
    agree("matmul_grad", feeds, [wanted], scale=15.0)


@pytest.mark.parametrize(
    ("x", "y"),
    [((7, 256), (256, 256)), ((300, 900), (900, 1)), ((8, 100), (100, 100)), ((1, 1, 300, 300), (300, 300))],
)
def test_few_rows_one_column_small_products_and_other_stacks_are_left_to_numpy(
    x: tuple[int, ...], y: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    answered = counted(monkeypatch, "matmul")
    agree("matmul", {"X": floats(*x), "Y": floats(*y, seed=1)}, ["Out"], scale=30.0)
    assert answered == [False]


@pytest.mark.parametrize(
    "attrs", [{"head_number": 2}, {"fused_reshape_Out": [0, 0], "fused_transpose_Out": [1, 0]}], ids=["heads", "fused"]
)
def test_attributes_without_a_kernel_are_left_to_numpy(attrs: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    answered = counted(monkeypatch, "matmul")
    feeds = {"X": floats(64, 128), "Y": floats(128, 128, seed=1)}
    outputs_of("matmul", feeds, ["Out"], "native", **attrs)
    assert answered == [False]


@pytest.mark.parametrize("slot", ["X", "Y", "Out@GRAD"])
def test_float64_is_left_to_numpy(slot: str, monkeypatch: pytest.MonkeyPatch) -> None:
    answered = counted(monkeypatch, "matmul_grad")
    feeds = {"X": floats(64, 128), "Y": floats(128, 128, seed=1), "Out@GRAD": floats(64, 128, seed=2)}
    outputs_of("matmul_grad", {name: value.astype(np.float64) for name, value in feeds.items()}, GRADS, "native")
    assert answered == [False]


@pytest.mark.parametrize("order", [(0, 2, 1, 3), (0, 1, 2, 3), (0, 2, 3, 1), (0, 1, 3, 2)])
def test_heads_are_read_where_they_lie(order: tuple[int, ...]) -> None:
    x = floats(2, 12, 8, 16).transpose(order)
    found = matrices(x)
    assert np.shares_memory(found.memory, x) and found.shape == x.shape
    y = floats(*x.shape[:2], x.shape[3], 9, seed=1)
    close(product(engine(), found, matrices(y), (*x.shape[:3], 9)), x @ y, x.shape[3])


@pytest.mark.parametrize(
    "x",
    [
        floats(4, 6, 10)[:, :, ::2],
        floats(6, 10)[::-1],
        np.broadcast_to(floats(6, 10), (4, 6, 10)),
        floats(2, 3, 4, 6, 10).transpose(2, 0, 1, 3, 4),
        floats(6, 10, 4).transpose(2, 0, 1),
    ],
    ids=["steps", "backwards", "repeated", "too many axes", "no stride of 1"],
)
def test_what_does_not_lie_as_matrices_is_copied(x: Any) -> None:
    found = matrices(x)
    y = floats(*x.shape[:-2], x.shape[-1], 9, seed=1)
    close(product(engine(), found, matrices(y), (*x.shape[:-1], 9)), x @ y, x.shape[-1])
    assert not np.shares_memory(found.memory, x)


def test_transposes_are_the_same_memory() -> None:
    found = matrices(floats(3, 5, 7), transposed=True)
    assert (found.shape, found.strides) == ((1, 3, 7, 5), (0, 35, 1, 7))
    assert found.turned() == Matrices(found.memory, (1, 3, 5, 7), (0, 35, 7, 1))


@pytest.mark.parametrize(("rows", "columns"), [(8, 2), (9, 4000), (4000, 9), (133, 385), (300, 1000)])
@pytest.mark.parametrize("threads", [1, 2, 3, 8])
def test_numbers_do_not_depend_on_the_number_of_parts(
    rows: int, columns: int, threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    x, y = floats(rows, 50), floats(50, columns, seed=1)
    monkeypatch.setattr(engine(), "threads", threads)
    for turned in (False, True):
        a = matrices(np.asfortranarray(x) if turned else x)
        close(product(engine(), a, matrices(y), (rows, columns)), x @ y, 50)


@pytest.mark.parametrize("rows", [TILED_ROWS - 1, TILED_ROWS, TILED_ROWS + 1, 2 * TILED_ROWS + 133])
@pytest.mark.parametrize("depth", [70, 1600])
@pytest.mark.parametrize("columns", [2, 385, 401])
def test_more_rows_than_are_copied_to_tiles_at_once(rows: int, depth: int, columns: int) -> None:
    random = np.random.default_rng(0)
    x, y = (random.integers(-8, 9, (depth, size)).astype(np.float32) for size in (rows, columns))  # all sums are exact
    np.testing.assert_array_equal(
        product(engine(), matrices(x, transposed=True), matrices(y), (rows, columns)), x.T @ y
    )


@pytest.mark.parametrize(
    ("rows", "columns", "count", "parts"),
    [
        (1024, 3072, 1, (8, 1)),
        (3072, 768, 1, (1, 4)),
        (128, 10, 1, (1, 4)),
        (16, 100, 1, (3, 2)),
        (9, 10, 1, (1, 1)),
        (128, 64, 96, (1, 1)),
        (128, 64, 4, (1, 2)),
    ],
)
def test_products_are_cut_for_four_threads(
    rows: int, columns: int, count: int, parts: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine(), "threads", 4)
    monkeypatch.setattr(engine(), "width", 16)
    assert cut(engine(), rows, columns, count) == parts
