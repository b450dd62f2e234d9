"""Running a server program: where it listens, how it ends, and going on from a checkpoint."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fluidtool.fluid as fluid
from fluidtool import runtime
from fluidtool.distribute import checkpoints
from fluidtool.distribute.launch.ports import free_endpoints
from fluidtool.distribute.pserver import serving
from fluidtool.distribute.rpc.client import connect
from fluidtool.distribute.rpc.handler import Call, RemoteError
from fluidtool.errors import ModelNotFoundError, OutputError, PolicyError, ProgramError, UsageError
from fluidtool.runtime import Policy, Scope
from fluidtool.tensor import LoDTensor
from tests.distribute.pserver.support import ANY, PATIENCE, Trainer, line, running, server_role, start, together, until
from tests.distribute.pserver.test_jobs import Job, sparse, value, words
from tests.distribute.test_training import batches, network
from tests.support.checkout import child_environment

Patch = pytest.MonkeyPatch


# ---------------------------------------------------------------- ends and addresses
def write_role(folder: Path, endpoint: str) -> None:
    role = server_role(line())
    (serve_op,) = [op for op in role.main.global_block().ops if op.type == "listen_and_serv"]
    serve_op.set_attr("endpoint", endpoint)
    (folder / "main.pb").write_bytes(role.main.serialize_to_string())
    (folder / "startup.pb").write_bytes(role.startup.serialize_to_string())


SCRIPT = """
import sys
import fluidtool.fluid as fluid
executor = fluid.Executor(fluid.CPUPlace())
for name in ("startup", "main"):
    executor.run(fluid.Program.parse_from_string(open(f"{sys.argv[1]}/{name}.pb", "rb").read()))
print("done")
"""


def listens(endpoint: str) -> bool:
    host, _, port = endpoint.rpartition(":")
    try:
        with socket.create_connection((host, int(port)), timeout=1):
            return True
    except OSError:
        return False


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_a_server_in_order(tmp_path: Path, number: signal.Signals) -> None:
    (endpoint,) = free_endpoints(1)
    write_role(tmp_path, endpoint)
    command, environment = [sys.executable, "-c", SCRIPT, str(tmp_path)], child_environment()
    begin = time.time()
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment, cwd=tmp_path
    )
    try:
        until(lambda: listens(endpoint))
        told = Path(serving.PORT_FILE.format(process.pid))
        assert not told.exists() or told.stat().st_mtime < begin  # that of an earlier process of this number
        process.send_signal(number)
        out, errors = process.communicate(timeout=PATIENCE)
    finally:
        process.kill()
        process.wait()
    assert (process.returncode, out) == (0, "done\n"), errors
    assert "Traceback" not in errors
    assert not listens(endpoint)


TRAINER = """
import sys, time
from fluidtool.distribute.rpc.client import connect
client = connect(sys.argv[1], 1)
client.get("w")
client.fetch_barrier()
print("ready", flush=True)
time.sleep(60)
"""


def test_a_trainer_that_is_killed_ends_the_server_with_its_name_and_the_round(tmp_path: Path) -> None:
    (endpoint,) = free_endpoints(1)
    write_role(tmp_path, endpoint)
    environment = child_environment(FLAGS_rpc_deadline="4000")
    command = [sys.executable, "-c", SCRIPT, str(tmp_path)]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)
    trainer = subprocess.Popen(
        [sys.executable, "-c", TRAINER, endpoint], stdout=subprocess.PIPE, text=True, env=environment
    )
    client = connect(endpoint, 0)
    try:
        client.get("w")
        client.fetch_barrier()
        assert trainer.stdout is not None and trainer.stdout.readline() == "ready\n"
        trainer.kill()
        client.send("w@GRAD.trainer_0", LoDTensor(np.ones((4, 1), np.float32)))
        client.send_barrier()
        with pytest.raises(RemoteError, match=r"trainer 1 .*round 1"):
            client.get("w")
        out, errors = server.communicate(timeout=PATIENCE)
    finally:
        client.close()
        for process in (server, trainer):
            process.kill()
            process.wait()
            if process.stdout is not None:
                process.stdout.close()
    assert server.returncode == 1 and out == ""
    assert "gives up: trainer 1" in errors and "round 1" in errors


def test_where_any_port_will_do_a_file_tells_it(tmp_path: Path) -> None:
    write_role(tmp_path, "127.0.0.1:0")
    command, environment = [sys.executable, "-c", SCRIPT, str(tmp_path)], child_environment()
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)
    port_file = Path(serving.PORT_FILE.format(process.pid))
    port_file.write_text("1")  # as a killed process of this number leaves it
    try:
        until(lambda: not port_file.exists())
        until(port_file.exists)
        endpoint = f"127.0.0.1:{int(port_file.read_text())}"
        assert listens(endpoint)
        clients = [connect(endpoint, number) for number in range(2)]
        for client in clients:
            np.testing.assert_array_equal(client.get("w").array, np.full((4, 1), 0.5))
            client.complete()
            client.close()
        out, errors = process.communicate(timeout=PATIENCE)
    finally:
        process.kill()
        process.wait()
    assert (process.returncode, out) == (0, "done\n"), errors
    assert not port_file.exists()


def test_an_endpoint_that_the_run_does_not_allow_is_refused() -> None:
    role = server_role(line())
    with pytest.raises(PolicyError, match=r"listen_and_serv asks to connect to '127.0.0.1:6174'"):
        runtime.Executor(policy=Policy()).run(role.main, {}, [], start(role))


def test_a_port_that_is_taken_is_an_error_that_names_it() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        endpoint = f"127.0.0.1:{taken.getsockname()[1]}"
        role = server_role(line())
        (serve_op,) = [op for op in role.main.global_block().ops if op.type == "listen_and_serv"]
        serve_op.set_attr("endpoint", endpoint)
        with pytest.raises(RemoteError, match=f"cannot listen at {endpoint}"):
            runtime.Executor(policy=ANY).run(role.main, {}, [], start(role))


def test_no_thread_is_left_behind() -> None:
    built, data = network(lambda: fluid.optimizer.SGD(0.1)), batches(2)[:1]
    Job(built, data).run()
    end = time.monotonic() + PATIENCE
    while any(thread.name.startswith(("server ", "fluidtool-update")) for thread in threading.enumerate()):
        assert time.monotonic() < end, [thread.name for thread in threading.enumerate()]
        time.sleep(0.02)


@pytest.mark.parametrize(
    ("attribute", "text", "reason"),
    [
        ("Fanin", 0, "must be at least 1, found 0"),
        ("distributed_mode", 7, r"must be 0 \(sync\), .*, found 7"),
        ("grad_to_block_id", ["w@GRAD"], "must list name:value"),
        ("grad_to_block_id", ["w@GRAD:x"], "must list name:value"),
        ("grad_to_block_id", ["w@GRAD:9"], "names block 9"),
        ("lr_decay_block_id", 12, "names block 12"),
    ],
)
def test_attributes_that_cannot_work_are_refused(attribute: str, text: Any, reason: str) -> None:
    role = server_role(line())
    (serve_op,) = [op for op in role.main.global_block().ops if op.type == "listen_and_serv"]
    serve_op.set_attr(attribute, text)
    with pytest.raises(ProgramError, match=reason):
        runtime.Executor(policy=ANY).run(role.main, {}, [], start(role))


@pytest.mark.parametrize("flag", ["FLAGS_rpc_deadline", "FLAGS_worker_update_interval_secs"])
@pytest.mark.parametrize("text", ["soon", "0", "-1"])
def test_flags_that_are_no_numbers_are_refused(monkeypatch: Patch, flag: str, text: str) -> None:
    monkeypatch.setenv(flag, text)
    role = server_role(line())
    with pytest.raises(UsageError, match=flag):
        runtime.Executor(policy=ANY).run(role.main, {}, [], start(role))


# ---------------------------------------------------------------- checkpoints
def run_with(monkeypatch: Patch, folder: Path, job: Job, resume: int = 0, every: int = 2) -> Any:
    monkeypatch.setenv("FLUIDTOOL_CHECKPOINT_DIR", str(folder))
    monkeypatch.setenv("FLUIDTOOL_CHECKPOINT_EVERY", str(every))
    monkeypatch.setenv("FLUIDTOOL_RESUME_STEP", str(resume))
    return job.run()


def decayed() -> Any:
    return fluid.optimizer.Adam(fluid.layers.exponential_decay(0.01, 2, 0.5))


JOBS: dict[str, Any] = {
    "dense, adam, decaying rate": (lambda: network(decayed), batches),
    "sparse, adam": (lambda: sparse(lambda: fluid.optimizer.Adam(0.01)), words),
    "sparse, momentum": (lambda: sparse(lambda: fluid.optimizer.Momentum(0.1, 0.9)), words),
}


@pytest.mark.parametrize("name", JOBS)
def test_a_job_that_goes_on_from_a_checkpoint_has_the_bits_of_one_that_was_not_broken(
    monkeypatch: Patch, tmp_path: Path, name: str
) -> None:
    build, feeds = JOBS[name]
    built, data = build(), feeds(2)
    whole = Job(built, data)
    losses, parameters = whole.run()

    broken = Job(built, data[:3])
    run_with(monkeypatch, tmp_path, broken)
    assert checkpoints.latest_complete(tmp_path, ["pserver_0", "pserver_1"]) == 2

    again = Job(built, data[2:])
    more, found = run_with(monkeypatch, tmp_path, again, resume=2)
    assert more == losses[2:]
    for parameter, array in parameters.items():
        np.testing.assert_array_equal(found[parameter], array, err_msg=parameter)
    for scope, expected in zip(again.server_scopes, whole.server_scopes, strict=True):
        kept = [each for each in expected.local_var_names() if expected.find_var(each).is_initialized()]
        for each in kept:
            if "@GRAD" not in each:
                np.testing.assert_array_equal(value(scope, each), value(expected, each), err_msg=each)
    assert checkpoints.steps(tmp_path, "pserver_0") == [2, 4]


def test_a_checkpoint_that_is_not_there_is_an_error(monkeypatch: Patch, tmp_path: Path) -> None:
    monkeypatch.setenv("FLUIDTOOL_CHECKPOINT_DIR", str(tmp_path))
    monkeypatch.setenv("FLUIDTOOL_RESUME_STEP", "2")
    role = server_role(line())
    with pytest.raises(ModelNotFoundError, match="no complete checkpoint of pserver_0 after step 2"):
        runtime.Executor(policy=ANY).run(role.main, {}, [], start(role))


def test_a_checkpoint_of_other_programs_is_refused(monkeypatch: Patch, tmp_path: Path) -> None:
    run_with(monkeypatch, tmp_path, Job(network(decayed), batches(2)[:2]))
    monkeypatch.setenv("FLUIDTOOL_RESUME_STEP", "2")
    role = server_role(line())
    with pytest.raises(UsageError, match="which this server's program does not"):
        runtime.Executor(policy=ANY).run(role.main, {}, [], start(role))


def test_a_disk_that_refuses_is_told_and_the_job_goes_on(
    monkeypatch: Patch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("FLUIDTOOL_CHECKPOINT_DIR", str(tmp_path / "file"))
    monkeypatch.setenv("FLUIDTOOL_CHECKPOINT_EVERY", "1")
    Job(network(lambda: fluid.optimizer.SGD(0.1)), batches(2)[:2]).run()
    assert "cannot write the checkpoint" in capsys.readouterr().err


def test_an_asynchronous_server_that_cannot_save_what_it_begins_with_does_not_begin(
    monkeypatch: Patch, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("FLUIDTOOL_CHECKPOINT_DIR", str(tmp_path / "file"))
    monkeypatch.setenv("FLUIDTOOL_CHECKPOINT_EVERY", "4")
    role = server_role(line(), sync=False)
    with pytest.raises(OutputError, match="cannot write the checkpoint"):
        runtime.Executor(policy=ANY).run(role.main, {}, [], start(role))


def test_an_asynchronous_server_that_cannot_save_its_end_fails(monkeypatch: Patch, tmp_path: Path) -> None:
    monkeypatch.setenv("FLUIDTOOL_CHECKPOINT_DIR", str(tmp_path / "kept"))
    monkeypatch.setenv("FLUIDTOOL_CHECKPOINT_EVERY", "4")
    role = server_role(line(), sync=False)
    with running(role.main, start(role), monkeypatch) as server:
        (tmp_path / "kept").rename(tmp_path / "other")
        (tmp_path / "kept").write_text("in the way")
        for number in range(2):
            server.handler.complete(number, Call(number))
        until(lambda: not server.thread.is_alive())
    assert isinstance(server.error, OutputError) and "cannot write the checkpoint" in str(server.error)


def test_an_asynchronous_server_saves_and_goes_on(monkeypatch: Patch, tmp_path: Path) -> None:
    monkeypatch.setenv("FLUIDTOOL_CHECKPOINT_DIR", str(tmp_path))
    monkeypatch.setenv("FLUIDTOOL_CHECKPOINT_EVERY", "4")
    role = server_role(line(), sync=False)
    with running(role.main, start(role), monkeypatch) as server:
        trainer = Trainer(server.handler, 0)
        for _ in range(4):
            trainer.send("w@GRAD", np.full((4, 1), 1.0))
            trainer.send("b@GRAD", [1.0])
        until(lambda: checkpoints.steps(tmp_path, "pserver_0") == [0, 4])
    monkeypatch.setenv("FLUIDTOOL_RESUME_STEP", "4")
    with running(role.main, start(role), monkeypatch) as server:
        np.testing.assert_allclose(Trainer(server.handler, 0).get("w"), 0.1, rtol=1e-5)
        assert server.handler.step == 4


def test_trainers_that_resumed_from_another_step_than_the_server_are_refused(
    monkeypatch: Patch, tmp_path: Path
) -> None:
    scope = Scope()
    role = server_role(line())
    runtime.Executor(policy=ANY).run(role.startup, {}, [], scope)
    monkeypatch.setenv("FLUIDTOOL_CHECKPOINT_DIR", str(tmp_path))
    monkeypatch.setenv("FLUIDTOOL_CHECKPOINT_EVERY", "1")
    with running(role.main, scope, monkeypatch) as server:
        pair = [Trainer(server.handler, number) for number in range(2)]
        for trainer in pair:
            trainer.fetched()
        together(*(trainer.barrier for trainer in pair))
        until(lambda: checkpoints.steps(tmp_path, "pserver_0") == [1])
    monkeypatch.setenv("FLUIDTOOL_RESUME_STEP", "1")
    with (
        running(role.main, scope, monkeypatch) as server,
        pytest.raises(RemoteError, match=r"is in step 0, .* expects step 1"),
    ):
        Trainer(server.handler, 0).get("w")
