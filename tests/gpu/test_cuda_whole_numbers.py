"""Whole numbers and booleans in regions on a GPU: arithmetic, rows looked up by computed ids, booleans that come in and go out."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fluidtool.errors import OperatorError
from fluidtool.runtime.executor import Executor
from fluidtool.runtime.partition import Region
from fluidtool.tensor import CUDAPlace
from tests.gpu.test_cuda_ranking import read, same
from tests.gpu.test_cuda_regions import on_gpu
from tests.runtime.native.checking import Net

pytestmark = pytest.mark.usefixtures("cupy")
ROWS, COLUMNS = 4, 7


def scores(seed: int = 0) -> Any:
    return np.random.default_rng(seed).standard_normal((ROWS, COLUMNS)).astype(np.float32)


def best(net: Net, seed: int = 0) -> str:
    """The place of the largest score of each row, [ROWS]."""
    return net.op("arg_max", "Out", {"X": read(net, scores(seed))}, axis=1)


def whole(net: Net, *numbers: int) -> str:
    return net.data(of=np.array(numbers, np.int64))


def flags(net: Net, *found: bool) -> str:
    return net.data(of=np.array(found))


# ---------------------------------------------------------------- arithmetic
@pytest.mark.parametrize("type", ["elementwise_add", "elementwise_sub", "elementwise_mul"])
@pytest.mark.parametrize("others", [(3, -4, 1 << 40, 0), (1 << 62,)])
def test_arithmetic_on_whole_numbers(type: str, others: tuple[int, ...]) -> None:
    net = Net()
    same(net, net.op(type, "Out", {"X": best(net), "Y": whole(net, *others)}, axis=-1))


def test_whole_numbers_may_be_handed_on_as_they_came() -> None:
    net = Net()
    assigned = net.op("assign", "Out", {"X": whole(net, 5, 6, 7)})
    same(net, assigned, best(net))


@pytest.mark.parametrize("type", ["elementwise_add", "assign"])
def test_whole_numbers_of_32_bits_stay_such(type: str) -> None:
    net = Net()
    x = net.data(of=np.array([1, 2], np.int32))
    inputs = {"X": x, "Y": x} if type == "elementwise_add" else {"X": x}
    same(net, net.op(type, "Out", inputs), best(net))


# ---------------------------------------------------------------- rows
@pytest.mark.parametrize("type", ["lookup_table", "lookup_table_v2"])
def test_rows_may_be_looked_up_by_ids_that_are_computed(type: str) -> None:
    net = Net()
    ids = best(net)
    if type == "lookup_table":
        ids = net.op("unsqueeze2", "Out", {"X": ids}, "XShape", axes=[1])
    same(net, net.op(type, "Out", {"W": net.parameter(COLUMNS, 3), "Ids": ids}), ids)


def test_a_row_of_padding_is_zeros_for_computed_ids_too() -> None:
    net = Net()
    ids = best(net)
    same(net, net.op("lookup_table_v2", "Out", {"W": net.parameter(COLUMNS, 3), "Ids": ids}, padding_idx=2))


def test_a_computed_id_that_is_out_of_range_is_the_error_of_the_operator() -> None:
    net = Net()
    ids = net.op("elementwise_add", "Out", {"X": best(net), "Y": whole(net, 0, 0, 100, 0)}, axis=-1)
    found = net.op("lookup_table_v2", "Out", {"W": net.parameter(COLUMNS, 3), "Ids": ids})
    executor = Executor(CUDAPlace(0))
    for _ in range(4):  # one by one, captured, as a graph, and without anybody waiting
        with pytest.raises(OperatorError, match=r"lookup_table_v2: input Ids holds 10\d, expected 0 to 6"):
            executor.run(net.program, net.feeds, [found], net.scope)[0].numpy()


# ---------------------------------------------------------------- booleans
def test_booleans_come_in_and_go_out() -> None:
    net = Net()
    ended = flags(net, True, False, False, True)
    equal = net.op("equal", "Out", {"X": best(net), "Y": whole(net, 3)}, axis=-1)
    both = net.op("logical_or", "Out", {"X": ended, "Y": equal})
    left = net.op("cast", "Out", {"X": net.op("logical_not", "Out", {"X": both})}, in_dtype=0, out_dtype=3)
    same(net, both, left, equal)


@pytest.mark.parametrize("type", ["reduce_all", "reduce_any"])
@pytest.mark.parametrize("attrs", [{"reduce_all": True}, {"dim": [1]}, {"dim": [0], "keep_dim": True}])
@pytest.mark.parametrize("fill", [None, False, True])
def test_whether_all_are_true_or_any(type: str, attrs: dict[str, Any], fill: bool | None) -> None:
    net = Net()
    found = np.random.default_rng(1).integers(0, 2, (4, 5)) == 1 if fill is None else np.full((4, 5), fill)
    x = net.op("logical_not", "Out", {"X": net.data(of=found)})
    settled = {"dim": [0], "keep_dim": False, "reduce_all": False} | attrs
    same(net, net.op(type, "Out", {"X": x}, **settled), best(net))


def test_booleans_may_be_handed_on_as_they_came() -> None:
    net = Net()
    same(net, net.op("assign", "Out", {"X": flags(net, True, False)}), best(net))


def test_only_booleans_may_go_out() -> None:
    net = Net()
    ids = best(net)
    rows = net.op("lookup_table_v2", "Out", {"W": net.parameter(COLUMNS, 1), "Ids": ids})
    same(net, net.op("greater_than", "Out", {"X": rows, "Y": net.parameter(1)}, axis=-1))


def test_booleans_of_different_shapes_are_left_to_their_operator() -> None:
    net = Net()
    equal = net.op("equal", "Out", {"X": best(net), "Y": whole(net, 3)}, axis=-1)
    found = net.op("logical_or", "Out", {"X": equal, "Y": flags(net, True)})
    want, have = net.run("numpy", found), on_gpu(net, found)
    np.testing.assert_array_equal(have[0], want[0])
    assert have[0].dtype == np.bool_ and "booleans of different shapes" in net.why_not()
    assert any(isinstance(part, Region) for part in net.plan.work)
