"""Order in synchronous jobs: every order of calls, answers, updates and broken links, of the state machine that servers run.

Each job of two servers, whatever they keep, is explored to its last state: no trainer is refused, every read finds exactly
the updates of the rounds before it, every gradient counts once in its round, and the job ends.
"""

from __future__ import annotations

from itertools import combinations_with_replacement

import pytest

from fluidtool.distribute.pserver.rounds import Asked, Due, Rounds
from fluidtool.distribute.rpc.handler import Call
from tests.distribute.order.exploring import Violated, explore
from tests.distribute.order.model import Job, Keeps
from tests.distribute.order.undisturbed import undisturbed

PAIRS = list(combinations_with_replacement(Keeps, 2))
NAMED = pytest.mark.parametrize("keeps", PAIRS, ids=["-".join(each.name.lower() for each in pair) for pair in PAIRS])


@NAMED
def test_three_rounds_keep_their_order_whatever_is_late(keeps: tuple[Keeps, Keeps]) -> None:
    assert explore(Job(keeps)) > 500


@NAMED
def test_two_rounds_keep_their_order_when_a_link_breaks_at_any_call(keeps: tuple[Keeps, Keeps]) -> None:
    assert explore(Job(keeps, rounds=2, breaks=1)) > 2000


@pytest.mark.campaign
@NAMED
def test_three_rounds_keep_their_order_when_two_links_break(keeps: tuple[Keeps, Keeps]) -> None:
    assert explore(Job(keeps, rounds=3, breaks=2)) > 10_000


def test_three_trainers_keep_the_order_of_a_table_and_a_server_without_variables() -> None:
    assert explore(Job((Keeps.TABLE, Keeps.NOTHING), trainers=3, rounds=2)) > 1000


@pytest.mark.parametrize("asked", [Asked.FETCHED, Asked.PARAMETER, Asked.SENT])
def test_the_model_finds_a_server_that_answers_without_waiting(monkeypatch: pytest.MonkeyPatch, asked: Asked) -> None:
    due = Rounds.due

    def hasty(self: Rounds, what: Asked, call: Call) -> Due:
        found = due(self, what, call)
        return Due(found.step) if what is asked else found

    monkeypatch.setattr(Rounds, "due", hasty)
    with pytest.raises(Violated):
        explore(Job((Keeps.DENSE, Keeps.TABLE)))


def test_the_model_finds_a_server_that_counts_a_repeated_barrier_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.distribute.order.model.READS", tuple(Asked))  # no call is known by its number
    with pytest.raises(Violated):
        explore(Job((Keeps.DENSE, Keeps.TABLE), rounds=2, breaks=1))


@pytest.mark.filterwarnings("ignore:pserver .* has no optimize block")
@pytest.mark.parametrize(("steps", "longest"), [(300, 0.0), (20, 0.005), (4, 0.05)])
def test_servers_of_a_table_of_a_parameter_and_of_nothing_lose_no_update(
    monkeypatch: pytest.MonkeyPatch, steps: int, longest: float
) -> None:
    undisturbed(steps, steps, longest, monkeypatch)
