"""The check of a report of pytest: which tests may be skipped (.ci/check_tests.py)."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType
from xml.etree import ElementTree

import pytest

from tests.support.chromium import MISSING

CHECK = Path(__file__).parents[1] / ".ci" / "check_tests.py"


@pytest.fixture(scope="module")
def check() -> ModuleType:
    if not CHECK.exists():
        pytest.skip("this copy has no .ci/")
    spec = importlib.util.spec_from_file_location("check_tests", CHECK)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def report(check: ModuleType, *skipped: str, native: int | None = None) -> list[str]:
    passed = check.FEWEST_NATIVE if native is None else native
    cases = "<testcase classname='tests.runtime.native.test_x'/>" * passed
    cases += "".join(f"<testcase classname='tests.test_y'>{element}</testcase>" for element in skipped)
    wrong: list[str] = check.findings(ElementTree.fromstring(f"<suite>{cases}</suite>").iter("testcase"))[1]
    return wrong


def test_any_number_of_tests_may_lack_an_optional_package(check: ModuleType) -> None:
    element = "<skipped message='openvino is not installed: pip install openvino'/>"
    assert report(check, *[element] * 1000) == []


def test_the_reason_of_a_module_is_in_the_text_of_its_element(check: ModuleType) -> None:
    element = """<skipped message="collection skipped">('tests/x.py', 9, "Skipped: could not import 'PIL'")</skipped>"""
    assert report(check, element) == []


@pytest.mark.parametrize(
    "reason",
    [
        MISSING,
        "needs Linux",
        "needs several loopback addresses",
        "there are no pseudo-terminals here",
        "strace, which interrupts system calls, cannot be used here",
    ],
)
def test_what_a_machine_may_lack_is_no_finding(check: ModuleType, reason: str) -> None:
    assert report(check, f"<skipped message='{reason}'/>") == []


def test_one_test_skipped_for_another_reason_is_a_finding(check: ModuleType) -> None:
    wrong = report(check, "<skipped message='not today'/>")
    assert wrong == ["1 tests were skipped for a reason that is not allowed: not today"]


def test_a_test_skipped_without_a_reason_is_a_finding(check: ModuleType) -> None:
    assert report(check, "<skipped/>") == ["1 tests were skipped for a reason that is not allowed: (none)"]


def test_too_few_tests_of_the_native_engine_are_a_finding(check: ModuleType) -> None:
    assert report(check, native=3) == [f"3 tests of the native engine passed, expected {check.FEWEST_NATIVE}"]
