"""Whole jobs in which trainers come and go: what is learned is what one process learns, whoever takes part."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fluidtool.fluid as fluid
from fluidtool.distribute.checkpoints import steps
from fluidtool.distribute.launch.contract import without_role
from fluidtool.distribute.launch.jobs import move_job, read_job
from fluidtool.distribute.launch.ports import free_endpoints
from tests.distribute.launch.jobs import alone, parameters_of, transpile, write_data, write_programs
from tests.faults.elastic import lost_of
from tests.faults.exactly import learnt, prepare, words
from tests.support.checkout import child_environment

pytest.importorskip("grpc", reason="parameter servers talk by gRPC: pip install 'fluidtool[dist]'")

pytestmark = pytest.mark.slow
ROWS, PATIENCE = 1600, 120.0
Event = dict[str, Any]


@dataclass
class Launched:
    """A launcher that runs, and the events that it has written."""

    process: subprocess.Popen[str]
    events: list[Event] = field(default_factory=list)
    talk: list[str] = field(default_factory=list)
    threads: list[threading.Thread] = field(default_factory=list)

    def follow(self) -> None:
        """Read what it writes, in threads."""
        for stream, take in ((self.process.stdout, self._event), (self.process.stderr, self.talk.append)):
            thread = threading.Thread(target=self._read, args=(stream, take), daemon=True)
            thread.start()
            self.threads.append(thread)

    def _read(self, stream: Any, take: Callable[[str], Any]) -> None:
        for text in stream:
            take(text)

    def _event(self, text: str) -> None:
        self.events.append(json.loads(text))

    def await_event(self, wanted: Callable[[Event], bool], what: str) -> Event:
        """The first event of this kind; it may have been."""
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            found = next((event for event in list(self.events) if wanted(event)), None)
            if found is not None:
                return found
            assert self.process.poll() is None, f"ended before {what}: {''.join(self.talk[-20:])}"
            time.sleep(0.02)
        raise AssertionError(f"no {what}: {self.events}")

    def process_of(self, role: str) -> int:
        """The newest process of a role."""
        starts = [event["processes"] for event in list(self.events) if event["event"] == "start"]
        return next(int(each[role]) for each in reversed(starts) if role in each)

    def kinds(self) -> list[tuple[str, str]]:
        """(event, role) of all events that have a role."""
        return [(event["event"], event["role"]) for event in self.events if "role" in event]

    def end(self) -> int:
        """Wait for the end; the exit code."""
        code = self.process.wait(PATIENCE)
        for thread in self.threads:
            thread.join(10)
        return code


@contextmanager
def launched(*options: Any, **env: str) -> Iterator[Launched]:
    """fluidtool launch with these options; killed at the end if it still runs."""
    command = [sys.executable, "-m", "fluidtool", "launch", "--json", "--hang-after", "60", *map(str, options)]
    environment = without_role(child_environment(**env))
    with subprocess.Popen(
        command, text=True, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        job = Launched(process)
        job.follow()
        try:
            yield job
        finally:
            if process.poll() is None:
                process.terminate()
                try:
                    process.wait(20)
                except subprocess.TimeoutExpired:
                    process.kill()


@dataclass(frozen=True)
class Made:
    """A job of two servers and two trainers whose updates can be counted."""

    folder: Path
    job: Path

    def training(self, save: Path) -> list[str]:
        return words(self.folder, save)

    def lost(self, save: Path) -> int:
        """How many updates do not count; the others count once, where they belong."""
        faults: list[str] = []
        found = lost_of(learnt(self.folder, save), faults)
        assert not faults
        return found


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    folder = tmp_path_factory.mktemp("elastic")
    whole = read_job(prepare(folder, True, ROWS))
    return Made(folder, move_job(whole, free_endpoints(2), folder / "moved").path)


def about(event: str, trainer: int, after: int = 0) -> Callable[[Event], bool]:
    """Whether an event is of this kind, and about this trainer, in a round after that one."""
    role = f"trainer_{trainer}"
    return lambda found: found["event"] == event and found["role"] == role and found["round"] > after


def begun(job: Launched, trainers: int = 2) -> None:
    """Wait until so many trainers take part."""
    for number in range(trainers):
        job.await_event(about("join", number), "join")


@contextmanager
def slowed(process: int) -> Iterator[None]:
    """Let a process run for a tenth of the time only."""
    done = threading.Event()

    def halt_and_continue() -> None:
        while not done.wait(0.01):
            os.kill(process, signal.SIGSTOP)
            done.wait(0.09)
            os.kill(process, signal.SIGCONT)

    thread = threading.Thread(target=halt_and_continue)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


@pytest.mark.parametrize("way", ["", "stream", "compatible"])
def test_an_elastic_job_that_nothing_happens_to_loses_nothing(made: Made, tmp_path: Path, way: str) -> None:
    training = made.training(tmp_path / "saved")
    with launched("--any-ports", "--elastic", 1, made.job, *training, FLUIDTOOL_RPC=way) as job:
        assert job.end() == 0, job.talk
    assert made.lost(tmp_path / "saved") == 0


def test_three_trainers_learn_what_one_process_does_also_when_one_of_them_leaves(tmp_path: Path) -> None:
    programs, data = write_programs(tmp_path), write_data(tmp_path)
    job_folder = transpile(programs, "--pservers", "127.0.0.1:6174,127.0.0.1:6175", "--trainers", "3")
    options = ["--batch-size", "4", "--epochs", "8", "--save", str(tmp_path / "saved")]
    with launched("--any-ports", "--elastic", 1, job_folder, "--data", data, *options) as job:
        begun(job, 3)
        os.kill(job.process_of("trainer_2"), signal.SIGTERM)
        assert job.end() == 0, job.talk
    assert ("leave", "trainer_2") in job.kinds() and ("done", "trainer_2") in job.kinds()
    expected, found = alone(programs, 3, 8), parameters_of(programs, tmp_path / "saved")
    for name, array in expected.items():
        np.testing.assert_allclose(found[name], array, rtol=0, atol=2e-6, err_msg=name)


def test_a_launcher_of_one_trainer_that_is_told_to_end_twice_at_once_lets_it_leave(made: Made, tmp_path: Path) -> None:
    training = made.training(tmp_path / "saved")
    with launched("--elastic", 1, "--trainers", 1, made.job, *training) as job:
        begun(job, 1)
        with (
            launched("--elastic", 1, "--role", "trainer_1", made.job, *training) as other,
            slowed(job.process_of("trainer_0")),  # on a busy machine it would be done before the other has started
        ):
            job.await_event(about("join", 1), "join of trainer 1")
            for _ in range(2):  # as `timeout` does: its child, and then its group
                other.process.send_signal(signal.SIGTERM)
            assert other.end() == 143
        job.await_event(about("leave", 1), "leave of trainer 1")
        assert job.end() == 0, job.talk
    assert [event for event in other.events if event["event"] == "kill"] == []
    assert made.lost(tmp_path / "saved") == 0


def test_a_trainer_that_is_killed_starts_again_alone_and_loses_a_share_of_a_round_at_most(
    made: Made, tmp_path: Path
) -> None:
    training = made.training(tmp_path / "saved")
    with launched("--any-ports", "--elastic", 1, "--restarts", 2, made.job, *training) as job:
        begun(job)
        os.kill(job.process_of("trainer_1"), signal.SIGKILL)
        job.await_event(about("join", 1, after=1), "second join of trainer 1")
        assert job.end() == 0, job.talk
    starts = [sorted(event["processes"]) for event in job.events if event["event"] == "start"]
    assert starts[1:] == [["trainer_1"]]
    assert made.lost(tmp_path / "saved") <= 1


def test_a_trainer_that_is_killed_for_good_is_done_without(made: Made, tmp_path: Path) -> None:
    with launched("--any-ports", "--elastic", 1, made.job, *made.training(tmp_path / "saved")) as job:
        begun(job)
        os.kill(job.process_of("trainer_0"), signal.SIGKILL)
        assert job.end() == 0, job.talk
    assert ("without", "trainer_0") in job.kinds() and ("left_out", "trainer_0") in job.kinds()
    assert made.lost(tmp_path / "saved") <= 1  # trainer 1 has saved it


def test_too_few_trainers_end_the_job(made: Made, tmp_path: Path) -> None:
    with launched("--any-ports", "--elastic", 2, made.job, *made.training(tmp_path / "saved")) as job:
        begun(job)
        os.kill(job.process_of("trainer_1"), signal.SIGKILL)
        assert job.end() == 128 + signal.SIGKILL
    assert ("failure", "trainer_1") in job.kinds()


def test_a_server_that_is_killed_lets_all_roles_continue_from_its_checkpoint(made: Made, tmp_path: Path) -> None:
    kept = ("--checkpoint", tmp_path / "kept", "--checkpoint-every", 20, "--restarts", 1)
    with launched("--any-ports", "--elastic", 1, *kept, made.job, *made.training(tmp_path / "saved")) as job:
        begun(job)
        while max(steps(tmp_path / "kept", "pserver_1"), default=0) < 40:
            assert job.process.poll() is None, job.talk
            time.sleep(0.02)
        os.kill(job.process_of("pserver_0"), signal.SIGKILL)
        assert job.end() == 0, job.talk
    assert ("restart", "pserver_0") in job.kinds()
    assert made.lost(tmp_path / "saved") == 0


def test_a_trainer_joins_a_job_that_runs(made: Made, tmp_path: Path) -> None:
    training = made.training(tmp_path / "saved")
    with launched("--elastic", 1, "--trainers", 1, made.job, *training) as job:
        begun(job, 1)
        with launched("--elastic", 1, "--role", "trainer_1", made.job, *training) as other:
            with slowed(job.process_of("trainer_0")):  # on a busy machine it would be done before the other has started
                assert job.await_event(about("join", 1), "join")["round"] > 1
            assert other.end() == 0, other.talk
        assert job.end() == 0, job.talk
    assert other.events[-1]["roles"][0]["step"] == job.events[-1]["roles"][-1]["step"] == ROWS // 2
    assert made.lost(tmp_path / "saved") == 0


def test_a_straggler_is_left_out_and_joins_again(made: Made, tmp_path: Path) -> None:
    training = made.training(tmp_path / "saved")
    with launched("--any-ports", "--elastic", 1, "--stragglers", "drop:3", made.job, *training) as job:
        begun(job)
        halted = job.process_of("trainer_1")
        os.kill(halted, signal.SIGSTOP)
        left = job.await_event(about("left_out", 1), "left out")
        os.kill(halted, signal.SIGCONT)
        job.await_event(about("join", 1, after=left["round"]), "second join")
        assert job.end() == 0, job.talk
    assert [event for event, role in job.kinds() if event in ("restart", "without", "failure")] == [], "".join(
        job.talk
    ) + str(job.events)
    assert [role["starts"] for role in job.events[-1]["roles"]] == [1] * 4
    assert made.lost(tmp_path / "saved") <= sum(event == "left_out" for event, _ in job.kinds())


def test_a_straggler_of_a_job_that_is_not_elastic_is_reported(made: Made, tmp_path: Path) -> None:
    kept = ("--checkpoint", tmp_path / "kept", "--checkpoint-every", 20)
    with launched("--any-ports", "--stragglers", "report", *kept, made.job, *made.training(tmp_path / "saved")) as job:
        while max(steps(tmp_path / "kept", "trainer_1"), default=0) < 20:
            assert job.process.poll() is None, job.talk
            time.sleep(0.02)
        halted = job.process_of("trainer_1")
        os.kill(halted, signal.SIGSTOP)
        late = job.await_event(lambda event: event["event"] == "late" and event["role"] == "trainer_1", "late")
        os.kill(halted, signal.SIGCONT)
        assert job.end() == 0, job.talk
    assert "trainer 1 has not come after" in late["text"]
    assert {role["role"]: role["late"] for role in job.events[-1]["roles"]}["trainer_1"] >= 1
    assert made.lost(tmp_path / "saved") == 0


def test_an_asynchronous_job_does_without_a_trainer_that_is_killed(tmp_path: Path) -> None:
    programs, data = write_programs(tmp_path, lambda: fluid.optimizer.SGD(0.01)), write_data(tmp_path)
    job_folder = transpile(programs, "--pservers", "127.0.0.1:6174", "--trainers", "2", "--async")
    options = ["--batch-size", "4", "--epochs", "40", "--save", str(tmp_path / "saved")]
    with launched("--any-ports", "--elastic", 1, job_folder, "--data", data, *options) as job:
        begin = time.monotonic()
        job.await_event(lambda event: event["event"] == "join" and event["role"] == "trainer_1", "join")
        os.kill(job.process_of("trainer_1"), signal.SIGKILL)
        assert job.end() == 0, job.talk
    assert ("without", "trainer_1") in job.kinds() and time.monotonic() - begin < PATIENCE
    assert parameters_of(programs, tmp_path / "saved")
