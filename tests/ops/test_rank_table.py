"""Rank tables, tensor arrays, split and merge: gradients, nested LoD, and what they refuse."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fluidtool.errors import OperatorError
from fluidtool.proto.enums import VarType
from fluidtool.tensor import LoDRankTable, LoDTensor, LoDTensorArray
from tests.support.blocks import BOOL, Building, check_program_gradient
from tests.support.operators import check_gradient, lod_tensor, run_op

RNG = np.random.default_rng(17)
ARRAY, TABLE = VarType.LOD_TENSOR_ARRAY, VarType.LOD_RANK_TABLE
NESTED = lod_tensor(RNG.normal(size=(9, 2)), [[1, 3, 2], [2, 1, 0, 3, 2, 1]])
FLAT = lod_tensor(RNG.normal(size=(6, 2)), [[1, 3, 2]])


def weighted(b: Building, name: str, shape: tuple[int, ...]) -> dict[str, Any]:
    """loss = mean(name * weights), with what has to be fed for it."""
    b.program.global_block().create_var(name="weights", shape=list(shape), dtype=VarType.FP64, stop_gradient=True)
    b.op("elementwise_mul", {"X": name, "Y": "weights"}, {"Out": "product"})
    b.op("mean", {"X": "product"}, {"Out": "loss"})
    return {"weights": RNG.normal(size=shape)}


def tabled(level: int = 0, lod_level: int = 1) -> Building:
    b = Building()
    x = b.data("x", [-1, 2], lod_level=lod_level)
    b.op("lod_rank_table", {"X": x}, {"Out": "table"}, kind=TABLE, level=level)
    return b


@pytest.mark.parametrize(("x", "level"), [(FLAT, 0), (NESTED, 0), (NESTED, 1)])
def test_steps_of_an_array_go_back_into_the_same_sequences(x: LoDTensor, level: int) -> None:
    b = tabled(level, len(x.offsets))
    b.op("lod_tensor_to_array", {"X": "x", "RankTable": "table"}, {"Out": "steps"}, kind=ARRAY)
    b.op("array_to_lod_tensor", {"X": "steps", "RankTable": "table"}, {"Out": "back"})
    steps, back = b.run({"x": x}, ["steps", "back"])
    np.testing.assert_array_equal(back.numpy(), x.numpy())
    assert back.lod() == x.lod()
    assert len(steps) == 3
    feed = {"x": x, **weighted(b, "back", x.numpy().shape)}
    check_program_gradient(b, "loss", feed, ["x"])


def test_a_step_holds_the_elements_of_the_longest_sequences_first() -> None:
    b = tabled(0, 2)
    b.op("lod_tensor_to_array", {"X": "x", "RankTable": "table"}, {"Out": "steps"}, kind=ARRAY)
    first, second, third = b.run({"x": NESTED}, ["steps"])[0]
    rows = NESTED.numpy()
    assert first.lod() == [[0, 1, 3, 5]] and second.lod() == [[0, 0, 1]] and third.lod() == [[0, 3]]
    np.testing.assert_array_equal(first.numpy(), rows[[2, 6, 7, 0, 1]])
    np.testing.assert_array_equal(third.numpy(), rows[3:6])


@pytest.mark.parametrize("moved", [lod_tensor(RNG.normal(size=(4, 2)), [[1, 0, 3]]), RNG.normal(size=(3, 2))])
def test_gradient_of_reorder_lod_tensor_by_rank(moved: Any) -> None:
    b = tabled()
    b.data("moved", [-1, 2], lod_level=1 if isinstance(moved, LoDTensor) else 0)
    b.op("reorder_lod_tensor_by_rank", {"X": "moved", "RankTable": "table"}, {"Out": "out"})
    feed = {"x": FLAT, "moved": moved, **weighted(b, "out", np.asarray(moved).shape)}
    check_program_gradient(b, "loss", feed, ["moved"])


@pytest.mark.parametrize(("step", "rows"), [(0, 3), (1, 2), (2, 1)])
def test_gradient_of_shrink_rnn_memory(step: int, rows: int) -> None:
    b = tabled()
    b.data("memory", [-1, 2])
    b.constant("step", step)
    b.op("shrink_rnn_memory", {"X": "memory", "RankTable": "table", "I": "step"}, {"Out": "out"})
    feed = {"x": FLAT, "memory": RNG.normal(size=(3, 2)), **weighted(b, "out", (rows, 2))}
    check_program_gradient(b, "loss", feed, ["memory"])


@pytest.mark.parametrize("x", [FLAT, RNG.normal(size=(3, 2)), lod_tensor(RNG.normal(size=(4, 2)), [[0, 4, 0]])])
@pytest.mark.parametrize("mask", [[1, 0, 1], [0, 0, 0], [1, 1, 1]])
def test_merge_lod_tensor_undoes_split_lod_tensor(x: Any, mask: list[int]) -> None:
    b = Building()
    b.data("x", [-1, 2], lod_level=1 if isinstance(x, LoDTensor) else 0)
    b.data("mask", [-1, 1], BOOL)
    b.op("split_lod_tensor", {"X": "x", "Mask": "mask"}, {"OutTrue": "yes", "OutFalse": "no"}, level=0)
    b.op("scale", {"X": "yes"}, {"Out": "twice"}, scale=2.0)
    merge = {"X": "x", "Mask": "mask", "InTrue": "twice", "InFalse": "no"}
    b.op("merge_lod_tensor", merge, {"Out": "out"}, level=0)
    array, fed = np.asarray(x), {"x": x, "mask": np.array(mask, bool)[:, None]}
    lod = x.lod() if isinstance(x, LoDTensor) else []
    out = b.run(fed, ["out"])[0]
    factors = np.repeat(np.array(mask) + 1, np.diff(lod[0])) if lod else np.array(mask) + 1
    np.testing.assert_array_equal(out.numpy(), array * factors[:, None])
    assert out.lod() == lod
    check_program_gradient(b, "loss", {**fed, **weighted(b, "out", array.shape)}, ["x"])


def test_branches_of_merge_lod_tensor_may_hold_all_rows() -> None:
    inputs = {"X": np.ones((3, 1)), "Mask": np.array([[1], [0], [1]], bool), "InTrue": FULL, "InFalse": -FULL}
    assert run_op("merge_lod_tensor", inputs)["Out"].numpy().tolist() == [[1], [-1], [2], [0], [0], [0]]


def test_sequences_that_no_mask_names_are_left_out() -> None:
    branches = {"InTrue": lod_tensor(FULL, [[2, 1]]), "InFalse": lod_tensor(-FULL, [[1, 2]])}
    inputs = {"X": np.ones((2, 1)), "Mask": np.array([[1], [0]], bool), **branches}
    out = run_op("merge_lod_tensor", inputs)["Out"]
    assert (out.numpy().tolist(), out.recursive_sequence_lengths()) == ([[1], [2], [-1]], [[2, 1]])


@pytest.mark.parametrize(("axis", "use_stack"), [(0, False), (-1, False), (0, True), (1, True), (2, True)])
def test_gradient_of_tensor_array_to_tensor(axis: int, use_stack: bool) -> None:
    b = Building()
    for index, name in enumerate(("x", "y")):
        b.data(name, [2, 3])
        b.constant(f"i{index}", index)
        b.op("write_to_array", {"X": name, "I": f"i{index}"}, {"Out": "array"}, kind=ARRAY)
    outputs = {"Out": "out", "OutIndex": "sizes"}
    b.op("tensor_array_to_tensor", {"X": "array"}, outputs, axis=axis, use_stack=use_stack)
    feed = {name: RNG.normal(size=(2, 3)) for name in ("x", "y")}
    join = np.stack if use_stack else np.concatenate
    expected = join([feed["x"], feed["y"]], axis=axis)
    np.testing.assert_array_equal(b.run(feed, ["out"])[0].numpy(), expected)
    check_program_gradient(b, "loss", {**feed, **weighted(b, "out", expected.shape)}, ["x", "y"])


def test_a_gradient_that_was_never_written_reads_as_zeros() -> None:
    array = LoDTensorArray([LoDTensor(np.ones(2))])
    inputs = {"X": array, "I": np.array([3]), "X_W": np.ones((2, 2), np.float32)}
    assert run_op("read_from_array", inputs)["Out"].numpy().tolist() == [[0, 0], [0, 0]]


def test_writing_past_the_end_leaves_holes() -> None:
    out = run_op("write_to_array", {"X": np.ones(2), "I": np.array([2])})["Out"]
    assert [item.is_initialized() for item in out] == [False, False, True]


def test_rank_tables_order_by_length_and_keep_ties_in_order() -> None:
    table = run_op("lod_rank_table", {"X": lod_tensor(np.zeros((8, 1)), [[2, 3, 0, 3]])})["Out"]
    assert table.ranked == ((1, 3), (3, 3), (0, 2), (2, 0))


def test_gradient_of_rnn_memory_helper() -> None:
    check_gradient("rnn_memory_helper", {"X": RNG.normal(size=(2, 3))}, ["X"])


@pytest.mark.parametrize(("use_stack", "lengths"), [(False, (2, 1)), (True, (2, 2))])
def test_items_keep_their_shape_whatever_that_of_the_gradient(use_stack: bool, lengths: tuple[int, int]) -> None:
    items = LoDTensorArray(LoDTensor(np.zeros((length, 1))) for length in lengths)
    gradient = np.arange(float(sum(lengths)))
    inputs = {"X": items, "Out@GRAD": gradient}
    got = run_op("tensor_array_to_tensor_grad", inputs, {"axis": 0, "use_stack": use_stack})["X@GRAD"]
    assert [item.numpy().tolist() for item in got] == [[[0], [1]], [[number] for number in gradient[2:]]]


FULL = np.array([[1.0], [2.0], [3.0]])
TABLE_OF_THREE = LoDRankTable.from_lod([[0, 1, 4, 6]], 0)
HOLED = LoDTensorArray([LoDTensor(np.ones((3, 2))), LoDTensor(), LoDTensor(np.ones((1, 2)))])


@pytest.mark.parametrize(
    ("op_type", "inputs", "attrs", "message"),
    [
        ("lod_rank_table", {"X": FLAT}, {"level": 1}, "level 1 is out of range: X has 1 LoD levels"),
        ("lod_rank_table", {"X": np.ones((2, 2))}, {}, "level 0 is out of range: X has 0 LoD levels"),
        ("max_sequence_len", {"RankTable": np.ones(2)}, {}, "RankTable must hold a rank table, found LoDTensor"),
        (
            "lod_tensor_to_array",
            {"X": np.ones((6, 2)), "RankTable": TABLE_OF_THREE},
            {},
            "X needs a LoD of at least 1 levels, found 0",
        ),
        (
            "lod_tensor_to_array",
            {"X": lod_tensor(np.ones((2, 2)), [[1, 1]]), "RankTable": TABLE_OF_THREE},
            {},
            "RankTable ranks 3 sequences, but X has 2",
        ),
        (
            "array_to_lod_tensor",
            {"X": HOLED, "RankTable": TABLE_OF_THREE},
            {},
            r"steps \[1\] of the array X were never",
        ),
        (
            "array_to_lod_tensor",
            {"X": LoDTensorArray(HOLED[:1]), "RankTable": TABLE_OF_THREE},
            {},
            "the array X has 1 steps, but RankTable has a sequence of 3",
        ),
        (
            "reorder_lod_tensor_by_rank",
            {"X": np.ones((2, 2)), "RankTable": TABLE_OF_THREE},
            {},
            "RankTable ranks 3 sequences, but X has 2 rows",
        ),
        (
            "shrink_rnn_memory",
            {"X": np.ones((1, 2)), "RankTable": TABLE_OF_THREE, "I": np.array([1])},
            {},
            "X has 1 rows, but RankTable has 2 sequences still running",
        ),
        ("read_from_array", {"X": HOLED, "I": np.array([1])}, {}, "item 1 of the array X was never written"),
        ("read_from_array", {"X": HOLED, "I": np.array([7])}, {}, "item 7 of the array X was never written; X has 3"),
        ("read_from_array", {"X": HOLED, "I": np.array([-1])}, {}, "I must not be negative, found -1"),
        (
            "read_from_array",
            {"X": np.ones(2), "I": np.array([0])},
            {},
            "X must hold an array of tensors, found LoDTensor",
        ),
        ("write_to_array", {"X": np.ones(2), "I": np.array([0, 1])}, {}, r"I must hold one number, found shape \(2,\)"),
        ("tensor_array_to_tensor", {"X": HOLED}, {}, r"items \[1\] of the array X were never written"),
        ("tensor_array_to_tensor", {"X": LoDTensorArray()}, {}, "the array X has no items"),
        (
            "tensor_array_to_tensor",
            {"X": LoDTensorArray(HOLED[:1])},
            {"axis": 2},
            r"axis 2 is out of range for items of shape \(3, 2\)",
        ),
        (
            "tensor_array_to_tensor_grad",
            {"X": LoDTensorArray(HOLED[:1]), "Out@GRAD": np.ones(5)},
            {},
            r"Out@GRAD must have shape \(3, 2\), that of Out, found \(5,\)",
        ),
        (
            "split_lod_tensor",
            {"X": FLAT, "Mask": np.ones((6, 1), bool)},
            {},
            "Mask has 6 rows, but X has 3 sequences; the numbers must be equal",
        ),
        ("split_lod_tensor", {"X": FLAT, "Mask": np.ones(3, bool)}, {}, r"Mask must have shape \(n, 1\), found \(3,\)"),
        (
            "merge_lod_tensor",
            {"X": np.ones(2), "Mask": np.ones((3, 1), bool), "InTrue": np.ones((2, 1)), "InFalse": np.ones((1, 1))},
            {},
            "Mask has 3 true and 0 false rows, but InTrue has 2 and InFalse 1",
        ),
    ],
)
def test_bad_input_is_named(op_type: str, inputs: dict[str, Any], attrs: dict[str, Any], message: str) -> None:
    with pytest.raises(OperatorError, match=f"operator {op_type}: .*{message}"):
        run_op(op_type, inputs, attrs)
