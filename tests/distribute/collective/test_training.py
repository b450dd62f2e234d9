"""Collective programs on threads: transpiled, run, and compared with one process."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fluidtool.fluid as fluid
from fluidtool.errors import CollectiveError, FluidError, OperatorError, ProgramError, UsageError
from fluidtool.ir import Program
from fluidtool.runtime import Executor, Scope
from tests.distribute.collective.support import (
    RANKS,
    STEPS,
    alone,
    batch,
    parameters,
    programs,
    train_threads,
    transpiled,
)


def on_devices(monkeypatch: pytest.MonkeyPatch, ranks: int = RANKS) -> list[np.ndarray]:
    """Training by a ParallelExecutor with a device for every rank: its sums have the order of the ranks."""
    monkeypatch.setenv("CPU_NUM", str(ranks))
    main, startup, loss = programs()
    with fluid.scope_guard(fluid.Scope()):
        fluid.Executor().run(startup)
        executor = fluid.ParallelExecutor(False, loss, main)
        for step in range(STEPS):
            executor.run([loss], feed=batch(step, ranks=ranks))
        return parameters(main, fluid.global_scope())


@pytest.mark.parametrize("rings", [1, 2])
@pytest.mark.parametrize("kind", ["grad_allreduce", "local_sgd"])
@pytest.mark.parametrize("ranks", [2, 4])
def test_ranks_train_as_one_process_does(kind: str, rings: int, ranks: int) -> None:
    found = train_threads([transpiled(rank, ranks, kind, rings) for rank in range(ranks)])
    for own in found:
        for array, wanted, first in zip(own, alone(ranks), found[0], strict=True):
            np.testing.assert_allclose(array, wanted, rtol=0, atol=1e-6)
            np.testing.assert_array_equal(array, first)


def test_the_bits_are_those_of_devices_of_one_process(monkeypatch: pytest.MonkeyPatch) -> None:
    found = train_threads([transpiled(rank) for rank in range(RANKS)])
    for array, wanted in zip(found[0], on_devices(monkeypatch), strict=True):
        np.testing.assert_array_equal(array, wanted)


def test_two_runs_give_the_same_bits() -> None:
    first, second = (train_threads([transpiled(rank) for rank in range(RANKS)]) for _ in range(2))
    for array, other in zip(first[0], second[0], strict=True):
        np.testing.assert_array_equal(array, other)


def test_all_ranks_start_with_the_parameters_of_rank_0() -> None:
    found = train_threads([transpiled(rank) for rank in range(RANKS)], steps=0)
    for own in found:
        for array, wanted in zip(own, alone(steps=0), strict=True):
            np.testing.assert_array_equal(array, wanted)


def test_devices_of_one_process_are_a_ring(monkeypatch: pytest.MonkeyPatch) -> None:
    """single_process_multi_thread: the operators of the program sum the gradients, once."""
    from fluidtool.fluid.transpiler.collective import SingleProcessMultiThread

    monkeypatch.setenv("CPU_NUM", str(RANKS))
    main, startup, loss = programs()
    SingleProcessMultiThread().transpile(startup, main, 0, "127.0.0.1:6170", "127.0.0.1:6170", False)
    with fluid.scope_guard(fluid.Scope()):
        fluid.Executor().run(startup)
        executor = fluid.ParallelExecutor(False, loss, main)
        for step in range(STEPS):
            executor.run([loss], feed=batch(step))
        found = parameters(main, fluid.global_scope())
    for array, wanted in zip(found, alone(), strict=True):
        np.testing.assert_allclose(array, wanted, rtol=0, atol=1e-6)


def test_one_device_alone_is_a_ring_of_one() -> None:
    from fluidtool.fluid.transpiler.collective import SingleProcessMultiThread

    main, startup, _ = programs()
    SingleProcessMultiThread().transpile(startup, main, 0, "127.0.0.1:6170", "127.0.0.1:6170", False)
    scope, executor = Scope(), Executor(engine="numpy")
    executor.run(startup, {}, [], scope)
    for step in range(STEPS):
        executor.run(main, batch(step), [], scope)
    for array, wanted in zip(parameters(main, scope), alone(), strict=True):
        np.testing.assert_array_equal(array, wanted)


# ---------------------------------------------------------------- what cannot work
def changed(change: Callable[[Program], None], rank: int = 1) -> list[tuple[Program, Program, str]]:
    jobs = [transpiled(index, 2) for index in range(2)]
    change(jobs[rank][0])
    return jobs


def without_last(main: Program) -> None:
    block = main.global_block()
    block.remove_op(max(index for index, op in enumerate(block.ops) if op.type == "c_allreduce_sum"))


def swapped(main: Program) -> None:
    ops = main.global_block().ops
    first, second = [index for index, op in enumerate(ops) if op.type == "c_allreduce_sum"][:2]
    ops.insert(second, ops.pop(first))
    main.touch()


def reshaped(main: Program) -> None:
    name = next(op for op in main.global_block().ops if op.type == "c_allreduce_sum").input("X")[0]
    main.global_block().var(name).shape = (3,)


def of_another_kind(main: Program) -> None:
    next(op for op in main.global_block().ops if op.type == "c_allreduce_sum").type = "c_allreduce_max"
    main.touch()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (without_last, "collective number 3 differs .rank 0: c_allreduce_sum of .*; rank 1: c_sync_comm_stream"),
        (swapped, "collective number 0 differs .rank 0: c_allreduce_sum of .*; rank 1: c_allreduce_sum of"),
        (reshaped, r"collective number 0 differs .rank 0: c_allreduce_sum of .*; rank 1: c_allreduce_sum of .* \(3,\)"),
        (of_another_kind, "collective number 0 differs .rank 0: c_allreduce_sum of .*; rank 1: c_allreduce_max of"),
    ],
)
def test_ranks_with_different_programs_are_told_before_the_first_step(
    change: Callable[[Program], None], message: str
) -> None:
    with pytest.raises(CollectiveError, match=message):
        train_threads(changed(change))


def test_a_rank_that_fails_in_the_middle_ends_the_others() -> None:
    def broken(main: Program) -> None:
        block = main.global_block()
        last = max(index for index, op in enumerate(block.ops) if op.type == "c_allreduce_sum")
        block.ops[last].set_attr("ring_id", 7)

    jobs = [transpiled(index, 2) for index in range(2)]
    for job in jobs:
        broken(job[0])
    with pytest.raises(ProgramError, match=r"ring 7, which has not been joined \(joined: 0\)"):
        train_threads(jobs)


def test_a_program_for_more_ranks_than_there_are_is_refused() -> None:
    jobs = [transpiled(index, 3) for index in range(3)][:2]
    with pytest.raises(UsageError, match="the program is for 3 ranks, but there are 2 threads"):
        train_threads(jobs)


def test_the_startup_program_comes_first() -> None:
    main, _, _ = transpiled(0, 2)
    _, startup, _ = programs()
    scope, executor = Scope(), Executor(engine="numpy")
    executor.run(startup, {}, [], scope)
    with pytest.raises(ProgramError, match="run the startup program that was transpiled with this program"):
        executor.run(main, batch(0, 0, 2), [], scope)


def test_endpoints_of_programs_must_be_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLUIDTOOL_COLLECTIVE", "grpc")
    _, startup, _ = transpiled(0, 2)
    with pytest.raises(PermissionError, match=r"operator c_gen_nccl_id asks to connect to .*endpoints="):
        Executor().run(startup, {}, [], Scope())


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("FLUIDTOOL_COLLECTIVE", "gloo", "FLUIDTOOL_COLLECTIVE must be one of auto, grpc, mpi, nccl, found 'gloo'"),
        ("FLUIDTOOL_COLLECTIVE", "nccl", "needs GPUs, but this program runs on the CPU"),
        ("FLUIDTOOL_COLLECTIVE_DEADLINE", "soon", "must be a number of seconds above 0, found 'soon'"),
        ("FLUIDTOOL_COLLECTIVE_DEADLINE", "0", "must be a number of seconds above 0, found '0'"),
    ],
)
def test_wrong_settings_are_named(name: str, value: str, message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, value)
    _, startup, _ = transpiled(0, 2)
    with pytest.raises(FluidError, match=message):
        Executor().run(startup, {}, [], Scope())


def test_rings_between_processes_have_one_device_each(monkeypatch: pytest.MonkeyPatch) -> None:
    from tests.distribute.collective.support import ThreadWorld, thread_scope

    monkeypatch.setenv("CPU_NUM", "2")
    main, startup, loss = programs()
    startup.global_block().create_var(name="id", persistable=True)
    scope = thread_scope(ThreadWorld(1))
    startup.global_block().append_op(
        type="c_gen_nccl_id", outputs={"Out": ["id"]}, attrs={"rank": 0, "endpoint": "a:1", "other_endpoints": []}
    )
    startup.global_block().append_op(type="c_comm_init", inputs={"X": ["id"]}, attrs={"nranks": 1, "rank": 0})
    name = next(op for op in main.global_block().ops if op.type.endswith("_grad")).output_arg_names[0]
    main.global_block().append_op(type="c_allreduce_sum", inputs={"X": [name]}, outputs={"Out": [name]})
    with fluid.scope_guard(scope):
        fluid.Executor().run(startup)
        with pytest.raises(UsageError, match="ring 0 has one rank per process, but 2 devices would run its operators"):
            fluid.ParallelExecutor(False, loss, main).run([loss], feed=batch(0))


def test_parameters_are_not_averaged_between_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CPU_NUM", "2")
    main, _, loss = transpiled(0, 2, "local_sgd")
    with pytest.raises(NotImplementedError, match="exchanges parameters between devices after every step"):
        fluid.ParallelExecutor(False, loss, main).run([loss], feed=batch(0))


def wrong_operator(type: str, attrs: dict[str, Any], array: np.ndarray) -> None:
    from tests.distribute.collective.support import ThreadWorld, thread_scope

    program, scope = Program(), thread_scope(ThreadWorld(1))
    block = program.global_block()
    scope.communicators.join_devices(block.append_op(type="c_comm_init_all"))  # type: ignore[union-attr]
    block.remove_op(0)
    block.create_var(name="x", shape=array.shape, dtype=str(array.dtype))
    block.append_op(type=type, inputs={"X": ["x"]}, outputs={"Out": ["out"]}, attrs=attrs)
    block.create_var(name="out")
    Executor().run(program, {"x": array}, ["out"], scope)


@pytest.mark.parametrize(
    ("type", "attrs", "message"),
    [
        ("c_allgather", {"nranks": 3}, "nranks is 3, but ring 0 has 1 ranks"),
        ("c_reducescatter", {"nranks": 2}, "nranks is 2, but ring 0 has 1 ranks"),
        ("c_broadcast", {"root": 1}, "root 1 is not one of the 1 ranks"),
        ("c_reduce_sum", {"root_id": 4}, "root 4 is not one of the 1 ranks"),
        ("allreduce", {"reduce_type": 4}, "reduce_type must be 0 (sum), 1 (product), 2 (max) or 3 (min), found 4"),
    ],
)
def test_operators_refuse_attributes_that_do_not_fit_the_ring(type: str, attrs: dict[str, Any], message: str) -> None:
    with pytest.raises((OperatorError, UsageError), match=re.escape(message)):
        wrong_operator(type, attrs, np.zeros((4, 2), "float32"))


def test_sums_of_a_program_travel_in_buckets(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same bits, with fewer messages."""
    from fluidtool.distribute.collective import peers

    shapes: list[tuple[int, ...]] = []
    plain = peers.PeerCommunicator._all_reduce

    def counted(ring: Any, array: Any, reduction: str, out: Any) -> Any:
        if ring.rank == 0:
            shapes.append(tuple(array.shape))
        return plain(ring, array, reduction, out)

    monkeypatch.setattr(peers.PeerCommunicator, "_all_reduce", counted)
    fused = train_threads([transpiled(rank, 2) for rank in range(2)], steps=1)
    assert shapes == [(41,)]
    monkeypatch.setenv("FLAGS_fuse_parameter_memory_size", "0")
    shapes.clear()
    single = train_threads([transpiled(rank, 2) for rank in range(2)], steps=1)
    assert sorted(shapes) == [(1,), (5,), (5,), (30,)]
    for array, other in zip(fused[0], single[0], strict=True):
        np.testing.assert_array_equal(array, other)


def test_a_size_of_buckets_that_is_no_number_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLAGS_fuse_parameter_memory_size", "large")
    with pytest.raises(FluidError, match="FLAGS_fuse_parameter_memory_size must be a number of MiB, found 'large'"):
        train_threads([transpiled(rank, 2) for rank in range(2)], steps=1)
