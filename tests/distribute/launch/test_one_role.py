"""`launch --role`: one role of a job, while something else starts the others."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fluidtool.distribute.checkpoints import save, steps
from fluidtool.distribute.launch.ports import await_names, free_endpoints
from fluidtool.distribute.launch.recovery import SavedByAll
from fluidtool.distribute.rpc.security import is_loopback
from fluidtool.errors import UsageError
from tests.cli.support import call, error_of, process
from tests.distribute.launch.jobs import alone, parameters_of, transpile, write_data, write_programs
from tests.distribute.launch.test_whole_jobs import agree, training
from tests.support.checkout import child_environment

NAMES = ("pserver_0", "trainer_0", "trainer_1")
FAST = {"FLAGS_rpc_deadline": "12000"}  # milliseconds until a role gives up those that it waits for


def script(tmp_path: Path, code: str) -> Path:
    (tmp_path / "script.py").write_text(code)
    return tmp_path / "script.py"


SAYS = "import os\nprint(os.environ['TRAINING_ROLE'], os.environ['PADDLE_TRAINER_ID'], os.environ['FLUIDTOOL_STARTS'])"


@pytest.mark.parametrize(("role", "said"), [("1", "TRAINER 0 1"), ("trainer_1", "TRAINER 1 1"), ("0", "PSERVER 0 1")])
def test_a_name_or_a_number_says_which(role: str, said: str, tmp_path: Path) -> None:
    endpoint = free_endpoints(1)[0]
    done = process(
        "launch", "--pservers", endpoint, "--trainers", "2", "--role", role, script(tmp_path, SAYS), text=True
    )
    assert (done.returncode, done.stdout.splitlines()[0].partition(" | ")[2]) == (0, said), done.stderr


def test_what_restarts_it_counts_its_starts(tmp_path: Path) -> None:
    words = ["launch", "--pservers", free_endpoints(1)[0], "--role", "trainer_0", str(script(tmp_path, SAYS))]
    command = [sys.executable, "-m", "fluidtool", *words]
    environment = {**child_environment(), "FLUIDTOOL_RESTARTS": "2"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[0] == "trainer_0 | TRAINER 0 3"


def test_a_server_is_not_stopped_while_its_trainers_are_elsewhere(tmp_path: Path) -> None:
    code = "import time\ntime.sleep(3)\nprint('served')"
    words = ["--pservers", free_endpoints(1)[0], "--role", "0", "--grace", "0.5"]
    done = process("launch", *words, script(tmp_path, code), text=True)
    assert done.returncode == 0 and "pserver_0 | served" in done.stdout, done.stderr


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--role", "trainer_7"], "the job has no role 'trainer_7'; it has pserver_0, trainer_0 (0 to 1)"),
        (["--role", "2"], "the job has no role '2'"),
        (["--role", "0", "--restarts", "2"], "is restarted by what starts the other roles; give --resume"),
        (["--role", "0", "--engine", "ray"], "runs on this machine, at its own endpoint; omit --engine"),
        (["--role", "0", "--any-ports"], "omit --engine and --any-ports"),
    ],
)
def test_what_cannot_work_is_refused(words: list[str], message: str, tmp_path: Path) -> None:
    result = call("launch", "--pservers", "127.0.0.1:6174", *words, script(tmp_path, ""))
    assert message in error_of(result)


def test_the_endpoints_must_be_known(tmp_path: Path) -> None:
    assert "endpoints of the job are unknown; name them: --pservers" in error_of(
        call("launch", "--role", "0", "--pservers", "2", script(tmp_path, ""))
    )


def test_a_host_that_nobody_knows_is_named() -> None:
    await_names(["localhost:6174"])
    with pytest.raises(UsageError, match=r"the host of nowhere.invalid:6174 is not known"):
        await_names(["nowhere.invalid:6174"], patience=0)


def test_only_steps_of_all_roles_count(tmp_path: Path) -> None:
    for role, last in (("trainer_0", 30), ("trainer_1", 20)):
        for step in range(10, last + 1, 10):
            save(tmp_path, role, step, {}, keep=9)
    assert SavedByAll(tmp_path, ("trainer_0", "trainer_1")).newest(["trainer_0"]) == 20


# ---------------------------------------------------------------- whole jobs
def endpoints_there(count: int) -> tuple[str, ...]:
    """Free endpoints of this machine that other machines reach."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect(("10.255.255.255", 1))  # sends nothing; it only chooses an interface
        address = probe.getsockname()[0]
    if is_loopback(f"{address}:1"):
        pytest.skip("this machine has no address on a network")
    return free_endpoints(count, address)


class Keeper(threading.Thread):
    """Starts a role again until it succeeds, as kubelet does: after a pause that doubles."""

    def __init__(self, command: list[str]) -> None:
        super().__init__(daemon=True)
        self.command, self.codes = command, list[int]()
        self.process: subprocess.Popen[str] | None = None
        self.errors: list[str] = []

    def run(self) -> None:
        pause = 0.5
        while len(self.codes) < 12:
            environment = {**child_environment(), "FLUIDTOOL_RESTARTS": str(len(self.codes)), **FAST}
            with subprocess.Popen(
                self.command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
            ) as self.process:
                _, errors = self.process.communicate()
            self.codes.append(self.process.returncode)
            self.errors.append(errors)
            if not self.codes[-1]:
                return
            time.sleep(pause)
            pause = min(2 * pause, 8.0)


def keepers(job: Path, *words: Any, options: list[str] | None = None) -> dict[str, Keeper]:
    start = [sys.executable, "-m", "fluidtool", "launch", *(options or [])]
    return {name: Keeper([*start, "--role", name, str(job), *map(str, words)]) for name in NAMES}


def run(roles: dict[str, Keeper], then: Callable[[], None] = lambda: None) -> None:
    for role in roles.values():
        role.start()
    then()
    for role in roles.values():
        role.join(480)
    assert {name: role.codes[-1:] for name, role in roles.items()} == {name: [0] for name in NAMES}, [
        role.errors for role in roles.values()
    ]


@pytest.mark.slow
def test_roles_on_a_network_encrypt_without_being_asked(tmp_path: Path) -> None:
    """No token, no variable: the certificates beside the programs are all there is, also when programs are moved."""
    pytest.importorskip("cryptography", reason="makes certificates: pip install 'fluidtool[dist]'")
    first, second = endpoints_there(2)
    programs, data = write_programs(tmp_path), write_data(tmp_path)
    job = transpile(programs, "--pservers", first, "--trainers", "2")
    roles = keepers(job, *training(data, tmp_path / "saved"), options=["--pservers", second])
    run(roles)
    assert [role.codes for role in roles.values()] == [[0]] * 3
    agree(parameters_of(programs, tmp_path / "saved"), alone(programs, 2))


@pytest.mark.slow
def test_without_certificates_a_server_on_a_network_does_not_start(tmp_path: Path) -> None:
    (endpoint,) = endpoints_there(1)
    job = transpile(write_programs(tmp_path), "--pservers", endpoint, "--trainers", "2", "--no-tls")
    done = process("launch", "--role", "0", job, text=True)
    assert done.returncode and "can be reached from other machines" in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("victim", ["pserver_0", "trainer_1"])
def test_roles_that_are_restarted_one_by_one_learn_the_same_bits(victim: str, tmp_path: Path) -> None:
    """Nobody coordinates: the step to resume from is on the disk, and roles that disagree about it fail and try again."""
    programs, data, kept = write_programs(tmp_path), write_data(tmp_path), tmp_path / "kept"
    job = transpile(programs, "--pservers", free_endpoints(1)[0], "--trainers", "2")
    epochs = 24
    done = process("launch", job, *training(data, tmp_path / "unbroken", epochs), text=True)
    assert done.returncode == 0, done.stderr
    recovery = ["--checkpoint", str(kept), "--checkpoint-every", "4", "--resume"]
    roles = keepers(job, *training(data, tmp_path / "saved", epochs), options=recovery)

    def hurt() -> None:
        deadline = time.monotonic() + 120
        while any(max(steps(kept, name), default=0) < 4 for name in NAMES):
            assert time.monotonic() < deadline
            time.sleep(0.02)
        running = roles[victim].process
        assert running is not None
        os.kill(running.pid, signal.SIGKILL)  # and the role with it

    run(roles, hurt)
    assert roles[victim].codes[0] != 0
    expected = parameters_of(programs, tmp_path / "unbroken")
    found = parameters_of(programs, tmp_path / "saved")
    for name, array in expected.items():
        np.testing.assert_array_equal(found[name], array, err_msg=name)
    shutil.rmtree(kept)
