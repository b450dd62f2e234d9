"""Order in jobs with two copies of each server: every order of calls, deaths, mistaken takeovers, joiners and trainers that turn.

Each job is explored to its last state: no round is updated without all of its gradients, every read finds exactly the rounds before
it, whoever serves at the end has every update once, no process that is started again finds both copies lost, and the job ends.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from fluidtool.distribute.pserver.replicas.succession import Configuration
from tests.distribute.order import replicas_model as model
from tests.distribute.order.exploring import Violated, explore
from tests.distribute.order.replicas_model import Job, Process


@pytest.mark.parametrize(
    ("job", "least"),
    [
        (Job(deaths=0, doubts=0, rounds=3), 300),
        (Job(rounds=1, doubts=0), 4000),
        (Job(trainers=1, rounds=3), 20_000),
        (Job(rounds=1, sync=False, doubts=0), 4000),
    ],
    ids=["quiet", "a copy dies", "a doubt", "asynchronous, a copy dies"],
)
def test_every_update_counts_once_whoever_serves(job: Job, least: int) -> None:
    assert explore(job) > least


@pytest.mark.campaign
@pytest.mark.parametrize(
    "job",
    [
        Job(rounds=1),
        Job(trainers=1, rounds=1, deaths=2, doubts=2, restarts=2),
        Job(rounds=2, doubts=0),
        Job(rounds=2, sync=False),
        Job(servers=2, rounds=1, doubts=0, restarts=0),
    ],
    ids=["a doubt", "two deaths, two doubts", "two rounds", "asynchronous, two steps", "two servers"],
)
def test_in_longer_jobs_every_update_counts_once_too(job: Job) -> None:
    assert explore(job) > 50_000


def test_the_model_finds_a_primary_that_answers_before_its_backup_has_everything(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(model, "has", lambda copy, message: True)
    with pytest.raises(Violated):
        explore(Job(doubts=0))


def test_the_model_finds_a_backup_that_is_named_before_it_has_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    leads = Job._leads

    def hasty(self: Job, server: model.Server, copy: Process, other: Process) -> Iterator[model.Server]:
        yield from leads(self, server, copy, other)
        if copy.link and copy.found is not None and copy.found.backup is None and copy.to is not None:
            yield model.claimed(server, copy, model.paired(copy.found, copy.to))

    monkeypatch.setattr(Job, "_leads", hasty)
    with pytest.raises(Violated):
        explore(Job(rounds=1, sync=False, doubts=0, deaths=2))


def test_the_model_finds_a_backup_that_takes_over_without_asking_the_register(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model, "succeeded", lambda found, me: Configuration(found.term + 1, me))
    with pytest.raises(Violated):
        explore(Job(rounds=1, sync=False, deaths=0, doubts=2, restarts=0))


def test_the_model_finds_terms_that_two_copies_may_claim(monkeypatch: pytest.MonkeyPatch) -> None:
    def granted(server: model.Server, copy: Process, wanted: Configuration) -> model.Server:
        found = model.with_copy(server, replace(copy, found=wanted))
        return replace(found, newest=wanted)

    monkeypatch.setattr(model, "claimed", granted)
    with pytest.raises(Violated):
        explore(Job(rounds=1, sync=False, deaths=0, doubts=2, restarts=0))
