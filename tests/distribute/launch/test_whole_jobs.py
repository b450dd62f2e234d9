"""Whole jobs on this machine: several processes learn what one does, also when some of them are killed on the way."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fluidtool.fluid as fluid
from fluidtool.distribute.checkpoints import steps
from tests.cli.support import call, error_of, process
from tests.distribute.launch.jobs import (
    BATCH,
    EPOCHS,
    Parameters,
    alone,
    parameters_of,
    transpile,
    write_data,
    write_programs,
)
from tests.distribute.launch.support import is_alive
from tests.support.checkout import child_environment

pytest.importorskip("grpc", reason="parameter servers talk by gRPC: pip install 'fluidtool[dist]'")

pytestmark = pytest.mark.slow
SERVERS = ("--pservers", "127.0.0.1:6174,127.0.0.1:6175", "--trainers", "4")
# Adam divides by the size of the gradient, so where that is tiny the order of its sum shows, in units of the learning rate.
OPTIMIZERS = {"momentum": lambda: fluid.optimizer.Momentum(0.05, 0.9), "adam": lambda: fluid.optimizer.Adam(0.001)}


def training(data: Path, save: Path, epochs: int = EPOCHS) -> list[str]:
    """What the trainers are told."""
    return ["--data", str(data), "--batch-size", str(BATCH), "--epochs", str(epochs), "--save", str(save)]


def launch(*args: Any) -> subprocess.CompletedProcess[str]:
    return process("launch", "--any-ports", "--hang-after", "60", *args, text=True)


def agree(found: dict[str, Any], expected: dict[str, Any]) -> None:
    assert found.keys() == expected.keys() and found
    for name, array in expected.items():
        np.testing.assert_allclose(found[name], array, rtol=0, atol=1e-6, err_msg=name)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_two_servers_and_four_trainers_learn_what_one_process_does(name: str, tmp_path: Path) -> None:
    programs = write_programs(tmp_path, OPTIMIZERS[name])
    job, data = transpile(programs, *SERVERS), write_data(tmp_path)
    done = launch(job, *training(data, tmp_path / "saved"))
    assert done.returncode == 0, done.stderr
    agree(parameters_of(programs, tmp_path / "saved"), alone(programs))


def test_trainers_of_an_asynchronous_job_finish(tmp_path: Path) -> None:
    programs = write_programs(tmp_path)
    job, data = transpile(programs, *SERVERS[:-1], "2", "--async"), write_data(tmp_path)
    done = launch("--json", job, *training(data, tmp_path / "saved"))
    end = json.loads(done.stdout.splitlines()[-1])
    assert (done.returncode, end["exit_code"]) == (0, 0), done.stderr
    assert {role["step"] for role in end["roles"] if role["role"].startswith("trainer")} == {24}


def test_an_embedding_that_servers_keep_is_saved_whole(tmp_path: Path) -> None:
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        ids, y = fluid.layers.data("ids", [1], dtype="int64"), fluid.layers.data("y", [1])
        attr = fluid.ParamAttr("table", initializer=fluid.initializer.Constant(0.1))
        rows = fluid.layers.embedding(ids, [3000, 8], is_sparse=True, param_attr=attr)
        out = fluid.layers.fc(rows, 1, param_attr=fluid.initializer.Constant(0.2))
        fluid.optimizer.SGD(0.5).minimize(fluid.layers.mean(fluid.layers.square_error_cost(out, y)))
    for name, program in (("main", main), ("startup", startup)):
        (tmp_path / f"{name}.pb").write_bytes(program.serialize_to_string())
    random = np.random.RandomState(1)
    data = {"ids": random.randint(0, 3000, (48, 1)), "y": random.uniform(0, 1, (48, 1)).astype("float32")}
    np.savez(tmp_path / "data.npz", **data)
    words = training(tmp_path / "data.npz", tmp_path / "saved")
    done = launch(transpile(tmp_path, *SERVERS[:-1], "2"), *words)
    assert done.returncode == 0, done.stderr
    agree(parameters_of(tmp_path, tmp_path / "saved"), alone(tmp_path, 2, data=data))


def test_a_disk_that_refuses_a_trainer_s_checkpoints_is_told_and_the_job_goes_on(tmp_path: Path) -> None:
    programs = write_programs(tmp_path)
    job, data = transpile(programs, *SERVERS), write_data(tmp_path)
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "trainer_0").write_text("in the way")
    options = ["--checkpoint", tmp_path / "kept", "--checkpoint-every", "2", "--resume"]
    done = launch(*options, job, *training(data, tmp_path / "saved"))
    assert done.returncode == 0, done.stderr
    assert "trainer_0 | " in done.stderr and "cannot write the checkpoint" in done.stderr
    agree(parameters_of(programs, tmp_path / "saved"), alone(programs))


# ---------------------------------------------------------------- recovery
# Epochs: seconds of training after the first checkpoint, so that a fault reaches the job on a machine that is busy with others too.
LONG = 16


class TooLate(Exception):
    """The job was at its end before the fault reached it."""


def processes_of(job: subprocess.Popen[str]) -> dict[str, int]:
    """The processes of the roles."""
    assert job.stdout is not None
    line = json.loads(job.stdout.readline())
    assert line["event"] == "start"
    return dict(line["processes"])


def wait_for(folder: Path, role: str, step: int) -> None:
    """Until a role has a checkpoint of this step or a later one."""
    deadline = time.monotonic() + 60
    while max(steps(folder, role), default=0) < step:
        assert time.monotonic() < deadline, f"{role} has no checkpoint of step {step}"
        time.sleep(0.01)


@dataclass(frozen=True)
class Unbroken:
    """A job of two servers and two trainers that nothing happened to."""

    programs: Path
    job: Path
    data: Path
    parameters: Parameters


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory: pytest.TempPathFactory) -> Unbroken:
    folder = tmp_path_factory.mktemp("unbroken")
    programs, data = write_programs(folder), write_data(folder)
    job = transpile(programs, *SERVERS[:-1], "2")
    done = launch(job, *training(data, folder / "saved", LONG))
    assert done.returncode == 0, done.stderr
    return Unbroken(programs, job, data, parameters_of(programs, folder / "saved"))


def broken(
    job: Path, words: list[str], folder: Path, victim: str, number: signal.Signals
) -> tuple[int, list[dict[str, Any]]]:
    """Launch a job and, when all roles have a checkpoint, send one of them a signal ("": the launcher itself).

    The exit code and the events. A job that ends before it can be hurt is launched again.
    """
    for attempt in range(3):
        try:
            return broken_once(job, words, folder / f"kept{attempt}", victim, number)
        except TooLate:
            shutil.rmtree(folder / "saved")
    pytest.fail(f"three jobs ended before {victim} could be sent {number.name}")


def broken_once(
    job: Path, words: list[str], kept: Path, victim: str, number: signal.Signals
) -> tuple[int, list[dict[str, Any]]]:
    options = ["--checkpoint", str(kept), "--checkpoint-every", "4", "--restarts", "1", "--json"]
    launching = ["launch", "--any-ports", "--hang-after", "15", "--grace", "3", *options, str(job), *words]
    with subprocess.Popen(
        [sys.executable, "-m", "fluidtool", *launching],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env=child_environment(),
    ) as running:
        processes = processes_of(running)
        for role in processes:
            wait_for(kept, role, 4)
        try:
            os.kill(processes[victim] if victim else running.pid, number)
        except ProcessLookupError:
            running.communicate(timeout=120)
            raise TooLate from None
        written, _ = running.communicate(timeout=120)
    assert not any(is_alive(process) for process in processes.values())
    return running.returncode, [json.loads(line) for line in written.splitlines()]


FAULTS = [("pserver_1", signal.SIGKILL), ("trainer_1", signal.SIGKILL), ("pserver_0", signal.SIGSTOP)]


@pytest.mark.parametrize(("victim", "number"), FAULTS, ids=[f"{number.name} {victim}" for victim, number in FAULTS])
def test_a_job_that_loses_a_role_learns_the_same_bits(
    victim: str, number: signal.Signals, unbroken: Unbroken, tmp_path: Path
) -> None:
    words = training(unbroken.data, tmp_path / "saved", LONG)
    done, lines = broken(unbroken.job, words, tmp_path, victim, number)
    assert done == 0, lines
    assert [line["event"] for line in lines].count("restart") == 1
    found = parameters_of(unbroken.programs, tmp_path / "saved")
    assert unbroken.parameters.keys() == found.keys()
    for name, array in unbroken.parameters.items():
        np.testing.assert_array_equal(found[name], array, err_msg=name)


@pytest.mark.parametrize("victim", ["pserver_0", "trainer_1"])
def test_an_asynchronous_job_starts_a_lost_trainer_alone_and_all_roles_after_a_server(
    victim: str, tmp_path: Path
) -> None:
    programs = write_programs(tmp_path, lambda: fluid.optimizer.SGD(0.01))
    job = transpile(programs, *SERVERS[:-1], "2", "--async")
    words = training(write_data(tmp_path), tmp_path / "saved", LONG)
    done, lines = broken(job, words, tmp_path, victim, signal.SIGKILL)
    assert done == 0, lines
    starts = {role["role"]: role["starts"] for role in lines[-1]["roles"]}
    again = starts.keys() if victim == "pserver_0" else {victim}
    assert starts == {name: 2 if name in again else 1 for name in starts}
    assert {role["step"] for role in lines[-1]["roles"] if role["role"].startswith("trainer")} == {12 * LONG}


def killed_at_the_end(job: Path, words: list[str], kept: Path, victim: str) -> tuple[int, list[dict[str, Any]]]:
    """Launch a job with checkpoints and kill a server as soon as all trainers are done; the exit code and the events."""
    options = ["--checkpoint", str(kept), "--checkpoint-every", "4", "--restarts", "1", "--json"]
    with subprocess.Popen(
        [sys.executable, "-m", "fluidtool", "launch", "--any-ports", "--hang-after", "60", *options, str(job), *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env=child_environment(),
    ) as running:
        processes, done, lines = processes_of(running), set[str](), []
        assert running.stdout is not None
        for text in running.stdout:
            lines.append(json.loads(text))
            done |= {lines[-1]["role"]} if lines[-1]["event"] == "done" else set()
            if {"trainer_0", "trainer_1"} <= done and victim not in done:
                os.kill(processes[victim], signal.SIGKILL)
                break
        lines += [json.loads(text) for text in running.stdout]
        running.wait(120)
    if not any(line["event"] == "without" for line in lines) and not any(line["event"] == "restart" for line in lines):
        raise TooLate
    return running.returncode, lines


@pytest.mark.parametrize("asynchronous", [(), ("--async",)], ids=["sync", "async"])
def test_a_server_with_checkpoints_that_is_killed_when_all_trainers_are_done_is_not_missed(
    asynchronous: tuple[str, ...], tmp_path: Path
) -> None:
    programs = write_programs(tmp_path, lambda: fluid.optimizer.SGD(0.01))
    job, data = transpile(programs, *SERVERS[:-1], "2", *asynchronous), write_data(tmp_path)
    for attempt in range(10):
        kept = tmp_path / f"kept{attempt}"
        try:
            code, lines = killed_at_the_end(job, training(data, tmp_path / "saved"), kept, "pserver_1")
            break
        except (TooLate, ProcessLookupError):
            shutil.rmtree(tmp_path / "saved")
    else:
        pytest.fail("ten servers had ended before they could be killed")
    assert code == 0, lines
    starts = {role["role"]: role["starts"] for role in lines[-1]["roles"]}
    assert asynchronous or starts == dict.fromkeys(
        starts, 1
    )  # an asynchronous server may not have saved everything yet
    assert parameters_of(programs, tmp_path / "saved").keys() == alone(programs, 2).keys()
    more = launch("--checkpoint", kept, "--resume", job, *training(data, tmp_path / "more", EPOCHS + 1))
    assert more.returncode == 0, more.stderr
    if not asynchronous:
        agree(parameters_of(programs, tmp_path / "more"), alone(programs, 2, EPOCHS + 1))


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_job_that_is_stopped_leaves_nothing_behind(
    number: signal.Signals, code: int, unbroken: Unbroken, tmp_path: Path
) -> None:
    words = training(unbroken.data, tmp_path / "saved", 1000)
    done, lines = broken(unbroken.job, words, tmp_path, "", number)
    assert (done, lines[-1]["exit_code"]) == (code, code)
    assert {role["state"] for role in lines[-1]["roles"]} == {"stopped"}
    assert not (tmp_path / "saved").exists()


def test_a_job_goes_on_where_an_earlier_one_was_stopped(tmp_path: Path) -> None:
    programs = write_programs(tmp_path)
    job, data, kept = transpile(programs, *SERVERS[:-1], "2"), write_data(tmp_path), tmp_path / "kept"
    options = ("--checkpoint", kept, "--checkpoint-every", "12")
    assert launch(*options, job, *training(data, tmp_path / "first", 1)).returncode == 0
    done = launch(*options, "--resume", job, *training(data, tmp_path / "second", 2))
    assert done.returncode == 0, done.stderr
    assert "trainer_0 | resumed after step 11 of epoch 0" in done.stderr
    agree(parameters_of(programs, tmp_path / "second"), alone(programs, 2, 2))


# ---------------------------------------------------------------- one role by hand
@pytest.fixture
def job(tmp_path: Path) -> Path:
    return transpile(write_programs(tmp_path), *SERVERS)


def test_a_trainer_needs_examples(job: Path) -> None:
    result = call("run", job / "trainer_0")
    assert result.exit_code == 2 and "belongs to a trainer; give it examples with --data FILE" in error_of(result)


def test_a_server_takes_none(job: Path, tmp_path: Path) -> None:
    result = call("run", job / "pserver_0", "--data", write_data(tmp_path))
    assert result.exit_code == 2 and "belongs to a server, which takes no data" in error_of(result)


def test_endpoints_of_other_machines_need_leave(tmp_path: Path) -> None:
    job = transpile(write_programs(tmp_path), "--pservers", "10.0.0.1:6174", "--trainers", "1")
    result = call("run", job / "trainer_0", "--data", write_data(tmp_path))
    assert result.exit_code == 2
    assert "connect to 10.0.0.1:6174, which is not this machine; allow it with --allow-network" in error_of(result)


def test_data_for_programs_of_no_job_are_train_s(tmp_path: Path) -> None:
    programs = write_programs(tmp_path)
    result = call("run", programs, "--data", write_data(tmp_path))
    assert result.exit_code == 2 and "has no programs of a distributed job" in error_of(result)


def test_a_role_that_contradicts_the_environment_is_refused(job: Path, tmp_path: Path) -> None:
    (job / "manifest.json").unlink()
    env = {"TRAINING_ROLE": "PSERVER", "PADDLE_PSERVERS_IP_PORT_LIST": "127.0.0.1:6174", "PADDLE_TRAINERS_NUM": "1"}
    env |= {"POD_IP": "127.0.0.1", "PADDLE_PORT": "6174"}
    result = call("run", job / "trainer_0", "--data", write_data(tmp_path), env=env)
    assert "belong to a trainer, but the environment says that this is a pserver" in error_of(result)


def test_options_of_launch_behind_the_job_are_told(job: Path) -> None:
    result = call("launch", job, "--any-ports")
    assert "--any-ports comes after" in error_of(result)
