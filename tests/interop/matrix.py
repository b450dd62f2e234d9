"""Which roles of real Paddle 1.8.5 and of fluidtool work in one job: every mode with every mixture, as a table.

    python -m tests.interop.matrix --paddle PYTHON

Synchronous jobs and jobs of one trainer are deterministic: a cell says how far losses and parameters are from those of the
job whose roles are all real, in the same data. Elsewhere it says the loss of the last step, which begins at about 50.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

import fluidtool.fluid as fluid
from tests.interop.test_communicator import MOST_STEPS, OURS, SCRIPT, STEPS, UNTRAINED
from tests.interop.test_distribute import DEADLINE, batches, free_endpoints, network, start, table, words
from tests.interop.test_parameter_servers import run

REAL, OWN = "real", "ours"
FAILURES = AssertionError, subprocess.TimeoutExpired
TRIES = 3  # of jobs that are all real: once in a while a role of Paddle aborts in its gRPC client
MIXTURES: dict[str, tuple[str, tuple[str, str]]] = {
    "all real": (REAL, (REAL, REAL)),
    "all ours": (OWN, (OWN, OWN)),
    "our servers, real trainers": (OWN, (REAL, REAL)),
    "real servers, our trainers": (REAL, (OWN, OWN)),
    "real servers, one trainer of each": (REAL, (OWN, REAL)),
    "our servers, one trainer of each": (OWN, (OWN, REAL)),
}
Roles = tuple[str, Sequence[str]]
Processes = list[subprocess.Popen[str]]


@dataclass(frozen=True)
class Mode:
    """A job. play: what each trainer ends with, given who plays which role. exact: it is the same every time.

    alone: it has one trainer.
    """

    name: str
    play: Callable[[str, Processes, Path, Roles], list[dict[str, Any]]]
    exact: bool = True
    alone: bool = False


def from_files(
    build: Callable[[], tuple[Any, Any, Any]],
    feed: Callable[[int], list[dict[str, Any]]],
    parameters: str,
    paddle: str,
    processes: Processes,
    folder: Path,
    roles: Roles,
    *,
    trainers: int = 2,
    **options: Any,
) -> list[dict[str, Any]]:
    """A job of transpiled programs: losses and parameters of each trainer."""
    servers, whose = roles
    job = build(), feed(trainers), parameters
    return run(paddle, processes, folder, job, servers, [*whose[-trainers:]], **options)


def from_script(
    mode: str, paddle: str, processes: Processes, folder: Path, roles: Roles, *, one_step_counts: bool = True
) -> list[dict[str, Any]]:
    """A script with a communicator: the last loss of each trainer."""
    servers, whose = roles
    endpoints = free_endpoints(2)

    def begin(who: str, *args: Any) -> subprocess.Popen[str]:
        python, script = (paddle, (str(SCRIPT),)) if who == REAL else (sys.executable, OURS)
        return start(python, *args, script=script)

    for endpoint in endpoints:
        processes.append(begin(servers, "pserver", mode, ",".join(endpoints), 2, 0, endpoint, 0, 0))
    steps = (STEPS, 0) if one_step_counts else (MOST_STEPS, UNTRAINED / 200)
    given = (mode, ",".join(endpoints), 2)
    trainers = [begin(who, "trainer", *given, number, endpoints[0], *steps) for number, who in enumerate(whose)]
    processes += trainers
    return [{"losses": np.array([_last_loss(trainer)])} for trainer in trainers]


def _last_loss(trainer: subprocess.Popen[str]) -> float:
    output, _ = trainer.communicate(timeout=DEADLINE)
    if trainer.returncode:
        raise AssertionError(output[-2000:])
    return float(output.splitlines()[-1].split()[-1])


def sgd(rate: float = 0.1) -> Any:
    """The optimizer of most jobs."""
    return fluid.optimizer.SGD(rate)


dense = partial(from_files, partial(network, sgd), batches, "w,v")
sparse = partial(from_files, partial(table, sgd), words, "v")
MODES = (
    Mode("sync, dense", dense),
    Mode("sync, dense, Adam", partial(from_files, lambda: network(lambda: fluid.optimizer.Adam(0.01)), batches, "w,v")),
    Mode("sync, sparse", sparse),
    Mode("sync, distributed lookup table", partial(from_files, lambda: table(partial(sgd, 0.01), True), words, "v")),
    Mode("async, dense, one trainer", partial(dense, trainers=1, sync=False), alone=True),
    Mode("async, sparse, one trainer", partial(sparse, trainers=1, sync=False), alone=True),
    Mode("async, two trainers", partial(dense, sync=False), exact=False),
    Mode("async, communicator", partial(from_script, "async", one_step_counts=False), exact=False),
    Mode("half-async, communicator", partial(from_script, "half_async"), exact=False),
    Mode("geo, communicator", partial(from_script, "geo"), exact=False),
)


# ---------------------------------------------------------------- the table
def distance(found: Sequence[Mapping[str, Any]], expected: Sequence[Mapping[str, Any]]) -> float:
    """The largest difference of a loss or parameter of any trainer."""
    pairs = [(mine[name], real[name]) for mine, real in zip(found, expected, strict=True) for name in real]
    return float(max(np.abs(mine - real).max() for mine, real in pairs))


def cells(mode: Mode, paddle: str, folder: Path) -> dict[str, str]:
    """What is said of each mixture."""
    said: dict[str, str] = {}
    control: list[dict[str, Any]] | None = None
    for number, (name, roles) in enumerate(MIXTURES.items()):
        if mode.alone and len({*roles[1]}) > 1:
            said[name] = "–"
            continue
        try:
            found = played(mode, paddle, folder / str(number), roles, 1 if number else TRIES)
        except FAILURES as error:
            said[name] = f"FAILED: {str(error)[-300:]}"
            continue
        control = found if number == 0 else control
        said[name] = cell(found, control, compares=mode.exact and number > 0)
    return said


def cell(found: Sequence[Mapping[str, Any]], control: Sequence[Mapping[str, Any]] | None, *, compares: bool) -> str:
    """How far a job is from its control, or the last loss."""
    if not compares:
        return f"loss {max(float(each['losses'][-1]) for each in found):.3g}"
    return "nothing to compare with" if control is None else f"{distance(found, control):.1e}"


def played(mode: Mode, paddle: str, folder: Path, roles: Roles, tries: int) -> list[dict[str, Any]]:
    """What the trainers of a job end with; one that fails is played again, so many times in all."""
    for left in reversed(range(tries)):
        processes: Processes = []
        try:
            return mode.play(paddle, processes, folder / str(left), roles)
        except FAILURES:
            if not left:
                raise
        finally:
            for process in processes:
                process.kill()
                process.communicate()
    raise ValueError(f"tries must be at least 1, found {tries}")


def main() -> int:
    """Print the table; exit code 1 if a job fails."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--paddle", required=True, metavar="PYTHON", help="an interpreter that has Paddle 1.8.5")
    parser.add_argument("--only", default="", metavar="TEXT", help="modes whose name contains this")
    chosen = parser.parse_args()
    print("| mode |", " | ".join(MIXTURES), "|\n|---|" + "---|" * len(MIXTURES), flush=True)
    failed = 0
    for mode in (mode for mode in MODES if chosen.only in mode.name):
        with TemporaryDirectory(prefix="matrix-") as folder:
            said = cells(mode, chosen.paddle, Path(folder))
        failed += any(text.startswith("FAILED") for text in said.values())
        print("|", mode.name, "|", " | ".join(said.values()), "|", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
