"""`python -m tests.public REPOSITORY --reference BRANCH [--paddle PYTHON]`: a table of how the repository's scripts run.

Each script that imports paddle.fluid runs under `fluidtool exec`, and under real Paddle with the same seeds and data. Compared
are the values that it fetches, and the programs and parameters that it saves below the repository. Exit code 1 when there is a
script that Paddle completes and fluidtool does not, or whose numbers differ by more than rounding: where they differ, Paddle
runs up to eight times more with every drawn parameter moved by one ulp, until it leaves its own numbers as far; where it does
so from the first run on, it runs once more without a move, to see whether it repeats itself.
"""

from __future__ import annotations

import argparse
import shlex
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from tests.public import comparison, repository, saved
from tests.public.runs import Command, Engine, Run, fluidtool, paddle, run

TOLERANCE = 1e-4
MOVES = 8  # one draw may miss every kink of an activation
ENDINGS = ("completed", "out of time")
Waiting = dict[Engine, list[Command]]  # what each engine has not run that Paddle and fluidtool have


@dataclass(frozen=True)
class Row:
    """A script and how it ran: under Paddle, under fluidtool unless Paddle fails; how far Paddle is from itself after one ulp.

    repeats: Paddle fetches the very same values when it runs again with the same parameters.
    """

    script: str
    ours: Run | None
    theirs: Run | None = None
    sensitivity: tuple[float, ...] = ()
    saved_sensitivity: float = 0.0
    repeats: bool = False

    @cached_property
    def apart(self) -> list[float]:
        """The largest difference of each run compared."""
        return comparison.differences(self.ours.fetched, self.theirs.fetched) if self.ours and self.theirs else []

    @cached_property
    def saved(self) -> saved.Apart:
        """What differs in the programs and parameters that both saved, if both came to their end."""
        if self.ours is None or self.theirs is None or not (self.ours.completed and self.theirs.completed):
            return saved.Apart()
        return saved.apart(self.ours.saved, self.theirs.saved)

    @property
    def counts(self) -> bool:
        """Whether real Paddle fetches values in it or saves some, until its end or until its time is over.

        What only defines layers does neither.
        """
        return self.theirs is None or (
            (any(self.theirs.fetched) or bool(self.theirs.saved)) and self.theirs.ending in ENDINGS
        )

    @property
    def differs(self) -> bool:
        """Whether numbers are apart."""
        return not comparison.within(self.apart, [], TOLERANCE) or self.saved.largest > TOLERANCE

    @property
    def passes(self) -> bool:
        """Whether fluidtool does as Paddle does."""
        ran = self.ours is not None and self.ours.ending in ENDINGS
        compared = bool(self.apart) or bool(self.saved.files) or self.theirs is None
        allowed = max(TOLERANCE, comparison.SLACK * self.saved_sensitivity)
        same = comparison.within(self.apart, self.sensitivity, TOLERANCE, self.repeats) and self.saved.within(allowed)
        return ran and compared and same

    def __str__(self) -> str:
        cells = [
            self.script,
            _cell(self.theirs),
            _cell(self.ours),
            _largest(self.apart),
            str(self.saved),
            _largest(self.sensitivity),
        ]
        return f"| {' | '.join(cells)} |"


def _cell(done: Run | None) -> str:
    if done is None:
        return ""
    runs = f", {len(done.fetched)} runs" if done.fetched else ""
    return done.ending.replace("|", "/") + runs


def _largest(apart: Sequence[float]) -> str:
    if len(apart) > 1 and max(apart) > TOLERANCE:
        return f"{apart[0]:.0e} to {max(apart):.0e} in {len(apart)}"
    return f"{max(apart):.0e} in {len(apart)}" if apart else ""


def commands(arguments: argparse.Namespace, tree: Path) -> list[Command]:
    """Those of --runs, one a line, in the repository's folder or in one named first (`a/b/ train.py`); all scripts without it."""
    if not arguments.runs:
        return [Command(script) for script in repository.scripts_of(tree)]
    lines = [shlex.split(line, comments=True) for line in arguments.runs.read_text().splitlines()]
    return [_command(*line) for line in filter(None, lines)]


def _command(first: str, *rest: str) -> Command:
    if not first.endswith("/"):
        return Command(Path(first), rest, Path())
    script, *words = rest
    return Command(Path(first) / script, tuple(words))


def _moved(row: Row, moved: Run) -> Row:
    """The row, with how far a run with moved parameters is from the one without."""
    assert row.theirs is not None
    apart = comparison.differences(moved.fetched, row.theirs.fetched)
    return replace(
        row,
        sensitivity=tuple(map(max, zip(apart, row.sensitivity or apart, strict=False))),
        saved_sensitivity=max(row.saved_sensitivity, saved.apart(moved.saved, row.theirs.saved).largest),
    )


@dataclass(frozen=True)
class Driver:
    """Runs scripts, each engine in files of its own below a folder."""

    arguments: argparse.Namespace
    folder: Path

    def prepare(self, engine: Engine) -> None:
        """Write out the repository for an engine."""
        tree = self.folder / engine.name
        repository.check_out(self.arguments.repository, self.arguments.reference, tree)
        if self.arguments.data:
            shutil.copytree(self.arguments.data, tree, dirs_exist_ok=True)

    def run(self, engine: Engine, command: Command) -> Run:
        """Run a script."""
        tree, records = self.folder / engine.name, self.folder / f"{engine.name}.records"
        return run(engine, tree, command, records, self.arguments.seconds, self.arguments.samples)

    def rows(self) -> Iterator[Row]:
        """Run every script."""
        chosen = self.arguments
        ours = fluidtool(chosen.packages, "--device", "cpu", *chosen.option)
        theirs = [paddle(chosen.paddle, chosen.paddle_packages, moved) for moved in range(1 + MOVES) if chosen.paddle]
        theirs += [replace(each, name="again") for each in theirs[:1]]
        for engine in (ours, *theirs):
            self.prepare(engine)
        waiting: Waiting = {engine: [] for engine in theirs[1:]}
        for command in commands(chosen, self.folder / ours.name):
            if not chosen.only or any(part in str(command) for part in chosen.only):
                yield (
                    self.beside(ours, theirs, command, waiting)
                    if theirs
                    else Row(str(command), self.run(ours, command))
                )

    def beside(self, ours: Engine, theirs: list[Engine], command: Command, waiting: Waiting) -> Row:
        """Run a script under Paddle; if it counts, under fluidtool; if numbers differ, under Paddle with moved parameters.

        Parameters are moved in other ways until one leaves Paddle's numbers as far as fluidtool is from them.
        """
        paddle, *moved, repeating = theirs
        row = Row(str(command), None, self.run(paddle, command))
        if row.counts:
            for of_engine in waiting.values():
                of_engine.append(command)
            row = replace(row, ours=self.run(ours, command))
        for engine in moved if row.differs else ():
            row = _moved(row, self.caught_up(engine, waiting[engine], command))
            if command in waiting[repeating] and not comparison.is_rounding(row.sensitivity):
                again = self.caught_up(repeating, waiting[repeating], command)
                row = replace(row, repeats=comparison.same(again.fetched, row.theirs.fetched))
            if row.passes:
                break
        return row

    def caught_up(self, engine: Engine, waiting: list[Command], command: Command) -> Run:
        """Run a script after those of its folder that wait for this engine: they save what it reads."""
        folder = command.script.parent
        scripts = [each for each in waiting if each.script.parent == folder]
        waiting[:] = [each for each in waiting if each.script.parent != folder]
        return [self.run(engine, each) for each in scripts][-1]


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
    parser.add_argument(
        "--only", action="append", default=[], help="only scripts whose paths contain this, or another such"
    )
    parser.add_argument("--seconds", type=float, default=90)
    parser.add_argument("--samples", type=int, default=64, help="of each data set")
    chosen = parser.parse_args(arguments)
    commit = repository.commit_of(chosen.repository, chosen.reference)
    print(f"{chosen.repository}, {chosen.reference}, {commit}\n", flush=True)
    print(
        f"| script | Paddle 1.8.5 | fluidtool | largest difference | saved | Paddle's after one ulp |\n{'|---' * 6}|",
        flush=True,
    )
    done = []
    with tempfile.TemporaryDirectory() as folder:
        for row in Driver(chosen, Path(folder)).rows():
            print(row, flush=True)
            done.append(row)
    counted = [row for row in done if row.counts]
    passed = [row for row in counted if row.passes]
    print(f"\n{len(passed)} of {len(counted)} scripts that Paddle runs ({len(done)} in all)")
    return int(len(passed) < len(counted))


if __name__ == "__main__":
    sys.exit(main())
