"""The model of docs/scaling.md: what must hold whatever the figures are, and that the page shows what the script prints."""

from __future__ import annotations

import json
import math
import re
import subprocess
import sys
import time
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from benchmarks.pace import Pace, paced, processors
from benchmarks.scaling import (
    FILE,
    WORKERS,
    Machine,
    asynchronous,
    by_exchange,
    by_ring,
    by_servers,
    fewest_servers,
)
from benchmarks.scaling import Job as Work
from benchmarks.scaling_page import filled
from benchmarks.scaling_points import (
    JOBS,
    LOADS,
    Rates,
    compared,
    counted,
    faults,
    groups,
    job,
    known_by,
    measure,
    predicted,
    rates,
    simulated,
    table,
)
from benchmarks.scaling_runs import ALONE, Point, Run, Runs, take_turns, typical
from benchmarks.simulation import Network
from tests.support.checkout import ROOT, child_environment

MACHINE = Machine(push=1e9, pull=1e9, exchange=1e9, ring=1e9, add=math.inf, update=math.inf, message=0.0)
NETWORK = Network(1e9, 0.0)
JOB = Work(seconds=1.0, examples=32, dense=1e8, variables=10, variation=0.0)


def test_the_page_has_the_tables_of_what_is_kept() -> None:
    page = (ROOT / "docs" / "scaling.md").read_text()
    _, _, after = page.partition("\n$ python -m benchmarks.scaling\n")  # which tests/test_readme.py runs
    printed, _, _ = after.partition("```\n")
    assert filled(page, printed) == page, "python -m benchmarks.scaling --page writes them"


@pytest.mark.parametrize("network", ["10 GbE"])
def test_other_networks_can_be_asked_for(network: str) -> None:
    command = [sys.executable, "-m", "benchmarks.scaling", "--network", network]
    said = subprocess.run(command, env=child_environment(), capture_output=True, text=True, check=True, timeout=300)
    assert said.stdout.count("workers") >= 4


def test_the_file_says_when_and_where_it_was_measured() -> None:
    measured = json.loads(FILE.read_text())["measured"]
    assert re.fullmatch(r"\d{4}-\d\d-\d\d", measured["date"])
    assert "CPU" in measured["machine"] and "Python" in measured["software"]


def test_one_worker_on_a_ring_only_computes() -> None:
    assert by_ring(JOB, 1, MACHINE, NETWORK) == by_exchange(JOB, 1, MACHINE, NETWORK) == 1.0


def test_a_ring_moves_nearly_twice_the_gradients() -> None:
    assert by_ring(JOB, 2, MACHINE, NETWORK) == pytest.approx(1.1)
    assert by_ring(JOB, 1000, MACHINE, NETWORK) == pytest.approx(1.1998)


def test_latency_counts_for_every_step_of_a_ring() -> None:
    assert by_ring(JOB, 11, MACHINE, replace(NETWORK, latency=0.01)) == pytest.approx(1 + 0.2 * 10 / 11 + 0.2)


def test_one_server_takes_from_the_last_and_gives_to_all() -> None:
    """Whoever is answered first computes again while the others are served."""
    assert by_servers(JOB, 4, 1, MACHINE, NETWORK) == pytest.approx(1 + 0.1 + 4 * 0.1)


def test_a_worker_is_no_faster_than_its_own_connection() -> None:
    assert by_servers(JOB, 1, 100, MACHINE, NETWORK) == pytest.approx(1 + 0.1 + 0.1)


def test_a_server_serves_early_workers_while_others_compute() -> None:
    spread = replace(JOB, variation=0.5)
    assert by_servers(spread, 4, 1, MACHINE, NETWORK) < spread.finish_times(4)[-1] + 0.8


@pytest.mark.parametrize("step", [by_ring, by_exchange])
def test_more_workers_never_make_a_step_shorter(step: object) -> None:
    found = [step(replace(JOB, variation=0.05), workers, MACHINE, NETWORK) for workers in WORKERS]  # type: ignore[operator]
    assert found == sorted(found)


def test_more_servers_never_make_a_step_longer() -> None:
    found = [by_servers(JOB, 64, servers, MACHINE, NETWORK) for servers in (1, 2, 8, 64, 512)]
    assert found == sorted(found, reverse=True)


def test_without_barriers_a_worker_waits_for_nobody_until_servers_are_busy() -> None:
    assert asynchronous(JOB, 1, 8, MACHINE, NETWORK) == pytest.approx(1.2, rel=0.02)
    assert asynchronous(JOB, 1000, 8, MACHINE, NETWORK) == pytest.approx(1000 * 0.2 / 8, rel=0.02)


def test_the_fewest_servers_are_just_enough() -> None:
    count = fewest_servers(JOB, 16, MACHINE, NETWORK, 0.5)
    assert count is not None and count > 1
    assert by_servers(JOB, 16, count, MACHINE, NETWORK) <= 2 < by_servers(JOB, 16, count - 1, MACHINE, NETWORK)


def test_there_may_be_no_number_of_servers() -> None:
    assert fewest_servers(JOB, 16, MACHINE, NETWORK, 0.99) is None


def test_the_slowest_of_many_workers_is_slower() -> None:
    job = replace(JOB, variation=0.05)
    slowest = [job.finish_times(workers)[-1] for workers in WORKERS]
    assert slowest == sorted(slowest) and slowest[0] == pytest.approx(1.0) and 1.15 < slowest[-1] < 1.18


# ---------------------------------------------------------------- points that were measured
LOAD = {"wake": 2e-5, "message": 1e-5, "update": 5e-5, "own_wake": 1e-6, "own_message": 1e-6}
MLP = {
    "trainer": 0.01,
    "serve": 0.004,
    "update": 0.001,
    "trainer_more": 0.002,
    "serve_more": 0.003,
    "exchange": 0.003,
    "loss": 0.0,
    "used": 1.0,
}
KNOWN: dict[str, Any] = {"loads": {"sync": LOAD, "async": LOAD}, "jobs": {"mlp sync": MLP, "mlp async": MLP}}


@pytest.mark.parametrize("mode", ["sync", "async"])
@pytest.mark.parametrize("trainers", [8, 1000])
def test_a_load_costs_a_server_its_messages_and_its_part_of_the_round(mode: str, trainers: int) -> None:
    point = Point("load", mode, 1, trainers, 6)
    found = predicted(point, KNOWN, cores=2)
    assert found.server == pytest.approx(2e-5 + point.messages * 1e-5 + 6 * 5e-5 / trainers)
    # The process of the trainers has less to do than the server, which is what a step takes.
    assert found.seconds == pytest.approx(trainers * found.server, rel=0.2)


def test_a_second_server_adds_what_was_measured_with_one_trainer() -> None:
    one, two = (predicted(Point("mlp", "sync", servers, 2), KNOWN, cores=8) for servers in (1, 2))
    assert one.server == pytest.approx(0.004 + 0.001 / 2)
    assert two.server == pytest.approx(0.004 + (0.003 + 0.001) / 2)


def test_roles_share_the_cores_of_their_machine() -> None:
    few, many = (predicted(Point("mlp", "sync", 1, 4), KNOWN, cores=cores).seconds for cores in (2, 8))
    assert many < few and few == pytest.approx(4 * (0.01 + 0.004) / 2 + 0.001, rel=0.2)


def found_with(*points: Point) -> dict[str, Any]:
    each = {"costs": KNOWN, "points": [asdict(point) for point in points]}
    return {"cores": 2, "typical": each, "rounds": [each]}


def measured(factor: float = 1.0, foreign: float = 0.0) -> Point:
    point = predicted(Point("load", "sync", 1, 8, 6), KNOWN, cores=2)
    return replace(point, server=point.server / factor, foreign=foreign)


def test_what_is_predicted_wrong_is_told() -> None:
    found = found_with(measured(1.2))
    assert faults(found) == ["load sync, 1 servers, 8 trainers: servers' time +20%"]
    assert "+20%" in table(found) and counted(found) == 2


def test_a_step_by_the_clock_counts_only_where_nothing_else_ran() -> None:
    found = found_with(replace(measured(foreign=0.5), seconds=9.0))
    assert not faults(found) and counted(found) == 1
    assert "| – | – | – |" in table(found)


def test_the_median_counts_and_rounds_show_how_much_figures_differ() -> None:
    found = found_with(measured(1.1))
    found["rounds"] = [found_with(measured(by))["typical"] for by in (1.0, 1.1, 1.9)]
    ((servers, _),) = compared(found).values()
    assert servers.error == pytest.approx(0.1)
    assert "+10% (+0% to +90%)" in table(found)


def test_costs_come_from_other_jobs_than_the_points() -> None:
    known = {point for group in groups([*LOADS, *JOBS]) for point in known_by(group)}
    assert not known & {*LOADS, *JOBS}


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_what_messages_and_updates_cost_is_found_again(mode: str) -> None:
    runs = {
        point: Run(1.0, 2e-5 + point.messages * 1e-5 + point.variables * 5e-5 / point.trainers, point.messages * 1e-6)
        for point in known_by(("load", mode))
    }
    assert asdict(rates(mode, runs)) == pytest.approx(asdict(Rates(2e-5, 1e-5, 5e-5, 0.0, 1e-6)))


def runs_of(costs: dict[str, float], mode: str) -> dict[Point, Run]:
    """What the jobs take that costs come from, if these are the costs."""
    one, pair, alone, both, split = known_by(("mlp", mode))
    own = costs["trainer"] - costs["exchange"] + costs["update"]
    known = {"jobs": {f"mlp {mode}": costs}}
    said = simulated(both, known, cores=2)
    server = costs["serve"] + costs["update"]
    more = costs["trainer_more"], costs["serve_more"]
    return {
        one: Run(1.0, 0.0, own),
        pair: Run(2.0, 0.0, own * (1 + costs["loss"])),
        alone: Run(1.0, server, costs["trainer"]),
        both: Run(said.seconds, said.server, said.trainer),
        split: Run(1.0, server + more[1], costs["trainer"] + more[0]),
    }


@pytest.mark.parametrize(("mode", "update"), [("sync", 0.001), ("async", 0.0)])
def test_what_a_job_costs_is_found_again(mode: str, update: float) -> None:
    """What is lost by turns on a processor is in the times of three processes on two, and not in the costs."""
    costs = MLP | {"update": update, "loss": 0.15, "used": 0.8}
    found = job(("mlp", mode), runs_of(costs, mode), cores=2)
    assert asdict(found) == pytest.approx(costs, rel=1e-3)


def test_what_is_lost_by_turns_is_in_what_is_predicted() -> None:
    point = Point("mlp", "sync", 2, 2)
    more = {"jobs": {"mlp sync": MLP | {"loss": 0.15}}}
    without, with_loss = (predicted(point, known, cores=2) for known in (KNOWN, more))
    assert 1.03 < with_loss.server / without.server < 1.15
    assert with_loss.seconds > without.seconds


def test_two_trainers_that_lose_nothing_show_no_loss() -> None:
    assert job(("mlp", "sync"), runs_of(MLP | {"loss": -0.02}, "sync"), cores=2).loss == 0.0


def test_a_job_gets_at_most_all_of_the_processors() -> None:
    runs = runs_of(MLP, "sync")
    quick = {point: replace(run, seconds=1e-3) for point, run in runs.items()}
    assert job(("mlp", "sync"), quick, cores=2).used == 1.0


def take_turns_in(monkeypatch: pytest.MonkeyPatch, *foreign: float) -> list[Point]:
    """Let every job take a turn for each of these; the points for which that was done."""
    made: list[Point] = []

    def turns(points: list[Point]) -> dict[Point, list[Run]]:
        made.extend(points)
        return {point: [Run(1.0, 1.0 + place, 1.0, part) for place, part in enumerate(foreign)] for point in points}

    monkeypatch.setattr("benchmarks.scaling_runs.take_turns", turns)
    return made


def test_measuring_goes_on_where_the_last_process_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = take_turns_in(monkeypatch, 0.0)
    points = [Point("mlp", mode, 2, 2) for mode in ("sync", "async")]
    assert measure(points, 1, Runs(tmp_path / "runs", seconds=0.0)) is None
    found = measure(points, 1, Runs(tmp_path / "runs", seconds=0.0))
    assert len(made) == len(set(made)), "nothing is measured twice, not even what two groups need"
    assert set(made) == {*known_by(("mlp", "sync")), *known_by(("mlp", "async")), *points}
    assert found is not None and [point["mode"] for point in found["rounds"][0]["points"]] == ["sync", "async"]


def test_turns_beside_other_work_do_not_count_where_there_are_quiet_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    take_turns_in(monkeypatch, 0.9, 0.9, 0.0)
    runs = Runs()
    assert runs.make(0, JOBS[:1], "round 1")
    assert (runs.of_round(0)[JOBS[0]].server, runs.of_round(0)[JOBS[0]].foreign) == (3.0, 0.0)


def test_a_round_gives_the_median_of_its_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    take_turns_in(monkeypatch, 0.0, 0.0, 0.0)
    runs = Runs()
    assert runs.make(0, JOBS[:1], "round 1")
    assert runs.of_round(0)[JOBS[0]].server == 2.0


def test_jobs_take_turns() -> None:
    """Two loads, of which each has a server and trainers of its own, for as many turns."""
    points = [Point("load", mode, 1, 2, 1) for mode in ("sync", "async")]
    found = take_turns(points, turns=2)
    assert list(found) == points
    for runs in found.values():
        assert len(runs) == 2 and all(run.seconds > 0 and run.server > 0 and run.own > 0 for run in runs)


@pytest.mark.slow
def test_a_job_without_servers_has_trainers_alone() -> None:
    (runs,) = take_turns([Point("mlp", ALONE, 0, 1)], turns=1).values()
    assert [run.server for run in runs] == [0.0] and runs[0].own > 0


def test_what_is_kept_is_predicted_within_15_percent() -> None:
    found = json.loads(FILE.read_text())["simulated"]
    assert (faults(found), counted(found)) == ([], 32)


def test_times_are_those_of_a_processor_as_fast_as_the_fastest(monkeypatch: pytest.MonkeyPatch) -> None:
    """The server of the slow run needs twice as long, what plays its trainers 1.5 times; a step has the pace of both."""
    made = [Run(1.0, 3.0, 1.0, 0.0, 4e-4, 4e-4)], [Run(1.875, 6.0, 1.5, 0.0, 8e-4, 6e-4)]
    monkeypatch.setattr("benchmarks.scaling_runs.take_turns", lambda points: dict(zip(points, made, strict=True)))
    runs = Runs()
    assert runs.make(0, JOBS[:2], "round 1")
    found = runs.of_round(0)
    assert asdict(found[JOBS[1]]) == pytest.approx(asdict(found[JOBS[0]]))


def test_the_typical_run_is_the_median_of_those_beside_which_nothing_ran() -> None:
    runs = [Run(seconds, 1.0, 1.0, foreign) for seconds, foreign in ((9.0, 0.9), (1.0, 0.0), (2.0, 0.1), (4.0, 0.0))]
    assert typical(runs).seconds == 2.0
    assert typical(runs[:1]).seconds == 9.0


def test_every_processor_is_watched_meanwhile() -> None:
    with paced() as pace:
        begin = time.monotonic()
        time.sleep(0.5)
        end = time.monotonic()
        time.sleep(0.1)
    assert len(pace.samples) == len(processors())
    assert 0 < pace.during(begin, end) < 0.1


def test_a_pace_is_that_of_the_mean_speed() -> None:
    """Half of the time at half the speed: three quarters of the speed."""
    pace = Pace()
    pace.samples = [[(1.0, 1e-3), (2.0, 2e-3), (9.0, 5.0)], [(1.5, 4e-3)]]
    assert pace.during(0.0, 3.0, 0) == pytest.approx(1e-3 / 0.75)
    assert pace.during(0.0, 3.0, 1) == pytest.approx(4e-3)
    assert pace.during(0.0, 3.0) == pytest.approx(3 / (1000 + 500 + 250))
