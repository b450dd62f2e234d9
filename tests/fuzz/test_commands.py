"""The campaign of commands finds nothing in a few seconds, and finds what is planted."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import NoReturn

import pytest

from fluidtool.errors import UnreadableError
from fluidtool.ir import Program
from tests.fuzz import commands
from tests.fuzz._mutations import mutated
from tests.fuzz.campaign import Budget
from tests.fuzz.commands import Case, Outcome, case_of, outcome, samples

CASES = 40


@pytest.fixture(autouse=True)
def one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLUIDTOOL_THREADS", "1")  # which the campaign sets, and the test takes back


class Cases(Budget):
    """A budget of so many cases, whatever the time."""

    def seeds(self):  # type: ignore[no-untyped-def]
        numbers = Random(self.seed)
        for self.cases in range(1, CASES + 1):
            yield numbers.getrandbits(48)


def test_mutated_samples_do_no_harm() -> None:
    assert list(commands.search(Cases(0, 7), samples())) == []


def fails() -> NoReturn:
    raise KeyError("planted")


def dies() -> None:
    os.kill(os.getpid(), signal.SIGSEGV)


def hangs() -> None:
    while True:
        pass


@pytest.mark.parametrize(
    ("fault", "told"), [(fails, r"exit 70: .*planted"), (dies, "signal 11"), (hangs, "no end after 1 s")]
)
def test_a_planted_fault_is_found(
    fault: Callable[[], None], told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commands, "SECONDS", 1)
    monkeypatch.setattr("fluidtool.workflows.check.verify_model", lambda *_, **__: fault())
    model = samples()[0]
    (tmp_path / "case").mkdir()
    found = outcome(Case(model, model.program.read_bytes(), "check", ()), tmp_path / "case")
    assert re.match(told, found.fault("check")), found


def test_a_long_run_is_no_hang() -> None:
    assert Outcome(-signal.SIGXCPU, "").fault("run") == ""
    assert Outcome(-signal.SIGXCPU, "").fault("check") != ""


def test_what_a_command_refuses_is_no_fault(tmp_path: Path) -> None:
    (tmp_path / "case").mkdir()
    found = outcome(Case(samples()[0], b"no program", "inspect", ()), tmp_path / "case")
    assert found.code == 3 and found.fault("inspect") == "" and list((tmp_path / "case").iterdir()) == []


def test_a_seed_is_one_case() -> None:
    assert case_of(5, samples()) == case_of(5, samples()) != case_of(6, samples())


def test_mutations_change_programs_and_leave_many_readable() -> None:
    data = samples()[0].program.read_bytes()
    readable = 0
    for seed in range(100):
        spoiled = mutated(data, Random(seed))
        try:
            Program.parse_from_string(spoiled)
            readable += spoiled != data
        except UnreadableError:
            pass
    assert readable > 50
