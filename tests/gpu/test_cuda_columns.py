"""Sums of columns, by blocks whose threads join theirs, and pooling of whole images: the CPU's numbers, in few launches."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fluidtool.runtime.engines.cuda import pooling  # noqa: F401  (what lowers it)
from fluidtool.runtime.engines.cuda.calls import Buffer, Place, channels_last, row_major
from fluidtool.runtime.engines.cuda.columns import Block
from fluidtool.runtime.engines.cuda.sources import THREADS
from fluidtool.runtime.engines.cuda.training import reductions  # noqa: F401
from fluidtool.runtime.graph.ir import Node, Value
from tests.gpu.test_cuda_lanes import binary, computed, exp, rounded, several, some

HALVES = pytest.mark.parametrize("half", ["", "bf16"])


@pytest.fixture(autouse=True)
def _standin(cupy: Any) -> None:
    """On the stand-in, which refuses what lies outside of arrays."""


# ---------------------------------------------------------------- sums
@HALVES
@pytest.mark.parametrize(
    ("lines", "columns", "launches"),
    [(1, 8, 1), (3, 100, 1), (512, 64, 1), (512, 2100, 1), (1025, 64, 2), (5000, 20, 2), (4099, 3, 2), (9000, 1, 1)],
)
def test_blocks_share_the_lines_of_columns_only_if_they_are_many(
    lines: int, columns: int, launches: int, half: str
) -> None:
    x, given = Value("x", (lines, columns)), some(lines, columns)
    kept = exp(x)
    sums = Node("sums", [kept.output], Value("sums", (columns,)), {"kept": (1,)})
    twice = binary(kept.output, kept.output)  # so that it is kept in memory
    (found, _), kernels = several({x: given}, [kept, twice, sums], [sums.output, twice.output], half)
    want = rounded(np.exp(given), half).astype(np.float64).sum(0)
    np.testing.assert_allclose(found, want, rtol=1e-4 if half else 1e-5)  # a power may be rounded to another half
    assert sum(kernel.name.startswith(("sums", "reduce")) for kernel in kernels) == launches or columns == 1


@pytest.mark.parametrize(("how", "join"), [(2, np.max), (3, np.min)])
def test_what_is_not_a_number_is_joined_as_on_the_cpu(how: int, join: Any) -> None:
    given = some(700, 12)
    given[650, 3], given[5, 4] = np.nan, np.inf
    x = Value("x", given.shape)
    node = Node("joins", [x], Value("joined", (12,)), {"kept": (1,), "how": how})
    found, _ = computed({x: given}, [node])
    np.testing.assert_array_equal(found, join(given, axis=0))


@pytest.mark.parametrize("pieces", [1, 2, 3, 8, 9, 1000])
@pytest.mark.parametrize("count", [1, 2, 31, 33, 10000])
@pytest.mark.parametrize("lanes", [1, 4, 8])
def test_a_block_has_all_its_threads_and_no_lines_that_are_not_there(pieces: int, count: int, lanes: int) -> None:
    block = Block(pieces, count, lanes)
    assert block.deep * block.wide == THREADS and block.deep <= count
    assert (block.chunks - 1) * block.wide < pieces <= block.chunks * block.wide


def test_means_of_an_inner_axis_are_columns_in_one_launch() -> None:
    x, given = Value("x", (3, 40, 24)), some(3, 40, 24)
    node = Node("reduce", [x], Value("mean", (3, 24)), {"sizes": (3, 40, 24), "how": 1})
    found, kernels = computed({x: given}, [node])
    np.testing.assert_allclose(found, given.mean(1), rtol=1e-5, atol=1e-6)
    assert len(kernels) == 1 and "__syncthreads" in kernels[0].source


# ---------------------------------------------------------------- whole images
def pooled(x: Value, mode: int, window: tuple[int, int], pads: tuple[int, ...], adaptive: bool = False) -> Node:
    attrs = {"window": window, "strides": (1, 1), "pads": pads, "mode": mode, "adaptive": adaptive}
    return Node("pool", [x], Value("pooled", (*x.shape[:2], 1, 1)), attrs)


@pytest.mark.parametrize("strides", [row_major, channels_last])
@pytest.mark.parametrize("shape", [(2, 24, 7, 9), (1, 5, 40, 40), (3, 8, 1, 6)])
@pytest.mark.parametrize("mode", [0, 1, 2])
@pytest.mark.parametrize("adaptive", [False, True])
def test_a_window_of_the_whole_image_is_joined_by_many_threads(
    adaptive: bool, mode: int, shape: tuple[int, ...], strides: Any
) -> None:
    x, given = Value("x", shape), some(*shape)
    places = {x: Place(Buffer(x.floats, "input"), strides(shape))}
    node = pooled(x, mode, (shape[2], shape[3]), (0, 0, 0, 0), adaptive)
    (found,), kernels = several({x: given}, [node], [node.output], places=places)
    want = given.max((2, 3)) if mode == 0 else given.mean((2, 3))
    np.testing.assert_allclose(found[:, :, 0, 0], want, rtol=1e-5, atol=1e-6)
    assert len(kernels) == 1 and ("__syncthreads" in kernels[0].source or "__shfl_xor_sync" in kernels[0].source)


@pytest.mark.parametrize(("mode", "share"), [(1, 20), (2, 64)])
def test_of_a_window_beyond_the_image_a_mean_counts_what_is_inside_or_all(mode: int, share: int) -> None:
    given = some(2, 8, 4, 5)
    x = Value("x", given.shape)
    found, _ = computed({x: given}, [pooled(x, mode, (8, 8), (2, 2, 2, 2))])
    np.testing.assert_allclose(found[:, :, 0, 0], given.sum((2, 3)) / share, rtol=1e-5, atol=1e-6)


def test_a_window_that_leaves_out_pixels_is_no_sum_of_columns() -> None:
    given = some(2, 8, 5, 5)
    x = Value("x", given.shape)
    found, kernels = computed({x: given}, [pooled(x, 0, (4, 4), (0, 0, 0, 0))])
    np.testing.assert_array_equal(found[:, :, 0, 0], given[:, :, :4, :4].max((2, 3)))
    assert "__syncthreads" not in kernels[0].source


@HALVES
def test_channels_of_a_window_are_pieces(half: str) -> None:
    x, given = Value("x", (2, 16, 6, 6)), some(2, 16, 6, 6)
    places = {x: Place(Buffer(x.floats, "input"), channels_last(x.shape))}
    attrs = {"window": (3, 3), "strides": (2, 2), "pads": (1, 1, 1, 1), "mode": 0, "adaptive": False}
    node = Node("pool", [x], Value("pooled", (2, 16, 3, 3)), attrs)
    after = exp(node.output)
    (found,), kernels = several({x: given}, [node, after], [after.output], half, places)
    wide = np.pad(given, [(0, 0), (0, 0), (1, 1), (1, 1)], constant_values=-np.inf)
    windows = np.lib.stride_tricks.sliding_window_view(wide, (3, 3), axis=(2, 3))[:, :, ::2, ::2]
    np.testing.assert_allclose(found, np.exp(rounded(windows.max((4, 5)), half)), rtol=1e-5)
    assert f"ft_get_float<{8 if half else 4}>" in kernels[0].source


# ---------------------------------------------------------------- registers
def test_pieces_of_what_is_joined_share_registers() -> None:
    values = [Value(f"x{number}", (2, 8)) for number in range(40)]
    given = {value: some(2, 8) + number for number, value in enumerate(values)}
    node = Node("concat", values, Value("joined", (80, 8)), {"axis": 0})
    found, kernels = computed(given, [node])
    np.testing.assert_array_equal(found, np.concatenate(list(given.values())))
    assert kernels[0].source.count("ft_get_float<4>") == 40
    assert kernels[0].source.count("float v") == 1


def test_a_sum_of_many_has_fewer_lanes() -> None:
    values = [Value(f"x{number}", (4, 8)) for number in range(60)]
    given = {value: some(4, 8) + number for number, value in enumerate(values)}
    text = " + ".join(chr(ord("a") + number) for number in range(20))
    parts, nodes = [], []
    for start in range(0, 60, 20):
        attrs = {"text": text, "shapes": ((4, 8),) * 20, "counts_columns": False}
        nodes.append(Node("formula", values[start : start + 20], Value(f"part{start}", (4, 8)), attrs))
        parts.append(nodes[-1].output)
    attrs = {"text": "a + b + c", "shapes": ((4, 8),) * 3, "counts_columns": False}
    nodes.append(Node("formula", parts, Value("total", (4, 8)), attrs))
    found, kernels = computed(given, nodes)
    np.testing.assert_allclose(found, sum(given.values()), rtol=1e-5)
    assert len(kernels) == 1 and "ft_get_float<2>" in kernels[0].source
