"""The campaign on forks finds nothing, and would find children that hang, end, or compute something else."""

from __future__ import annotations

import os
import signal
from typing import Any

import pytest

from tests.fuzz import forks
from tests.fuzz._runs import Source, sources
from tests.fuzz.campaign import Budget

pytestmark = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork"),
    pytest.mark.usefixtures("native"),
]


def test_there_are_no_findings() -> None:
    budget = Budget(1.0, seed=1)
    assert list(forks.search(budget)) == [] and budget.cases > 0


@pytest.mark.parametrize("word", ["r", "tfr", "ftfr", "fftr", "sfr"])
def test_every_order_can_be_followed(word: str) -> None:
    with sources(("dense",), ("native",)) as (source,):
        source.case(3)
        assert forks.follow(word, source) == ""


def test_a_child_that_computes_something_else_is_found() -> None:
    with sources(("dense",), ("native",)) as (source,):
        value, want = source.case(3)
        source.known[3] = value, want + 1
        assert "other bits" in forks.follow("ffr", source)


def test_a_child_that_hangs_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def wait(source: Source) -> str:
        signal.raise_signal(signal.SIGALRM)  # as the clock does
        return ""

    monkeypatch.setattr(forks, "computed", wait)
    with sources(("dense",), ("native",)) as (source,):
        assert forks.follow("fr", source) == "the child hangs"


@pytest.mark.parametrize(
    ("end", "said"), [(lambda: os._exit(4), "code 4"), (lambda: os.kill(os.getpid(), signal.SIGKILL), "signal 9")]
)
def test_a_child_that_ends_is_found(end: Any, said: str) -> None:
    assert said in forks.in_child(end)
