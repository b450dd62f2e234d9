"""Runs of small jobs on this machine, for benchmarks.scaling_points: what they take, and a file that keeps it."""

from __future__ import annotations

import json
import math
import os
import sys
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from benchmarks import distributed, server_load
from benchmarks.pace import paced, processors
from benchmarks.rounds import cpu_of_all

JOB_STEPS = {"mlp": 60, "sparse_ctr": 30}
LOAD_MESSAGES = 120_000
QUIET = 0.15  # of the processors, that others may use before a run is made again
TRIES = 2


@dataclass(frozen=True, slots=True)
class Point:
    """A job, and what was measured of it: seconds of a step; processor seconds of servers for a step of a trainer; the part of
    the processors that others used meanwhile.
    """

    name: str
    mode: str
    servers: int
    trainers: int
    variables: int = 0  # of a load; 0: a real job
    seconds: float = 0.0
    server: float = 0.0
    foreign: float = 0.0

    @property
    def messages(self) -> int:
        """Of a step of a trainer of a load."""
        return 2 * self.variables + (2 if self.mode == "sync" else 1)


@dataclass(frozen=True, slots=True)
class Run:
    """What one run of a job gave: seconds of a step, and processor seconds for a step of a trainer: of servers, of a trainer.
    foreign: the part of the processors that others used meanwhile. pace, own_pace: seconds of a small work meanwhile
    (benchmarks.pace), where the server ran and where trainers did.
    """

    seconds: float
    server: float
    own: float
    foreign: float = 0.0
    pace: float = 1.0
    own_pace: float = 1.0

    def at(self, pace: float) -> Run:
        """What it would have taken on processors of this pace. A step has the pace of those who work in it, as much as they do."""
        server, own = pace * self.server / self.pace, pace * self.own / self.own_pace
        by = (server + own) / (self.server + self.own)
        return Run(by * self.seconds, server, own, self.foreign, pace, pace)


@dataclass(frozen=True, slots=True)
class Usage:
    """Seconds of processors at a moment: of all, and of this process and the children that have ended."""

    all: float
    own: float
    moment: float

    @classmethod
    def now(cls) -> Usage:
        return cls(cpu_of_all(), sum(os.times()[:4]), time.perf_counter())

    def foreign(self) -> float:
        """The part of the processors that others have used since."""
        since = Usage.now()
        others = (since.all - self.all) - (since.own - self.own)
        return max(0.0, others / (since.moment - self.moment) / (os.cpu_count() or 1))


def run(point: Point) -> Run:
    """Run a job once."""
    usage = Usage.now()
    with paced() as pace:
        found, span, on = _load(point) if point.variables else _job(point)
    places = (None, None) if on is None else map(processors().index, on)
    paces = [pace.during(*span, place) for place in places]
    return replace(found, foreign=usage.foreign(), pace=paces[0], own_pace=paces[1])


Made = tuple[Run, tuple[float, float], tuple[int, int] | None]  # from when to when, and on which processors


def _load(point: Point) -> Made:
    """The server and what plays the trainers have a processor each, where there are two."""
    on = (processors()[0], processors()[-1]) if len(processors()) > 1 else None
    found = server_load.measure(point.trainers, point.mode, LOAD_MESSAGES, variables=point.variables, on=on)
    each = 1e-6 * point.messages
    return Run(found["step"], each * found["us"], each * found["own_us"]), (found["begin"], found["end"]), on


def _job(point: Point) -> Made:
    speed = distributed.measure(
        sys.executable,
        "fluidtool.fluid",
        point.name,
        point.mode,
        point.servers,
        point.trainers,
        JOB_STEPS[point.name],
    )
    run = Run(1 / speed.steps, 1e-3 * speed.server, 1e-3 * (speed.all - speed.server))
    return run, (speed.begin, speed.end), None


class Runs:
    """What was measured, by round; in a file too, if there is one, so that a later process can go on.

    seconds: after which no further run begins. A run during which others worked is made again, a few times; the quietest
    counts.
    """

    def __init__(self, path: Path | None = None, seconds: float = math.inf) -> None:
        self._path, self._until, self._made = path, time.monotonic() + seconds, 0
        self._found: dict[tuple[int, Point], list[Run]] = {}
        for line in path.read_text().splitlines() if path is not None and path.exists() else ():
            kept = json.loads(line)
            self._found.setdefault((kept["round"], Point(**kept["point"])), []).append(Run(**kept["run"]))

    def make(self, number: int, point: Point, told: str) -> bool:
        """Run a job in a round, unless that was done before; False when the time is over."""
        runs = self._found.setdefault((number, point), [])
        while len(runs) < TRIES and not any(found.foreign <= QUIET for found in runs):
            if self._made and time.monotonic() > self._until:
                return False
            self._made += 1
            what = f"{told}: {point.name} {point.mode}, {point.servers} and {point.trainers}"
            print(what, file=sys.stderr, flush=True)
            runs.append(run(point))
            self._keep(number, point, runs[-1])
        return True

    def _keep(self, number: int, point: Point, found: Run) -> None:
        if self._path is not None:
            line = json.dumps({"round": number, "point": asdict(point), "run": asdict(found)})
            with self._path.open("a") as file:
                file.write(f"{line}\n")

    def of_round(self, number: int) -> dict[Point, Run]:
        """The quietest run of each job of a round, as if all had run on processors as fast as the fastest of all."""
        fastest = min(min(found.pace, found.own_pace) for runs in self._found.values() for found in runs)
        return {
            point: min(runs, key=lambda found: found.foreign).at(fastest)
            for (of, point), runs in self._found.items()
            if of == number and runs
        }
