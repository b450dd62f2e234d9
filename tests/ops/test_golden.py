"""Every packed operator case gives the numbers of real Paddle 1.8.5."""

from __future__ import annotations

from pathlib import Path

import pytest

from fluidtool.runtime import Executor, Scope
from tests.support.golden import names_in
from tests.support.operator_cases import operator_case


@pytest.mark.parametrize("case", names_in("optest"))
def test_operator_gives_the_numbers_of_real_paddle(case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    found, scope = operator_case(case), Scope()
    assert found.differences(found.run(Executor(), scope), scope) == []
