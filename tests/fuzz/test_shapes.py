"""The campaign on sizes finds nothing, and would find wrong rows and memory that grows."""

from __future__ import annotations

import pytest

from tests.fuzz import shapes
from tests.fuzz._runs import sources
from tests.fuzz.campaign import Budget

pytestmark = pytest.mark.usefixtures("native")


def test_there_are_no_findings() -> None:
    budget = Budget(1.0, seed=1)
    assert list(shapes.search(budget)) == [] and budget.cases > 0


@pytest.mark.parametrize("name", ["dense", "rows"])
def test_rows_that_are_wrong_are_found(name: str) -> None:
    with sources((name,), ("native",)) as (source,):
        table = shapes.Table(source)
        for count in (0, 1, 7, 450):
            assert table.fault(source.calm, count) == ""
        table.want = table.want + 1e-3
        assert "rows are 1.0e-03 apart" in table.fault(source.calm, 7)


def test_memory_that_grows_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    taken = iter(range(1 << 20, 1 << 40, 1 << 20))
    monkeypatch.setattr(shapes, "resident", lambda: next(taken))
    monkeypatch.setattr(shapes, "WARM", 1)
    monkeypatch.setattr(shapes, "RUNS", 2)
    monkeypatch.setattr(shapes, "GROWTH", 3 << 20)
    found = next(shapes.search(Budget(60.0, seed=1)))
    assert "has grown by 4 MiB since case 1" in found.fault
