"""ParallelExecutor(num_trainers, trainer_id): several trainers, each on a thread with a scope of its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fluidtool.fluid as fluid
from fluidtool import runtime
from fluidtool.distribute.collective.buckets import Sums
from fluidtool.distribute.collective.communicator import Communicator
from fluidtool.distribute.collective.engines import Identifier, ThreadWorld
from fluidtool.distribute.collective.threads import run_ranks, thread_communicators
from fluidtool.errors import CollectiveError
from fluidtool.fluid.compiler import CompiledProgram
from fluidtool.fluid.flags import bucket_bytes
from fluidtool.ir import Program
from tests.distribute.collective.support import STEPS, alone, batch, endpoints, parameters, programs, thread_scope

Jobs = list[tuple[Program, Program, str]]


def train(
    jobs: Jobs, feeds: Callable[[int, int], dict[str, Any]], *, is_fused: bool = True, fetch: bool = True
) -> list[list[np.ndarray]]:
    """Train on as many threads as there are jobs; the parameters of each."""
    world = ThreadWorld(len(jobs), 20)

    def rank(ring: Communicator) -> list[np.ndarray]:
        main, startup, loss = jobs[ring.rank]
        scope, executor = thread_scope(world), runtime.Executor(engine="numpy")
        executor.run(startup, {}, [], scope)
        scope.var("NCCLID").value = Identifier(b"", endpoints(len(jobs)))
        strategy = fluid.BuildStrategy()
        strategy.num_trainers, strategy.trainer_id, strategy.fuse_all_reduce_ops = len(jobs), ring.rank, is_fused
        compiled = CompiledProgram(main).with_data_parallel(loss, strategy, places=[fluid.CPUPlace()])
        try:
            for step in range(STEPS):
                compiled.run(executor, feeds(step, ring.rank), [loss] if fetch or ring.rank == 0 else [], scope)
        except Exception as error:
            world.abort(str(error))
            raise
        return parameters(main, scope)

    return run_ranks(len(jobs), rank, 20)


def regressions(ranks: int) -> Jobs:
    return [programs(seed=rank) for rank in range(ranks)]


@pytest.mark.parametrize("is_fused", [True, False])
@pytest.mark.parametrize("ranks", [2, 4])
def test_trainers_train_as_one_does_and_agree_to_the_bit(ranks: int, is_fused: bool) -> None:
    found = train(regressions(ranks), lambda step, rank: batch(step, rank, ranks), is_fused=is_fused)
    for own in found:
        for array, wanted, first in zip(own, alone(ranks), found[0], strict=True):
            np.testing.assert_allclose(array, wanted, rtol=0, atol=1e-6)
            np.testing.assert_array_equal(array, first)


def test_buckets_do_not_change_a_bit() -> None:
    fused, single = (
        train(regressions(3), lambda step, rank: batch(step, rank, 3), is_fused=is_fused) for is_fused in (True, False)
    )
    for array, other in zip(fused[0], single[0], strict=True):
        np.testing.assert_array_equal(array, other)


def test_only_one_trainer_needs_to_fetch() -> None:
    found = train(regressions(2), lambda step, rank: batch(step, rank, 2), fetch=False)
    np.testing.assert_allclose(found[1][0], alone(2)[0], rtol=0, atol=1e-6)


def lookup(rank: int = 0) -> tuple[Program, Program, str]:
    main, startup = fluid.Program(), fluid.Program()
    main.random_seed = startup.random_seed = rank + 1
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        ids = fluid.layers.data("ids", [1], dtype="int64", lod_level=1)
        rows = fluid.layers.sequence_pool(fluid.layers.embedding(ids, [10, 3], is_sparse=True), "sum")
        loss = fluid.layers.mean(fluid.layers.fc(rows, 1))
        fluid.optimizer.SGD(0.5).minimize(loss)
    return main, startup, loss.name


def ids_of(step: int, rank: int | None) -> dict[str, Any]:
    """Rank 0 looks up two rows in a step, rank 1 four: rows of sparse gradients differ in number."""
    each = [[[step, 3]], [[step, 1, 3, 7]]]
    lists = [row for one in each for row in one] if rank is None else each[rank]
    flat = np.array([[n] for row in lists for n in row], "int64")
    return {"ids": fluid.create_lod_tensor(flat, [[len(row) for row in lists]], fluid.CPUPlace())}


def test_sparse_gradients_are_put_together() -> None:
    found = train([lookup(rank) for rank in range(2)], ids_of)
    main, startup, _ = lookup()
    scope, executor = runtime.Scope(), runtime.Executor(engine="numpy")
    executor.run(startup, {}, [], scope)
    for step in range(STEPS):
        executor.run(main, ids_of(step, None), [], scope)
    for own in found:
        for array, wanted in zip(own, parameters(main, scope), strict=True):
            np.testing.assert_allclose(array, wanted, rtol=0, atol=1e-6)


# ---------------------------------------------------------------- buckets
def sums_of(arrays: list[np.ndarray], limit: int) -> list[str]:
    """The sums that a ring of one computes, as its listener hears of them."""
    heard: list[str] = []
    ring = thread_communicators(1)[0]
    Sums(ring, limit, listener=lambda name, start, end: heard.append(name.removeprefix("sum of "))).of(arrays)
    return heard


def test_buckets_hold_neighbors_of_one_data_type_up_to_a_size() -> None:
    arrays = [
        np.zeros(size, dtype) for size, dtype in [(2, "f4"), (3, "f4"), (9, "f4"), (1, "f8"), (1, "f4"), (1, "f4")]
    ]
    assert sums_of(arrays, 20) == [
        "2 gradients, 20 bytes",
        "1 gradients, 36 bytes",
        "1 gradients, 8 bytes",
        "2 gradients, 8 bytes",
    ]
    assert len(sums_of(arrays, 0)) == 6
    assert sums_of([], 20) == []


def test_fused_sums_are_those_of_single_arrays() -> None:
    def work(ring: Communicator) -> list[np.ndarray]:
        random = np.random.default_rng(ring.rank)
        arrays = [random.normal(size=shape).astype("f4") for shape in [(3, 2), (5,), (1,), (4000,)]]
        return [array - ring.all_reduce(own) for array, own in zip(Sums(ring, 64).of(arrays), arrays, strict=True)]

    for found in run_ranks(3, work):
        assert all((difference == 0).all() for difference in found)


def test_the_size_of_buckets_is_a_flag_in_mib() -> None:
    assert (bucket_bytes(True), bucket_bytes(False)) == (32 << 20, 0)
    fluid.set_flags({"FLAGS_fuse_parameter_memory_size": 2})
    try:
        assert bucket_bytes(True) == 2 << 20
    finally:
        fluid.set_flags({"FLAGS_fuse_parameter_memory_size": -1.0})


# ---------------------------------------------------------------- what cannot work
def smaller(rank: int) -> tuple[Program, Program, str]:
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        x, y = fluid.layers.data("x", [6]), fluid.layers.data("y", [1])
        loss = fluid.layers.mean(fluid.layers.square_error_cost(fluid.layers.fc(x, 1), y))
        fluid.optimizer.Momentum(0.1, 0.9).minimize(loss)
    return main, startup, loss.name


def test_trainers_of_different_programs_are_told_before_the_first_step() -> None:
    with pytest.raises(CollectiveError, match=r"number \d+ differs .rank 0: .*; rank 1: "):
        train([programs(), smaller(1)], lambda step, rank: batch(step, rank, 2))


def test_a_trainer_that_fails_ends_the_others() -> None:
    def feeds(step: int, rank: int) -> dict[str, Any]:
        if (step, rank) == (2, 1):
            raise OSError("the data server is gone")
        return batch(step, rank, 2)

    with pytest.raises(OSError, match="the data server is gone"):
        train(regressions(2), feeds)


def test_the_number_of_trainers_is_that_of_the_transpiled_program() -> None:
    scope = thread_scope(ThreadWorld(2))
    main, startup, loss = programs()
    runtime.Executor().run(startup, {}, [], scope)
    scope.var("NCCLID").value = Identifier(b"", endpoints(3))
    strategy = fluid.BuildStrategy()
    strategy.num_trainers = 2
    compiled = CompiledProgram(main).with_data_parallel(loss, strategy, places=[fluid.CPUPlace()])
    with pytest.raises(ValueError, match="num_trainers is 2, but the program was transpiled for 3 trainers"):
        compiled.run(runtime.Executor(), batch(0), [loss], scope)
