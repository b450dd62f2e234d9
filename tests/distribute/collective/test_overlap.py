"""Sums of gradients beside the backward operators."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

from fluidtool.distribute.collective.buckets import PREPARED_BYTES, Background, Sums, overlaps
from fluidtool.distribute.collective.communicator import Communicator
from fluidtool.distribute.collective.threads import run_ranks
from fluidtool.errors import UsageError
from tests.distribute.collective.support import train_threads, transpiled


@pytest.mark.parametrize("kind", ["grad_allreduce", "local_sgd"])
@pytest.mark.parametrize("rings", [1, 2])
def test_overlap_does_not_change_a_bit(kind: str, rings: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLAGS_fuse_parameter_memory_size", "0.0001")
    plain = train_threads([transpiled(rank, 2, kind, rings) for rank in range(2)])
    monkeypatch.setenv("FLUIDTOOL_COLLECTIVE_OVERLAP", "1")
    found = train_threads([transpiled(rank, 2, kind, rings) for rank in range(2)])
    for own, wanted in zip(found, plain, strict=True):
        for array, other in zip(own, wanted, strict=True):
            np.testing.assert_array_equal(array, other)


def test_a_full_bucket_is_summed_while_further_gradients_are_computed() -> None:
    def work(ring: Communicator) -> list[np.ndarray]:
        background, heard = Background(), threading.Event()
        sums = Sums(ring, 8, background=background, listener=lambda *_: heard.set())
        sums.add(np.full(2, ring.rank, "float32"))
        sums.add(np.full(2, 5, "float32"))
        assert heard.wait(10)  # nobody has asked for the sums yet
        found = sums.take()
        background.close()
        return found

    for found in run_ranks(2, work):
        assert [list(array) for array in found] == [[1, 1], [10, 10]]


def test_small_buckets_are_prepared_once_and_their_sums_stay_as_they_were() -> None:
    def work(ring: Communicator) -> list[Any]:
        prepared: list[int] = []
        prepare = ring.prepare_all_reduce

        def counted(array: Any, reduction: str = "sum") -> Any:
            prepared.append(array.nbytes)
            return prepare(array, reduction)

        ring.prepare_all_reduce = counted  # type: ignore[method-assign]
        small, large = np.ones(3, "float32"), np.ones(PREPARED_BYTES // 4 + 1, "float32")
        sums = Sums(ring, 0)
        steps = [sums.of([step * small, step * large, step * small.astype("float64")]) for step in range(3)]
        return [prepared, [[array[0] for array in step] for step in steps]]

    for prepared, sums in run_ranks(2, work):
        assert prepared == [12, 24]
        assert sums == [[0, 0, 0], [2, 2, 2], [4, 4, 4]]


def test_an_error_beside_is_raised_where_the_sums_are_taken() -> None:
    class Failing:
        def begin_sums(self, arrays: Any) -> None:
            return None

        def prepare_all_reduce(self, array: Any) -> Any:
            raise OSError("the cable is out")

    sums = Sums(Failing(), 0, background=Background())  # type: ignore[arg-type]
    sums.add(np.zeros(2))
    with pytest.raises(OSError, match="the cable is out"):
        sums.take()


def test_only_0_and_1_are_answers() -> None:
    assert [overlaps({}), overlaps({"FLUIDTOOL_COLLECTIVE_OVERLAP": "1"})] == [False, True]
    with pytest.raises(UsageError, match="FLUIDTOOL_COLLECTIVE_OVERLAP must be 0 or 1, found 'yes'"):
        overlaps({"FLUIDTOOL_COLLECTIVE_OVERLAP": "yes"})
