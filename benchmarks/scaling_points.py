"""Measures points of small jobs on this machine and predicts them by benchmarks.simulation:

    python -m benchmarks.scaling_points                    measure (8 minutes), predict, print the table
    python -m benchmarks.scaling_points --save             also keep what was measured in scaling.json
    python -m benchmarks.scaling_points --quick            fewer and smaller points (about 1 minute)

What the simulation knows are the `costs` below, each measured on a job of its own: nothing is taken from the points that it
predicts. A point has two figures: the processor time that servers use for a step of a trainer, which holds on a busy machine
too, and the time of a step by the clock, which is compared only where nothing else ran. Exit code 1 when a figure that counts
is predicted more than 15 % wrong.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from benchmarks import distributed, server_load
from benchmarks.rounds import cpu_of_all
from benchmarks.scaling_figures import processor
from benchmarks.simulation import Costs, Layout, Network, simulate

FILE = Path(__file__).with_name("scaling.json")
ALLOWED = 0.15
QUIET = 0.15  # of the processors, that others may use
SMALL, LARGE = 6, 24  # variables of the loads that costs are taken from
FEW, SOME = 2, 32  # trainers of these
JOB_STEPS = {"mlp": 120, "sparse_ctr": 30}


@dataclass(frozen=True, slots=True)
class Rates:
    """Processor seconds, measured. wake: for each step of a trainer; message: for each message; update: for each variable in
    a round. own_wake, own_message: of the process that plays the trainers.
    """

    wake: float
    message: float
    update: float
    own_wake: float
    own_message: float


@dataclass(frozen=True, slots=True)
class Job:
    """Processor seconds of a step of a real job with one server: of a trainer, of the server for each trainer, and for each
    round.
    """

    trainer: float
    serve: float
    update: float


@dataclass(frozen=True, slots=True)
class Point:
    """A job, and what was measured of it: seconds of a step; processor seconds of servers for a step of a trainer."""

    name: str
    mode: str
    servers: int
    trainers: int
    variables: int = 0  # of a load; 0: a real job
    seconds: float = 0.0
    server: float = 0.0

    @property
    def messages(self) -> int:
        """Of a step of a trainer of a load."""
        return 2 * self.variables + (2 if self.mode == "sync" else 1)


LOADS = [
    Point("load", mode, 1, trainers, variables)
    for mode in ("sync", "async")
    for trainers, variables in ((8, 6), (128, 6), (1000, 6), (64, 12))
]
JOBS = [
    Point(name, mode, servers, trainers)
    for name in JOB_STEPS
    for mode in ("sync", "async")
    for servers, trainers in ((1, 3), (2, 2))
]
QUICK = [point for point in LOADS if point.trainers < 128] + [
    point for point in JOBS if (point.name, point.trainers) == ("mlp", 2)
]


# ---------------------------------------------------------------- measuring
@dataclass(frozen=True, slots=True)
class Run:
    """What one run of a job gave: seconds of a step, and processor seconds for a step of a trainer: of servers, of a trainer."""

    seconds: float
    server: float
    own: float

    def best(self, other: Run) -> Run:
        """The least of each: what else the machine does only adds."""
        mine, others = (self.seconds, self.server, self.own), (other.seconds, other.server, other.own)
        return Run(*map(min, mine, others))


def run(point: Point) -> Run:
    """Run a job once."""
    if point.variables:
        found = server_load.measure(point.trainers, point.mode, 40_000, variables=point.variables)
        each = 1e-6 * point.messages
        return Run(found["step"], each * found["us"], each * found["own_us"])
    steps = JOB_STEPS[point.name]
    speed = distributed.measure(
        sys.executable, "fluidtool.fluid", point.name, point.mode, point.servers, point.trainers, steps
    )
    return Run(1 / speed.steps, 1e-3 * speed.server, 1e-3 * (speed.all - speed.server))


def known_by(points: Sequence[Point]) -> list[Point]:
    """The jobs that costs are taken from; none of them is one of the points."""
    modes = sorted({point.mode for point in points})
    found = [Point("load", mode, 1, *each) for mode in modes for each in ((SOME, SMALL), (SOME, LARGE), (FEW, SMALL))]
    names = sorted({(point.name, point.mode) for point in points if not point.variables})
    return found + [Point(name, mode, 1, trainers) for name, mode in names for trainers in (1, 2)]


def rates(mode: str, runs: Mapping[Point, Run]) -> Rates:
    """What messages and updates cost, from three loads; without barriers there are no rounds."""
    points = [Point("load", mode, 1, *each) for each in ((SOME, SMALL), (SOME, LARGE), (FEW, SMALL))]
    small, large, few = (runs[point] for point in points)
    messages, more = points[0].messages, points[1].messages - points[0].messages
    extra = (few.server - small.server) / SMALL / (1 / FEW - 1 / SOME)
    update = max(extra, 0.0) if mode == "sync" else 0.0
    message = (large.server - small.server - (LARGE - SMALL) * update / SOME) / more
    own_message = (large.own - small.own) / more
    wake = small.server - messages * message - SMALL * update / SOME
    return Rates(max(wake, 0.0), message, update, max(small.own - messages * own_message, 0.0), own_message)


def job(name: str, mode: str, runs: Mapping[Point, Run]) -> Job:
    """What a job costs, from one server with one trainer and with two; without barriers two disturb each other, as more do."""
    alone, both = (runs[Point(name, mode, 1, trainers)] for trainers in (1, 2))
    if mode == "async":
        return Job(both.own, both.server, 0.0)
    update = max(2 * (alone.server - both.server), 0.0)
    return Job(alone.own, alone.server - update, update)


def measure(points: Sequence[Point], rounds: int) -> dict[str, Any]:
    """Costs, and points, with where and when they were measured: all jobs in turn, so often."""
    runs: dict[Point, Run] = {}
    usage = Usage.now()
    for number in range(rounds):
        for point in [*known_by(points), *points]:
            told = f"round {number + 1} of {rounds}: {point.name} {point.mode}, {point.servers} and {point.trainers}"
            print(told, file=sys.stderr, flush=True)
            found = run(point)
            runs[point] = found.best(runs[point]) if point in runs else found
    names = sorted({(point.name, point.mode) for point in points if not point.variables})
    return {
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "machine": f"{os.cpu_count()} virtual CPUs ({processor()})",
        "software": f"Python {platform.python_version()}",
        "cores": os.cpu_count(),
        "foreign": round(usage.foreign(), 3),
        "costs": {
            "loads": {mode: asdict(rates(mode, runs)) for mode in sorted({point.mode for point in points})},
            "jobs": {f"{name} {mode}": asdict(job(name, mode, runs)) for name, mode in names},
        },
        "points": [asdict(replace(point, seconds=runs[point].seconds, server=runs[point].server)) for point in points],
    }


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


# ---------------------------------------------------------------- predicting
def costs_of(point: Point, known: dict[str, Any]) -> Costs:
    """What a point costs by the costs that were measured elsewhere."""
    if point.variables:
        found = Rates(**known["loads"][point.mode])
        # Reads are half of the messages, and answered after the round; the rest of a step comes before.
        serve = found.wake / 2 + (point.messages - point.variables) * found.message
        give = found.wake / 2 + point.variables * found.message
        own = found.own_wake + point.messages * found.own_message
        return Costs(send=own / 2, take=own / 2, serve=serve, give=give, update=point.variables * found.update)
    mine, message = Job(**known["jobs"][f"{point.name} {point.mode}"]), Rates(**known["loads"][point.mode])
    # Each server has its share of the bytes, and barriers of its own.
    barriers = message.wake + 2 * message.message
    share = max(mine.serve - barriers, 0.0) / point.servers + barriers
    return Costs(compute=mine.trainer, serve=share / 2, give=share / 2, update=mine.update / point.servers)


def predicted(point: Point, known: dict[str, Any], cores: int) -> Point:
    """The point as the simulation has it."""
    layout = Layout(point.servers, point.trainers, cores, together=bool(point.variables))
    found = simulate(costs_of(point, known), layout, Network(), sync=point.mode == "sync")
    return replace(point, seconds=found.seconds, server=found.server)


def table(found: dict[str, Any]) -> str:
    """Each point as predicted and as measured."""
    head = "| job | servers | trainers | servers' time for a step, predicted | measured | | a step, predicted | measured | |"
    lines = [head, "|---|---|---|---|---|---|---|---|---|"]
    for each in found["points"]:
        point = Point(**each)
        guess = predicted(point, found["costs"], found["cores"])
        name = f"{point.variables} small variables" if point.variables else point.name.replace("_", " ")
        cells = [f"{name}, {point.mode}", str(point.servers), f"{point.trainers:,}"]
        for mine, real_one in ((guess.server, point.server), (guess.seconds, point.seconds)):
            cells += [time_of(mine), time_of(real_one), f"{mine / real_one - 1:+.0%}"]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def time_of(seconds: float) -> str:
    return f"{1e6 * seconds:.0f} µs" if seconds < 1e-3 else f"{1e3 * seconds:.3g} ms"


def faults(found: dict[str, Any], *, by_the_clock: bool) -> list[str]:
    """The figures that are predicted wrong."""
    said = []
    for each in found["points"]:
        point = Point(**each)
        guess = predicted(point, found["costs"], found["cores"])
        pairs = [("servers' time", guess.server, point.server)]
        pairs += [("a step", guess.seconds, point.seconds)] if by_the_clock else []
        said += [
            f"{point.name} {point.mode}, {point.servers} servers, {point.trainers} trainers: {what} {mine / real_one - 1:+.0%}"
            for what, mine, real_one in pairs
            if abs(mine / real_one - 1) > ALLOWED
        ]
    return said


def is_quiet(found: dict[str, Any]) -> bool:
    """Whether others left the processors alone (the measured processes themselves are part of the load)."""
    return bool(found["foreign"] <= QUIET)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer and smaller points")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--save", action="store_true", help="keep what was measured in scaling.json")
    given = parser.parse_args()
    found = measure(QUICK if given.quick else [*LOADS, *JOBS], given.rounds)
    print(table(found))
    quiet = is_quiet(found)
    print(
        f"\nothers used {found['foreign']:.0%} of the processors: steps by the clock "
        + ("count" if quiet else "do not count")
    )
    if given.save:
        kept = json.loads(FILE.read_text())
        kept["simulated"] = found
        FILE.write_text(json.dumps(kept, indent=2) + "\n")
    wrong = faults(found, by_the_clock=quiet)
    print("\n".join(wrong) or "every figure that counts is within 15 %")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
