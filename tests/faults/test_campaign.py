"""The kinds of faults of the campaign do what they say (`python -m tests.faults.campaign` does a thousand of them)."""

from __future__ import annotations

import random
import shutil
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("grpc", reason="parameter servers talk by gRPC: pip install 'fluidtool[dist]'")

from tests.faults import versions
from tests.faults.campaign import HALF_OPEN, Pace, fill_disk, join_twice, kinds, storm, storm_of_network, tear
from tests.faults.clocks import MovedClock
from tests.faults.exactly import prepare
from tests.support.checkout import child_environment

PATIENCE = 120.0


@pytest.mark.skipif(shutil.which("gcc") is None, reason="a library is made by gcc")
def test_the_clock_of_the_day_jumps_under_a_process_that_runs(tmp_path: Path) -> None:
    clock = MovedClock(tmp_path)
    asking = "import sys, time\nfor line in sys.stdin: print(time.time(), time.monotonic(), flush=True)"
    environment = child_environment(**clock.environment)
    with subprocess.Popen([sys.executable, "-c", asking], stdin=-1, stdout=-1, text=True, env=environment) as child:
        assert child.stdin is not None and child.stdout is not None
        found = []
        for seconds in (0, 10**8, -(10**8)):
            clock.move(seconds)
            child.stdin.write("now\n")
            child.stdin.flush()
            found.append([float(word) for word in child.stdout.readline().split()])
        child.stdin.close()
    (first, ever), (later, ever_later), (earlier, ever_last) = found
    assert later - first == pytest.approx(1e8, abs=100) and earlier - first == pytest.approx(-1e8, abs=100)
    assert ever <= ever_later <= ever_last < ever + 100


@pytest.mark.parametrize("name", list(versions.CASES))
def test_a_peer_of_another_version_is_turned_away_or_understood(name: str) -> None:
    place = list(versions.CASES).index(name)
    assert [wrong for found, wrong in versions.meet(random.Random(3), place + 1) if found == name] == [[]]


def test_what_does_not_get_on_is_found(tmp_path: Path) -> None:
    events: Any = SimpleNamespace(lines=[], now={})
    pace = Pace(tmp_path, events, patience=0.2)
    assert not pace.stands()
    time.sleep(0.3)
    assert pace.stands()
    events.lines.append({"event": "start"})
    assert not pace.stands()


def test_every_kind_has_a_line_in_the_help() -> None:
    from tests.faults import campaign

    assert all(f"\n{name} " in str(campaign.__doc__) for name in kinds(PATIENCE))


@pytest.mark.campaign
@pytest.mark.parametrize(("harm", "sync"), [(tear, True), (fill_disk, False), (join_twice, False)])
def test_a_job_that_is_harmed_counts_every_update_once(harm: object, sync: bool, tmp_path: Path) -> None:
    job = prepare(tmp_path, sync, 600)
    outcome = storm(tmp_path, job, 2, 3, sync=sync, harm=harm, patience=PATIENCE)  # type: ignore[arg-type]
    assert outcome.wrong == []


@pytest.mark.campaign
def test_connections_that_are_half_open_end_by_the_deadline(tmp_path: Path) -> None:
    job = prepare(tmp_path, False, 400)
    outcome = storm_of_network(tmp_path, job, 2, 5, sync=False, rates=HALF_OPEN, patience=PATIENCE)
    assert outcome.wrong == [] and outcome.faults["half_open"]
