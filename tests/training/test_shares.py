"""Several trainers share every mini-batch: parts of one size, in the order of one process."""

from __future__ import annotations

import numpy as np
import pytest

from fluidtool.training import Order


def batches(order: Order, count: int, epoch: int = 0) -> list[list[int]]:
    return [batch.tolist() for batch in order.batches(count, epoch)]


def shares(count: int, size: int, trainers: int, **options: bool) -> list[list[list[int]]]:
    return [batches(Order(size, trainer=i, trainers=trainers, **options), count) for i in range(trainers)]


def test_the_parts_of_all_trainers_are_the_mini_batches_of_one_process() -> None:
    parts = shares(48, 4, 3)
    together = [np.concatenate(step).tolist() for step in zip(*parts, strict=True)]
    assert together == batches(Order(12), 48)


def test_one_trainer_has_everything() -> None:
    assert batches(Order(4, trainer=0, trainers=1), 10) == batches(Order(4), 10)


def test_an_incomplete_mini_batch_is_shared_evenly() -> None:
    assert shares(11, 3, 2, shuffle=False) == [[[0, 1, 2], [6, 7]], [[3, 4, 5], [8, 9]]]


def test_an_incomplete_mini_batch_may_be_left_out() -> None:
    assert shares(11, 3, 2, shuffle=False, drop_last=True) == [[[0, 1, 2]], [[3, 4, 5]]]


def test_fewer_examples_than_trainers_are_left_out() -> None:
    assert shares(9, 2, 4, shuffle=False) == [[[0, 1]], [[2, 3]], [[4, 5]], [[6, 7]]]


def test_ready_mini_batches_are_dealt_out_in_turn() -> None:
    assert shares(5, 1, 2, shuffle=False) == [[[0], [2]], [[1], [3]]]


@pytest.mark.parametrize("epoch", [0, 3])
def test_every_trainer_shuffles_alike(epoch: int) -> None:
    seen = np.concatenate([np.concatenate(Order(2, trainer=i, trainers=2).batches(40, epoch)) for i in range(2)])
    assert sorted(seen.tolist()) == list(range(40))
