"""Real Paddle 1.8.5 reads the programs of distributed jobs that we transpiled, and runs the job on this machine.

FLUIDTOOL_PADDLE_PYTHON names the interpreter of a Paddle 1.8.5; without it these tests are reported as not run.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fluidtool.fluid as fluid
from fluidtool.distribute.roles import RolePrograms, server_programs, trainer_programs
from fluidtool.distribute.settings import Settings
from tests.support.checkout import child_environment, paddle_environment

SCRIPT = Path(__file__).parent / "paddle_job.py"
STEPS, BATCH, WIDTH, HIDDEN = 4, 6, 100, 200
DEADLINE = 120


@pytest.fixture(scope="module")
def paddle() -> str:
    """The interpreter of real Paddle."""
    interpreter = os.environ.get("FLUIDTOOL_PADDLE_PYTHON")
    if not interpreter:
        pytest.skip("not run: FLUIDTOOL_PADDLE_PYTHON does not name the interpreter of a real Paddle")
    return interpreter


@pytest.fixture
def processes() -> Iterator[list[subprocess.Popen[str]]]:
    """Processes that are stopped at the end, whatever happens."""
    started: list[subprocess.Popen[str]] = []
    yield started
    for process in started:
        process.kill()
        process.communicate()


def network(optimizer: Any, clip: Any = None) -> tuple[Any, Any, Any]:
    """(main program, startup program, loss) of a small network whose larger weight is cut in two."""
    main, startup = fluid.Program(), fluid.Program()
    values = np.random.RandomState(5).uniform(-0.1, 0.1, (WIDTH, HIDDEN)).astype("float32")
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        x = fluid.layers.data("x", [WIDTH])
        y = fluid.layers.data("y", [1])
        initial = fluid.initializer.NumpyArrayInitializer(values)
        hidden = fluid.layers.fc(x, HIDDEN, act="tanh", param_attr=fluid.ParamAttr(name="w", initializer=initial))
        constant = fluid.initializer.Constant(0.05)
        out = fluid.layers.fc(hidden, 1, param_attr=fluid.ParamAttr(name="v", initializer=constant))
        loss = fluid.layers.mean(fluid.layers.square_error_cost(out, y))
        if clip is not None:
            fluid.clip.set_gradient_clip(clip)
        optimizer().minimize(loss)
    return main, startup, loss


def batches(trainers: int) -> list[dict[str, Any]]:
    """For each trainer x [steps, batch, width] and y."""
    random = np.random.RandomState(3)
    shapes = {"x": (STEPS, BATCH, WIDTH), "y": (STEPS, BATCH, 1)}
    return [
        {name: random.uniform(-1, 1, shape).astype("float32") for name, shape in shapes.items()}
        for _ in range(trainers)
    ]


def words(trainers: int) -> list[dict[str, Any]]:
    """For each trainer ids [steps, batch, 1] of a table of 1000 rows, and y."""
    random = np.random.RandomState(4)
    return [
        {
            "ids": random.randint(0, 1000, (STEPS, BATCH, 1)),
            "y": random.uniform(-1, 1, (STEPS, BATCH, 1)).astype("float32"),
        }
        for _ in range(trainers)
    ]


def table(optimizer: Any, is_distributed: bool = False) -> tuple[Any, Any, Any]:
    """(main program, startup program, loss) of a sparse embedding and a layer."""
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        ids = fluid.layers.data("ids", [1], dtype="int64")
        y = fluid.layers.data("y", [1])
        constant = fluid.initializer.Constant(0.3)
        attr = fluid.ParamAttr(name="w", initializer=constant)
        rows = fluid.layers.embedding(ids, [1000, 20], is_sparse=True, is_distributed=is_distributed, param_attr=attr)
        out = fluid.layers.fc(rows, 1, param_attr=fluid.ParamAttr(name="v", initializer=constant))
        loss = fluid.layers.mean(fluid.layers.square_error_cost(out, y))
        optimizer().minimize(loss)
    return main, startup, loss


def alone(main: Any, startup: Any, loss: Any, data: list[dict[str, Any]]) -> tuple[list[float], dict[str, Any]]:
    """Losses and parameters of the same training here, in one process, on the batches of all trainers together."""
    executor = fluid.Executor(fluid.CPUPlace())
    losses = []
    with fluid.scope_guard(fluid.Scope()):
        executor.run(startup)
        for step in range(STEPS):
            feed = {name: np.concatenate([each[name][step] for each in data]) for name in data[0]}
            losses.append(float(np.ravel(executor.run(main, feed=feed, fetch_list=[loss])[0])[0]))
        values = {name: np.array(fluid.global_scope().find_var(name).get_tensor()) for name in ("w", "v")}
    return losses, values


def free_endpoints(count: int) -> tuple[str, ...]:
    """Endpoints of ports that nothing listens on now."""
    sockets = [socket.socket() for _ in range(count)]
    for each in sockets:
        each.bind(("127.0.0.1", 0))
    endpoints = tuple(f"127.0.0.1:{each.getsockname()[1]}" for each in sockets)
    for each in sockets:
        each.close()
    return endpoints


def write(folder: Path, roles: list[RolePrograms]) -> None:
    for role in roles:
        (folder / role.name).mkdir(parents=True)
        (folder / role.name / "main.pb").write_bytes(role.main.serialize_to_string())
        (folder / role.name / "startup.pb").write_bytes(role.startup.serialize_to_string())


def start(python: str, *args: Any, script: tuple[str, ...] = (str(SCRIPT),)) -> subprocess.Popen[str]:
    found = child_environment() if python == sys.executable else paddle_environment()
    environment = {key: value for key, value in found.items() if "proxy" not in key.lower()}
    environment |= {"FLAGS_rpc_deadline": "30000", "OMP_NUM_THREADS": "1", "GLOG_minloglevel": "2"}
    command = [python, *script, *map(str, args)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment)


def all_roles(main: Any, startup: Any, settings: Settings) -> list[RolePrograms]:
    trainers = trainer_programs(main, startup, settings, range(settings.trainers))
    return [*trainers, *server_programs(main, startup, settings, settings.servers)]


JOBS = {
    "sgd": (lambda: fluid.optimizer.SGD(0.1), None),
    "adam": (lambda: fluid.optimizer.Adam(0.01), None),
    "decayed": (lambda: fluid.optimizer.Momentum(fluid.layers.exponential_decay(0.1, 2, 0.5), 0.9), None),
    "regularized": (
        lambda: fluid.optimizer.SGD(0.1, regularization=fluid.regularizer.L2Decay(0.01)),
        None,
    ),
}


def run_job(
    paddle: str,
    processes: list[subprocess.Popen[str]],
    folder: Path,
    network: tuple[Any, Any, Any],
    data: list[dict[str, Any]],
    parameters: str = "w,v",
    **options: Any,
) -> list[dict[str, Any]]:
    """What the trainers of a job saved, one for each entry of `data`; two servers unless told otherwise."""
    main, startup, loss = network
    settings = Settings(**{"trainer_id": 0, "trainers": len(data), "servers": free_endpoints(2), **options})
    write(folder, all_roles(main, startup, settings))
    for index, _ in enumerate(settings.servers):
        processes.append(start(paddle, "pserver", folder / f"pserver_{index}"))
    trainers = []
    for index, arrays in enumerate(data):
        np.savez(folder / f"data_{index}.npz", **arrays)
        given = (folder / f"data_{index}.npz", loss.name, parameters, folder / f"out_{index}.npz")
        trainers.append(start(paddle, "trainer", folder / f"trainer_{index}", *given))
    processes += trainers
    for trainer in trainers:
        output, _ = trainer.communicate(timeout=DEADLINE)
        assert trainer.returncode == 0, output[-2000:]
    return [dict(np.load(folder / f"out_{index}.npz")) for index, _ in enumerate(data)]


@pytest.mark.parametrize("name", JOBS)
def test_real_paddle_trains_with_our_programs_as_one_process_does(
    paddle: str, processes: list[subprocess.Popen[str]], tmp_path: Path, name: str
) -> None:
    built, data = network(*JOBS[name]), batches(2)
    outs = run_job(paddle, processes, tmp_path, built, data)
    losses, values = alone(*built, data)
    np.testing.assert_allclose((outs[0]["losses"] + outs[1]["losses"]) / 2, losses, rtol=2e-5)
    for parameter in ("w", "v"):
        np.testing.assert_array_equal(outs[0][parameter], outs[1][parameter])
        # adam divides a gradient by its own size: of one near 0 the rounding counts, and that is the processor's
        atol = 5e-5 if name == "adam" else 2e-6
        np.testing.assert_allclose(outs[0][parameter], values[parameter], rtol=2e-4, atol=atol)


def test_one_synchronous_trainer_works_which_real_paddles_own_programs_do_not(
    paddle: str, processes: list[subprocess.Popen[str]], tmp_path: Path
) -> None:
    built, data = network(*JOBS["sgd"]), batches(1)
    (out,) = run_job(paddle, processes, tmp_path, built, data, servers=free_endpoints(1))
    losses, values = alone(*built, data)
    np.testing.assert_allclose(out["losses"], losses, rtol=2e-5)
    np.testing.assert_allclose(out["w"], values["w"], rtol=2e-4, atol=2e-6)


def test_rows_of_a_sparse_table_are_trained_on_the_servers(
    paddle: str, processes: list[subprocess.Popen[str]], tmp_path: Path
) -> None:
    built, data = table(lambda: fluid.optimizer.SGD(0.1)), words(2)
    outs = run_job(paddle, processes, tmp_path, built, data, parameters="v")
    losses, values = alone(*built, data)
    np.testing.assert_allclose((outs[0]["losses"] + outs[1]["losses"]) / 2, losses, rtol=2e-5)
    np.testing.assert_allclose(outs[0]["v"], values["v"], rtol=2e-4, atol=2e-6)


def test_a_distributed_table_starts_alike_and_is_trained_which_real_paddle_cannot_transpile(
    paddle: str, processes: list[subprocess.Popen[str]], tmp_path: Path
) -> None:
    built, data = table(lambda: fluid.optimizer.SGD(0.01), is_distributed=True), words(2)
    outs = run_job(paddle, processes, tmp_path, built, data, parameters="v")
    losses, _ = alone(*table(lambda: fluid.optimizer.SGD(0.01)), data)
    found = (outs[0]["losses"] + outs[1]["losses"]) / 2
    np.testing.assert_allclose(found[0], losses[0], rtol=2e-5)
    np.testing.assert_allclose(
        found, losses, rtol=0.2
    )  # servers add up the gradients of a table, one process takes their mean


def test_clips_of_an_optimizer_work_which_real_paddles_own_programs_do_not(
    paddle: str, processes: list[subprocess.Popen[str]], tmp_path: Path
) -> None:
    clip = fluid.clip.GradientClipByValue(0.001)
    built, data = network(lambda: fluid.optimizer.SGD(0.1, grad_clip=clip)), batches(1)
    (out,) = run_job(paddle, processes, tmp_path, built, data)
    losses, values = alone(*built, data)
    np.testing.assert_allclose(out["losses"], losses, rtol=2e-5)
    np.testing.assert_allclose(out["w"], values["w"], rtol=2e-4, atol=2e-6)


def test_a_single_asynchronous_trainer_gets_what_one_process_gets(
    paddle: str, processes: list[subprocess.Popen[str]], tmp_path: Path
) -> None:
    built, data = network(*JOBS["sgd"]), batches(1)
    (out,) = run_job(paddle, processes, tmp_path, built, data, sync=False)
    losses, values = alone(*built, data)
    np.testing.assert_allclose(out["losses"], losses, rtol=2e-5)
    np.testing.assert_allclose(out["w"], values["w"], rtol=2e-4, atol=2e-6)


def test_asynchronous_trainers_with_a_decaying_rate_come_to_an_end(
    paddle: str, processes: list[subprocess.Popen[str]], tmp_path: Path
) -> None:
    outs = run_job(paddle, processes, tmp_path, network(*JOBS["decayed"]), batches(2), sync=False)
    assert all(np.isfinite(out["losses"]).all() and np.isfinite(out["w"]).all() for out in outs)


def test_real_paddle_reads_the_programs_of_every_mode(paddle: str, tmp_path: Path) -> None:
    clip = fluid.clip.GradientClipByGlobalNorm(1.0)
    main, startup, _ = network(lambda: fluid.optimizer.Adam(fluid.layers.noam_decay(64, 10)), clip)
    common: dict[str, Any] = {"trainer_id": 0, "trainers": 2, "servers": free_endpoints(2)}
    modes: dict[str, dict[str, Any]] = {
        "sync": {},
        "async": {"sync": False},
        "runtime_split": {"sync": False, "runtime_split": True},
        "dc_asgd": {"sync": False, "dc_asgd": True},
        "geo": {"sync": False, "geo": True},
        "whole": {"slice_variables": False},
    }
    expected = []
    for mode, options in modes.items():
        roles = all_roles(main, startup, Settings(**common, **options))
        write(tmp_path / mode, roles)
        for role in roles:
            for kind, program in (("main", role.main), ("startup", role.startup)):
                types = [op.type for block in program.blocks for op in block.ops]
                expected.append(f"{mode}/{role.name}/{kind}.pb {program.num_blocks} {' '.join(types)}")
    reading = start(paddle, "check", tmp_path)
    output, _ = reading.communicate(timeout=DEADLINE)
    assert sorted(output.splitlines()) == sorted(expected)
