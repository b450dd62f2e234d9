"""Starts workers as processes: by themselves, or by mpiexec."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from tests.support.checkout import child_environment

LIMIT_SECONDS, PORTS_OF_A_RANK = 90, 3  # a job of several trainings takes new ones for each


def mpiexec() -> str | None:
    """The mpiexec beside this Python, or on the path."""
    return shutil.which("mpiexec", path=str(Path(sys.executable).parent)) or shutil.which("mpiexec")


needs_mpi = pytest.mark.skipif(
    find_spec("mpi4py") is None or mpiexec() is None,
    reason="needs mpi4py and mpiexec: pip install 'fluidtool[mpi]' mpich",
)
needs_grpc = pytest.mark.skipif(find_spec("grpc") is None, reason="needs grpcio: pip install 'fluidtool[dist]'")


@dataclass(frozen=True)
class Ended:
    """How a process ended, and what it said."""

    code: int
    said: str


def free_port(count: int) -> int:
    """The first of `count` neighboring ports that nobody listens at, outside of those that the system hands out."""
    for start in range(20000 + os.getpid() % 8000, 32000, count):
        if all(_is_free(start + offset) for offset in range(count)):
            return start
    raise RuntimeError("no free ports")


def _is_free(port: int) -> bool:
    with socket.socket() as tried:
        try:
            tried.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def run_processes(job: str, ranks: int, out: Path, seconds: float = 30) -> list[Ended]:
    """Start every rank by itself; values travel by gRPC."""
    port = free_port(PORTS_OF_A_RANK * ranks)
    started = [
        subprocess.Popen(
            [
                sys.executable,
                "-m",
                "tests.distribute.collective.worker",
                str(rank),
                str(ranks),
                str(port),
                job,
                str(out),
            ],
            env=_environment("grpc", seconds),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in range(ranks)
    ]
    try:
        return [
            Ended(process.returncode, said)
            for process in started
            for said in process.communicate(timeout=LIMIT_SECONDS)[:1]
        ]
    finally:
        for process in started:
            process.kill()


def run_mpi(job: str, ranks: int, out: Path, seconds: float = 30) -> Ended:
    """Have mpiexec start all ranks."""
    command = [str(mpiexec()), "-n", str(ranks), sys.executable, "-m", "tests.distribute.collective.worker"]
    process = subprocess.run(
        [*command, "mpi", str(ranks), "20000", job, str(out)],
        env=_environment("mpi", seconds),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=LIMIT_SECONDS,
        check=False,
    )
    return Ended(process.returncode, process.stdout)


def results(out: Path, rank: int) -> list[np.ndarray]:
    """What a rank wrote."""
    with np.load(out / f"rank_{rank}.npz") as found:
        return [found[name] for name in found.files]


def _environment(engine: str, seconds: float) -> dict[str, str]:
    kept = {name: value for name, value in child_environment().items() if "proxy" not in name.lower()}
    return kept | {
        "FLUIDTOOL_COLLECTIVE": engine,
        "FLUIDTOOL_COLLECTIVE_DEADLINE": str(seconds),
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        "OMP_NUM_THREADS": "1",
        "CPU_NUM": "1",
    }
