"""Roles of real Paddle 1.8.5 and of fluidtool work in one job, over the network of this machine.

FLUIDTOOL_PADDLE_PYTHON names the interpreter of a Paddle 1.8.5; without it these tests are reported as not run.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fluidtool.fluid as fluid
from fluidtool.distribute.settings import Settings
from tests.interop.test_distribute import (
    DEADLINE,
    SCRIPT,
    all_roles,
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

__all__ = ["paddle", "processes"]  # fixtures

REAL, OURS = "real", "ours"
Job = tuple[tuple[Any, Any, Any], list[dict[str, Any]], str]

SGD = lambda: fluid.optimizer.SGD(0.1)  # noqa: E731
JOBS: dict[str, Callable[[], Job]] = {
    "sgd": lambda: (network(SGD), batches(2), "w,v"),
    "momentum": lambda: (network(lambda: fluid.optimizer.Momentum(0.05, 0.9)), batches(2), "w,v"),
    "adam": lambda: (network(lambda: fluid.optimizer.Adam(0.01)), batches(2), "w,v"),
    "decayed": lambda: (
        network(lambda: fluid.optimizer.SGD(fluid.layers.exponential_decay(0.1, 2, 0.5))),
        batches(2),
        "w,v",
    ),
    "sparse sgd": lambda: (table(SGD), words(2), "v"),
    "sparse adam": lambda: (table(lambda: fluid.optimizer.Adam(0.01)), words(2), "v"),
}
ADAM_STEP = 0.01  # what Adam makes of a gradient of almost nothing, whose last digits differ between libraries
SEVERAL = {"servers are real": (REAL, [OURS, OURS]), "one trainer is real": (REAL, [OURS, REAL])}


def run(
    paddle: str, processes: list[Any], folder: Path, job: Job, servers: str, trainers: list[str], **options: Any
) -> list[dict[str, Any]]:
    """What each trainer saved; `servers` and each of `trainers` say whose process a role is."""
    (main, startup, loss), data, parameters = job

    def begin(whose: str, *args: Any) -> Any:
        if whose == REAL:
            return start(paddle, *args)
        return start(sys.executable, *args, script=("-m", "fluidtool", "exec", str(SCRIPT)))

    settings = Settings(**{"trainer_id": 0, "trainers": len(trainers), "servers": free_endpoints(2), **options})
    write(folder, all_roles(main, startup, settings))
    for index, _ in enumerate(settings.servers):
        processes.append(begin(servers, "pserver", folder / f"pserver_{index}"))
    running = []
    for index, (whose, arrays) in enumerate(zip(trainers, data, strict=False)):
        np.savez(folder / f"data_{index}.npz", **arrays)
        given = (folder / f"data_{index}.npz", loss.name, parameters, folder / f"out_{index}.npz")
        running.append(begin(whose, "trainer", folder / f"trainer_{index}", *given))
    processes += running
    for trainer in running:
        output, _ = trainer.communicate(timeout=DEADLINE)
        assert trainer.returncode == 0, output[-2000:]
    return [dict(np.load(folder / f"out_{index}.npz")) for index, _ in enumerate(trainers)]


@pytest.mark.parametrize("mixture", SEVERAL)
@pytest.mark.parametrize("name", JOBS)
def test_a_synchronous_job_trains_as_if_all_were_real(
    paddle: str, processes: list[Any], tmp_path: Path, name: str, mixture: str
) -> None:
    servers, trainers = SEVERAL[mixture]
    expected = run(paddle, processes, tmp_path / "real", JOBS[name](), REAL, [REAL, REAL])
    found = run(paddle, processes, tmp_path / "mixed", JOBS[name](), servers, trainers)
    atol = ADAM_STEP / 1000 if "adam" in name else 1e-6
    for mine, real in zip(found, expected, strict=True):
        assert mine.keys() == real.keys()
        for what, values in real.items():
            np.testing.assert_allclose(mine[what], values, rtol=2e-5, atol=atol, err_msg=what)


@pytest.mark.parametrize("mixture", SEVERAL)
@pytest.mark.parametrize("name", ["sgd", "sparse sgd"])
def test_an_asynchronous_trainer_gets_what_it_gets_where_all_are_real(
    paddle: str, processes: list[Any], tmp_path: Path, name: str, mixture: str
) -> None:
    servers, trainers = SEVERAL[mixture]
    expected = run(paddle, processes, tmp_path / "real", JOBS[name](), REAL, [REAL], sync=False)
    found = run(paddle, processes, tmp_path / "mixed", JOBS[name](), servers, trainers[:1], sync=False)
    for what, values in expected[0].items():
        np.testing.assert_allclose(found[0][what], values, rtol=2e-5, atol=1e-6, err_msg=what)
