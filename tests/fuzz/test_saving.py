"""The campaign on saving: a few cases of each scenario, and that it finds a save that is not whole."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from fluidtool.disk import writing
from tests.fuzz import saving
from tests.fuzz._interrupting import KILL, Fault, is_available
from tests.fuzz.campaign import Budget

needs_strace = pytest.mark.skipif(
    not is_available(), reason="strace, which interrupts system calls, cannot be used here"
)


@needs_strace
@pytest.mark.parametrize("name", ["transpile -o pair, replaced", "run -o folder, replaced", "variables, replaced"])
def test_saves_are_whole(name: str) -> None:
    assert list(saving.search(Budget(1.0, seed=1), lambda scenario: scenario == name)) == []


@needs_strace
def test_a_save_that_writes_into_place_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def write_in_place(target: Path, parts: Iterable[Any]) -> None:
        target.write_bytes(b"".join(parts))

    monkeypatch.setattr(writing, "write_file", write_in_place)
    scenario = next(one for one in saving.scenarios() if one.name == "table of a server, replaced")
    search = saving.Search(scenario, tmp_path / "root")
    assert "neither old nor new" in search.finding(Fault(KILL, "write", 1))


@needs_strace
def test_a_save_that_hides_an_error_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = writing.write_file

    def write_and_hope(target: Path, parts: Iterable[Any]) -> None:
        try:
            real(target, parts)
        except OSError:
            return

    monkeypatch.setattr(writing, "write_file", write_and_hope)
    scenario = next(one for one in saving.scenarios() if one.name == "table of a server, replaced")
    search = saving.Search(scenario, tmp_path / "root")
    assert "it says that it has saved" in search.finding(Fault("ENOSPC", "write", 1))


def test_a_file_that_is_litter_is_seen(tmp_path: Path) -> None:
    (tmp_path / ".a.0123456789abcdef.fluidtool.tmp").mkdir()
    (tmp_path / "a.tmp").write_bytes(b"")
    assert saving.litter_below(tmp_path) == [".a.0123456789abcdef.fluidtool.tmp"]
    assert list(saving.files_below(tmp_path)) == ["a.tmp"]
