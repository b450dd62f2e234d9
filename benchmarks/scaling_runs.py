"""Runs of small jobs on this machine, for benchmarks.scaling_points: what they take, and a file that keeps it.

The jobs of a group are all started, and then work in turns of a fraction of a second. So whatever else the machine does, and
however fast its processors are, is the same for all of them.
"""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import asdict, astuple, dataclass, replace
from pathlib import Path
from statistics import median

from benchmarks import distributed, server_load
from benchmarks.pace import Pace, paced, processors
from benchmarks.rounds import cpu_of_all

STEPS = {"mlp": 20, "sparse_ctr": 10}  # of a turn
LOAD_MESSAGES = 16_000
LOAD_STEPS = 2  # at least
TURNS = 6
BURSTS = 10_000  # a trainer that is told no more of them ends
QUIET = 0.15  # of the processors, that others may use
ALONE = "local"  # a mode: trainers of a network without servers, on one processor


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
    """What a turn of a job gave: seconds of a step, and processor seconds for a step of a trainer: of servers, of a trainer.
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
class Made:
    """A run, without the pace: when, and on which processors (the server's and the trainers'; None: on any)."""

    run: Run
    begin: float
    end: float
    on: tuple[int | None, int | None]

    def paced(self, pace: Pace) -> Run:
        """The run."""
        server, own = (pace.during(self.begin, self.end, place) for place in self.on)
        return replace(self.run, pace=server, own_pace=own)


Turn = Callable[[], tuple[Run, float]]  # also gives the processor seconds that the job used in all


def take_turns(points: Sequence[Point], turns: int = TURNS) -> dict[Point, list[Run]]:
    """Start all these jobs, and let one after the other work, so many times. The first turn of each does not count."""
    made: dict[Point, list[Made]] = {point: [] for point in points}
    with paced() as pace, ExitStack() as stack:
        begun = {point: stack.enter_context(_begun(point)) for point in points}
        for number in range(turns + 1):
            for point, turn in begun.items():
                found = _watched(turn, _places(point))
                if number:
                    made[point].append(found)
    return {point: [each.paced(pace) for each in found] for point, found in made.items()}


def _watched(turn: Turn, on: tuple[int | None, int | None]) -> Made:
    """Take a turn, and see what others use meanwhile."""
    all_before, own_before, begin = cpu_of_all(), time.process_time(), time.monotonic()
    run, used = turn()
    end = time.monotonic()
    others = cpu_of_all() - all_before - (time.process_time() - own_before) - used
    foreign = max(0.0, others / (end - begin) / (os.cpu_count() or 1))
    return Made(replace(run, foreign=foreign), begin, end, on)


def _places(point: Point) -> tuple[int | None, int | None]:
    """The processors that servers and trainers have, by their places: both have all of them in a real job."""
    last = len(processors()) - 1
    if point.mode == ALONE:
        return last, last
    return (0, last) if point.variables else (None, None)


def _begun(point: Point) -> AbstractContextManager[Turn]:
    return _load(point) if point.variables else _job(point)


@contextmanager
def _kept_on(place: int | None) -> Iterator[None]:
    """What is started meanwhile runs on one processor."""
    if place is None or not hasattr(os, "sched_setaffinity"):
        yield
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {processors()[place]})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


@contextmanager
def _load(point: Point) -> Iterator[Turn]:
    """The server and what plays the trainers have a processor each, where there are two."""
    server, own = _places(point)
    with ExitStack() as stack:
        with _kept_on(server):
            endpoint, process = stack.enter_context(server_load.served(point.trainers, point.mode, point.variables))
        load = server_load.Sockets(endpoint, process, point.trainers, point.mode, point.variables)
        load.begin()
        steps = load.steps_of(LOAD_MESSAGES, LOAD_STEPS)

        def turn() -> tuple[Run, float]:
            with _kept_on(own):
                found = load.steps(steps)
            each = 1e-6 * point.messages
            run = Run(found["step"], each * found["us"], each * found["own_us"])
            return run, run.server * point.trainers * steps

        yield turn
        load.end()


@contextmanager
def _job(point: Point) -> Iterator[Turn]:
    steps, (place, _) = STEPS[point.name], _places(point)
    given = sys.executable, "fluidtool.fluid", point.name, point.mode, steps, point.servers, point.trainers, BURSTS
    with ExitStack() as stack:
        with _kept_on(place):
            roles = stack.enter_context(distributed.job(*given))
        servers, trainers = roles[: point.servers], roles[point.servers :]

        def used(of: list[subprocess.Popen[str]]) -> float:
            return sum(distributed.processor_seconds(role.pid) for role in of)

        def turn() -> tuple[Run, float]:
            before = used(servers), used(trainers)
            said = distributed.burst(trainers, f"{point.name} ({point.mode}), {point.servers} servers")
            server, own = used(servers) - before[0], used(trainers) - before[1]
            each = steps * point.trainers
            slowest = max(float(words[0]) for words in said)
            return Run(slowest / steps, server / each, own / each), server + own

        yield turn


class Runs:
    """What was measured, by round; in a file too, if there is one, so that a later process can go on.

    seconds: after which no further group begins.
    """

    def __init__(self, path: Path | None = None, seconds: float = math.inf) -> None:
        self._path, self._until, self._made = path, time.monotonic() + seconds, 0
        self._found: dict[tuple[int, Point], list[Run]] = {}
        for line in path.read_text().splitlines() if path is not None and path.exists() else ():
            kept = json.loads(line)
            self._found.setdefault((kept["round"], Point(**kept["point"])), []).append(Run(**kept["run"]))

    def make(self, number: int, points: Sequence[Point], told: str) -> bool:
        """Let jobs take turns in a round, unless that was done before; False when the time is over."""
        missing = [point for point in points if (number, point) not in self._found]
        if not missing:
            return True
        if self._made and time.monotonic() > self._until:
            return False
        self._made += 1
        print(f"{told}: {missing[-1].name} {missing[-1].mode}, {len(missing)} jobs", file=sys.stderr, flush=True)
        for point, runs in take_turns(missing).items():
            self._found[number, point] = runs
            self._keep(number, point, runs)
        return True

    def _keep(self, number: int, point: Point, runs: Sequence[Run]) -> None:
        if self._path is not None:
            lines = [json.dumps({"round": number, "point": asdict(point), "run": asdict(run)}) for run in runs]
            with self._path.open("a") as file:
                file.write("".join(f"{line}\n" for line in lines))

    def of_round(self, number: int) -> dict[Point, Run]:
        """The median of the turns of each job of a round, as if all had run on processors as fast as the fastest of all."""
        fastest = min(min(run.pace, run.own_pace) for runs in self._found.values() for run in runs)
        return {
            point: typical([run.at(fastest) for run in runs])
            for (of, point), runs in self._found.items()
            if of == number
        }


def typical(runs: Sequence[Run]) -> Run:
    """The median of each figure, in runs in which nothing else ran if there are any."""
    quiet = [run for run in runs if run.foreign <= QUIET] or runs
    return Run(*(median(values) for values in zip(*map(astuple, quiet), strict=True)))
