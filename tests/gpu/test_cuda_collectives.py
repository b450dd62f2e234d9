"""Steps of several GPUs: gradients are summed by NCCL, in buckets, beside the computation, within graphs."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import fluidtool.fluid as fluid
from fluidtool.distribute.collective.communicator import Communicator
from fluidtool.distribute.collective.engines import Identifier
from fluidtool.distribute.collective.nccl import NcclCommunicator
from fluidtool.errors import CollectiveError
from fluidtool.fluid import layers
from fluidtool.fluid.transpiler.collective import GradAllReduce, SingleProcessMultiThread
from fluidtool.runtime.communicators import Communicators
from fluidtool.runtime.engines.cuda.calls import Arrival, Reduction
from fluidtool.runtime.engines.cuda.training.compiled import CudaStep
from fluidtool.tensor import CUDAPlace
from tests.gpu.standin import installed
from tests.gpu.standin.nccl import NCCL, NcclError

GPUS = 2


@pytest.fixture
def gpus(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """cupy on a machine with two GPUs, joined by NCCL."""
    NCCL.restart()
    with installed(GPUS) as cupy:
        monkeypatch.setattr(cupy.cuda, "nccl", NCCL)
        yield cupy


@pytest.fixture(params=["graphs", "one by one"])
def graphs(request: pytest.FixtureRequest, gpus: Any, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whether steps are graphs."""
    monkeypatch.setenv("FLUIDTOOL_NCCL", "1" if request.param == "graphs" else "0")
    return bool(request.param == "graphs")


def with_sums(compiled: list[CudaStep]) -> list[CudaStep]:
    """The steps that sum over the GPUs, without the updates after them."""
    return [step for step in compiled if any(isinstance(call, Reduction) for call in step.calls)]


def network() -> tuple[Any, Any, Any]:
    main, startup = fluid.Program(), fluid.Program()
    main.random_seed = startup.random_seed = 3
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        x, y = layers.data("x", [6]), layers.data("y", [1])
        hidden = layers.fc(layers.fc(x, 9, act="tanh"), 4, act="relu")
        loss = layers.mean(layers.square(layers.fc(hidden, 1) - y))
        fluid.optimizer.Momentum(0.1, 0.9).minimize(loss)
    return main, startup, loss


def batch(step: int) -> dict[str, Any]:
    random = np.random.default_rng(step)
    return {
        "x": random.standard_normal((8, 6)).astype(np.float32),
        "y": random.standard_normal((8, 1)).astype(np.float32),
    }


def trained(steps: int = 3, transpiled: bool = True) -> dict[str, Any]:
    """The parameters after some steps on two GPUs, or on one without `transpiled`."""
    main, startup, loss = network()
    if transpiled:
        SingleProcessMultiThread().transpile(startup, main, 0, "127.0.0.1:6170", "127.0.0.1:6170", False)
    scope = fluid.Scope()
    with fluid.scope_guard(scope):
        if not transpiled:
            executor = fluid.Executor(fluid.CPUPlace())
            executor.run(startup)
            for step in range(steps):
                executor.run(main, batch(step), [loss])
        else:
            fluid.Executor(fluid.CUDAPlace(0)).run(startup)
            both = fluid.ParallelExecutor(True, loss.name, main)
            for step in range(steps):
                both.run([loss.name], feed=batch(step))
        return {each.name: np.array(scope.find_var(each.name).get_tensor()) for each in main.all_parameters()}


def by_a_parallel_executor(steps: int = 3) -> dict[str, Any]:
    """The parameters after some steps on two GPUs of a program that says nothing of them."""
    main, startup, loss = network()
    scope = fluid.Scope()
    with fluid.scope_guard(scope):
        fluid.Executor(fluid.CUDAPlace(0)).run(startup)
        both = fluid.ParallelExecutor(True, loss.name, main)
        for step in range(steps):
            both.run([loss.name], feed=batch(step))
        return {each.name: np.array(scope.find_var(each.name).get_tensor()) for each in main.all_parameters()}


def same(a: dict[str, Any], b: dict[str, Any]) -> None:
    for name, value in a.items():
        np.testing.assert_allclose(b[name], value, rtol=0, atol=2e-6, err_msg=name)


def test_two_gpus_train_as_one_processor(graphs: bool) -> None:
    same(trained(transpiled=False), trained())
    assert NCCL.calls and all(beside for _, count, beside in NCCL.calls if count > 1)


def test_a_step_is_one_graph_with_its_sums(
    gpus: Any, monkeypatch: pytest.MonkeyPatch, compiled: list[CudaStep]
) -> None:
    monkeypatch.setenv("FLUIDTOOL_NCCL", "1")
    trained()
    calls = with_sums(compiled)[-1].calls
    assert len(with_sums(compiled)) == 3 * GPUS
    (sums,) = (number for number, call in enumerate(calls) if isinstance(call, Reduction))
    (arrival,) = (number for number, call in enumerate(calls) if isinstance(call, Arrival))
    assert sums < arrival


@pytest.mark.parametrize(("size", "buckets"), [("0", 6), ("0.0001", 4), ("1", 1)])
def test_gradients_are_summed_in_buckets(
    size: str, buckets: int, graphs: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of 6 gradients, the same buckets with graphs and without: the ranks may differ in that."""
    monkeypatch.setenv("FLAGS_fuse_parameter_memory_size", size)
    same(trained(1, transpiled=False), trained(1))
    assert [count for rank, count, _ in NCCL.calls if rank == 0] == {
        6: [1, 4, 4, 36, 9, 54],
        4: [9, 36, 9, 54],
        1: [108],
    }[buckets]


def test_the_first_bucket_is_sent_before_the_last_gradient_is_computed(
    gpus: Any, monkeypatch: pytest.MonkeyPatch, compiled: list[CudaStep]
) -> None:
    monkeypatch.setenv("FLUIDTOOL_NCCL", "1")
    monkeypatch.setenv("FLAGS_fuse_parameter_memory_size", "0.0001")
    trained(1)
    calls = with_sums(compiled)[-1].calls
    sums = [number for number, call in enumerate(calls) if isinstance(call, Reduction)]
    arrivals = [number for number, call in enumerate(calls) if isinstance(call, Arrival)]
    between = [call for call in calls[sums[0] : sums[-1]] if not isinstance(call, Reduction)]
    assert between and sums[-1] < arrivals[0]


def test_the_memory_of_a_sum_is_used_for_nothing_else_until_it_arrives(
    gpus: Any, monkeypatch: pytest.MonkeyPatch, compiled: list[CudaStep]
) -> None:
    monkeypatch.setenv("FLUIDTOOL_NCCL", "1")
    trained(1)
    from fluidtool.runtime.engines.cuda.arena import lifetimes

    calls = with_sums(compiled)[-1].calls
    alive = lifetimes(calls)
    arrivals = [(number, call) for number, call in enumerate(calls) if isinstance(call, Arrival)]
    assert arrivals
    for number, call in arrivals:
        assert all(alive[pointer.buffer][1] >= number for pointer in call.reduction.pointers)


def test_a_rank_that_never_arrives_is_an_error_by_the_deadline(graphs: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLUIDTOOL_COLLECTIVE_DEADLINE", "0.5")
    original = NCCL.NcclCommunicator.allReduce

    def lost(self: Any, send: int, receive: int, count: int, *others: Any) -> None:
        if count > 1:  # the ranks have compared their programs before
            NCCL.gone = {1}
        original(self, send, receive, count, *others)

    monkeypatch.setattr(NCCL.NcclCommunicator, "allReduce", lost)
    with pytest.raises(CollectiveError) as caught:
        trained(1)
    message = str(caught.value)
    assert "rank 0 of 2 (GPU 0) waited 0.5 s at the sum" in message or "rank 1 of 2 (GPU 1)" in message
    assert "last checkpoint" in message and "FLUIDTOOL_COLLECTIVE_DEADLINE" in message
    assert NCCL.aborted


def test_an_error_of_nccl_while_a_sum_begins_is_told(gpus: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLUIDTOOL_NCCL", "1")

    def refuse(self: Any, *others: Any) -> None:
        raise NcclError("NCCL_ERROR_UNHANDLED_CUDA_ERROR")

    monkeypatch.setattr(NCCL.NcclCommunicator, "allReduce", refuse)
    with pytest.raises(CollectiveError, match="failed in NCCL: NCCL_ERROR_UNHANDLED_CUDA_ERROR"):
        trained(1)


class Joined:
    """How the ranks of a job find each other: those of one process are joined from the start."""

    is_networked = False

    def __init__(self, end: NcclCommunicator) -> None:
        self._end = end

    def identify(self, name: str, endpoints: tuple[str, ...], rank: int) -> Identifier:
        return Identifier(b"", endpoints)

    def join(self, identifier: Identifier, ring: int, rank: int, size: int) -> Communicator:
        return self._end

    def close(self) -> None:
        self._end.close()


def job(rank: int) -> tuple[Any, Any, Any]:
    """The programs of a rank."""
    main, startup, loss = network()
    endpoints = ["127.0.0.1:6170", "127.0.0.1:6171"]
    GradAllReduce().transpile(startup, main, rank, endpoints, endpoints[rank], False)
    return main, startup, loss


def process(programs: tuple[Any, Any, Any], end: NcclCommunicator, steps: int) -> dict[str, Any]:
    """The parameters of a rank that trains by itself, as a process of a job does."""
    (main, startup, loss), rank = programs, end.rank
    scope, executor = fluid.Scope(), fluid.Executor(fluid.CUDAPlace(rank))
    scope.communicators = Communicators(CUDAPlace(rank), make_engine=lambda: Joined(end))
    executor.run(startup, scope=scope)
    for step in range(steps):
        feed = {name: value[4 * rank : 4 * rank + 4] for name, value in batch(step).items()}
        executor.run(main, feed, [loss], scope=scope)
    return {each.name: np.array(scope.find_var(each.name).get_tensor()) for each in main.all_parameters()}


def test_a_process_has_its_update_in_the_graph_of_the_sums(
    gpus: Any, monkeypatch: pytest.MonkeyPatch, compiled: list[CudaStep]
) -> None:
    monkeypatch.setenv("FLUIDTOOL_NCCL", "1")
    ends = NcclCommunicator.of_devices(range(GPUS), seconds=10)
    with ThreadPoolExecutor(GPUS) as pool:
        found = list(pool.map(lambda programs, end: process(programs, end, 3), map(job, range(GPUS)), ends))
    for parameters in found:
        same(trained(transpiled=False), parameters)
    assert len(compiled) == len(with_sums(compiled)) == 3 * GPUS
    names = [getattr(call, "name", "").partition("_")[0] for call in compiled[-1].calls]
    assert names[-1] == "update"


# ---------------------------------------------------------------- programs that say nothing of GPUs
def test_a_parallel_executor_sums_by_nccl_between_two_graphs(gpus: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLUIDTOOL_NCCL", "1")
    same(trained(transpiled=False), by_a_parallel_executor())
    assert sorted(NCCL.calls) == [(rank, 108, True) for rank in range(GPUS) for _ in range(3)]


def test_without_the_switch_two_gpus_run_one_operator_at_a_time(gpus: Any, compiled: list[CudaStep]) -> None:
    """What has never run on several GPUs waits for FLUIDTOOL_NCCL=1."""
    same(trained(transpiled=False), by_a_parallel_executor())
    assert NCCL.calls == [] and compiled == []


def test_without_the_switch_a_process_of_a_job_runs_one_operator_at_a_time(gpus: Any, compiled: list[CudaStep]) -> None:
    ends = NcclCommunicator.of_devices(range(GPUS), seconds=10)
    with ThreadPoolExecutor(GPUS) as pool:
        found = list(pool.map(lambda programs, end: process(programs, end, 2), map(job, range(GPUS)), ends))
    for parameters in found:
        same(trained(2, transpiled=False), parameters)
    assert NCCL.calls and compiled == []


def test_without_nccl_the_first_gpu_adds(gpus: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLUIDTOOL_NCCL", "1")
    monkeypatch.setattr(NCCL, "available", False)
    same(trained(transpiled=False), by_a_parallel_executor())
    assert NCCL.calls == []


def test_a_gpu_that_never_arrives_is_an_error_of_the_parallel_executor(
    gpus: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FLUIDTOOL_NCCL", "1")
    monkeypatch.setenv("FLUIDTOOL_COLLECTIVE_DEADLINE", "0.5")
    NCCL.gone = {1}
    with pytest.raises(
        CollectiveError, match=r"rank 0 of 2 \(GPU 0\) waited 0.5 s at the sum of 6 gradients, 432 bytes"
    ):
        by_a_parallel_executor(1)
