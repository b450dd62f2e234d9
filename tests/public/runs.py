"""One script under fluidtool or under Paddle: how it ended, and what it fetched."""

from __future__ import annotations

import os
import pickle
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

RECORDING = Path(__file__).parent / "recording"
TREE = Path(__file__).parents[2]


@dataclass(frozen=True)
class Engine:
    """What runs scripts: a command, and folders of further packages."""

    name: str
    command: tuple[str, ...]
    path: str


@dataclass(frozen=True)
class Run:
    """How a script ended: 'completed', 'out of time', or its last words; fetched: the values of each run."""

    ending: str
    fetched: list[list[Any]]

    @property
    def completed(self) -> bool:
        """Whether the script came to its end."""
        return self.ending == "completed"


def fluidtool(packages: str, *options: str) -> Engine:
    """`fluidtool exec` of this tree."""
    command = (sys.executable, "-m", "fluidtool", "exec", *options)
    return Engine("fluidtool", command, os.pathsep.join(filter(None, [str(TREE), str(RECORDING), packages])))


def paddle(python: str, packages: str) -> Engine:
    """A Python that has Paddle 1.8.5."""
    return Engine("paddle", (python,), os.pathsep.join(filter(None, [str(RECORDING), packages])))


def run(engine: Engine, script: Path, arguments: list[str], records: Path, seconds: float, samples: int) -> Run:
    """Run a script in its own folder, for at most so many seconds."""
    records.unlink(missing_ok=True)
    environment = {
        **os.environ,
        "PYTHONPATH": engine.path,
        "FLUIDTOOL_RECORD": str(records),
        "FLUIDTOOL_SAMPLES": str(samples),
        "FLUIDTOOL_PYTHON": sys.executable,
        "FLUIDTOOL_TREE": str(TREE),
        "FLUIDTOOL_DATASET": "synthetic",
        "MPLBACKEND": "Agg",
        "OMP_NUM_THREADS": "1",
        "CPU_NUM": "1",
    }
    command = [*engine.command, script.name, *arguments]
    try:
        done = subprocess.run(
            command,
            check=False,
            cwd=script.parent,
            env=environment,
            capture_output=True,
            timeout=seconds,
            stdin=subprocess.DEVNULL,
        )
    except subprocess.TimeoutExpired:
        return Run("out of time", recorded(records))
    ending = "completed" if done.returncode == 0 else last_words(done.stderr.decode(errors="replace"))
    return Run(ending, recorded(records))


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
