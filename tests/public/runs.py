"""One script under fluidtool or under Paddle: how it ended, and what it fetched."""

from __future__ import annotations

import os
import pickle
import re
import resource
import signal
import subprocess
import sys
from dataclasses import dataclass, field
from functools import partial
from math import ceil
from pathlib import Path
from typing import Any

from tests.public import saved

RECORDING = Path(__file__).parent / "recording"
TREE = Path(__file__).parents[2]
WAITING = 6
OVER = (-signal.SIGXCPU, -signal.SIGKILL)  # what the limit of a processor's time ends a process with
HERE = "{here}"  # the repository, in a path of packages


@dataclass(frozen=True)
class Engine:
    """What runs scripts: a command, folders of further packages, and by which draw parameters are moved by one ulp (0: by none)."""

    name: str
    command: tuple[str, ...]
    path: str
    moved: int = 0


@dataclass(frozen=True)
class Command:
    """A script with its arguments, both paths relative to the repository: the folder is where it runs."""

    script: Path
    arguments: tuple[str, ...] = ()
    folder: Path | None = None

    def __str__(self) -> str:
        return " ".join([str(self.script), *self.arguments])


@dataclass(frozen=True)
class Run:
    """How a script ended: 'completed', 'out of time', or its last words; fetched: the values of each run; what it saved."""

    ending: str
    fetched: list[list[Any]]
    saved: saved.Contents = field(default_factory=dict)

    @property
    def completed(self) -> bool:
        """Whether the script came to its end."""
        return self.ending == "completed"


def fluidtool(packages: str, *options: str) -> Engine:
    """`fluidtool exec` of this tree."""
    command = (sys.executable, "-m", "fluidtool", "exec", *options)
    return Engine("fluidtool", command, os.pathsep.join(filter(None, [str(TREE), str(RECORDING), packages])))


def paddle(python: str, packages: str, moved: int = 0) -> Engine:
    """A Python that has Paddle 1.8.5."""
    path = os.pathsep.join(filter(None, [str(RECORDING), packages]))
    return Engine(f"moved{moved}" if moved else "paddle", (python,), path, moved)


def run(engine: Engine, tree: Path, command: Command, records: Path, seconds: float, samples: int) -> Run:
    """Run a script of the repository that is written out at `tree`, in its own folder unless told.

    It may take so many seconds of a processor, and WAITING times as many by the clock: a busy machine makes no difference.
    """
    folder = tree / (command.script.parent if command.folder is None else command.folder)
    if not folder.is_dir():
        return Run("no such folder", [])
    records.unlink(missing_ok=True)
    before = saved.marks(tree)
    environment = {
        **os.environ,
        "PYTHONPATH": engine.path.replace(HERE, str(tree)),
        "FLUIDTOOL_RECORD": str(records),
        "FLUIDTOOL_SAMPLES": str(samples),
        "FLUIDTOOL_PYTHON": sys.executable,
        "FLUIDTOOL_TREE": str(TREE),
        "FLUIDTOOL_DATASET": "synthetic",
        "FLUIDTOOL_MOVED": str(engine.moved),
        "MPLBACKEND": "Agg",
        "PATH": os.pathsep.join(
            [str(Path(engine.command[0]).parent), os.environ.get("PATH", "")]
        ),  # scripts that run `python`
        "PYTHONSAFEPATH": "",  # processes that scripts start import files beside them
        "OMP_NUM_THREADS": "1",
        "CPU_NUM": "1",
    }
    words = [*engine.command, os.path.relpath(tree / command.script, folder), *command.arguments]
    try:
        done = subprocess.run(
            words,
            check=False,
            cwd=folder,
            env=environment,
            capture_output=True,
            timeout=seconds * WAITING,
            preexec_fn=partial(resource.setrlimit, resource.RLIMIT_CPU, (ceil(seconds), ceil(seconds) + 1)),
            stdin=subprocess.DEVNULL,
            start_new_session=True,  # some scripts end by killing their process group
        )
    except subprocess.TimeoutExpired:
        return Run("out of time", recorded(records))
    if done.returncode in OVER:
        return Run("out of time", recorded(records))
    if done.returncode == 0:
        return Run("completed", recorded(records), saved.written(tree, before))
    return Run(last_words(done.stderr.decode(errors="replace")), recorded(records))


def last_words(text: str) -> str:
    """The last line that says something."""
    lines = [line.strip() for line in text.splitlines() if re.search(r"\w", line)]
    return lines[-1][:300] if lines else "no word"


def recorded(records: Path) -> list[list[Any]]:
    """What was written down, run by run; what was being written when time ran out is left out."""
    found: list[list[Any]] = []
    if not records.is_file():
        return found
    with records.open("rb") as file:
        while True:
            try:
                found.append(pickle.load(file))
            except (EOFError, pickle.UnpicklingError):
                return found
