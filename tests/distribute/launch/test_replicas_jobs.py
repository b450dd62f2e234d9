"""Whole jobs with two copies of each server, which are killed: every update counts once, and no other role is started again."""

from __future__ import annotations

import signal
import subprocess
import time
from os import kill
from pathlib import Path

import pytest

pytest.importorskip("grpc", reason="parameter servers talk by gRPC: pip install 'fluidtool[dist]'")

from tests.faults.exactly import prepare, words
from tests.faults.replicas import MODES, Harmed, storm
from tests.faults.storm import Events, start

pytestmark = pytest.mark.slow
ROWS, MANY, PATIENCE = 3600, 120_000, 120.0  # the first fault comes while ROWS are learnt, on a fast machine, too


@pytest.mark.parametrize("mode", MODES)
def test_losing_copies_loses_no_update(tmp_path: Path, mode: str) -> None:
    job = prepare(tmp_path, mode != "async", ROWS)
    outcome = storm(tmp_path, job, 2, 5, mode, kinds=("killed",))
    assert not outcome.wrong
    assert outcome.faults.total()


def test_a_job_that_loses_both_copies_says_so(tmp_path: Path) -> None:
    job = prepare(tmp_path, True, MANY)
    command = [
        "launch",
        "--replicas",
        "2",
        "--any-ports",
        "--grace",
        "1",
        "--json",
        str(job),
        *words(tmp_path, tmp_path / "s"),
    ]
    with start(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as launched:
        events = Events(launched)
        end = time.monotonic() + PATIENCE
        while not Harmed().is_over(events.lines, "pserver_0") and time.monotonic() < end:
            time.sleep(0.05)
        for role in ("pserver_0_replica", "pserver_0"):
            kill(events.now[role], signal.SIGKILL)
            time.sleep(1.0)
        assert launched.wait(PATIENCE) == 128 + signal.SIGKILL
        events.close()
    texts = [line["text"] for line in events.lines if line["event"] == "failure"]
    assert texts and "no copy of pserver_0 has its values any more, only checkpoints do" in texts[0]
    without = [line["role"] for line in events.lines if line["event"] == "without"]
    assert without == ["pserver_0_replica"]
