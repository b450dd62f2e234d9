"""`fluidtool help`: the help of commands, and what codes mean."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from fluidtool.cli.environment import INTERNAL, VARIABLES
from fluidtool.cli.explanations import ERRORS, FINDINGS
from tests.cli.support import call, error_of
from tests.support.checkout import ROOT, child_environment


def test_every_code_of_an_error_is_explained() -> None:
    text = "".join(path.read_text() for top in ("fluidtool", "ops") for path in (ROOT / top).rglob("*.py"))
    assert set(re.findall(r'^    code = "(FT\d{3})"', text, re.MULTILINE)) == set(ERRORS)


def test_the_findings_are_those_of_the_page_of_check() -> None:
    rows = re.findall(r"^\| `(FC\d{3})` \| (.*) \| (.*) \|$", (ROOT / "docs/check.md").read_text(), re.MULTILINE)
    assert [(code, meaning) for code, meaning, _ in rows] == [(code, each.meaning) for code, each in FINDINGS.items()]
    for code, _, remedy in rows:
        assert remedy in ("As above.", FINDINGS[code].remedy)


def test_the_page_of_errors_is_current() -> None:
    command = [sys.executable, str(ROOT / "docs/build_errors.py"), "--check"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=child_environment())
    assert done.returncode == 0, f"run python docs/build_errors.py\n{done.stderr}"


@pytest.mark.parametrize("words", [("errors", "FT210"), ("FT210",), ("ft210",)])
def test_a_code_is_explained(words: tuple[str, ...]) -> None:
    out = call("help", *words).stdout
    assert out.startswith("FT210\nmeaning     A feed with a wrong name") and "\nwhat to do  " in out


def test_all_codes_are_listed() -> None:
    out = call("help", "errors").stdout
    assert all(f"\n{code}  " in out for code in (*ERRORS, *FINDINGS))


def test_every_variable_that_is_read_is_listed() -> None:
    sources = [path for path in (ROOT / "fluidtool").rglob("*.py") if path.name not in ("abi.py", "environment.py")]
    read = set(re.findall(r"\bFLUIDTOOL_[A-Z_]+[A-Z]\b(?!_)", "".join(path.read_text() for path in sources)))
    listed = {name for variables in VARIABLES.values() for name in variables}
    headers = {"FLUIDTOOL_ABI_H"}  # guards in C
    assert read - headers - INTERNAL == {name for name in listed if name.startswith("FLUIDTOOL_")}


def test_all_variables_are_listed() -> None:
    out = call("help", "environment").stdout
    assert all(f"\n{name} " in out for variables in VARIABLES.values() for name in variables)


def test_the_help_of_a_command() -> None:
    assert call("help", "prune").stdout == call("prune", "--help").stdout


@pytest.mark.parametrize("words", [("nothing",), ("errors", "FT999"), ("FT999",)])
def test_an_unknown_topic(words: tuple[str, ...]) -> None:
    result = call("help", *words)
    assert result.exit_code == 2
    assert f"there is no help on '{words[-1]}'" in error_of(result)


def test_only_errors_takes_codes() -> None:
    assert "only 'errors' takes codes" in error_of(call("help", "prune", "FT210"))
