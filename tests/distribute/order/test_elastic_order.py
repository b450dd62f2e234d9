"""Order in elastic jobs: every order of calls, rounds, deaths, restarts, leavers, joiners and trainers that are left out.

Each job of two servers is explored to its last state: both servers count the same trainers in every round, no gradient is
missing that counts, every read of a trainer that takes part finds exactly the rounds before it, and the job ends.
"""

from __future__ import annotations

from typing import Any

import pytest

from fluidtool.distribute.pserver import roll
from fluidtool.distribute.pserver.rounds import Asked
from tests.distribute.order import elastic_model as model
from tests.distribute.order.elastic_model import ElasticJob
from tests.distribute.order.exploring import Violated, explore

LATE = frozenset({1})


@pytest.mark.parametrize(
    ("job", "least"),
    [
        (ElasticJob(), 400),
        (ElasticJob(late=LATE), 600),
        (ElasticJob(leaves=1), 600),
        (ElasticJob(deaths=1), 6000),
        (ElasticJob(deaths=1, restarts=False), 3000),
        (ElasticJob(slow=1), 3000),
        (ElasticJob(rounds=1, late=LATE, deaths=1), 1000),
        (ElasticJob(least=2), 400),
    ],
    ids=[
        "quiet",
        "joins late",
        "leaves",
        "dies and starts again",
        "dies for good",
        "left out",
        "joins, dies",
        "needs both",
    ],
)
def test_servers_count_the_same_trainers_whatever_happens(job: ElasticJob, least: int) -> None:
    assert explore(job) > least


@pytest.mark.campaign
@pytest.mark.parametrize(
    "job",
    [
        ElasticJob(late=LATE, slow=1, deaths=1),
        ElasticJob(rounds=1, slow=1, deaths=1),
        ElasticJob(rounds=3, deaths=1, leaves=1),
        ElasticJob(trainers=3, rounds=1, deaths=1),
    ],
    ids=["joins late, left out, dies", "left out, dies", "three rounds, leaves, dies", "three trainers, dies"],
)
def test_longer_jobs_count_the_same_trainers_too(job: ElasticJob) -> None:
    assert explore(job) > 10_000


def test_the_model_finds_a_trainer_that_says_too_early_that_it_has_sent_everything(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    hasty = list(model.STEP)
    hasty.remove((Asked.GRADIENT, model.OTHER))
    hasty.insert(hasty.index((Asked.SENT, model.FIRST)) + 1, (Asked.GRADIENT, model.OTHER))
    monkeypatch.setattr(model, "STEP", tuple(hasty))
    with pytest.raises(Violated, match="whose gradient is not there"):
        explore(ElasticJob())


def test_the_model_finds_a_server_that_gives_parameters_before_their_update(monkeypatch: pytest.MonkeyPatch) -> None:
    right = roll.verdict

    def hasty(asked: Asked, number: int, updated: int) -> roll.Verdict:
        return roll.Verdict.ANSWER if asked is Asked.PARAMETER else right(asked, number, updated)

    monkeypatch.setattr(model, "verdict", hasty)
    with pytest.raises(Violated, match="reads what round"):
        explore(ElasticJob())


def test_the_model_finds_a_roll_that_waits_for_who_left(monkeypatch: pytest.MonkeyPatch) -> None:
    def forgetful(self: roll.Roll, trainer: int) -> None:
        self.joining.pop(trainer, None)

    monkeypatch.setattr(roll.Roll, "remove", forgetful)
    with pytest.raises(Violated, match="nothing can go on"):
        explore(ElasticJob(deaths=1, restarts=False))


# ---------------------------------------------------------------- the roll alone
def opened(*trainers: int, **options: Any) -> roll.Roll:
    made = roll.Roll(1, **options)
    for trainer in trainers:
        made.join(trainer)
    made.open()
    return made


def test_the_first_round_waits_for_those_that_were_started_with_the_job() -> None:
    made = roll.Roll(1, expected={0, 1})
    made.join(0)
    assert not made.can_open
    made.join(1)
    assert made.can_open


def test_no_round_opens_with_fewer_trainers_than_the_job_needs() -> None:
    made = roll.Roll(1, least=2)
    made.join(3)
    assert not made.can_open
    made.join(1)
    made.open()
    assert sorted(made.members) == [1, 3]


def test_a_roll_is_stuck_where_no_round_is_open_and_none_can_open() -> None:
    made = opened(0, 1, least=2)
    assert not made.is_stuck
    for trainer in (0, 1):
        made.arrive(trainer)
    made.close()
    made.remove(1)
    assert not made.is_stuck  # the update is under way
    made.end()
    assert made.is_stuck
    made.join(1)
    assert not made.is_stuck


def test_one_who_joins_in_a_round_takes_part_from_the_next_one() -> None:
    made = opened(0)
    made.join(1)
    assert made.missing == [0]
    made.arrive(0)
    assert sorted(made.close()) == [0]
    made.end()
    made.open()
    assert made.missing == [0, 1] and made.number == 2


def test_one_who_died_after_it_had_sent_everything_counts_and_is_waited_for_no_more() -> None:
    made = opened(0, 1)
    made.arrive(1)
    made.remove(1)
    made.arrive(0)
    assert made.is_complete and sorted(made.close()) == [0, 1]
    made.end()
    made.open()
    assert made.missing == [0]


def test_one_who_died_before_that_counts_nowhere() -> None:
    made = opened(0, 1)
    made.remove(1)
    made.arrive(0)
    assert made.is_complete and sorted(made.close()) == [0]


def test_a_round_that_loses_all_of_its_trainers_opens_again_with_others() -> None:
    made = opened(0)
    made.join(1)
    made.remove(0)
    assert made.is_deserted
    made.desert()
    made.open()
    assert (made.number, made.missing) == (1, [1])


def test_one_who_is_sent_away_for_some_rounds_enters_after_them() -> None:
    made = opened(0, 1)
    made.join(1, made.number + 2)
    for _ in range(2):
        made.arrive(0)
        made.close()
        made.end()
        assert 1 not in made.members
        made.open()
    assert made.number == 3 and made.missing == [0, 1]


def test_one_who_is_sent_away_enters_at_once_where_nobody_else_is_left() -> None:
    made = opened(0, 1)
    made.join(1, made.number + 50)
    made.remove(0)
    made.desert()
    assert made.can_open
    made.open()
    assert made.missing == [1]


def test_the_job_is_over_when_all_have_finished_and_nobody_waits() -> None:
    made = opened(0, 1)
    made.finish(0, made.members[0])
    assert not made.is_over
    made.finish(1, made.members[1])
    assert made.is_over


def test_an_older_process_of_a_trainer_finishes_nothing_for_the_newer_one() -> None:
    made = opened(0)
    old = made.members[0]
    made.join(0)
    made.finish(0, old)
    assert not made.finished


def test_a_process_that_joins_takes_the_place_of_an_older_one_of_its_trainer() -> None:
    made = opened(0, 1)
    old = made.members[1]
    new = made.join(1)
    assert not made.is_member(1, old) and made.is_joining(1, new) and new > old
