"""Taking mini-batches from examples in memory."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fluidtool.errors import FeedError, LoDError, UnreadableError
from fluidtool.tensor import LoDTensor
from fluidtool.training.examples import Examples, Order, is_stream, join, stream_of, take_examples


def numbers(*chosen: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return np.array(chosen, np.int64)


def column(*values: int) -> np.ndarray[tuple[int, int], np.dtype[np.int64]]:
    return np.array(values, np.int64).reshape(-1, 1)


NESTED = LoDTensor(column(0, 1, 2, 3, 4, 5, 6), [[0, 2, 3], [0, 2, 2, 7]])  # ((0 1) ()) and ((2 3 4 5 6))


def test_rows_are_taken_in_order() -> None:
    taken = take_examples(LoDTensor(column(5, 6, 7)), numbers(2, 0))
    assert (taken.numpy().ravel().tolist(), taken.lod()) == ([7, 5], [])


def test_sequences_are_taken_whole() -> None:
    taken = take_examples(LoDTensor(column(0, 1, 2, 3), [[0, 1, 1, 4]]), numbers(2, 1, 0))
    assert (taken.numpy().ravel().tolist(), taken.lod()) == ([1, 2, 3, 0], [[0, 3, 3, 4]])


def test_sequences_of_sequences_are_taken_whole() -> None:
    taken = take_examples(NESTED, numbers(1, 0))
    assert (taken.numpy().ravel().tolist(), taken.lod()) == ([2, 3, 4, 5, 6, 0, 1], [[0, 1, 3], [0, 5, 7, 7]])


def test_an_example_may_be_empty() -> None:
    taken = take_examples(LoDTensor(column(0, 1), [[0, 0, 2]]), numbers(0))
    assert (taken.shape(), taken.lod()) == ([0, 1], [[0, 0]])


def test_examples_of_files_are_put_together() -> None:
    joined = join("x", [NESTED, NESTED])
    assert joined.lod() == [[0, 2, 3, 5, 6], [0, 2, 2, 7, 9, 9, 14]]
    assert Examples({"x": joined}).count == 4


def test_files_must_agree_on_sequences() -> None:
    with pytest.raises(FeedError, match="disagree on the data of the input x"):
        join("x", [NESTED, LoDTensor(column(1))])


def test_inputs_must_have_the_same_number_of_examples() -> None:
    with pytest.raises(FeedError, match="x 2, y 3"):
        Examples({"x": NESTED, "y": LoDTensor(column(1, 2, 3))})


@pytest.mark.parametrize(("drop_last", "sizes"), [(False, [4, 4, 2]), (True, [4, 4])])
def test_batches_of_an_epoch(drop_last: bool, sizes: list[int]) -> None:
    assert [len(batch) for batch in Order(4, drop_last=drop_last).batches(10, 0)] == sizes


def test_an_epoch_has_the_same_order_whenever_it_is_asked_for() -> None:
    order = Order(3, seed=5)
    assert [batch.tolist() for batch in order.batches(7, 2)] == [batch.tolist() for batch in order.batches(7, 2)]
    assert [batch.tolist() for batch in order.batches(7, 2)] != [batch.tolist() for batch in order.batches(7, 3)]


def test_ready_batches() -> None:
    arrays = {
        "step0_feed0": LoDTensor(column(1, 2, 3)),
        "step0_feed0_lod0": LoDTensor(numbers(0, 1, 3)),
        "step1_feed0": LoDTensor(column(4)),
        "step1_feed0_lod0": LoDTensor(numbers(0, 1)),
    }
    assert is_stream(list(arrays)) and not is_stream(["step0_feed0", "x"]) and not is_stream([])
    stream = stream_of(arrays, ["words"], "data.npz")
    assert stream.count == 2
    feed = stream.take(numbers(0))
    assert (feed["words"].numpy().ravel().tolist(), feed["words"].lod()) == ([1, 2, 3], [[0, 1, 3]])


@pytest.mark.parametrize(
    ("name", "offsets", "error", "message"),
    [
        ("step0_feed0_lod0", [0, 3], LoDError, "invalid LoD for step0_feed0 in data.npz: level 0 ends at 3"),
        ("step0_feed0_lod0", [[0, 2]], LoDError, r"must be a list of whole numbers, found int64 \(1, 2\)"),
        ("step0_feed0_lod0", [0, 0.5, 2], LoDError, r"must be a list of whole numbers, found float64 \(3,\)"),
        ("step0_feed0_lod9", [0, 2], LoDError, r"step0_feed0 in data.npz must have the levels 0, 1, …, found \[9\]"),
        ("step0_feed5_lod0", [0, 2], UnreadableError, "has offsets for step0_feed5, which it does not contain"),
        ("step7_feed0_lod0", [0, 2], UnreadableError, "has offsets for step7_feed0, which it does not contain"),
    ],
)
def test_ready_batches_with_offsets_that_do_not_fit(
    name: str, offsets: Any, error: type[Exception], message: str
) -> None:
    arrays = {"step0_feed0": LoDTensor(column(1, 2)), name: LoDTensor(np.array(offsets))}
    with pytest.raises(error, match=message):
        stream_of(arrays, ["words"], "data.npz")


def test_numbers_without_end_are_no_steps() -> None:
    assert not is_stream([f"step{'9' * 5000}_feed0"])
