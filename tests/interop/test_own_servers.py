"""Two trainers of real Paddle 1.8.5 train against two parameter servers of fluidtool; the same job with Paddle's servers
gives the same numbers.

FLUIDTOOL_PADDLE_PYTHON names the interpreter of a Paddle 1.8.5; without it these tests are reported as not run.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fluidtool.fluid as fluid
from fluidtool.distribute.settings import Settings
from tests.interop.test_distribute import (
    DEADLINE,
    all_roles,
    alone,
    batches,
    free_endpoints,
    network,
    paddle,
    processes,
    start,
    table,
    words,
    write,
)
from tests.support.checkout import child_environment

__all__ = ["paddle", "processes"]  # fixtures
Processes = list[subprocess.Popen[str]]
SCRIPT = Path(__file__).parent / "server_process.py"
OPTIMIZERS: dict[str, Any] = {
    "sgd": lambda: fluid.optimizer.SGD(0.1),
    "momentum": lambda: fluid.optimizer.Momentum(0.1, 0.9),
    "adam": lambda: fluid.optimizer.Adam(0.01),
    "decayed": lambda: fluid.optimizer.Momentum(fluid.layers.exponential_decay(0.1, 2, 0.5), 0.9),
    "regularized": lambda: fluid.optimizer.SGD(0.1, regularization=fluid.regularizer.L2Decay(0.01)),
}


def words_in_common(trainers: int) -> list[dict[str, Any]]:
    """`words`, with two that all trainers have, one for each server.

    Where no row comes twice Paddle 1.8.5 merges rows without sorting them, and its sparse momentum then searches among
    them as if they were sorted: it misses some.
    """
    data = words(trainers)
    for each in data:
        each["ids"][:, :2, 0] = 7, 777
    return data


def shards(servers: list[dict[str, Any]]) -> Any:
    """The weight that is cut in two, from the servers."""
    found = {name: array for server in servers for name, array in server.items()}
    return np.concatenate([found["w.block0"], found["w.block1"]])


def serve(folder: Path, out: Path, parameters: str) -> subprocess.Popen[str]:
    """A server of fluidtool."""
    kept = {name: value for name, value in child_environment().items() if name.startswith("PYTHON")}
    environment = kept | {"PATH": "/usr/bin:/bin", "FLAGS_rpc_deadline": "30000"}
    command = [sys.executable, str(SCRIPT), str(folder), str(out), parameters]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment)


def run_job(
    paddle: str,
    processes: Processes,
    folder: Path,
    network: tuple[Any, Any, Any],
    data: list[dict[str, Any]],
    *,
    ours: bool,
    parameters: str = "w,v",
    **options: Any,
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """What each trainer of real Paddle, and each server of ours, had at the end."""
    main, startup, loss = network
    settings = Settings(**{"trainer_id": 0, "trainers": len(data), "servers": free_endpoints(2), **options})
    write(folder, all_roles(main, startup, settings))
    outs = [folder / f"server_{index}.npz" for index in range(2)]
    kept = "w,v,w.block0,w.block1"
    servers = [
        serve(folder / f"pserver_{index}", out, kept) if ours else start(paddle, "pserver", folder / f"pserver_{index}")
        for index, out in enumerate(outs)
    ]
    processes += servers
    trainers = []
    for index, arrays in enumerate(data):
        np.savez(folder / f"data_{index}.npz", **arrays)
        given = (folder / f"data_{index}.npz", loss.name, parameters, folder / f"out_{index}.npz")
        trainers.append(start(paddle, "trainer", folder / f"trainer_{index}", *given))
    processes += trainers
    for trainer in trainers:
        output, _ = trainer.communicate(timeout=DEADLINE)
        assert trainer.returncode == 0, output[-2000:]
    if ours:
        for server in servers:
            output, _ = server.communicate(timeout=DEADLINE)
            assert server.returncode == 0, output[-2000:]
    trained = [dict(np.load(folder / f"out_{index}.npz")) for index, _ in enumerate(data)]
    return trained, [dict(np.load(out)) for out in outs] if ours else []


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_dense_parameters_train_as_with_paddles_servers(
    paddle: str, processes: Processes, tmp_path: Path, name: str
) -> None:
    built, data = network(OPTIMIZERS[name]), batches(2)
    found, _ = run_job(paddle, processes, tmp_path / "ours", built, data, ours=True)
    expected, _ = run_job(paddle, processes, tmp_path / "theirs", built, data, ours=False)
    for trainer, wanted in zip(found, expected, strict=True):
        for key in ("losses", "w", "v"):
            np.testing.assert_allclose(trainer[key], wanted[key], rtol=2e-6, atol=2e-7, err_msg=key)


@pytest.mark.parametrize("name", ["sgd", "momentum", "adam"])
def test_sparse_tables_train_as_with_paddles_servers(
    paddle: str, processes: Processes, tmp_path: Path, name: str
) -> None:
    built, data = table(OPTIMIZERS[name]), words_in_common(2)
    found, servers = run_job(paddle, processes, tmp_path / "ours", built, data, ours=True, parameters="v")
    expected, _ = run_job(paddle, processes, tmp_path / "theirs", built, data, ours=False, parameters="v")
    for trainer, wanted in zip(found, expected, strict=True):
        for key in ("losses", "v"):
            np.testing.assert_allclose(trainer[key], wanted[key], rtol=2e-6, atol=2e-7, err_msg=key)
    _, values = alone(*built, data)
    np.testing.assert_allclose(shards(servers), values["w"], rtol=2e-4, atol=2e-6)


@pytest.mark.parametrize("name", ["sgd", "adam", "decayed"])
def test_asynchronous_trainers_come_to_an_end_and_learn(
    paddle: str, processes: Processes, tmp_path: Path, name: str
) -> None:
    built, data = network(OPTIMIZERS[name]), batches(2)
    found, servers = run_job(paddle, processes, tmp_path, built, data, ours=True, sync=False)
    start_values = np.random.RandomState(5).uniform(-0.1, 0.1, (100, 200)).astype("float32")
    for trainer in found:
        assert np.isfinite(trainer["losses"]).all() and np.abs(trainer["w"] - start_values).max() > 1e-4
    assert np.isfinite(shards(servers)).all()


def test_a_single_asynchronous_trainer_gets_what_one_process_gets(
    paddle: str, processes: Processes, tmp_path: Path
) -> None:
    built, data = network(OPTIMIZERS["sgd"]), batches(1)
    (out,), _ = run_job(paddle, processes, tmp_path, built, data, ours=True, sync=False)
    losses, values = alone(*built, data)
    np.testing.assert_allclose(out["losses"], losses, rtol=2e-5)
    np.testing.assert_allclose(out["w"], values["w"], rtol=2e-4, atol=2e-6)


def test_sparse_tables_train_asynchronously(paddle: str, processes: Processes, tmp_path: Path) -> None:
    built, data = table(OPTIMIZERS["sgd"]), words(2)
    found, _ = run_job(paddle, processes, tmp_path, built, data, ours=True, parameters="v", sync=False)
    assert all(np.isfinite(trainer["losses"]).all() for trainer in found)


def test_a_distributed_table_is_trained(paddle: str, processes: Processes, tmp_path: Path) -> None:
    built, data = table(lambda: fluid.optimizer.SGD(0.01), is_distributed=True), words(2)
    found, _ = run_job(paddle, processes, tmp_path / "ours", built, data, ours=True, parameters="v")
    expected, _ = run_job(paddle, processes, tmp_path / "theirs", built, data, ours=False, parameters="v")
    for trainer, wanted in zip(found, expected, strict=True):
        np.testing.assert_allclose(trainer["losses"], wanted["losses"], rtol=2e-6)


def test_delay_compensation_serves_paddles_trainers(paddle: str, processes: Processes, tmp_path: Path) -> None:
    built, data = network(OPTIMIZERS["sgd"]), batches(2)
    found, _ = run_job(paddle, processes, tmp_path, built, data, ours=True, sync=False, dc_asgd=True)
    assert all(np.isfinite(trainer["losses"]).all() for trainer in found)


def test_one_synchronous_trainer_works(paddle: str, processes: Processes, tmp_path: Path) -> None:
    built, data = network(OPTIMIZERS["adam"]), batches(1)
    (out,), _ = run_job(paddle, processes, tmp_path, built, data, ours=True)
    losses, values = alone(*built, data)
    np.testing.assert_allclose(out["losses"], losses, rtol=2e-5)
    np.testing.assert_allclose(out["w"], values["w"], rtol=2e-4, atol=2e-6)
