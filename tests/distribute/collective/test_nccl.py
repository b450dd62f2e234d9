"""The NCCL adapter against a stand-in for cupy (fake_cupy.py): no GPU takes part."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from fluidtool.distribute.collective.nccl import NcclCommunicator, new_identifier
from fluidtool.errors import CollectiveError, DeviceError
from fluidtool.ir import Program
from fluidtool.runtime.communicators import Communicators
from fluidtool.tensor import CUDAPlace
from tests.distribute.collective.fake_cupy import fake_cupy


@pytest.fixture(params=["bytes", "tuple"])
def cupy(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Any:
    """cupy 14, whose identifiers are bytes, and before, where they are tuples."""
    module = fake_cupy(old=request.param == "tuple")
    monkeypatch.setitem(sys.modules, "cupy", module)
    return module


def on_ranks(ends: list[NcclCommunicator], work: Callable[[NcclCommunicator], Any]) -> list[Any]:
    results: list[Any] = [None] * len(ends)

    def run(ring: NcclCommunicator) -> None:
        results[ring.rank] = work(ring)

    threads = [threading.Thread(target=run, args=(ring,)) for ring in ends]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    return results


def joined(ranks: int = 2) -> list[NcclCommunicator]:
    identifier = new_identifier()
    return [NcclCommunicator(identifier, rank, ranks, seconds=5) for rank in range(ranks)]


def own(rank: int, dtype: str = "float32") -> np.ndarray:
    return (np.arange(8).reshape(4, 2) * (rank + 1)).astype(dtype)


def test_an_identifier_has_128_bytes(cupy: Any) -> None:
    assert isinstance(new_identifier(), bytes)
    assert len(new_identifier()) == 128


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "int32", "int64"])
@pytest.mark.parametrize(("reduction", "function"), [("sum", np.add), ("prod", np.multiply), ("max", np.maximum)])
def test_all_reduce(cupy: Any, dtype: str, reduction: str, function: Any) -> None:
    for found in on_ranks(joined(), lambda ring: ring.all_reduce(cupy.asarray(own(ring.rank, dtype)), reduction)):
        np.testing.assert_array_equal(found, function(own(0, dtype), own(1, dtype)))


def test_all_reduce_in_place(cupy: Any) -> None:
    def work(ring: NcclCommunicator) -> Any:
        array = cupy.asarray(own(ring.rank))
        assert ring.all_reduce(array, out=array) is array
        return array

    for found in on_ranks(joined(), work):
        np.testing.assert_array_equal(found, own(0) + own(1))


def test_the_other_collectives(cupy: Any) -> None:
    def work(ring: NcclCommunicator) -> list[Any]:
        array = cupy.asarray(own(ring.rank))
        ring.barrier()
        return [
            ring.reduce(array, 1),
            ring.broadcast(array, 1),
            ring.all_gather(array),
            ring.reduce_scatter(array),
            ring.exchange(b"x" * ring.rank),
        ]

    first, second = on_ranks(joined(), work)
    both = np.concatenate([own(0), own(1)])
    np.testing.assert_array_equal(first[0], own(0))
    np.testing.assert_array_equal(second[0], own(0) + own(1))
    for found in (first, second):
        np.testing.assert_array_equal(found[1], own(1))
        np.testing.assert_array_equal(found[2], both)
        assert found[4] == [b"", b"x"]
    np.testing.assert_array_equal(np.concatenate([first[3], second[3]]), own(0) + own(1))


def test_gpus_of_one_process_are_joined_at_once(cupy: Any) -> None:
    ends = NcclCommunicator.of_devices([0, 1, 2])
    for found in on_ranks(ends, lambda ring: ring.all_reduce(cupy.ones(3, "float32"))):
        np.testing.assert_array_equal(found, [3, 3, 3])


def test_rings_of_a_process_are_of_its_own_gpus(cupy: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[list[int]] = []
    join = NcclCommunicator.of_devices

    def noted(devices: list[int], *others: Any) -> Any:
        asked.append(devices)
        return join(devices, *others)

    monkeypatch.setattr(NcclCommunicator, "of_devices", noted)
    rings = Communicators(CUDAPlace(2))
    program = Program()
    program.global_block().append_op(type="c_comm_init_all", inputs={}, outputs={}, attrs={"ring_id": 0})
    rings.join_devices(program.global_block().ops[0])

    ends = rings.for_devices([CUDAPlace(2), CUDAPlace(5)])

    assert asked == [[2, 5]]
    assert [end._place for end in ends] == [CUDAPlace(2), CUDAPlace(5)]


def test_large_broadcasts_go_in_chunks(cupy: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fluidtool.distribute.collective.nccl.BROADCAST_BYTES", 12)
    for found in on_ranks(joined(), lambda ring: ring.broadcast(cupy.asarray(own(ring.rank)), 1)):
        np.testing.assert_array_equal(found, own(1))


def test_a_gpu_that_never_finishes_is_given_up(cupy: Any) -> None:
    ring = NcclCommunicator(new_identifier(), 0, 1, seconds=0.1)
    cupy.cuda.nccl.hang = True
    with pytest.raises(
        CollectiveError,
        match=r"rank 0 of 1 \(GPU 0\) waited 0.1 s at all_reduce sum of \(2,\) float32 on ring 0.*last checkpoint",
    ):
        ring.all_reduce(cupy.ones(2, "float32"))
    assert cupy.cuda.nccl.aborted == 1


def test_an_error_of_nccl_is_told(cupy: Any) -> None:
    ring = NcclCommunicator(new_identifier(), 0, 1, seconds=5)
    cupy.cuda.nccl.fault = "NCCL_ERROR_REMOTE_ERROR"
    with pytest.raises(CollectiveError, match="failed in NCCL: NCCL_ERROR_REMOTE_ERROR"):
        ring.all_reduce(cupy.ones(2, "float32"))


def test_data_types_that_nccl_lacks_are_refused(cupy: Any) -> None:
    ring = NcclCommunicator(new_identifier(), 0, 1)
    with pytest.raises(CollectiveError, match="NCCL does not reduce int16; cast it"):
        ring.all_reduce(cupy.ones(2, "int16"))


def test_joining_has_a_deadline(cupy: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    stuck = threading.Event()
    monkeypatch.setattr(cupy.cuda.nccl, "NcclCommunicator", lambda *_: stuck.wait(20))
    try:
        with pytest.raises(CollectiveError, match=r"rank 0 waited 0.1 s for the 2 ranks of ring 0 to join NCCL"):
            NcclCommunicator(new_identifier(), 0, 2, seconds=0.1)
    finally:
        stuck.set()


def test_a_failure_to_join_is_told(cupy: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> None:
        raise RuntimeError("NCCL_ERROR_INVALID_USAGE: duplicate GPU")

    monkeypatch.setattr(cupy.cuda.nccl, "NcclCommunicator", refuse)
    with pytest.raises(CollectiveError, match="rank 0 cannot join ring 0: NCCL_ERROR_INVALID_USAGE"):
        NcclCommunicator(new_identifier(), 0, 2)


def test_cupy_without_nccl_says_what_to_install(cupy: Any) -> None:
    cupy.cuda.nccl.available = False
    with pytest.raises(DeviceError, match="pip install nvidia-nccl-cu12"):
        new_identifier()


def test_no_cupy_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cupy", None)
    with pytest.raises(DeviceError, match=r"pip install 'fluidtool\[gpu-cuda12\]'"):
        new_identifier()
