"""Pooling: numbers of Paddle 1.8.5 for windows at the edges, gradients, and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fluidtool.errors import OperatorError
from tests.support.operators import check_gradient, run_op

IMAGE = np.arange(1, 26, dtype=np.float32).reshape(1, 1, 5, 5)
LOWEST = -np.finfo(np.float32).max
NAN = np.nan


def pool(image: Any = IMAGE, **attrs: Any) -> Any:
    attrs = {"pooling_type": "avg", "ksize": [2, 2], "strides": [2, 2], **attrs}
    return run_op("pool2d", {"X": image}, attrs)["Out"].numpy()


@pytest.mark.parametrize(
    ("attrs", "expected"),
    [
        ({"exclusive": False, "ceil_mode": True}, [[4, 6, 3.75], [14, 16, 8.75], [10.75, 11.75, 6.25]]),
        (
            {"ksize": [2, 2], "strides": [3, 3], "paddings": [1, 1], "ceil_mode": True},
            [[1, 3.5, NAN], [13.5, 16, NAN], [NAN] * 3],
        ),
        ({"paddings": [0, 1, 1, 0]}, [[3.5, 5, 7], [13.5, 15, 17], [21, 22.5, 24.5]]),
        ({"padding_algorithm": "SAME"}, [[4, 6, 7.5], [14, 16, 17.5], [21.5, 23.5, 25]]),
        ({"padding_algorithm": "VALID", "ceil_mode": True}, [[4, 6, 7.5], [14, 16, 17.5], [21.5, 23.5, 25]]),
        ({"adaptive": True}, [[7, 9], [17, 19]]),
        ({"global_pooling": True, "pooling_type": "max"}, [[25]]),
        # Paddle's maximum has no adaptive windows: they start at multiples of the stride.
        ({"adaptive": True, "pooling_type": "max", "ksize": [1, 1]}, [[1]]),
        (
            {"pooling_type": "max", "ksize": [1, 1], "strides": [4, 4], "paddings": [1, 1]},
            [[LOWEST, LOWEST], [LOWEST, 19]],
        ),
    ],
)
def test_windows_at_the_edges(attrs: dict[str, Any], expected: Any) -> None:
    np.testing.assert_allclose(pool(**attrs)[0, 0], expected, rtol=1e-6)


def test_channels_last() -> None:
    image = np.random.default_rng(0).normal(size=(2, 5, 4, 3))
    for kind in ("max", "avg"):
        first = pool(image.transpose(0, 3, 1, 2), pooling_type=kind, paddings=[1, 0])
        last = pool(image, pooling_type=kind, paddings=[1, 0], data_format="NHWC")
        np.testing.assert_array_equal(last, first.transpose(0, 2, 3, 1))


@pytest.mark.parametrize("kind", ["max", "avg"])
@pytest.mark.parametrize(
    "attrs",
    [
        {"ksize": [3, 2], "strides": [2, 1], "paddings": [1, 1]},
        {"ksize": [2, 2], "strides": [2, 2], "ceil_mode": True, "exclusive": False},
        {"ksize": [3, 2], "strides": [1, 1], "adaptive": True},
        {"ksize": [1, 1], "global_pooling": True},
        {"ksize": [2, 2], "strides": [2, 1], "data_format": "NHWC"},
    ],
)
def test_gradient(kind: str, attrs: dict[str, Any]) -> None:
    x = np.random.default_rng(0).permutation(40).reshape(1, 2, 5, 4) / 10
    check_gradient("pool2d", {"X": x}, wrt=["X"], attrs={"pooling_type": kind, **attrs})


def test_gradient_in_three_dimensions() -> None:
    x = np.random.default_rng(0).permutation(36).reshape(1, 1, 4, 3, 3) / 10
    attrs = {"ksize": [2, 2, 2], "strides": [2, 1, 1], "paddings": [0, 1, 0]}
    for kind in ("max", "avg"):
        check_gradient("pool3d", {"X": x}, wrt=["X"], attrs={"pooling_type": kind, **attrs})


def test_equal_maxima_give_the_gradient_to_the_first() -> None:
    inputs = {"X": np.zeros((1, 1, 2, 2)), "Out": np.zeros((1, 1, 1, 1)), "Out@GRAD": np.ones((1, 1, 1, 1))}
    got = run_op("pool2d_grad", inputs, {"pooling_type": "max", "ksize": [2, 2]})
    assert got["X@GRAD"].numpy().tolist() == [[[[1, 0], [0, 0]]]]


# -- with indexes, unpooling, pyramids
def test_indexes_of_adaptive_windows() -> None:
    got = run_op("max_pool2d_with_index", {"X": -IMAGE}, {"ksize": [2, 3], "adaptive": True})
    assert got["Mask"].numpy().tolist() == [[[[0, 1, 3], [10, 11, 13]]]]
    assert got["Out"].numpy().tolist() == [[[[-1, -2, -4], [-11, -12, -14]]]]
    assert got["Mask"].numpy().dtype == np.int32


@pytest.mark.parametrize(
    ("op_type", "shape", "attrs"),
    [
        ("max_pool2d_with_index", (1, 2, 4, 3), {"ksize": [3, 2], "strides": [1, 2], "paddings": [1, 1]}),
        ("max_pool3d_with_index", (1, 1, 3, 3, 2), {"ksize": [2, 2, 1], "adaptive": True}),
    ],
)
def test_gradient_with_indexes(op_type: str, shape: tuple[int, ...], attrs: dict[str, Any]) -> None:
    x = np.random.default_rng(0).permutation(np.prod(shape)).reshape(shape) / 10
    check_gradient(op_type, {"X": x}, wrt=["X"], attrs=attrs)


@pytest.mark.parametrize(
    ("op_type", "shape", "attrs"),
    [
        ("unpool", (1, 2, 2, 2), {"ksize": [2, 2], "strides": [2, 2], "unpooling_type": "max"}),
        ("unpool3d", (1, 1, 2, 1, 2), {"ksize": [2, 2, 2], "strides": [2, 2, 2]}),
    ],
)
def test_unpooling_and_its_gradient(op_type: str, shape: tuple[int, ...], attrs: dict[str, Any]) -> None:
    x = np.random.default_rng(0).normal(size=shape)
    places = np.stack([np.random.default_rng(i).permutation(16)[: x[0, 0].size] for i in range(shape[1])])
    indexes = places.astype(np.int32).reshape(shape)
    out = run_op(op_type, {"X": x, "Indices": indexes}, attrs)["Out"].numpy().reshape(shape[1], -1)
    np.testing.assert_array_equal(np.take_along_axis(out, places, 1), x.reshape(shape[1], -1))
    assert np.count_nonzero(out) == x.size
    check_gradient(op_type, {"X": x, "Indices": indexes}, wrt=["X"], attrs=attrs)


@pytest.mark.parametrize("kind", ["max", "avg"])
def test_gradient_of_a_pyramid(kind: str) -> None:
    x = np.random.default_rng(0).permutation(40).reshape(1, 2, 5, 4) / 10
    check_gradient("spp", {"X": x}, wrt=["X"], attrs={"pyramid_height": 2, "pooling_type": kind})


@pytest.mark.parametrize(
    ("attrs", "message"),
    [
        ({"ksize": [7, 7]}, r"no window fits: input sizes \(5, 5\), kernel \(7, 7\)"),
        ({"strides": [0, 1]}, r"strides must be 2 positive numbers, found \[0, 1\]"),
        ({"pooling_type": "foo"}, r"pooling_type must be 'max' or 'avg', found 'foo'"),
        ({"ksize": [2]}, r"kernel \[2\] must have 2 sizes"),
        ({"adaptive": True, "ksize": [0, 0]}, r"each must be positive"),
    ],
)
def test_what_does_not_fit_is_named(attrs: dict[str, Any], message: str) -> None:
    with pytest.raises(OperatorError, match=f"operator pool2d: .*{message}"):
        pool(**attrs)


def test_integers_are_refused() -> None:
    with pytest.raises(OperatorError, match="operator pool2d: input X must be floating point, found int32"):
        pool(IMAGE.astype(np.int32))


@pytest.mark.parametrize("index", [-1, 100])
def test_indexes_out_of_range_are_refused(index: int) -> None:
    inputs = {"X": IMAGE, "Indices": np.full(IMAGE.shape, index, np.int32)}
    with pytest.raises(OperatorError, match=rf"unpool: input Indices must be positions from 0 to 35, .* found {index}"):
        run_op("unpool", inputs, {"ksize": [2, 2], "unpooling_type": "max"})
