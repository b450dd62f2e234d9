"""`fluidtool help`: the help of commands, and what codes mean."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from fluidtool.cli.commands import COMMANDS
from fluidtool.cli.completion import candidates
from fluidtool.cli.environment import INTERNAL, VARIABLES
from fluidtool.cli.explanations import ERRORS, FINDINGS
from fluidtool.cli.help import help_page
from fluidtool.cli.topics import LISTS, TOPICS
from fluidtool.runtime.engines.registry import PRECISIONS, TABLE
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
    read = set(re.findall(r"\bFLUIDTOOL_[A-Z0-9_]+[A-Z0-9]\b(?!_)", "".join(path.read_text() for path in sources)))
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


@pytest.mark.parametrize("name", TOPICS)
def test_a_topic_fits_a_terminal_and_names_its_page(name: str) -> None:
    lines = call("help", name).stdout.splitlines()
    assert max(map(len, lines)) <= 80 and len(lines) <= 24
    assert lines[0] == TOPICS[name].summary and lines[-1] == f"More: {TOPICS[name].page}"


@pytest.mark.parametrize("name", TOPICS)
def test_the_page_of_a_topic_exists(name: str) -> None:
    if not (ROOT / "docs").exists():
        pytest.skip("the documents are not part of this copy (docs/)")
    assert (ROOT / TOPICS[name].page).is_file()


@pytest.mark.parametrize("name", [*TOPICS, *LISTS])
def test_a_topic_is_listed_and_completed(name: str) -> None:
    assert re.search(rf"\b{name}\b", help_page().partition("Topics:")[2].partition("Exit codes:")[0])
    assert f"\n{name} " in call("help", "topics").stdout
    assert name in candidates(["help"], name[:2])


def test_topics_commands_and_codes_have_different_names() -> None:
    names = [*TOPICS, *LISTS, *COMMANDS, *ERRORS, *FINDINGS]
    assert len(names) == len(set(names))


def test_a_topic_of_two_words() -> None:
    assert call("help", "exit", "codes").stdout == call("help", "exit-codes").stdout


def test_the_topics_on_engines_and_precision_name_all_of_them() -> None:
    assert [row.name for row in TABLE if row.name not in TOPICS["engines"].text] == []
    assert [name for name in PRECISIONS if name not in TOPICS["precision"].text] == []


def test_options_that_topics_name_exist() -> None:
    sources = (ROOT / "fluidtool/cli").rglob("*.py")
    declared = "".join(path.read_text() for path in sources if path.name != "topics.py")
    named = {option for topic in TOPICS.values() for option in re.findall(r"--[a-z][a-z-]*", topic.text)}
    assert len(named) > 20
    assert [option for option in sorted(named) if not re.search(rf'"{option}[" /]', declared)] == []


def test_the_topic_lod_agrees_with_the_library() -> None:
    import numpy as np

    import fluidtool.fluid as fluid

    tensor = fluid.create_lod_tensor(np.zeros((5, 1)), [[2, 3]], fluid.CPUPlace())
    assert tensor.lod() == [[0, 2, 5]] and str(tensor.lod()) in TOPICS["lod"].text
