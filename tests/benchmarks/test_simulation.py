"""The simulation of events behind docs/scaling.md: cases that can be told by hand."""

from __future__ import annotations

import math
import time
from dataclasses import replace

import pytest

from benchmarks.simulation import Costs, Layout, Network, simulate


def seconds(costs: Costs, layout: Layout, network: Network | None = None, **options: object) -> float:
    return simulate(costs, layout, network, **options).seconds  # type: ignore[arg-type]


def test_a_trainer_alone_does_everything_one_after_the_other() -> None:
    costs = Costs(compute=1.0, send=0.1, take=0.2, serve=0.3, give=0.4, update=0.5)
    assert seconds(costs, Layout(1, 1)) == pytest.approx(2.5)


def test_trainers_compute_at_once_and_the_server_serves_one_after_the_other() -> None:
    costs = Costs(compute=1.0, serve=0.1, give=0.2, update=0.5)
    # The first is answered, and computes again, while the others are served: only the last one counts.
    assert seconds(costs, Layout(1, 4)) == pytest.approx(1 + 0.1 + 0.5 + 4 * 0.2)
    assert simulate(costs, Layout(1, 4)).server == pytest.approx(0.1 + 0.2 + 0.5 / 4)


def test_a_synchronous_step_waits_for_the_slowest() -> None:
    assert seconds(Costs(compute=1.0), Layout(1, 2), variation=0.1) == pytest.approx(1.0674, abs=1e-3)


def test_without_barriers_nobody_waits_until_the_server_is_busy() -> None:
    costs = Costs(compute=1.0, serve=0.1)
    assert seconds(costs, Layout(1, 5), sync=False) == pytest.approx(1.1, abs=0.01)
    assert seconds(costs, Layout(1, 40), sync=False) == pytest.approx(4.0, rel=0.05)


def test_more_processes_than_cores_share_them() -> None:
    costs = Costs(compute=1.0)
    assert seconds(costs, Layout(1, 4, cores=2)) == pytest.approx(2.0)
    assert seconds(costs, Layout(1, 4, cores=4)) == pytest.approx(1.0)


def test_who_takes_turns_on_a_core_needs_more_processor_time() -> None:
    four = simulate(Costs(compute=1.0), Layout(1, 4, cores=2, loss=0.1))
    assert four.trainer == pytest.approx(1.1) and four.seconds == pytest.approx(2.2)


def test_with_one_process_more_than_cores_there_are_turns_on_one_core_only() -> None:
    three = simulate(Costs(compute=1.0), Layout(1, 3, cores=2, loss=0.1))
    assert three.trainer == pytest.approx(1.05) and three.seconds == pytest.approx(1.5 * 1.05)


@pytest.mark.parametrize("layout", [Layout(1, 2, cores=2, loss=0.1), Layout(1, 8, loss=0.1)])
def test_who_has_a_core_alone_loses_nothing(layout: Layout) -> None:
    found = simulate(Costs(compute=1.0), layout)
    assert found.trainer == pytest.approx(1.0) and found.seconds == pytest.approx(1.0)


def test_servers_lose_as_trainers_do() -> None:
    costs = Costs(compute=1.0, serve=0.5)
    alone, crowded = (simulate(costs, Layout(1, trainers, cores=1, loss=0.2), sync=False) for trainers in (1, 3))
    assert alone.server == pytest.approx(0.5)
    assert crowded.server == pytest.approx(0.5 * 1.2, rel=0.03)


def test_time_that_nobody_gets_makes_a_step_longer_and_costs_no_processor_time() -> None:
    found = simulate(Costs(compute=1.0), Layout(1, 4, cores=2, used=0.8))
    assert found.trainer == pytest.approx(1.0) and found.seconds == pytest.approx(2.5)


@pytest.mark.parametrize("sync", [True, False])
def test_a_server_serves_a_piece_while_the_trainer_sends_the_next(sync: bool) -> None:
    costs = Costs(send=0.6, serve=0.6)
    assert seconds(costs, Layout(1, 1), sync=sync) == pytest.approx(1.2)
    assert seconds(replace(costs, pieces=6), Layout(1, 1), sync=sync) == pytest.approx(0.7)


def test_a_trainer_takes_a_piece_while_the_server_gives_the_next() -> None:
    costs = Costs(take=0.6, give=0.6)
    assert seconds(costs, Layout(1, 1)) == pytest.approx(1.2)
    assert seconds(replace(costs, pieces=6), Layout(1, 1)) == pytest.approx(0.7)


def test_pieces_cost_and_move_what_the_whole_does() -> None:
    costs = Costs(compute=0.1, send=0.2, take=0.3, serve=0.4, give=0.5, update=0.6, pushed=1e8, pulled=1e8)
    whole, cut = (simulate(replace(costs, pieces=pieces), Layout(2, 3), Network(1e8)) for pieces in (1, 5))
    assert cut.server == pytest.approx(whole.server) and cut.trainer == pytest.approx(whole.trainer)
    assert cut.seconds < whole.seconds


def test_the_same_job_always_takes_the_same() -> None:
    costs = Costs(compute=1.0, send=0.1, take=0.1, serve=0.2, give=0.1, update=0.3, pieces=4)
    first, second = (simulate(costs, Layout(2, 5, cores=2, used=0.9, loss=0.1), variation=0.05) for _ in range(2))
    assert first == second


def test_servers_beside_trainers_take_their_part_of_the_cores() -> None:
    costs = Costs(compute=1.0, serve=0.5)
    assert seconds(costs, Layout(2, 2, cores=2)) == pytest.approx(2.0)
    assert seconds(costs, Layout(2, 2)) == pytest.approx(2.0)
    assert seconds(costs, Layout(1, 2, cores=1)) == pytest.approx(3.0)


def test_trainers_in_one_process_take_turns() -> None:
    assert seconds(Costs(send=0.1), Layout(1, 10, together=True)) == pytest.approx(1.0, rel=0.02)


def test_bytes_travel_while_they_are_dealt_with() -> None:
    costs = Costs(serve=0.1, pushed=1e8)
    assert seconds(costs, Layout(1, 1), Network(1e9)) == pytest.approx(0.1)
    assert seconds(costs, Layout(1, 4), Network(1e9)) == pytest.approx(0.4)
    assert seconds(costs, Layout(1, 1), Network(1e8)) == pytest.approx(1.0)


def test_a_trainer_is_no_faster_than_its_own_connection_whatever_the_number_of_servers() -> None:
    costs = Costs(pushed=1e7, pulled=1e7)
    assert seconds(costs, Layout(1, 1, alike=10), Network(1e9)) == pytest.approx(0.2)


def test_the_latency_counts_there_and_back() -> None:
    assert seconds(Costs(compute=1.0), Layout(1, 1), Network(math.inf, 0.01)) == pytest.approx(1.02)


def test_a_thousand_trainers_take_no_time_to_simulate() -> None:
    begin = time.process_time()
    simulate(Costs(compute=1.0, serve=1e-3, give=1e-3), Layout(1, 1000), Network(1e9, 1e-5), variation=0.05)
    assert time.process_time() - begin < 10
