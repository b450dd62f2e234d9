"""Segments and messages of graphs of Paddle 2 programs: numbers of Paddle 2.6.2, gradients, refusals."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fluidtool.errors import OperatorError
from tests.support.arrays import f32, i64
from tests.support.later import run_later
from tests.support.operators import check_gradient, run_op

B = f32([[1, 2], [3, 4], [5, 6]])
SOURCE, TARGET = i64([0, 1, 2, 0]), i64([1, 1, 0, 1])
EDGES = {"Src_index": SOURCE, "Dst_index": TARGET}
X = np.random.default_rng(5).normal(size=(3, 2))


@pytest.mark.parametrize(("pooltype", "first"), [("SUM", [4, 6]), ("MEAN", [2, 3]), ("MAX", [3, 4]), ("MIN", [1, 2])])
def test_rows_of_segments(pooltype: str, first: list[float]) -> None:
    found = run_later("segment_pool", {"X": B, "SegmentIds": i64([0, 0, 2])}, {"pooltype": pooltype})
    assert found["Out"].tolist() == [first, [0, 0], [5, 6]]


@pytest.mark.parametrize(
    ("reduce_op", "second"),
    [("SUM", [5, 8]), ("MEAN", [1.6666666, 2.6666667]), ("MAX", [3, 4]), ("MIN", [1, 2])],
)
@pytest.mark.parametrize(("out_size", "rows"), [(0, 3), (2, 2)])
def test_messages_by_target(reduce_op: str, second: list[float], out_size: int, rows: int) -> None:
    found = run_later("graph_send_recv", {"X": B, **EDGES}, {"reduce_op": reduce_op, "out_size": [out_size]})["Out"]
    np.testing.assert_allclose(found, [[5, 6], second, [0, 0]][:rows], rtol=1e-6)


@pytest.mark.parametrize(
    ("reduce_op", "second"),
    [("SUM", [11, 18]), ("MEAN", [3.6666667, 6]), ("MAX", [6, 8]), ("MIN", [1, 2])],
)
def test_messages_with_numbers_of_edges(reduce_op: str, second: list[float]) -> None:
    inputs = {"X": B, "Y": f32([[1], [2], [3], [4]]), **EDGES}
    found = run_later("graph_send_ue_recv", inputs, {"message_op": "MUL", "reduce_op": reduce_op})["Out"]
    np.testing.assert_allclose(found, [[15, 18], second, [0, 0]], rtol=1e-6)


def test_numbers_of_edges_from_both_ends() -> None:
    inputs = {"x": B, "y": B + 1, "src_index": i64([0, 1]), "dst_index": i64([1, 1])}
    assert run_later("graph_send_uv", inputs, {"message_op": "ADD"})["out"].tolist() == [[5, 7], [7, 9]]


@pytest.mark.parametrize("how", ["SUM", "MEAN", "MAX", "MIN"])
def test_gradients(how: str) -> None:
    check_gradient("segment_pool", {"X": X, "SegmentIds": i64([0, 0, 2])}, ["X"], {"pooltype": how})
    edges = {"Src_index": SOURCE[:3], "Dst_index": TARGET[:3]}
    check_gradient("graph_send_recv", {"X": X, **edges}, ["X"], {"reduce_op": how})


REFUSALS: list[tuple[str, dict[str, Any], dict[str, Any], str]] = [
    ("segment_pool", {"X": B, "SegmentIds": i64([0, 1])}, {}, "one number per row of X"),
    ("segment_pool", {"X": B, "SegmentIds": i64([1, 0, 2])}, {}, "must rise"),
    ("segment_pool", {"X": B, "SegmentIds": i64([0, 1, 2])}, {"pooltype": "ALL"}, "pooltype must be one of"),
    ("segment_pool", {"X": B, "SegmentIds": i64([0, 1, 2**40])}, {}, "count up to 1099511627776 for 3 rows"),
    ("graph_send_recv", {"X": B, "Src_index": SOURCE + 1, "Dst_index": TARGET}, {}, "Src_index must lie in 0 to 2"),
    ("graph_send_recv", {"X": B, **EDGES}, {"out_size": [1]}, "Dst_index must lie in 0 to 0"),
    ("graph_send_recv", {"X": B, "Src_index": SOURCE[:2], "Dst_index": TARGET}, {}, "2 sources and 4 targets"),
    ("graph_send_ue_recv", {"X": B, "Y": B, **EDGES}, {}, "Y must have a row for each of 4 edges"),
    (
        "graph_send_uv",
        {"x": B, "y": B, "src_index": SOURCE[:1], "dst_index": TARGET[:1]},
        {"message_op": "SUB"},
        "message_op must be 'ADD' or 'MUL', found 'SUB'",
    ),
]


@pytest.mark.parametrize(("op_type", "inputs", "attrs", "message"), REFUSALS)
def test_refusals(op_type: str, inputs: dict[str, Any], attrs: dict[str, Any], message: str) -> None:
    with pytest.raises(OperatorError, match=f"{op_type}: .*{message}"):
        run_op(op_type, inputs, attrs)
