"""The campaign on first runs finds nothing, and would find a model that is published before it is complete."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fluidtool.model import Model
from fluidtool.runtime import Executor
from tests.fuzz.campaign import Budget
from tests.fuzz.threads import fault_of, search

BRIEF = 3.0  # seconds


def test_there_are_no_findings() -> None:
    budget = Budget(BRIEF, seed=1)
    assert list(search(budget)) == [] and budget.cases > 0


def test_an_executor_that_is_there_before_its_parameters_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    made = Model._with_parameters

    def early(self: Any) -> Executor:
        self._executor = Executor(self.place, engine=self.engine)
        return made(self)

    monkeypatch.setattr(Model, "_with_parameters", early)
    assert next(search(Budget(60.0, seed=1)), None) is not None


@pytest.mark.parametrize(
    ("got", "fault"), [([1.0, 2.0], ""), ([1.0], "shape"), ([1.0, 2.5], "other bits"), (None, "ZeroDivisionError")]
)
def test_what_counts_as_a_fault(got: list[float] | None, fault: str) -> None:
    def runs() -> Any:
        return np.array(1 // 0 if got is None else got)

    assert (fault in fault_of(runs, np.array([1.0, 2.0]))) and bool(fault) == bool(fault_of(runs, np.array([1.0, 2.0])))
