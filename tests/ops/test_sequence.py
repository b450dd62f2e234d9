"""Sequence operators: gradients, corners that were asked of Paddle 1.8.5, and what they refuse."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fluidtool.errors import OperatorError
from fluidtool.ops.sequence.picking import ranges, take_sequences
from fluidtool.tensor import LoDTensor
from tests.support.operators import check_gradient, lod_tensor, run_op

RNG = np.random.default_rng(11)


def sequences(lengths: list[int], width: int = 2) -> Any:
    return lod_tensor(RNG.normal(size=(sum(lengths), width)), [lengths])


# -- gradients
@pytest.mark.parametrize("pooltype", ["AVERAGE", "SUM", "SQRT", "LAST", "FIRST", "MAX"])
def test_gradient_of_sequence_pool(pooltype: str) -> None:
    attrs, outputs = {"pooltype": pooltype, "pad_value": 0.5}, {"MaxIndex": int(pooltype == "MAX")}
    check_gradient("sequence_pool", {"X": sequences([3, 0, 1, 9])}, ["X"], attrs, outputs)


def test_gradient_of_sequence_softmax() -> None:
    check_gradient("sequence_softmax", {"X": sequences([3, 1, 4], 1)}, ["X"])


@pytest.mark.parametrize(("length", "start"), [(3, -1), (1, 0), (2, -3), (3, 1), (2, 2)])
@pytest.mark.parametrize("learned", [False, True])
def test_gradient_of_sequence_conv(length: int, start: int, learned: bool) -> None:
    rows = max(0, -start) + max(0, start + length - 1)
    inputs = {"X": sequences([2, 0, 4, 1]), "Filter": RNG.normal(size=(length * 2, 3))}
    attrs = {"contextLength": length, "contextStart": start}
    if learned and rows:
        inputs["PaddingData"] = RNG.normal(size=(rows, 2))
        check_gradient("sequence_conv", inputs, ["X", "Filter", "PaddingData"], {**attrs, "paddingTrainable": True})
    else:
        check_gradient("sequence_conv", inputs, ["X", "Filter"], attrs)


def test_gradient_of_sequence_expand_repeats_rows_and_sequences() -> None:
    y = lod_tensor(np.zeros((5, 1)), [[2, 0, 1], [1, 2, 2]])
    check_gradient("sequence_expand", {"X": RNG.normal(size=(3, 2)), "Y": y}, ["X"], {"ref_level": 0})
    check_gradient("sequence_expand", {"X": sequences([2, 1, 3]), "Y": y}, ["X"], {"ref_level": 0})


def test_gradient_of_sequence_expand_as() -> None:
    check_gradient("sequence_expand_as", {"X": RNG.normal(size=(3, 2)), "Y": sequences([2, 0, 3])}, ["X"])


def test_gradient_of_sequence_concat() -> None:
    check_gradient("sequence_concat", {"X": [sequences([2, 0, 1]), sequences([1, 3, 0])]}, ["X"])


def test_gradient_of_sequence_slice() -> None:
    inputs = {"X": sequences([4, 2]), "Offset": np.array([[1], [0]]), "Length": np.array([[2], [1]])}
    check_gradient("sequence_slice", inputs, ["X"])


def test_gradient_of_sequence_scatter() -> None:
    ids = lod_tensor(np.array([[0], [2], [2], [1]]), [[3, 1]])
    updates = lod_tensor(RNG.normal(size=(4, 1)), [[3, 1]])
    check_gradient("sequence_scatter", {"X": RNG.normal(size=(2, 3)), "Ids": ids, "Updates": updates}, ["X", "Updates"])


def test_gradient_of_sequence_topk_avg_pooling() -> None:
    row, column = sequences([2, 1]), sequences([3, 2])
    x = lod_tensor(RNG.permutation(16.0 + np.arange(16))[:, None], [[12, 4]])
    attrs = {"topks": [1, 2, 5], "channel_num": 2}
    check_gradient("sequence_topk_avg_pooling", {"X": x, "ROW": row, "COLUMN": column}, ["X"], attrs)


@pytest.mark.parametrize(
    ("op_type", "attrs"),
    [
        ("sequence_reshape", {"new_dim": 4}),
        ("add_position_encoding", {"alpha": 0.5, "beta": 2.0}),
        ("lod_reset", {"target_lod": [0, 1, 6]}),
    ],
)
def test_gradients_of_rearrangements(op_type: str, attrs: dict[str, Any]) -> None:
    check_gradient(op_type, {"X": sequences([4, 2])}, ["X"], attrs)


# -- corners, with real Paddle's numbers
def test_sequence_pool_of_two_levels_keeps_the_outer_one() -> None:
    x = lod_tensor(np.arange(6, dtype=np.float32)[:, None], [[2, 1], [1, 2, 3]])
    out = run_op("sequence_pool", {"X": x}, {"pooltype": "MAX"})
    assert out["Out"].lod() == [[0, 2, 3]]
    assert out["Out"].numpy().tolist() == [[0], [2], [5]]
    assert out["MaxIndex"].numpy().tolist() == [[0], [2], [5]]


def test_max_of_equal_values_is_the_first_and_of_nothing_the_pad_value() -> None:
    x = lod_tensor(np.array([[3], [3], [1]], np.float32), [[0, 3]])
    out = run_op("sequence_pool", {"X": x}, {"pooltype": "MAX", "pad_value": -7.0})
    assert out["Out"].numpy().tolist() == [[-7], [3]]
    assert out["MaxIndex"].numpy().tolist() == [[-1], [0]]


def test_pooling_does_not_depend_on_how_uneven_the_lengths_are() -> None:
    lengths = [1, 700, 3, 0, 65, 64, 2]
    x = sequences(lengths)
    parts = np.split(x.numpy(), np.cumsum(lengths)[:-1])
    out = run_op("sequence_pool", {"X": x}, {"pooltype": "SUM"}, fetch=["Out"])["Out"].numpy()
    np.testing.assert_allclose(out, [part.sum(axis=0) for part in parts], rtol=1e-12, atol=1e-12)


def test_sequence_conv_of_sequences_shorter_than_the_context_start_is_padding_alone() -> None:
    x = lod_tensor(np.array([[1], [2], [3], [4]], np.float32), [[1, 3]])
    attrs = {"contextLength": 2, "contextStart": 1}
    plain = run_op("sequence_conv", {"X": x, "Filter": np.array([[1], [10]], np.float32)}, attrs)["Out"].numpy()
    assert plain.tolist() == [[0], [43], [4], [0]]
    padded = {"X": x, "Filter": np.array([[1], [10]], np.float32), "PaddingData": np.array([[5], [6]], np.float32)}
    got = run_op("sequence_conv", padded, {**attrs, "paddingTrainable": True})["Out"].numpy()
    assert got.tolist() == [[65], [43], [54], [65]]


def test_sequence_pad_may_fill_with_a_row() -> None:
    x = lod_tensor(np.arange(6, dtype=np.float32).reshape(3, 2), [[1, 2]])
    out = run_op("sequence_pad", {"X": x, "PadValue": np.array([8, 9], np.float32)}, {"padded_length": 2})
    assert out["Out"].numpy().tolist() == [[[0, 1], [8, 9]], [[2, 3], [4, 5]]]
    assert out["Length"].numpy().tolist() == [1, 2] and out["Length"].numpy().dtype == np.int64


def test_sequence_erase_may_leave_nothing_of_a_sequence() -> None:
    x = lod_tensor(np.array([[1], [2], [2], [1], [3]]), [[2, 1], [2, 1, 2]])
    out = run_op("sequence_erase", {"X": x}, {"tokens": [2, 3]})["Out"]
    assert out.numpy().tolist() == [[1], [1]] and out.lod() == [[0, 2, 3], [0, 1, 1, 2]]


def test_sequence_mask_takes_its_length_from_a_tensor_an_attribute_or_the_data() -> None:
    x = np.array([1, 3])
    with_tensor = {"X": x, "MaxLenTensor": np.array([2], np.int32)}
    assert run_op("sequence_mask", with_tensor, {"out_dtype": 3})["Y"].numpy().tolist() == [[1, 0], [1, 1]]
    assert run_op("sequence_mask", {"X": x}, {"maxlen": 1, "out_dtype": 5})["Y"].numpy().tolist() == [[1], [1]]
    assert run_op("sequence_mask", {"X": x}, {"out_dtype": 0})["Y"].numpy().tolist() == [[1, 0, 0], [1, 1, 1]]


def test_sequence_reverse_undoes_itself() -> None:
    x = sequences([3, 0, 4])
    once = run_op("sequence_reverse", {"X": x})["Y"]
    np.testing.assert_array_equal(once.numpy()[:3], x.numpy()[2::-1])
    np.testing.assert_array_equal(run_op("sequence_reverse", {"X": once})["Y"].numpy(), x.numpy())


def test_lod_reset_prefers_the_lod_of_y_and_may_append() -> None:
    x = lod_tensor(np.zeros((6, 1)), [[2, 4]])
    y = lod_tensor(np.zeros((6, 1)), [[1, 2], [2, 1, 3]])
    assert run_op("lod_reset", {"X": x, "Y": y}, {"target_lod": [0, 6]})["Out"].lod() == [[0, 1, 3], [0, 2, 3, 6]]
    data = np.array([0, 3, 6], np.int32)
    assert run_op("lod_reset", {"X": x, "Y": data}, {"target_lod": [0, 6]})["Out"].lod() == [[0, 3, 6]]
    appended = run_op("lod_reset", {"X": x}, {"target_lod": [0, 1, 2, 3, 4, 5, 6], "append": True})["Out"]
    assert appended.lod() == [[0, 2, 6], [0, 1, 2, 3, 4, 5, 6]]


class OnTheHost:
    np = np


def test_taking_sequences_of_nested_levels() -> None:
    lod, rows = take_sequences(OnTheHost(), [[0, 2, 3], [0, 2, 2, 5]], [1, 0])  # type: ignore[arg-type]
    assert lod == [[0, 1, 3], [0, 3, 5, 5]] and rows.tolist() == [2, 3, 4, 0, 1]
    assert ranges(OnTheHost(), [5, 1], [2, 3]).tolist() == [5, 6, 1, 2, 3]  # type: ignore[arg-type]


# -- what they refuse
ROWS = RNG.normal(size=(5, 2)).astype(np.float32)
SEQUENCES = lod_tensor(ROWS, [[2, 3]])
IDS = lod_tensor(np.array([[0], [9]]), [[1, 1]])


@pytest.mark.parametrize(
    ("op_type", "inputs", "attrs", "message"),
    [
        ("sequence_pool", {"X": ROWS}, {}, "input X needs a LoD of at least one level, found none"),
        (
            "sequence_pool",
            {"X": SEQUENCES},
            {"pooltype": "MEDIAN"},
            "pooltype must be one of AVERAGE, .* found 'MEDIAN'",
        ),
        ("sequence_softmax", {"X": SEQUENCES}, {}, r"X must have one value a row, found shape \(5, 2\)"),
        (
            "sequence_conv",
            {"X": SEQUENCES, "Filter": np.zeros((5, 3), np.float32)},
            {"contextLength": 3},
            r"Filter must have contextLength \* width of X = 3 \* 2 rows, found X \(5, 2\), Filter \(5, 3\)",
        ),
        (
            "sequence_conv",
            {"X": SEQUENCES, "Filter": np.zeros((6, 3), np.float32)},
            {"contextLength": 3, "contextStart": -1, "paddingTrainable": True},
            r"PaddingData must have shape \(2, 2\) for this context, found None",
        ),
        ("sequence_expand", {"X": ROWS, "Y": ROWS}, {}, "input Y needs a LoD, found none"),
        (
            "sequence_expand",
            {"X": ROWS, "Y": SEQUENCES},
            {"ref_level": 1},
            r"ref_level must be -1 or in \[0, 1\), found 1",
        ),
        ("sequence_expand", {"X": ROWS, "Y": SEQUENCES}, {}, "X has 5 rows, but level -1 of Y's LoD has 2 sequences"),
        ("sequence_expand_as", {"X": ROWS, "Y": SEQUENCES}, {}, "X has 5 rows, but Y has 2 sequences"),
        (
            "sequence_concat",
            {"X": [SEQUENCES, lod_tensor(ROWS, [[1, 1, 3]])]},
            {},
            r"the inputs must have the same number of sequences, found \[2, 3\]",
        ),
        ("sequence_reshape", {"X": SEQUENCES}, {"new_dim": 4}, r"sequence 1 of X has 3 \* 2 values"),
        (
            "sequence_pad",
            {"X": SEQUENCES, "PadValue": ROWS[0]},
            {"padded_length": 2},
            "at least the longest sequence, 3",
        ),
        ("sequence_pad", {"X": SEQUENCES, "PadValue": ROWS}, {}, r"PadValue must have one value or the shape of a row"),
        ("sequence_unpad", {"X": ROWS, "Length": np.array([1, 1, 1, 1, 3])}, {}, r"Length must lie in \[0, 2\]"),
        (
            "sequence_slice",
            {"X": SEQUENCES, "Offset": np.array([[0], [2]]), "Length": np.array([[1], [2]])},
            {},
            "Offset 2 and Length 2 reach outside sequence 1 of X, which has 3 rows",
        ),
        (
            "sequence_scatter",
            {"X": np.zeros((2, 3)), "Ids": IDS, "Updates": lod_tensor(np.zeros((2, 1)), [[1, 1]])},
            {},
            r"Ids must lie in \[0, 3\), found values from 0 to 9",
        ),
        ("sequence_enumerate", {"X": IDS}, {"win_size": 1}, "win_size must be at least 2, found 1"),
        ("sequence_mask", {"X": np.array([1]), "MaxLenTensor": np.array([0])}, {"out_dtype": 3}, "must be positive"),
        ("add_position_encoding", {"X": np.zeros((2, 3, 5))}, {}, "the last dimension of X must be even, found 5"),
        ("lod_reset", {"X": ROWS}, {"target_lod": [0, 4]}, "level 0 ends at 4, but there are 5 rows"),
        ("lod_reset", {"X": ROWS}, {}, r"the target LoD must have at least two offsets, found \[\]"),
        (
            "sequence_topk_avg_pooling",
            {"X": lod_tensor(ROWS[:, :1], [[5]]), "ROW": lod_tensor(ROWS, [[5]]), "COLUMN": lod_tensor(ROWS, [[5]])},
            {"topks": [1], "channel_num": 1},
            r"sequence 0 of X must have channel_num \* rows \* columns = 1 \* 5 \* 5 values, found 5",
        ),
    ],
)
def test_bad_input_is_named(op_type: str, inputs: dict[str, Any], attrs: dict[str, Any], message: str) -> None:
    with pytest.raises(OperatorError, match=f"operator {op_type}: .*{message}"):
        run_op(op_type, inputs, attrs)


def none_of(width: int) -> LoDTensor:
    """A batch without sequences."""
    return LoDTensor(np.zeros((0, width), np.float32), [[0]])


def test_match_matrix_tensor_of_a_batch_without_sequences_gives_nothing() -> None:
    inputs = {"X": none_of(3), "Y": none_of(4), "W": np.ones((3, 2, 4), np.float32)}
    out = run_op("match_matrix_tensor", inputs, {"dim_t": 2})
    assert out["Out"].numpy().shape == (0, 1) and out["Out"].lod() == [[0]]
    assert out["Tmp"].numpy().shape == (0, 1)


def test_topk_avg_pooling_of_a_batch_without_sequences_gives_nothing() -> None:
    inputs = {"X": none_of(1), "ROW": none_of(1), "COLUMN": none_of(1)}
    out = run_op("sequence_topk_avg_pooling", inputs, {"topks": [1, 3], "channel_num": 2})
    assert out["Out"].numpy().shape == (0, 4) and out["pos"].numpy().shape == (0,)
