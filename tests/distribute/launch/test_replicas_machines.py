"""Jobs with replicas on several machines, each role launched by itself: losing a machine loses nothing.

Machines are addresses of this one, 127.0.0.2 and so on: all that runs there is killed together.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import fluidtool.fluid as fluid
from fluidtool.distribute.checkpoints import steps
from fluidtool.distribute.launch.ports import free_endpoints
from tests.distribute.launch.jobs import BATCH, alone, parameters_of, transpile, write_data, write_programs
from tests.support.checkout import child_environment

pytest.importorskip("grpc", reason="parameter servers talk by gRPC: pip install 'fluidtool[dist]'")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs several loopback addresses"),
]
LONG, PATIENCE = 60, 120.0
FIRST, SECOND, THIRD = "127.0.0.2", "127.0.0.3", "127.0.0.4"


class Machines:
    """Roles by machine, launched as the documentation says."""

    def __init__(self, folder: Path, more: tuple[str, ...] = ()) -> None:
        self.folder, self.more = folder, more
        self.first, self.second = (free_endpoints(2, address) for address in (FIRST, SECOND))
        self.programs = write_programs(folder, lambda: fluid.optimizer.SGD(0.01))
        places = f"{self.first[0]},{self.second[0]}"
        self.job = transpile(self.programs, "--pservers", places, "--trainers", "2")
        self.data = write_data(folder)
        self.running: dict[str, dict[str, subprocess.Popen[bytes]]] = {}
        copies = f"{self.first[0]}={self.second[1]},{self.second[0]}={self.first[1]}"
        self.environment = {"FLUIDTOOL_REPLICAS": copies, "FLUIDTOOL_REPLICAS_DIR": str(folder / "who-serves")}

    def launch(self, machine: str, *roles: str) -> None:
        for role in roles:
            words = ["launch", "--replicas", "2", *self.more, "--role", role, "--checkpoint", str(self.folder / "kept")]
            words += ["--checkpoint-every", "50", str(self.job)]
            if role.startswith("trainer"):
                words += ["--data", str(self.data), "--batch-size", str(BATCH), "--epochs", str(LONG)]
                words += ["--save", str(self.folder / "saved"), "--force"]
            made = subprocess.Popen(
                [sys.executable, "-m", "fluidtool", *words],
                env={**child_environment(), **self.environment},
                stdout=(self.folder / f"{role}.log").open("ab"),
                stderr=subprocess.STDOUT,
            )
            self.running.setdefault(machine, {})[role] = made

    def lose(self, machine: str) -> None:
        """Kill all that runs there; roles die with what launched them."""
        for process in self.running[machine].values():
            assert process.poll() is None
            process.send_signal(signal.SIGKILL)
        for process in self.running.pop(machine).values():
            process.wait()

    def wait_for(self, role: str, step: int) -> None:
        """Until a role has a checkpoint of this step, or a later one."""
        end = time.monotonic() + PATIENCE
        while max(steps(self.folder / "kept", role), default=0) < step:
            assert time.monotonic() < end, self.said()
            time.sleep(0.02)

    def codes(self) -> dict[str, int]:
        """What all roles leave with."""
        found = {}
        for roles in self.running.values():
            for name, process in roles.items():
                try:
                    found[name] = process.wait(PATIENCE)
                except subprocess.TimeoutExpired:
                    pytest.fail(f"{name} does not end: {self.said()}")
        return found

    def said(self) -> str:
        return "".join(f"{path.name}: {path.read_text()[-600:]}" for path in self.folder.glob("*.log"))

    def close(self) -> None:
        for roles in self.running.values():
            for process in roles.values():
                process.kill()
                process.wait()


@pytest.fixture
def machines(tmp_path: Path) -> Iterator[Machines]:
    found = Machines(tmp_path)
    yield found
    found.close()


@pytest.fixture
def elastic(tmp_path: Path) -> Iterator[Machines]:
    found = Machines(tmp_path, ("--elastic", "1"))
    yield found
    found.close()


def test_a_machine_with_copies_of_both_servers_is_lost_and_comes_back(machines: Machines) -> None:
    on_second = ("pserver_1", "pserver_0_replica")
    machines.launch(FIRST, "pserver_0", "pserver_1_replica")
    machines.launch(SECOND, *on_second)
    machines.launch(THIRD, "trainer_0", "trainer_1")
    machines.wait_for("trainer_0", 50)
    machines.lose(SECOND)
    machines.launch(SECOND, *on_second)
    assert set(machines.codes().values()) == {0}, machines.said()
    found, expected = parameters_of(machines.programs, machines.folder / "saved"), alone(machines.programs, 2, LONG)
    assert found.keys() == expected.keys()
    for name, array in expected.items():
        np.testing.assert_allclose(found[name], array, rtol=0, atol=1e-5, err_msg=name)


def test_an_elastic_job_goes_on_without_a_machine_of_servers_and_trainers(elastic: Machines) -> None:
    elastic.launch(FIRST, "pserver_0", "pserver_1_replica", "trainer_0")
    elastic.launch(SECOND, "pserver_1", "pserver_0_replica", "trainer_1")
    elastic.wait_for("trainer_0", 50)
    elastic.lose(SECOND)
    assert elastic.codes() == {"pserver_0": 0, "pserver_1_replica": 0, "trainer_0": 0}, elastic.said()
    assert parameters_of(elastic.programs, elastic.folder / "saved").keys() == alone(elastic.programs, 1, 1).keys()
