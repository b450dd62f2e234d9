"""Whatever the documentation quotes is run: ```console blocks whose lines start with `$ `, and ```python blocks.

A block runs in a copy of what a clone has, its commands one after the other. A command must succeed unless the block shows
an `error:` or `exit N` below it, and must write every line that is quoted (numbers aside: machines round differently; a
line of dots stands for what is left out). Commands that set up an environment are not run here; each has its reason, which
the test report prints.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Collection, Iterator
from contextlib import chdir
from dataclasses import dataclass
from pathlib import Path
from unittest.mock import patch

import pytest

from tests.cli.support import call
from tests.support.checkout import ROOT, child_environment

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")), *sorted((ROOT / "samples").rglob("README.md"))]
RUN = ("fluidtool", "python")
NOT_RUN = {
    r"python\S* -m (venv|pip|build|pytest)\b": "sets up or uses an environment of its own; .ci/run does the same",
    r"python\S* scripts/": "needs PaddlePaddle or scikit-learn, which train the samples",
}


@dataclass(frozen=True)
class Command:
    """One line after `$ `, and the exit code that the page promises."""

    text: str
    output: str = ""

    @property
    def exit_codes(self) -> Collection[int]:
        """What the page promises."""
        promised = re.search(r"^exit (\d+)$", self.output, re.MULTILINE)
        if promised:
            return [int(promised.group(1))]
        return range(1, 256) if re.search("^error: ", self.output, re.MULTILINE) else [0]

    def missing_lines(self, written: str) -> list[str]:
        """The quoted lines that were not written."""
        shown = {_shape(line) for line in written.splitlines()}
        quoted = [line for line in self.output.splitlines() if not re.fullmatch(r"exit \d+|[.… ]*", line)]
        return [line for line in quoted if _shape(line) not in shown]

    @property
    def may_be_called(self) -> bool:
        """Whether it needs no shell, and does the same in a process that goes on after it; that is ten times as fast."""
        alone = re.fullmatch(r"fluidtool (?!launch|exec|engines|version)[^|<>;&$*?`]*", self.text)
        return alone is not None and "--threads" not in self.text

    @property
    def reason_not_run(self) -> str:
        """Why this one is not run, or ''."""
        found = (reason for pattern, reason in NOT_RUN.items() if re.search(pattern, self.text))
        if not self.text.startswith(RUN):
            return "is no command of fluidtool or Python"
        return next(found, "")


def _shape(line: str) -> str:
    """A line without its numbers, their thousands or millions (`11.5 k` is a number, too) and the width of its gaps."""
    return " ".join(re.sub(r"-?\d+(\.\d+)?(e[-+]?\d+)?( [kMGTP]\b)?", "0", line).split())


def commands(page: str) -> Iterator[list[Command]]:
    """The commands of each console block; a backslash at the end of a line goes on in the next."""
    for block in re.findall(r"^```console\n(.*?)^```", page, re.MULTILINE | re.DOTALL):
        found: list[Command] = []
        for part in re.split(r"^\$ ", block.replace("\\\n", ""), flags=re.MULTILINE)[1:]:
            text, _, output = part.partition("\n")
            found.append(Command(text.strip(), output))
        yield found


def blocks() -> list[object]:
    """A test for each console block of each page."""
    return [
        pytest.param(block, id=f"{page.relative_to(ROOT)}:{number}")
        for page in PAGES
        if page.exists()
        for number, block in enumerate(commands(page.read_text()), start=1)
    ]


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """What the quoted commands find: the samples, and `fluidtool` and `python` of this interpreter."""
    shutil.copytree(ROOT / "samples", tmp_path / "samples")
    tools = tmp_path / ".tools"
    tools.mkdir()
    for name, words in (("fluidtool", "-m fluidtool"), ("python", ""), ("python3", "")):
        script = tools / name
        script.write_text(f'#!/bin/sh\nexec "{sys.executable}" {words} "$@"\n')
        script.chmod(0o755)
    return tmp_path


def environment(clone: Path) -> dict[str, str]:
    """Finds the tools of the clone, and this checkout."""
    path = f"{clone / '.tools'}{os.pathsep}{os.environ['PATH']}"
    return child_environment(PATH=path, NO_COLOR="1", PYTHONSAFEPATH="")  # scripts find what stands beside them


def scripts() -> list[object]:
    """A test for each Python block of the README."""
    found = re.findall(r"^```python\n(.*?)^```", (ROOT / "README.md").read_text(), re.MULTILINE | re.DOTALL)
    return [pytest.param(code, id=f"README.md:{number}") for number, code in enumerate(found, start=1)]


@pytest.mark.parametrize("code", scripts())
def test_quoted_scripts(code: str, clone: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=clone,
        env=environment(clone),
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr


def typed(command: Command, clone: Path) -> tuple[int, str]:
    """(exit code, what it writes) of a command in a shell."""
    words = ["bash", "-c", command.text]
    environ = environment(clone)
    done = subprocess.run(words, cwd=clone, env=environ, capture_output=True, text=True, check=False, timeout=300)
    return done.returncode, done.stdout + done.stderr


def called(command: Command, clone: Path) -> tuple[int, str]:
    """The same in this process."""
    with chdir(clone), patch.dict(os.environ, NO_COLOR="1"):
        done = call(*shlex.split(command.text)[1:])
    return done.exit_code, done.stdout + done.stderr


@pytest.mark.parametrize("block", blocks())
def test_quoted_commands(block: list[Command], clone: Path) -> None:
    skipped = []
    for command in block:
        if command.reason_not_run:
            skipped.append(f"$ {command.text}: {command.reason_not_run}")
            continue
        code, written = called(command, clone) if command.may_be_called else typed(command, clone)
        assert code in command.exit_codes, f"$ {command.text}\n{written}"
        assert command.missing_lines(written) == [], f"$ {command.text}\n{written}"
    for line in skipped:
        print("not run:", line)
    if len(skipped) == len(block):
        pytest.skip("; ".join(skipped))


def test_the_pages_quote_commands() -> None:
    """The pattern above still finds what it is meant to find."""
    text = "x\n```console\n$ fluidtool run a \\\n  --feed b\nout\n$ fluidtool check c\nexit 1\n```\n```sh\n$ fluidtool no\n```\n"
    ((first, second),) = commands(text)
    assert (first.text, first.output, list(first.exit_codes)) == ("fluidtool run a   --feed b", "out\n", [0])
    assert (second.text, list(second.exit_codes)) == ("fluidtool check c", [1])
    assert any(
        "fluidtool" in command.text
        for page in PAGES
        if page.exists()
        for b in commands(page.read_text())
        for command in b
    )


def test_what_is_quoted_must_be_written() -> None:
    command = Command("x", "median  1.25 ms\n…\nsaved to out\n")
    assert command.missing_lines("median   0.9 ms\nmore\nsaved to out\n") == []
    assert command.missing_lines("median   0.9 ms\n") == ["saved to out"]
    assert 0 not in Command("x", "error: no\n").exit_codes


@pytest.mark.parametrize(
    "written", ["    0     16         372", "    0     16      11.5 k", "    0     16       1.2 M"]
)
def test_a_faster_machine_writes_the_same_lines(written: str) -> None:
    assert Command("x", "    0     16        8081\n").missing_lines(written) == []


@pytest.mark.parametrize("written", ["    0     16", "    0     16  11.5 kg", "    0     16   11.5 ms"])
def test_another_unit_is_another_line(written: str) -> None:
    assert Command("x", "    0     16        8081\n").missing_lines(written) != []


@pytest.mark.parametrize(
    ("text", "runs"),
    [
        ("fluidtool run x", True),
        ("python -m fluidtool inspect x", True),
        ("python3 -c 'print(1)'", True),
        ("python3 -m venv .venv", False),
        (".venv/bin/pip install .", False),
        ("git clone x", False),
    ],
)
def test_which_commands_are_run(text: str, runs: bool) -> None:
    assert (Command(text).reason_not_run == "") is runs
