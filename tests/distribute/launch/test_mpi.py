"""The MPI engine under mpiexec: rank and role, what is learnt, and how a failure ends."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from tests.cli.support import call, error_of
from tests.distribute.launch.jobs import alone, parameters_of, transpile, write_data, write_programs
from tests.distribute.launch.test_whole_jobs import agree, training
from tests.support.checkout import child_environment

MPIEXEC = shutil.which("mpiexec", path=os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")]))
pytestmark = [
    pytest.mark.skipif(find_spec("mpi4py") is None, reason="mpi4py is not installed: pip install 'fluidtool[mpi]'"),
    pytest.mark.skipif(MPIEXEC is None, reason="there is no mpiexec beside this Python, nor in PATH"),
]


def mpi(ranks: int, *args: Any) -> subprocess.CompletedProcess[str]:
    command = [str(MPIEXEC), "-n", str(ranks), sys.executable, "-m", "fluidtool", "launch", "--engine", "mpi"]
    command += map(str, args)
    return subprocess.run(command, capture_output=True, text=True, timeout=120, env=child_environment(), check=False)


@pytest.mark.parametrize("mode", ["nccl2", "collective"])
def test_ranks_are_trainers_that_learn_what_one_process_does(mode: str, tmp_path: Path) -> None:
    programs = write_programs(tmp_path)
    job = transpile(programs, "--mode", mode, "--trainers", "10.0.0.1:6174,10.0.0.2:6174")
    done = mpi(2, job, *training(write_data(tmp_path), tmp_path / "saved"))
    assert done.returncode == 0, done.stderr
    agree(parameters_of(programs, tmp_path / "saved"), alone(programs, 2))


def test_the_first_ranks_are_servers(tmp_path: Path) -> None:
    pytest.importorskip("grpc", reason="parameter servers talk by gRPC: pip install 'fluidtool[dist]'")
    programs = write_programs(tmp_path)
    job = transpile(programs, "--pservers", "127.0.0.1:6174", "--trainers", "2")
    done = mpi(3, job, *training(write_data(tmp_path), tmp_path / "saved"))
    assert done.returncode == 0, done.stderr
    agree(parameters_of(programs, tmp_path / "saved"), alone(programs, 2))


def test_scripts_find_their_role(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(
        "import os\nprint(os.environ['TRAINING_ROLE'] + os.environ['PADDLE_TRAINER_ID'] + '\\n', end='', flush=True)"
    )
    done = mpi(3, "--pservers", "1", "--trainers", "2", tmp_path / "script.py")
    assert (done.returncode, sorted(done.stdout.split())) == (0, ["PSERVER0", "TRAINER0", "TRAINER1"]), done.stderr


def test_a_rank_that_fails_ends_all(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(
        "import os, time\nif os.environ['PADDLE_TRAINER_ID'] == '1': raise SystemExit(7)\ntime.sleep(100)"
    )
    done = mpi(2, "--mode", "collective", "--trainers", "2", tmp_path / "script.py")
    assert done.returncode == 7, done.stderr


def test_another_number_of_processes_is_refused(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text("")
    result = call("launch", "--engine", "mpi", "--trainers", "2", tmp_path / "script.py")
    assert (
        "the job has 1 servers and 2 trainers, but MPI has started 1 process; start it with: mpiexec -n 3"
        in error_of(result)
    )


def test_restarts_are_not_mpi_s(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text("")
    result = call("launch", "--engine", "mpi", "--restarts", "1", tmp_path / "script.py")
    assert "there are no restarts with the engine mpi" in error_of(result)
