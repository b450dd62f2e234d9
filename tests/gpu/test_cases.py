"""Operators, models and training steps give real Paddle's numbers on a GPU of the stand-in, and ask no more of it than their
budget."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.gpu import cases
from tests.gpu.budgets import judgement, operator_cases
from tests.support.golden import names_in


@pytest.mark.parametrize("name", operator_cases())
def test_operators(name: str, cupy: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert judgement("operators", name, cases.by_cupy(cases.operator_counts, name)) is None


@pytest.mark.parametrize("name", names_in("models"))
def test_models(name: str, cupy: Any) -> None:
    assert judgement("models", name, cases.by_cupy(cases.model_counts, name)) is None


@pytest.mark.parametrize("name", names_in("models"))
def test_models_as_graphs(name: str, cupy: Any) -> None:
    assert judgement("models as graphs", name, cases.graph_counts(name)) is None


@pytest.mark.parametrize("name", names_in("train"))
def test_training_steps(name: str, cupy: Any) -> None:
    assert judgement("training steps", name, cases.by_cupy(cases.training_counts, name)) is None


@pytest.mark.parametrize("name", names_in("train"))
def test_training_steps_as_graphs(name: str, cupy: Any) -> None:
    assert judgement("training steps as graphs", name, cases.step_counts(name)) is None
