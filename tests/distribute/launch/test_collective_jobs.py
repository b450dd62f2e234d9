"""Whole jobs without servers: trainers that exchange gradients learn what one process does."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests.distribute.launch.jobs import alone, parameters_of, transpile, write_data, write_programs
from tests.distribute.launch.test_whole_jobs import agree, broken, launch, training

pytest.importorskip("grpc", reason="without MPI and GPUs trainers talk by gRPC: pip install 'fluidtool[dist]'")

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("mode", ["nccl2", "collective"])
def test_two_trainers_learn_what_one_process_does(mode: str, tmp_path: Path) -> None:
    programs = write_programs(tmp_path)
    job = transpile(programs, "--mode", mode, "--trainers", "127.0.0.1:6174,127.0.0.1:6175")
    done = launch(job, *training(write_data(tmp_path), tmp_path / "saved"))
    assert done.returncode == 0, done.stderr
    agree(parameters_of(programs, tmp_path / "saved"), alone(programs, 2))


@pytest.mark.parametrize("mode", ["nccl2", "collective"])
def test_a_job_that_loses_a_trainer_learns_the_same(mode: str, tmp_path: Path) -> None:
    programs = write_programs(tmp_path)
    job = transpile(programs, "--mode", mode, "--trainers", "127.0.0.1:6174,127.0.0.1:6175")
    words = training(write_data(tmp_path), tmp_path / "saved", 4)
    done, lines = broken(job, words, tmp_path, "trainer_1", signal.SIGKILL)
    assert done == 0 and [line["event"] for line in lines].count("restart") == 1, lines
    agree(parameters_of(programs, tmp_path / "saved"), alone(programs, 2, 4))
