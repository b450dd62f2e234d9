"""Trainers with a communicator learn from servers of real Paddle 1.8.5 as they do from ours.

FLUIDTOOL_PADDLE_PYTHON names the interpreter of a Paddle 1.8.5; without it the tests with real servers are reported as not run.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.interop.test_distribute import DEADLINE, free_endpoints, processes, start

pytestmark = pytest.mark.slow

__all__ = ["processes"]  # a fixture

SCRIPT = Path(__file__).parent / "communicator_job.py"
OURS = ("-m", "fluidtool", "exec", str(SCRIPT))
STEPS = 60
MOST_STEPS = 6000  # of a trainer that does not wait for the others: how many it needs depends on who runs when
UNTRAINED = 50.0  # about the loss of the first step of a job


@pytest.mark.parametrize("servers", ["real", "ours"])
@pytest.mark.parametrize("mode", ["async", "half_async", "geo"])
def test_two_trainers_learn(processes: list[Any], mode: str, servers: str) -> None:
    paddle = os.environ.get("FLUIDTOOL_PADDLE_PYTHON")
    if servers == "real" and not paddle:
        pytest.skip("not run: FLUIDTOOL_PADDLE_PYTHON does not name the interpreter of a real Paddle")
    python, script = (str(paddle), (str(SCRIPT),)) if servers == "real" else (sys.executable, OURS)
    endpoints = free_endpoints(2)
    for endpoint in endpoints:
        processes.append(start(python, "pserver", mode, ",".join(endpoints), 2, 0, endpoint, 0, 0, script=script))
    steps = (MOST_STEPS, UNTRAINED / 200) if mode == "async" else (STEPS, 0)
    trainers = [
        start(sys.executable, "trainer", mode, ",".join(endpoints), 2, number, endpoints[0], *steps, script=OURS)
        for number in range(2)
    ]
    processes += trainers
    for trainer in trainers:
        output, _ = trainer.communicate(timeout=DEADLINE)
        assert trainer.returncode == 0, output[-2000:]
        assert float(output.splitlines()[-1].split()[-1]) < UNTRAINED / 100
