"""A case that asks more of the GPU than its budget fails; so does one that asks less, until its budget is lowered."""

from __future__ import annotations

import json

import pytest

from tests.gpu import budgets
from tests.gpu.standin.events import KINDS


@pytest.fixture(autouse=True)
def _written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(budgets, "budgets", lambda: {"models": {"m": [10, 2, 0, 1, 0]}})


def test_within_the_budget() -> None:
    assert budgets.judgement("models", "m", {"launches": 10, "synchronizations": 2, "copies to the device": 1}) is None


@pytest.mark.parametrize(
    ("launches", "waits", "message"),
    [
        (11, 2, "m: 10 -> 11 launches; it asks more of the GPU"),
        (9, 3, "m: 10 -> 9 launches, 2 -> 3 synchronizations; it asks more of the GPU"),
        (9, 2, "m: 10 -> 9 launches; it asks less; keep that: python -m tests.gpu.budgets"),
    ],
)
def test_another_amount(launches: int, waits: int, message: str) -> None:
    counts = {"launches": launches, "synchronizations": waits, "copies to the device": 1}
    assert budgets.judgement("models", "m", counts) == message


def test_a_case_without_a_budget() -> None:
    assert budgets.judgement("models", "new", {}) == "new has no budget: python -m tests.gpu.budgets"


def test_the_file_is_written_as_it_is_read() -> None:
    found = {"models": {"a": [0] * len(KINDS), "b": [1] * len(KINDS)}, "operators": {"c": [2] * len(KINDS)}}
    assert json.loads(budgets.text(found)) == found
