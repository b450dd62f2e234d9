"""`python -m tests.public.units FOLDER --paddle PYTHON`: how many of Paddle's own unit tests pass, of those that Paddle passes.

FOLDER is `python/paddle/fluid/tests` of a Paddle repository, written out anywhere (`git archive`). Each file runs under real Paddle
1.8.5, once (what came of it is kept in a file), and under `fluidtool exec`; neither on a GPU. Tests count one by one; those that
fail are grouped by their message. Exit code 1 when fewer than 95 % pass.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import resource
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from math import ceil
from pathlib import Path

from tests.public.runs import OVER, WAITING, Engine, fluidtool, last_words, paddle

WANTED = 0.95
PLACES = (".", "book", "unittests")
OUTSIDE = re.compile(
    r"op_test|OpTest"  # operators by themselves, against numpy
    r"|dygraph|Dygraph|imperative|to_variable|declarative"  # dynamic graphs
    r"|core\.(ProgramDesc|OpDesc|BlockDesc|Graph|Node|Fleet|Dataset|op_proto_and_checker_maker|infer_no_need_buffer_slots"
    r"|_set_process\w*|_throw\w*|__unittest\w*|run_cmd|get_fetch_variable|get_grad_op_desc|op_support_gpu)\b"  # compiled internals
)

IMPORTED = re.compile(r"^\s*(?:from|import)\s+(\w+)", re.MULTILINE)
DYNAMIC = re.compile(  # in a helper that a test imports, itself or by way of another helper
    r"^\s*(?:from|import)\s+paddle\.fluid\.(?:dygraph|imperative)", re.MULTILINE
)


@dataclass(frozen=True)
class Outcome:
    """How a test ended: 'passed', 'failed' or 'skipped', and the message."""

    ending: str
    message: str = ""


@dataclass(frozen=True)
class Outcomes:
    """What came of a file: its tests, and how the process ended."""

    tests: dict[str, Outcome]
    ending: str

    @property
    def passed(self) -> list[str]:
        """Names of the tests that passed."""
        return [name for name, outcome in self.tests.items() if outcome.ending == "passed"]

    def of(self, test: str) -> Outcome:
        """How a test ended; one that did not run fails as the process did, or as the set-up of its class."""
        if test in self.tests:
            return self.tests[test]
        set_up = [
            outcome for name, outcome in self.tests.items() if name.startswith("setUp") and outcome.ending == "failed"
        ]
        return set_up[0] if set_up else Outcome("failed", f"not run: {self.ending}")


def files_of(folder: Path) -> list[Path]:
    """The test files that count, relative to the folder."""
    found = [path for place in PLACES for path in sorted((folder / place).glob("test_*.py"))]
    return [path.relative_to(folder) for path in found if not _is_outside(path)]


def _is_outside(path: Path) -> bool:
    return bool(OUTSIDE.search(_text(path))) or any(DYNAMIC.search(_text(helper)) for helper in _helpers(path))


def _helpers(path: Path) -> set[Path]:
    """The files beside a test that running it imports, at any depth."""
    found: set[Path] = set()
    pending = [path]
    while pending:
        named = {path.with_name(f"{name}.py") for name in IMPORTED.findall(_text(pending.pop()))}
        new = {helper for helper in named - found if helper.is_file()}
        found |= new
        pending += new
    return found


def _text(path: Path) -> str:
    return path.read_text(errors="replace")


def run(engine: Engine, script: Path, seconds: float) -> Outcomes:
    """Run a test file in its own folder, for at most so many seconds of a processor; a busy machine makes no difference."""
    with tempfile.TemporaryDirectory() as folder:
        lines = Path(folder) / "outcomes"
        environment = {
            **os.environ,
            "PYTHONPATH": engine.path,
            "FLUIDTOOL_OUTCOMES": str(lines),
            "FLAGS_cpu_deterministic": "true",
            "MPLBACKEND": "Agg",
            "PYTHONSAFEPATH": "",  # processes that scripts start import files beside them
            "OMP_NUM_THREADS": "1",
        }
        ending = _ending_of([*engine.command, script.name], script.parent, environment, seconds)
        return Outcomes(_read(lines), ending)


def _ending_of(command: list[str], folder: Path, environment: dict[str, str], seconds: float) -> str:
    with tempfile.TemporaryFile() as words:
        process = subprocess.Popen(
            command,
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=words,
            stderr=words,
            start_new_session=True,
        )
        resource.prlimit(process.pid, resource.RLIMIT_CPU, (ceil(seconds), ceil(seconds) + 1))
        try:
            code = process.wait(seconds * WAITING)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, 9)
            process.wait()
            return "out of time"
        if code in OVER:
            return "out of time"
        words.seek(0)
        return "completed" if code == 0 else last_words(words.read().decode(errors="replace"))


def _read(lines: Path) -> dict[str, Outcome]:
    """The first failure of each test, or else how it ended last."""
    found: dict[str, Outcome] = {}
    for line in lines.read_text().splitlines() if lines.is_file() else []:
        row = json.loads(line)
        if found.get(row["test"], Outcome("")).ending != "failed":
            found[row["test"]] = Outcome(row["ending"], row["message"])
    return found


@dataclass(frozen=True)
class Kept:
    """What real Paddle did, file by file, kept from one run of the driver to the next."""

    folder: Path

    def read(self, script: Path) -> Outcomes | None:
        """What is kept of a file."""
        path = self._path(script)
        if not path.is_file():
            return None
        data = json.loads(path.read_text())
        return Outcomes({name: Outcome(*each) for name, each in data["tests"].items()}, data["ending"])

    def write(self, script: Path, outcomes: Outcomes) -> None:
        """Keep what came of a file."""
        path = self._path(script)
        path.parent.mkdir(parents=True, exist_ok=True)
        tests = {name: [each.ending, each.message] for name, each in outcomes.tests.items()}
        path.write_text(json.dumps({"ending": outcomes.ending, "tests": tests}))

    def _path(self, script: Path) -> Path:
        return self.folder / f"{str(script).replace(os.sep, '.')}.json"


@dataclass(frozen=True)
class Row:
    """A file and what came of it."""

    script: Path
    theirs: Outcomes
    ours: Outcomes

    @property
    def failures(self) -> dict[str, Outcome]:
        """The tests that Paddle passes and fluidtool does not."""
        outcomes = {test: self.ours.of(test) for test in self.theirs.passed}
        return {test: outcome for test, outcome in outcomes.items() if outcome.ending != "passed"}

    def __str__(self) -> str:
        count = f"{self.script}: {len(self.theirs.passed) - len(self.failures)} of {len(self.theirs.passed)}"
        return "\n    ".join([count, *(f"{test}: {outcome.message}" for test, outcome in self.failures.items())])


def rows(arguments: argparse.Namespace) -> Iterator[Row]:
    """Run every file: under Paddle, if it has not been, and under fluidtool where Paddle passes a test."""
    ours, theirs = fluidtool(arguments.packages), paddle(arguments.paddle, "")
    kept = Kept(arguments.kept)

    def row(script: Path) -> Row:
        reference = kept.read(script)
        if reference is None:
            reference = run(theirs, arguments.folder / script, arguments.seconds)
            kept.write(script, reference)
        if not reference.passed:
            return Row(script, reference, Outcomes({}, ""))
        return Row(script, reference, run(ours, arguments.folder / script, arguments.seconds))

    scripts = [script for script in files_of(arguments.folder) if re.search(arguments.only, str(script))]
    with ThreadPoolExecutor(arguments.jobs) as pool:
        for done in as_completed([pool.submit(row, script) for script in scripts]):
            yield done.result()


def by_message(rows: list[Row]) -> list[tuple[str, list[str]]]:
    """The failing tests by their messages, most frequent first; numbers in messages don't part them."""
    groups: dict[str, list[str]] = defaultdict(list)
    for row in rows:
        for test, outcome in row.failures.items():
            groups[re.sub(r"\d+", "N", outcome.message)].append(f"{row.script}::{test.removeprefix('__main__.')}")
    return sorted(groups.items(), key=lambda group: -len(group[1]))


def main(arguments: list[str] | None = None) -> int:
    """Print counts, and the failures by cause."""
    parser = argparse.ArgumentParser(prog="python -m tests.public.units", description=__doc__)
    parser.add_argument("folder", type=Path, help="python/paddle/fluid/tests of a Paddle repository")
    parser.add_argument("--paddle", required=True, metavar="PYTHON", help="a Python with Paddle 1.8.5")
    parser.add_argument("--packages", default="", help="a folder of packages that tests need beside fluidtool")
    parser.add_argument("--kept", type=Path, help="where Paddle's outcomes are kept (FOLDER/kept)")
    parser.add_argument("--only", default="", help="only files whose paths this regular expression finds")
    parser.add_argument("--seconds", type=float, default=120)
    parser.add_argument("--jobs", type=int, default=1)
    chosen = parser.parse_args(arguments)
    chosen.kept = chosen.kept or chosen.folder / "kept"
    done = []
    for row in rows(chosen):
        print(row, flush=True)
        done.append(row)
    for message, tests in by_message(done):
        print(f"\n{len(tests)} {message}", *tests, sep="\n    ")
    counted = sum(len(row.theirs.passed) for row in done)
    passed = counted - sum(len(row.failures) for row in done)
    files = [row for row in done if row.theirs.passed]
    whole = sum(not row.failures for row in files)
    print(
        f"\n{passed} of {counted} tests that Paddle passes, in {len(files)} files, {whole} of them whole ({len(done)} files in all)"
    )
    return int(passed < WANTED * counted)


if __name__ == "__main__":
    sys.exit(main())
