"""The documentation is true: what it quotes is run, and what the table of docs/status.md counts is counted.

Quoted are ```console blocks whose lines start with `$ `, and ```python blocks. The blocks of a tutorial run one after the
other, and one with a title is a file to be saved; elsewhere each block stands alone.

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
from importlib.util import find_spec
from pathlib import Path
from unittest.mock import patch

import pytest

from tests.cli.support import call
from tests.support.checkout import ROOT, child_environment

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")), *sorted((ROOT / "samples").rglob("README.md"))]
TUTORIALS = ROOT / "docs" / "tutorials"
STATUS = ROOT / "docs" / "status.md"
RUN = ("fluidtool", "python")
NOT_RUN = {
    r"python\S* -m (venv|pip|build)\b": "sets up or uses an environment of its own; .ci/run does the same",
    r"python\S* scripts/": "needs PaddlePaddle or scikit-learn, which train the samples",
}
NEEDS_ONNX = r"-o \S+\.onnx\b"
HAS_ONNX = all(find_spec(name) for name in ("onnx", "onnxruntime"))


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
        if re.search(NEEDS_ONNX, self.text) and not HAS_ONNX:
            return "needs the extra onnxruntime; .ci/run installs it elsewhere"
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
        yield commands_of(block)


def commands_of(block: str) -> list[Command]:
    """The commands of one block."""
    found: list[Command] = []
    for part in re.split(r"^\$ ", block.replace("\\\n", ""), flags=re.MULTILINE)[1:]:
        text, _, output = part.partition("\n")
        found.append(Command(text.strip(), output))
    return found


def blocks() -> list[object]:
    """A test for each console block of each page."""
    return [
        pytest.param(block, id=f"{page.relative_to(ROOT)}:{number}")
        for page in PAGES
        if page.exists() and page.parent != TUTORIALS
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
    # Scripts import files beside them; an installed fluidtool has pytest find its plugin, a checkout does not.
    return child_environment(PATH=path, NO_COLOR="1", PYTHONSAFEPATH="", PYTEST_ADDOPTS="-p fluidtool.testing.plugin")


def scripts() -> list[object]:
    """A test for each Python block of each page."""
    return [
        pytest.param(code, id=f"{page.relative_to(ROOT)}:{number}")
        for page in PAGES
        if page.exists() and page.parent != TUTORIALS
        for number, code in enumerate(python_blocks(page.read_text()), start=1)
    ]


def python_blocks(page: str) -> list[str]:
    """The Python that a page runs; what is not run is quoted as `py`."""
    return re.findall(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("code", scripts())
def test_quoted_scripts(code: str, clone: Path) -> None:
    run_script(code, clone)


def run_script(code: str, clone: Path) -> None:
    """Run a Python block in the folder; it must succeed."""
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
    skipped = run_commands(block, clone)
    if len(skipped) == len(block):
        pytest.skip("; ".join(skipped))


def run_commands(block: list[Command], clone: Path) -> list[str]:
    """Run a console block in the folder; each command must do and write what the page says. Those that are not run."""
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
    return skipped


@pytest.mark.slow
@pytest.mark.parametrize("page", sorted(TUTORIALS.glob("*.md")), ids=lambda page: page.stem)
def test_a_tutorial_from_top_to_bottom(page: Path, clone: Path) -> None:
    """Console blocks are typed, Python blocks are run, and those with a title are saved under it."""
    for kind, title, text in fenced(page.read_text()):
        if title:
            (clone / title).write_text(text)
        elif kind == "console":
            run_commands(commands_of(text), clone)
        elif kind == "python":
            run_script(text, clone)


def fenced(page: str) -> list[tuple[str, str, str]]:
    """(language, title or '', text) of each block of code, in order."""
    return re.findall(r'^```(\w+)(?: title="([^"]+)")?\n(.*?)^```', page, re.MULTILINE | re.DOTALL)


def test_the_blocks_of_a_tutorial_are_found() -> None:
    page = 'a\n```console\n$ x\n```\n```python title="b.py"\n1\n```\n```python\n2\n```\n'
    assert fenced(page) == [("console", "", "$ x\n"), ("python", "b.py", "1\n"), ("python", "", "2\n")]


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


# ---------------------------------------------------------------- the table of what works
@dataclass(frozen=True)
class Row:
    """A line of the table of docs/status.md: what it is about, what it claims, which tests hold that."""

    title: str
    claim: str
    held_by: str

    @property
    def numbers(self) -> list[int]:
        """The counts that it claims: whole numbers that are no versions and no part of a name."""
        return [int(number) for number in re.findall(r"(?<![\w.-])\d+(?![\w.]*\w)", _without_links(self.claim))]

    @property
    def code(self) -> list[str]:
        """What it quotes as code."""
        return re.findall(r"`([^`]+)`", self.claim)


def _without_links(text: str) -> str:
    return re.sub(r"\]\([^)]*\)", "]", re.sub(r"`[^`]*`", "", text))


def what_works() -> dict[str, Row]:
    text = STATUS.read_text() if STATUS.exists() else ""
    lines = [line.split("|")[1:-1] for line in text.splitlines() if line.startswith("| ")]
    rows = [Row(*(cell.strip() for cell in line)) for line in lines]
    return {row.title: row for row in rows if row.title}


ROWS = what_works()


def operator_counts() -> list[int]:
    """Paddle's operators that are here, all of Paddle's, gradients here of Paddle's, later ones, gradients of these."""
    from fluidtool.ops.registry import all_ops
    from tests.support.tables import table

    ours, paddle, makers = all_ops(), table("op_table_185"), table("grad_makers_185")
    here = [name for name in paddle if name in ours]
    later = [name for name in ours if name not in paddle and not name.endswith(("_grad", "_grad_grad"))]

    def has_gradient(name: str) -> bool:
        return ours[name].maker is not None or ours[name].gradient is not None

    assert [name for name in here if makers[name]["grads"] and not has_gradient(name)] == []
    gradients = [name for name in here if makers[name]["grads"]]
    return [len(here), len(paddle), len(gradients), len(later), sum(map(has_gradient, later))]


def rewrite_counts() -> list[int]:
    """Rewrites beside those that InferenceTranspiler does, and those whose result not every Paddle 1.8.5 runs."""
    from fluidtool.passes.catalogue import INFERENCE_PASSES

    further = {known.name for known in INFERENCE_PASSES} - {"fuse-batch-norm", "is-test"}
    assert len(further) == len(INFERENCE_PASSES) - 2
    return [len(further), sum(not known.saved for known in INFERENCE_PASSES)]


def sample_counts() -> list[int]:
    """Models that are trained: the scripts, each of which has a test."""
    from tests.samples.pack import SAMPLES

    scripts = {file.stem for file in (ROOT / "samples").glob("*.py")} - {"common"}
    assert scripts == {name for name, _ in SAMPLES}
    return [len(scripts)]


COUNTS = {"Operators": operator_counts, "Transpilers": rewrite_counts, "Samples": sample_counts}


def test_the_table_is_found() -> None:
    assert {"Programs", "Operators", "Transpilers", "Command line", "Speed"} <= set(ROWS)
    row = Row("a", "2 of Paddle 1.8.5's 3 `x2`, float16, [12](docs/4.md), 5.", "")
    assert row.numbers == [2, 3, 12, 5] and row.code == ["x2"]


@pytest.mark.parametrize("title", ROWS)
def test_what_is_counted_is_so_many(title: str) -> None:
    assert ROWS[title].numbers == (COUNTS[title]() if title in COUNTS else [])


@pytest.mark.parametrize("title", ROWS)
def test_a_row_names_the_tests_that_hold_it(title: str) -> None:
    named = re.findall(r"\[(tests/[^\]]*)\]\(\.\./(tests/[^)]*)\)", ROWS[title].held_by)
    assert named
    for shown, target in named:
        place = ROOT / target
        files = [place] if place.is_file() else list(place.rglob("test_*.py"))
        assert target.startswith(shown) and place.exists(), target
        assert any(re.search(r"^\s*(async )?def test_", file.read_text(), re.MULTILINE) for file in files), target


@pytest.mark.parametrize("title", ROWS)
def test_a_row_links_to_what_is_there(title: str) -> None:
    for target in re.findall(r"\]\(([^)#]*)", ROWS[title].claim):
        assert (STATUS.parent / target).exists(), target


def test_the_commands_are_those_of_the_command_line() -> None:
    from fluidtool.cli.commands import COMMANDS

    assert set(ROWS["Command line"].code) == {*COMMANDS, "--json"}


def test_every_command_that_answers_with_data_has_json() -> None:
    from tests.cli.support import call

    names = [name for name in ROWS["Command line"].code if name != "--json"]
    others = ["exec", "completion", "help"]
    assert [name for name in dict.fromkeys(names) if "--json" not in call(name, "--help").stdout] == others


def test_fluid_offers_what_the_table_says() -> None:
    import fluidtool.fluid as fluid

    words = {"optimizers": "optimizer", "regularizers": "regularizer", "clips": "clip", "initializers": "initializer"}
    words |= {"metrics": "metrics", "layers": "layers", "data sets": "DatasetFactory", "channels": "make_channel"}
    words |= {"programs": "Program", "transpilers": "transpiler"}
    row = ROWS["`fluidtool.fluid`"]
    assert [word for word in words if word not in row.claim or not hasattr(fluid, words[word])] == []
    names = [name.removeprefix("fluid.") for name in row.code]
    assert [name for name in names if not hasattr(fluid, name) and not hasattr(fluid.io, name)] == []
    transpilers = [name for name in ROWS["Transpilers"].code if name != "prune"]
    assert [name for name in transpilers if not hasattr(fluid, name)] == []
    assert hasattr(fluid.Program, "prune")


def test_extras_that_the_table_names_are_there() -> None:
    import tomllib

    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    pages = (ROOT / "README.md").read_text() + STATUS.read_text()
    named = re.findall(r"pip install '\.\[([\w,-]+)\]'", pages)
    assert "gpu-cuda12" in named
    assert {extra for group in named for extra in group.split(",")} <= set(extras)


def test_kernels_of_operators_are_the_same_code_on_every_device() -> None:
    """None imports an array library: they compute with the one of the run's engine."""
    library = re.compile(r"^\s*(import|from) (numpy|cupy)\b", re.MULTILINE)
    sources = list((ROOT / "ops").rglob("*.py"))
    assert sources
    assert [str(file) for file in sources if library.search(file.read_text())] == []


def test_what_is_outside_is_not_there() -> None:
    import fluidtool.fluid as fluid

    assert "Not supported: dynamic graphs." in STATUS.read_text()
    assert not hasattr(fluid, "dygraph")


def test_the_readme_is_one_screen() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) <= 120
