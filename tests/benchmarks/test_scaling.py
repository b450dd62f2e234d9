"""The model of docs/scaling.md: what must hold whatever the figures are, and that the page shows what the script prints."""

from __future__ import annotations

import json
import math
import re
import subprocess
import sys
from dataclasses import asdict, replace

import pytest

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
    Job,
    Point,
    Rates,
    Run,
    faults,
    job,
    known_by,
    predicted,
    rates,
    table,
)
from benchmarks.simulation import Network
from tests.support.checkout import ROOT, child_environment

MACHINE = Machine(push=1e9, pull=1e9, exchange=1e9, ring=1e9, add=math.inf, update=math.inf, message=0.0)
NETWORK = Network(1e9, 0.0)
JOB = Work(seconds=1.0, examples=32, dense=1e8, variables=10, variation=0.0)


def test_the_page_shows_what_the_script_prints() -> None:
    command = [sys.executable, "-m", "benchmarks.scaling"]
    said = subprocess.run(command, env=child_environment(), capture_output=True, text=True, check=True, timeout=300)
    page = (ROOT / "docs" / "scaling.md").read_text()
    assert filled(page, said.stdout) == page, "python -m benchmarks.scaling --page writes it"


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
KNOWN = {
    "loads": {"sync": {"wake": 2e-5, "message": 1e-5, "update": 5e-5, "own_wake": 1e-6, "own_message": 1e-6}},
    "jobs": {"mlp sync": {"trainer": 0.01, "serve": 0.004, "update": 0.001}},
}
KNOWN["loads"]["async"] = KNOWN["loads"]["sync"] | {"update": 0.0}


@pytest.mark.parametrize("trainers", [8, 1000])
def test_a_load_costs_a_server_its_messages_and_its_part_of_the_update(trainers: int) -> None:
    found = predicted(Point("load", "sync", 1, trainers, 6), KNOWN, cores=2)
    assert found.server == pytest.approx(2e-5 + 14 * 1e-5 + 6 * 5e-5 / trainers)
    # The process of the trainers has less to do than the server, which is what a step takes.
    assert found.seconds == pytest.approx(trainers * found.server, rel=0.2)


def test_two_servers_share_the_bytes_of_a_job_but_not_its_barriers() -> None:
    one, two = (predicted(Point("mlp", "sync", servers, 2), KNOWN, cores=4) for servers in (1, 2))
    assert one.server == pytest.approx(0.004 + 0.001 / 2)
    assert two.server == pytest.approx(one.server + 4e-5)
    assert two.seconds < one.seconds


def test_roles_share_the_cores_of_their_machine() -> None:
    few, many = (predicted(Point("mlp", "sync", 1, 4), KNOWN, cores=cores).seconds for cores in (2, 8))
    assert many < few and few == pytest.approx(4 * (0.01 + 0.004) / 2 + 0.001, rel=0.2)


def test_what_is_predicted_wrong_is_told() -> None:
    point = predicted(Point("load", "sync", 1, 8, 6), KNOWN, cores=2)
    right, wrong = asdict(point), asdict(replace(point, server=point.server / 1.2))
    found = {"costs": KNOWN, "cores": 2, "foreign": 0.0, "points": [right, wrong]}
    assert faults(found, by_the_clock=True) == ["load sync, 1 servers, 8 trainers: servers' time +20%"]
    assert "+20%" in table(found)


def test_costs_come_from_loads_of_other_sizes_than_the_points() -> None:
    assert not {*known_by([*LOADS, *JOBS])} & {*LOADS, *JOBS}


def test_what_messages_and_updates_cost_is_found_again() -> None:
    runs = {
        point: Run(1.0, 2e-5 + point.messages * 1e-5 + point.variables * 5e-5 / point.trainers, point.messages * 1e-6)
        for point in known_by([Point("load", "sync", 1, 8, 6)])
    }
    assert asdict(rates("sync", runs)) == pytest.approx(asdict(Rates(2e-5, 1e-5, 5e-5, 0.0, 1e-6)))


def test_what_a_job_costs_is_found_again() -> None:
    runs = {Point("mlp", "sync", 1, trainers): Run(1.0, 0.004 + 0.001 / trainers, 0.01) for trainers in (1, 2)}
    assert asdict(job("mlp", "sync", runs)) == pytest.approx(asdict(Job(0.01, 0.004, 0.001)))
