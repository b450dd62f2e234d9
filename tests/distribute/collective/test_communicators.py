"""What every communicator does, on threads of this process: the reference for the others."""

from __future__ import annotations

import threading
import time
from typing import Any

import numpy as np
import pytest

from fluidtool.distribute.collective.communicator import Communicator
from fluidtool.distribute.collective.peers import SMALL_ELEMENTS, parts
from fluidtool.distribute.collective.threads import run_ranks, thread_communicators
from fluidtool.errors import CollectiveError, UsageError

SIZES = [1, 7, SMALL_ELEMENTS + 1, 3 * SMALL_ELEMENTS + 2]
FUNCTIONS = {"sum": np.add, "prod": np.multiply, "max": np.maximum, "min": np.minimum}


def values(rank: int, size: int, dtype: str = "float32") -> np.ndarray:
    return (np.random.default_rng(rank).normal(size=size) * 4).astype(dtype)


def in_order(reduction: str, arrays: list[np.ndarray]) -> np.ndarray:
    total = arrays[0]
    for array in arrays[1:]:
        total = FUNCTIONS[reduction](total, array)
    return total


@pytest.mark.parametrize("ranks", [1, 2, 4])
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("reduction", list(FUNCTIONS))
def test_all_reduce_gives_every_rank_the_bits_of_the_reduction_in_rank_order(
    ranks: int, size: int, reduction: str
) -> None:
    found = run_ranks(ranks, lambda ring: ring.all_reduce(values(ring.rank, size), reduction))
    expected = in_order(reduction, [values(rank, size) for rank in range(ranks)])
    for array in found:
        np.testing.assert_array_equal(array, expected)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "int32", "int64", "uint8"])
def test_all_reduce_keeps_shape_and_data_type(dtype: str) -> None:
    (found, _) = run_ranks(2, lambda ring: ring.all_reduce(np.ones((2, 3), dtype)))
    assert (found.shape, found.dtype) == ((2, 3), np.dtype(dtype))
    assert (found == 2).all()


@pytest.mark.parametrize("size", SIZES)
def test_all_reduce_can_write_where_it_reads(size: int) -> None:
    def in_place(ring: Communicator) -> np.ndarray:
        array = values(ring.rank, size)
        assert ring.all_reduce(array, out=array) is array
        return array

    expected = in_order("sum", [values(rank, size) for rank in range(3)])
    for array in run_ranks(3, in_place):
        np.testing.assert_array_equal(array, expected)


@pytest.mark.parametrize("reduction", list(FUNCTIONS))
def test_what_is_prepared_once_is_reduced_as_often_as_it_is_called(reduction: str) -> None:
    def work(ring: Communicator) -> list[np.ndarray]:
        array, found = np.empty(5, "float32"), []
        reduce = ring.prepare_all_reduce(array, reduction)
        for step in range(3):
            array[:] = values(ring.rank + 10 * step, 5)
            reduce()
            found.append(array.copy())
        return found

    for found in run_ranks(2, work):
        for step, array in enumerate(found):
            wanted = in_order(reduction, [values(rank + 10 * step, 5) for rank in range(2)])
            np.testing.assert_array_equal(array, wanted)


def test_inputs_are_left_as_they_are() -> None:
    def work(ring: Communicator) -> np.ndarray:
        array = np.full(3, ring.rank, "float32")
        ring.all_reduce(array)
        ring.reduce(array, 0)
        ring.broadcast(array, 1)
        return array

    for rank, array in enumerate(run_ranks(2, work)):
        assert (array == rank).all()


def test_reduce_gives_the_root_the_sum_and_the_others_their_own() -> None:
    found = run_ranks(3, lambda ring: ring.reduce(np.full(2, ring.rank + 1), root=1))
    assert [list(array) for array in found] == [[1, 1], [6, 6], [3, 3]]


@pytest.mark.parametrize("root", [0, 2])
def test_broadcast_gives_everybody_the_array_of_the_root(root: int) -> None:
    found = run_ranks(3, lambda ring: ring.broadcast(np.full((2, 2), ring.rank), root))
    assert all((array == root).all() for array in found)


def test_a_broadcast_array_can_be_written_to() -> None:
    assert all(array.flags.writeable for array in run_ranks(2, lambda ring: ring.broadcast(np.zeros(3), 0)))


def test_all_gather_puts_rows_below_each_other_in_rank_order() -> None:
    found = run_ranks(3, lambda ring: ring.all_gather(np.full((2, 1), ring.rank)))
    for array in found:
        np.testing.assert_array_equal(array, [[0], [0], [1], [1], [2], [2]])


def test_reduce_scatter_gives_each_rank_its_rows_of_the_sum() -> None:
    found = run_ranks(2, lambda ring: ring.reduce_scatter(np.arange(8.0).reshape(4, 2) + ring.rank))
    np.testing.assert_array_equal(np.concatenate(found), 2 * np.arange(8.0).reshape(4, 2) + 1)


def test_all_to_all_gives_each_rank_a_row_of_every_rank() -> None:
    found = run_ranks(3, lambda ring: ring.all_to_all(10 * ring.rank + np.arange(3)))
    assert [list(array) for array in found] == [[0, 10, 20], [1, 11, 21], [2, 12, 22]]


def test_gathering_what_was_scattered_is_an_all_reduce() -> None:
    def work(ring: Communicator) -> bool:
        array = values(ring.rank, 4 * 5000).reshape(4, -1)
        together = ring.all_gather(ring.reduce_scatter(array))
        return bool((together == ring.all_reduce(array)).all())

    assert all(run_ranks(4, work))


def test_exchange_gives_everybody_the_bytes_of_all() -> None:
    assert run_ranks(3, lambda ring: ring.exchange(b"x" * ring.rank)) == [[b"", b"x", b"xx"]] * 3


def test_a_barrier_waits_for_the_last() -> None:
    came: list[float] = []

    def work(ring: Communicator) -> float:
        time.sleep(0.05 * ring.rank)
        came.append(time.monotonic())
        ring.barrier()
        return time.monotonic()

    assert min(run_ranks(3, work)) >= max(came)


def test_the_bytes_of_arrays_are_counted() -> None:
    ring = thread_communicators(1)[0]
    ring.all_reduce(np.zeros(10, "float32"))
    assert ring.bytes_moved == 40


def test_parts_cover_everything_and_differ_by_one_at_most() -> None:
    found = parts(10, 4)
    assert found == [(0, 3), (3, 6), (6, 8), (8, 10)]
    assert parts(2, 3) == [(0, 1), (1, 2), (2, 2)]


# ---------------------------------------------------------------- what cannot work
@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda ring: ring.all_reduce(np.zeros(2), "mean"), "there is no reduction 'mean'; expected one of sum, prod"),
        (lambda ring: ring.all_reduce(np.array([True])), "only numbers can be reduced, but the array is of bool"),
        (lambda ring: ring.all_reduce(np.zeros(2), out=np.zeros(3)), "found \\(3,\\) and float64"),
        (lambda ring: ring.all_reduce(np.zeros(2), out=np.zeros(4)[::2]), "must be a contiguous array"),
        (lambda ring: ring.prepare_all_reduce(np.zeros(4)[::2]), "must be a contiguous array"),
        (lambda ring: ring.prepare_all_reduce(np.array(["a"])), "only numbers can be reduced"),
        (lambda ring: ring.broadcast(np.zeros(2), 2), "root 2 is not one of the 2 ranks; they go from 0 to 1"),
        (lambda ring: ring.reduce(np.zeros(2), -1), "root -1 is not one of the 2 ranks"),
        (lambda ring: ring.reduce_scatter(np.zeros((3, 2))), "cannot be split by rows over 2 ranks"),
        (lambda ring: ring.all_to_all(np.zeros(3)), "has no row for each of the 2 ranks"),
        (lambda ring: ring.all_gather(np.array(1.0)), "has no dimensions"),
    ],
)
def test_arguments_that_cannot_work_are_refused_on_every_rank(call: Any, message: str) -> None:
    for ring in thread_communicators(2):
        with pytest.raises(UsageError, match=message):
            call(ring)


def test_a_rank_is_one_of_the_ring() -> None:
    from fluidtool.distribute.collective.peers import PeerCommunicator

    with pytest.raises(UsageError, match="rank 2 is not in a ring of 2"):
        PeerCommunicator(None, 2, 2)  # type: ignore[arg-type]


def test_ranks_that_call_different_collectives_get_an_error_that_names_both() -> None:
    def work(ring: Communicator) -> Any:
        return ring.all_reduce(np.zeros(3)) if ring.rank else ring.broadcast(np.zeros(3), 1)

    with pytest.raises(CollectiveError, match=r"rank \d is at .*, but rank \d at "):
        run_ranks(2, work, seconds=5)


def test_ranks_that_give_different_shapes_get_an_error() -> None:
    with pytest.raises(CollectiveError, match=r"all_reduce sum \(\d,\) float64, but rank \d at all_reduce sum \(\d,\)"):
        run_ranks(2, lambda ring: ring.all_reduce(np.zeros(3 + ring.rank)), seconds=5)


def test_ranks_that_give_different_data_types_get_an_error() -> None:
    with pytest.raises(CollectiveError, match="float64"):
        run_ranks(2, lambda ring: ring.all_reduce(np.zeros(3, f"float{32 * (ring.rank + 1)}")), seconds=5)


def test_a_rank_that_raises_ends_the_others_at_once() -> None:
    began = time.monotonic()

    def work(ring: Communicator) -> Any:
        if ring.rank == 1:
            raise ValueError("no more data")
        return ring.barrier()

    with pytest.raises(ValueError, match="no more data"):
        run_ranks(3, work, seconds=30)
    assert time.monotonic() - began < 10


def test_a_rank_that_finishes_early_is_not_waited_for() -> None:
    with pytest.raises(CollectiveError, match="rank 0 waits for rank 1 at exchange, but that rank has finished"):
        run_ranks(2, lambda ring: ring.barrier() if ring.rank == 0 else None, seconds=30)


def test_a_rank_that_stands_still_is_too_late() -> None:
    ends = thread_communicators(2, seconds=0.2)
    with pytest.raises(CollectiveError, match=r"rank 0 waited 0.2 s for rank 1 at all_reduce sum \(2,\) float64"):
        ends[0].all_reduce(np.zeros(2))
    with pytest.raises(CollectiveError, match="rank 0 waited"):
        ends[1].all_reduce(np.zeros(2))


def test_after_an_abort_everything_fails_with_its_reason() -> None:
    ends = thread_communicators(2)
    ends[0].abort("the disk is full")
    for end in ends:
        with pytest.raises(CollectiveError, match="the disk is full"):
            end.barrier()


def test_a_rank_cannot_run_ahead_for_ever() -> None:
    ends = thread_communicators(2, seconds=0.2)
    with pytest.raises(CollectiveError, match="collectives ahead of rank 1, which makes no progress"):
        for _ in range(100):
            ends[0].broadcast(np.zeros(2), 0)


def test_a_waiting_rank_is_woken_by_an_abort() -> None:
    ends = thread_communicators(2, seconds=30)
    threading.Timer(0.1, ends[1].abort, ["enough"]).start()
    began = time.monotonic()
    with pytest.raises(CollectiveError, match="enough"):
        ends[0].barrier()
    assert time.monotonic() - began < 5
