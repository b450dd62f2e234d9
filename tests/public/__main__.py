"""`python -m tests.public REPOSITORY --reference BRANCH [--paddle PYTHON]`: a table of how the repository's scripts run.

Each script that imports paddle.fluid runs under `fluidtool exec`, and under real Paddle with the same seeds and data. Exit code 1
when there is a script that Paddle completes and fluidtool does not, or whose numbers differ.
"""

from __future__ import annotations

import argparse
import shlex
import shutil
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.public import comparison, repository
from tests.public.runs import Command, Engine, Run, fluidtool, paddle, run

TOLERANCE = 1e-4
ENDINGS = ("completed", "out of time")


@dataclass(frozen=True)
class Row:
    """A script and how it ran."""

    script: str
    ours: Run
    theirs: Run | None

    @property
    def compared(self) -> tuple[int, float]:
        """Runs compared, and the largest difference."""
        return comparison.difference(self.ours.fetched, self.theirs.fetched) if self.theirs else (0, 0.0)

    @property
    def counts(self) -> bool:
        """Whether real Paddle fetches values in it, until its end or until its time is over: not what only defines layers."""
        return self.theirs is None or (any(self.theirs.fetched) and self.theirs.ending in ENDINGS)

    @property
    def passes(self) -> bool:
        """Whether fluidtool does as Paddle does."""
        runs, apart = self.compared
        return self.ours.ending in ENDINGS and apart <= TOLERANCE and (runs > 0 or self.theirs is None)

    def __str__(self) -> str:
        runs, apart = self.compared
        theirs = "" if self.theirs is None else _cell(self.theirs)
        numbers = f"{apart:.0e} in {runs}" if runs else ""
        return f"| {self.script} | {theirs} | {_cell(self.ours)} | {numbers} |"


def _cell(done: Run) -> str:
    runs = f", {len(done.fetched)} runs" if done.fetched else ""
    return done.ending.replace("|", "/") + runs


def rows(arguments: argparse.Namespace, folder: Path) -> Iterator[Row]:
    """Run every script, each engine in files of its own."""
    engines: list[Engine] = [fluidtool(arguments.packages, "--device", "cpu", *arguments.option)]
    if arguments.paddle:
        engines.insert(0, paddle(arguments.paddle, arguments.paddle_packages))
    for engine in engines:
        repository.check_out(arguments.repository, arguments.reference, folder / engine.name)
        if arguments.data:
            shutil.copytree(arguments.data, folder / engine.name, dirs_exist_ok=True)
    for command in commands(arguments, folder / "fluidtool"):
        if arguments.only in str(command):
            done = {
                engine.name: run(
                    engine,
                    folder / engine.name,
                    command,
                    folder / f"{engine.name}.records",
                    arguments.seconds,
                    arguments.samples,
                )
                for engine in engines
            }
            yield Row(str(command), done["fluidtool"], done.get("paddle"))


def commands(arguments: argparse.Namespace, tree: Path) -> list[Command]:
    """Those of --runs, one a line, in the repository's folder; all scripts without it."""
    if not arguments.runs:
        return [Command(script) for script in repository.scripts_of(tree)]
    lines = [shlex.split(line, comments=True) for line in arguments.runs.read_text().splitlines()]
    return [Command(Path(script), tuple(words), Path()) for script, *words in filter(None, lines)]


def main(arguments: list[str] | None = None) -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m tests.public", description=__doc__)
    parser.add_argument("repository", type=Path, help="a git directory")
    parser.add_argument("--reference", default="HEAD", help="branch, tag or commit")
    parser.add_argument("--paddle", default="", metavar="PYTHON", help="a Python with Paddle 1.8.5")
    parser.add_argument(
        "--packages", default="", help="folders of packages that scripts need; {here} is the repository"
    )
    parser.add_argument("--paddle-packages", default="", help="the same for Paddle's Python")
    parser.add_argument("--option", action="append", default=[], help="an option for fluidtool exec")
    parser.add_argument(
        "--runs", type=Path, help="scripts with their arguments, one a line, run in the repository's folder"
    )
    parser.add_argument("--data", type=Path, help="a folder of files that scripts need, copied into the repository")
    parser.add_argument("--only", default="", help="only scripts whose paths contain this")
    parser.add_argument("--seconds", type=float, default=90)
    parser.add_argument("--samples", type=int, default=64, help="of each data set")
    chosen = parser.parse_args(arguments)
    commit = repository.commit_of(chosen.repository, chosen.reference)
    print(f"{chosen.repository}, {chosen.reference}, {commit}\n", flush=True)
    print("| script | Paddle 1.8.5 | fluidtool | largest difference |\n|---|---|---|---|", flush=True)
    done = []
    with tempfile.TemporaryDirectory() as folder:
        for row in rows(chosen, Path(folder)):
            print(row, flush=True)
            done.append(row)
    counted = [row for row in done if row.counts]
    passed = [row for row in counted if row.passes]
    print(f"\n{len(passed)} of {len(counted)} scripts that Paddle runs ({len(done)} in all)")
    return int(len(passed) < len(counted))


if __name__ == "__main__":
    sys.exit(main())
