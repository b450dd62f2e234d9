"""The sample for Slurm, run as it is, with commands of Slurm that do on this machine what the real ones do on several."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import numpy as np
import pytest

from fluidtool.distribute.checkpoints import steps
from tests.cli.support import process
from tests.distribute.launch.jobs import parameters_of, transpile_as_told, write_data, write_programs
from tests.distribute.launch.support import is_alive
from tests.distribute.launch.test_whole_jobs import training
from tests.support.checkout import ROOT, child_environment

SAMPLE = ROOT / "samples" / "slurm" / "job.sbatch"
ROLES = ("pserver_0", "pserver_1", "trainer_0", "trainer_1", "trainer_2", "trainer_3")
NODES = ("127.0.0.1", "127.0.0.2", "127.0.0.3")
SCONTROL = """
    import sys
    if sys.argv[1:3] == ["show", "hostnames"]:
        assert sys.argv[3] == "node[1-3]"
        print({nodes!r}.replace(",", "\\n"))
    else:
        open({calls!r}, "a").write(" ".join(sys.argv[1:]) + "\\n")
"""
# Task i of N runs on node i modulo their number, as --distribution=cyclic has it; one that fails ends all (--kill-on-bad-exit).
SRUN = """
    import os, signal, subprocess, sys, time
    words = sys.argv[1:]
    assert "--distribution=cyclic" in words
    ends_all = "--kill-on-bad-exit=1" in words
    assert ends_all or {{"--kill-on-bad-exit=0", "--no-kill"}} <= {{*words}}
    words = [word for word in words if not word.startswith(("--distribution", "--kill", "--no-kill"))]
    count, nodes = int(os.environ["SLURM_NTASKS"]), {nodes!r}.split(",")
    tasks = []
    for rank in range(count):
        numbers = {{"SLURM_PROCID": rank, "SLURM_LOCALID": rank // len(nodes), "SLURM_NODEID": rank % len(nodes)}}
        found = {{**os.environ, **{{name: str(value) for name, value in numbers.items()}}}}
        tasks.append(subprocess.Popen(words, env=found, start_new_session=True))
    open({processes!r}, "w").write(" ".join(str(task.pid) for task in tasks))
    code, codes = 0, [None]
    while not (code and ends_all) and None in codes:
        time.sleep(0.1)
        codes = [task.poll() for task in tasks]
        code = next((found for found in codes if found), 0)
    for task in tasks:
        if task.poll() is None:
            os.killpg(task.pid, signal.SIGTERM)
    for task in tasks:
        task.wait()
    sys.exit(code if code >= 0 else 128 - code)
"""


class Cluster:
    """A folder with a job in it, and a path on which Slurm's commands and fluidtool are."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.calls, self.processes = folder, folder / "calls", folder / "processes"
        self._bin = folder / "bin"
        self._bin.mkdir()
        texts = {"nodes": ",".join(NODES), "calls": str(self.calls), "processes": str(self.processes)}
        self._command("scontrol", textwrap.dedent(SCONTROL).format(**texts))
        self._command("srun", textwrap.dedent(SRUN).format(**texts))
        self._command("fluidtool", "import sys\nfrom fluidtool.cli import main\nsys.exit(main())\n")

    def _command(self, name: str, code: str) -> None:
        path = self._bin / name
        path.write_text(f"#!{sys.executable}\n{code}")
        path.chmod(0o755)

    def start(self, script: Path, restarts: int = 0, tasks: int = 6) -> subprocess.Popen[bytes]:
        """What Slurm does with a batch script on the first node of the job."""
        counted = {"SLURM_RESTART_COUNT": str(restarts)} if restarts else {}
        environment = {
            **child_environment(),
            "PATH": f"{self._bin}{os.pathsep}{os.environ['PATH']}",
            "SLURM_JOB_ID": str(os.getpid()),
            "SLURM_JOB_NODELIST": "node[1-3]",
            "SLURM_NTASKS": str(tasks),
            "SLURM_CPUS_PER_TASK": "1",
            **counted,
        }
        return subprocess.Popen(["bash", str(script)], cwd=self.folder, env=environment)

    def requeued(self) -> list[str]:
        return self.calls.read_text().splitlines() if self.calls.exists() else []


pytestmark = pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash here")


@pytest.fixture
def cluster(tmp_path: Path) -> Cluster:
    (tmp_path / "work").mkdir()
    return Cluster(tmp_path / "work")


def directives() -> dict[str, str]:
    lines = [line.removeprefix("#SBATCH --") for line in SAMPLE.read_text().splitlines() if line.startswith("#SBATCH")]
    return {name: value for name, _, value in (line.partition("=") for line in lines)}


def test_slurm_starts_a_task_for_every_role_and_queues_again() -> None:
    found = directives()
    assert int(found["ntasks"]) == len(ROLES) and "requeue" in found and found["open-mode"] == "append"


def test_a_job_that_keeps_failing_is_not_queued_for_ever(cluster: Cluster) -> None:
    assert cluster.start(SAMPLE, restarts=19).wait(120) != 0  # there is no folder `job`
    assert cluster.requeued() == [f"requeue {os.getpid()}"]
    assert cluster.start(SAMPLE, restarts=20).wait(120) != 0
    assert len(cluster.requeued()) == 1


@pytest.mark.slow
def test_a_job_that_loses_a_role_is_queued_again_and_learns_the_same_bits(cluster: Cluster) -> None:
    """The script as it is, but with more checkpoints, for a job as small as this."""
    pytest.importorskip("cryptography", reason="makes certificates: pip install 'fluidtool[dist]'")
    pytest.importorskip("grpc", reason="parameter servers talk by gRPC: pip install 'fluidtool[dist]'")
    folder = cluster.folder
    programs, data = write_programs(folder), write_data(folder)
    job = transpile_as_told(programs, SAMPLE)
    words = training(data, folder / "unbroken", 12)
    done = process("launch", "--any-ports", job, *words, text=True)
    assert done.returncode == 0, done.stderr
    script = folder / "job.sbatch"
    text = SAMPLE.read_text().replace("--checkpoint-every 100", "--checkpoint-every 4")
    text = text.replace("--epochs 10", "--epochs 12 --batch-size 4")
    script.write_text(text)

    first = cluster.start(script)
    deadline = time.monotonic() + 200
    while any(max(steps(folder / "checkpoints", role), default=0) < 4 for role in ROLES):
        assert time.monotonic() < deadline and first.poll() is None
        time.sleep(0.02)
    processes = [int(number) for number in cluster.processes.read_text().split()]
    os.kill(processes[3], signal.SIGKILL)
    assert first.wait(120) == 128 + signal.SIGKILL
    assert cluster.requeued() == [f"requeue {os.getpid()}"]
    assert not any(map(is_alive, processes))

    assert cluster.start(script, restarts=1).wait(200) == 0
    assert len(cluster.requeued()) == 1
    expected = parameters_of(programs, folder / "unbroken")
    found = parameters_of(programs, folder / "parameters")
    assert expected.keys() == found.keys()
    for name, array in expected.items():
        np.testing.assert_array_equal(found[name], array, err_msg=name)


# ---------------------------------------------------------------- elastic, with two copies of each server
REPLICAS = SAMPLE.with_name("replicas.sbatch")


@pytest.mark.slow
def test_a_job_with_replicas_goes_on_without_a_node(cluster: Cluster) -> None:
    """Node 2 of 3 has the second copy of server 0, trainer 0 and trainer 3: all that runs there is killed."""
    pytest.importorskip("cryptography", reason="makes certificates: pip install 'fluidtool[dist]'")
    pytest.importorskip("grpc", reason="parameter servers talk by gRPC: pip install 'fluidtool[dist]'")
    folder = cluster.folder
    programs = write_programs(folder)
    write_data(folder)
    transpile_as_told(programs, REPLICAS)
    script = folder / "replicas.sbatch"
    text = REPLICAS.read_text().replace("--checkpoint-every 100", "--checkpoint-every 4")
    script.write_text(text.replace("--epochs 10", "--epochs 40 --batch-size 4"))
    job = cluster.start(script, tasks=8)
    deadline = time.monotonic() + 200
    while max(steps(folder / "checkpoints", "trainer_1"), default=0) < 8:
        assert time.monotonic() < deadline and job.poll() is None
        time.sleep(0.02)
    for number in [int(number) for number in cluster.processes.read_text().split()][1::3]:
        os.killpg(number, signal.SIGKILL)
    assert job.wait(200) == 0
    assert cluster.requeued() == []
    assert parameters_of(programs, folder / "parameters")
