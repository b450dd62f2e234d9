"""The campaigns on the native engine: no finding in a few cases, and a planted fault is found."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from fluidtool.runtime.engines.native.library import library
from fluidtool.runtime.graph.importers import refusals
from tests.fuzz import native_invalid, native_valid
from tests.fuzz._engines import as_it_was
from tests.fuzz.campaign import Budget


@pytest.fixture(autouse=True)
def the_instructions_of_this_process() -> Iterator[None]:
    with as_it_was():
        yield


pytestmark = pytest.mark.skipif(library() is None, reason="the native engine is not built")


@pytest.mark.parametrize("target", [native_invalid, native_valid])
def test_a_few_cases_are_without_findings(target: Any) -> None:
    assert list(target.search(Budget(2, seed=5))) == []


def test_what_native_runs_and_numpy_refuses_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(refusals, "asked", lambda *_: iter(()))
    findings = [str(finding) for finding in native_invalid.search(Budget(5, seed=5))]
    assert any("native runs it" in text or "native fails" in text for text in findings)
