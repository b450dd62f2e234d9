"""A few seconds of each target that reads bytes, without findings; and what a finding is."""

from __future__ import annotations

import importlib
import os
import signal
import time
from collections.abc import Callable

import pytest

from fluidtool.errors import UnreadableError
from tests.fuzz import _bytes, _guided
from tests.fuzz.campaign import Budget

TARGETS = ["program_bytes", "pickle_bytes", "parameter_bytes", "array_bytes", "checkpoint_bytes", "wire_bytes"]
pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="cases run in forked processes, which the system lacks")


def findings(check: Callable[[bytes], None], seconds: float = 0.3) -> list[str]:
    target = _bytes.Bytes(lambda: [b"seed", bytes(100)], check)
    return [finding.fault for finding in _bytes.unguided(Budget(seconds, 0), target)]


@pytest.mark.parametrize("name", TARGETS)
def test_nothing_is_found_in_a_few_seconds(name: str) -> None:
    budget = Budget(1, 0)
    target = importlib.import_module(f"tests.fuzz.{name}").TARGET
    assert [str(finding) for finding in _bytes.unguided(budget, target)] == []
    assert budget.cases


@pytest.mark.parametrize("name", TARGETS)
def test_the_seeds_are_what_the_target_reads(name: str) -> None:
    """A target that refuses its seeds would search in what is refused at once."""
    target = importlib.import_module(f"tests.fuzz.{name}").TARGET
    read = 0
    for seed in target.seeds():
        try:
            target.check(seed)
            read += 1
        except UnreadableError:
            continue
    assert read


def test_a_refusal_is_no_finding() -> None:
    def check(data: bytes) -> None:
        raise UnreadableError("no")

    assert findings(check) == []


def test_another_exception_is_one_finding_for_each_place() -> None:
    def check(data: bytes) -> None:
        if len(data) % 2:
            raise KeyError("odd")
        raise ValueError("even")

    assert sorted(fault.split(":")[0] for fault in findings(check)) == ["KeyError", "ValueError"]


def test_memory_that_no_file_explains_is_a_finding() -> None:
    (fault,) = findings(lambda data: bytearray(4 << 30).clear())
    assert fault.startswith("MemoryError")


def spin(data: bytes) -> None:
    while True:
        pass


@pytest.mark.parametrize(
    ("limit", "check"), [("MOMENT", spin), ("PATIENCE", lambda data: time.sleep(60))], ids=["computing", "waiting"]
)
def test_a_case_that_takes_too_long_is_a_finding(
    monkeypatch: pytest.MonkeyPatch, limit: str, check: Callable[[bytes], None]
) -> None:
    monkeypatch.setattr(_bytes, limit, 0.05)
    faults = findings(check)
    assert faults and all(fault.startswith("Slow") for fault in faults), faults


def test_a_process_that_dies_is_a_finding_and_the_search_goes_on() -> None:
    def check(data: bytes) -> None:
        if data and data[0] == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    assert set(findings(check)) == {"ended the process (status 9)"}


def test_fields_of_a_message_come_back() -> None:
    data = bytes.fromhex("0a026964180242046e63636c")
    parts = _bytes.fields(data)
    assert parts == [(0x0A, b"id"), (0x18, 2), (0x42, b"nccl")]
    assert _bytes.message(parts) == data and _bytes.fields(b"\x0a\x05") is None


def test_coverage_leads_where_it_can(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLUIDTOOL_FUZZ", "plain")
    assert not _guided.available()
