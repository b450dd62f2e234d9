"""`DataLoader(dataset, …)`, Dataset and BatchSampler: batches, places, and what is refused (as Paddle 1.8.5 does)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import fluidtool.fluid as fluid
from fluidtool.errors import AssertedError, FeedError, ProgramError, UnsupportedOperatorError
from fluidtool.fluid.dataloader import BatchSampler, Dataset, default_collate_fn
from fluidtool.fluid.reader import DataLoader

SAMPLES = 7


class Numbers(Dataset):
    """Sample i is ([i, i], [i])."""

    def __getitem__(self, idx: int) -> Any:
        return np.full(2, idx, "float32"), np.array([idx], "int64")

    def __len__(self) -> int:
        return SAMPLES


@pytest.fixture(autouse=True)
def new_program() -> Iterator[None]:
    with fluid.program_guard(fluid.Program(), fluid.Program()):
        yield


def variables() -> list[Any]:
    return [fluid.data("x", [None, 2]), fluid.data("y", [None, 1], "int64")]


def load(places: int = 1, dataset: Any = None, **options: Any) -> DataLoader:
    options.setdefault("feed_list", variables())
    return DataLoader(Numbers() if dataset is None else dataset, places=fluid.cpu_places(places), **options)


def labels(loader: DataLoader) -> list[list[list[int]]]:
    return [[feed["y"].numpy().ravel().tolist() for feed in group] for group in loader]


@pytest.mark.parametrize(
    ("places", "options", "expected"),
    [
        (1, {"batch_size": 3}, [[[0, 1, 2]], [[3, 4, 5]], [[6]]]),
        (1, {"batch_size": 3, "drop_last": True}, [[[0, 1, 2]], [[3, 4, 5]]]),
        (2, {"batch_size": 2}, [[[0, 1], [2, 3]], [[4, 5], [6]]]),
        (2, {"batch_size": 3}, [[[0, 1, 2], [3, 4, 5]]]),
        (1, {"batch_sampler": BatchSampler(Numbers(), batch_size=4)}, [[[0, 1, 2, 3]], [[4, 5, 6]]]),
        (1, {"batch_size": 7, "num_workers": 2}, [[[0, 1, 2, 3, 4, 5, 6]]]),
    ],
)
def test_a_group_has_a_batch_for_every_place(places: int, options: dict[str, Any], expected: Any) -> None:
    loader = load(places, **options)
    assert labels(loader) == expected
    assert labels(loader) == expected, "another epoch"


def test_a_batch_has_a_tensor_for_every_variable() -> None:
    ((feed,),) = load(batch_size=SAMPLES)
    assert list(feed) == ["x", "y"]
    np.testing.assert_array_equal(feed["x"].numpy(), np.repeat(np.arange(7.0, dtype="float32"), 2).reshape(7, 2))


def test_lists_need_no_variables() -> None:
    ((first, second),) = next(iter(load(feed_list=None, return_list=True, batch_size=2)))
    assert (first.shape(), second.shape()) == ([2, 2], [2, 1])


def test_the_length_counts_batches() -> None:
    assert (len(load(batch_size=3)), len(load(batch_size=3, drop_last=True))) == (3, 2)


def test_numpys_seed_decides_the_order() -> None:
    np.random.seed(3)
    first = labels(load(batch_size=7, shuffle=True))
    np.random.seed(3)
    assert labels(load(batch_size=7, shuffle=True)) == first
    assert sorted(first[0][0]) == list(range(SAMPLES)) != first[0][0]


def test_samples_are_put_together_by_collate_fn() -> None:
    loader = load(collate_fn=lambda batch: [np.stack([x for x, _ in batch]) * 10, [y for _, y in batch]], batch_size=2)
    ((feed,), *_) = list(loader)
    assert feed["x"].numpy().tolist() == [[0, 0], [10, 10]]


def test_what_a_data_set_raises_is_raised() -> None:
    class Broken(Numbers):
        def __getitem__(self, idx: int) -> Any:
            raise KeyError("boom")

    with pytest.raises(KeyError, match="boom"):
        labels(load(dataset=Broken()))


def test_an_epoch_can_be_left() -> None:
    for _ in load(batch_size=1):
        break


@pytest.mark.parametrize(
    ("options", "error", "what"),
    [
        ({"dataset": [1]}, AssertedError, "dataset should be subclass instance of paddle.io.Dataset"),
        ({"feed_list": None}, AssertedError, "feed_list should be set when return_list=False"),
        ({"batch_size": 0}, AssertedError, "batch_size should be a positive value"),
        ({"num_workers": -1}, AssertedError, "should be non-negative"),
        ({"batch_sampler": [[1]]}, AssertedError, "batch_sampler should be None or subclass instance"),
        (
            {"batch_sampler": BatchSampler(Numbers()), "shuffle": True},
            AssertedError,
            "should not be set when batch_sampler",
        ),
    ],
)
def test_loaders_that_cannot_be(options: dict[str, Any], error: type[Exception], what: str) -> None:
    with pytest.raises(error, match=what):
        load(**options)


def test_loaders_need_places() -> None:
    with pytest.raises(AssertedError, match="places cannot be None"):
        DataLoader(Numbers(), variables())


def test_samples_need_a_value_for_every_variable() -> None:
    with pytest.raises(FeedError, match=r"a value for each of 1 variables \(x\), found 2"):
        labels(load(feed_list=variables()[:1]))


@pytest.mark.parametrize(
    ("options", "error", "what"),
    [
        ({}, AssertedError, "either dataset or indices should be set"),
        ({"dataset": Numbers(), "indices": [1]}, AssertedError, "should not set both"),
        ({"dataset": [1]}, AssertedError, "dataset should be an instance"),
        ({"indices": 3}, AssertedError, "indices should be a list or tuple"),
        ({"indices": [1], "batch_size": 0}, AssertedError, "batch_size should be a positive integer, but got 0"),
        ({"indices": [1], "shuffle": 1}, AssertedError, "shuffle should be a boolean"),
        ({"indices": [1], "drop_last": 1}, AssertedError, "drop_last should be a boolean"),
    ],
)
def test_samplers_that_cannot_be(options: dict[str, Any], error: type[Exception], what: str) -> None:
    with pytest.raises(error, match=what):
        BatchSampler(**options)


def test_a_sampler_of_some_samples() -> None:
    assert list(BatchSampler(indices=[5, 6, 7], batch_size=2)) == [[5, 6], [7]]


def test_a_data_set_must_say_what_it_is() -> None:
    with pytest.raises(UnsupportedOperatorError, match="'__getitem__' not implement in class Dataset"):
        Dataset()[0]
    with pytest.raises(UnsupportedOperatorError, match="'__len__' not implement in class Dataset"):
        len(Dataset())


def test_arrays_are_stacked() -> None:
    assert [array.shape for array in default_collate_fn([np.zeros((2, 3)), np.ones((2, 3))])] == [(2, 2, 3)]
    with pytest.raises(FeedError, match="do not form arrays"):
        default_collate_fn([(np.zeros(2),), (np.zeros(3),)])


def test_feed_and_fetch_operators_can_be_put_around_a_program() -> None:
    x, y = variables()
    fluid.layers.mean(x, name="mean_0")
    program = fluid.default_main_program()
    fluid.io.prepend_feed_ops(program, [x.name, y.name])
    fluid.io.append_fetch_ops(program, ["mean_0.tmp_0"])
    assert [op.type for op in program.global_block().ops] == ["feed", "feed", "mean", "fetch"]
    assert [op.attr("col") for op in program.global_block().ops[:2]] == [1, 0]
    with pytest.raises(ProgramError, match="'z' doesn't exist"):
        fluid.io.prepend_feed_ops(program, ["z"])
