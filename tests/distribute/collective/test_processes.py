"""Ranks as real processes: values by gRPC between them, or by MPI under mpiexec."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pytest

from fluidtool.distribute.collective.threads import run_ranks
from tests.distribute.collective.processes import needs_grpc, needs_mpi, results, run_mpi, run_processes
from tests.distribute.collective.support import alone
from tests.distribute.collective.worker import TRAINED, collectives

pytestmark = pytest.mark.slow


# ---------------------------------------------------------------- gRPC
@needs_grpc
def test_collectives_by_grpc_give_the_bits_of_those_between_threads(tmp_path: Path) -> None:
    ended = run_processes("collectives", 3, tmp_path)
    assert [one.code for one in ended] == [0, 0, 0], ended
    expected = run_ranks(3, collectives)
    for rank in range(3):
        for found, wanted in zip(results(tmp_path, rank), expected[rank], strict=True):
            np.testing.assert_array_equal(found, wanted)


@needs_grpc
def test_two_processes_train_as_one_does_in_every_way(tmp_path: Path) -> None:
    ended = run_processes("train", 2, tmp_path)
    assert [one.code for one in ended] == [0, 0], ended
    first, second = results(tmp_path, 0), results(tmp_path, 1)
    for found, other, wanted in zip(first, second, alone(2) * len(TRAINED), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-6)
        np.testing.assert_array_equal(found, other)


@needs_grpc
@pytest.mark.parametrize(
    ("job", "message", "seconds"),
    [
        ("raise", "rank 1 has ended or died while rank", 40),
        ("kill", "rank 1 has ended or died while rank", 40),
        ("leave", "rank 1 has ended or died while rank", 40),
        ("stop", "waited 4 s for rank 1", 4),
        ("other", "the ranks disagree: at collective number 2", 40),
    ],
)
def test_a_process_that_fails_ends_the_others_with_an_error(
    job: str, message: str, seconds: float, tmp_path: Path
) -> None:
    began = time.monotonic()
    ended = run_processes(job, 3, tmp_path, seconds)
    assert time.monotonic() - began < 60
    for rank in (0, 2):
        assert ended[rank].code != 0
        assert message in ended[rank].said or "is gone" in ended[rank].said, ended[rank].said


# ---------------------------------------------------------------- MPI
@needs_mpi
def test_collectives_by_mpi_agree_with_those_between_threads(tmp_path: Path) -> None:
    ended = run_mpi("collectives", 4, tmp_path)
    assert ended.code == 0, ended.said
    expected = run_ranks(4, collectives)
    for rank in range(4):
        for found, wanted, first in zip(results(tmp_path, rank), expected[rank], results(tmp_path, 0), strict=True):
            assert (found.shape, found.dtype) == (wanted.shape, wanted.dtype)
            unit = 4e-3 if found.dtype == np.float16 else 1e-6  # MPI sums in an order of its own, halves as float32
            np.testing.assert_allclose(found, wanted, rtol=unit, atol=4 * unit)
            np.testing.assert_array_equal(found, first)


@needs_mpi
def test_four_mpi_processes_train_as_one_does_in_every_way(tmp_path: Path) -> None:
    ended = run_mpi("train", 4, tmp_path)
    assert ended.code == 0, ended.said
    expected, first = alone(4) * len(TRAINED), results(tmp_path, 0)
    for rank in range(4):
        for found, wanted, other in zip(results(tmp_path, rank), expected, first, strict=True):
            np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-6)
            np.testing.assert_array_equal(found, other)


@needs_mpi
@pytest.mark.parametrize(
    ("job", "message", "seconds"),
    [
        ("raise", "no more data", 40),
        ("kill", "", 40),
        ("stop", "waited 3 s at all_reduce of (3,) float64 on ring 0", 3),
    ],
)
def test_an_mpi_process_that_fails_ends_the_job(job: str, message: str, seconds: float, tmp_path: Path) -> None:
    began = time.monotonic()
    ended = run_mpi(job, 3, tmp_path, seconds)
    assert time.monotonic() - began < 60
    assert ended.code != 0
    assert message in ended.said
