"""Measures points of small jobs on this machine and predicts them by benchmarks.simulation:

    python -m benchmarks.scaling_points                    measure (15 minutes), predict, print the table
    python -m benchmarks.scaling_points --save             also keep what was measured in scaling.json
    python -m benchmarks.scaling_points --quick            fewer and smaller points (about 1 minute)
    python -m benchmarks.scaling_points --runs FILE --seconds 140
                                                           a part of it: the next call with FILE goes on from there

What the simulation knows are the `costs` below, each measured on a job of its own: nothing is taken from the points that it
predicts. The speed of a rented processor changes from second to second: so jobs that are compared work in turns, that speed is
measured meanwhile (benchmarks.pace), and all times are those of a processor as fast as the fastest was. What counts is the median
of all rounds, of each job whose costs are taken and of each point; rounds also show how much figures differ. A point has two
figures: the processor time that servers use for a step of a trainer, and the time of a step by the clock, which counts only
in rounds in which nothing else ran. Exit code 1 when a figure that counts is predicted more than 15 % wrong.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from benchmarks.scaling_figures import processor
from benchmarks.scaling_runs import ALONE, QUIET, STEPS, Point, Run, Runs, typical
from benchmarks.simulation import Costs, Layout, Network, Result, simulate

FILE = Path(__file__).with_name("scaling.json")
ALLOWED = 0.15
SMALL, LARGE = 6, 24  # variables of the loads that costs are taken from
FEW, SOME = 4, 32  # trainers of these
PIECES = 6  # parameters of the networks: they are sent and served one after the other
SETTLED = 8  # times that costs are taken again; after four of them they stay the same


@dataclass(frozen=True, slots=True)
class Rates:
    """Processor seconds, measured. wake: for each step of a trainer; message: for each message; update: for each variable in
    a round, in which all trainers are served once. own_wake, own_message: of the process that plays the trainers.
    """

    wake: float
    message: float
    update: float
    own_wake: float
    own_message: float


@dataclass(frozen=True, slots=True)
class Job:
    """Processor seconds of a step of a real job: of a trainer, of a server for each trainer, and for each round; and what a
    further server adds: for a trainer, as shards have to be cut and joined; for all servers in a round, as each is woken.

    exchange: the part of a trainer's seconds in which it sends and takes, that is, does not compute; servers work meanwhile.
    loss: by how much of itself processor time grows for those who take turns on a processor, as two trainers without servers do.
    used: the part of the processors' time that processes get when there are more of them than processors. A thread that is
    woken often waits behind the one that woke it, even where another processor is free.
    """

    trainer: float
    serve: float
    update: float
    trainer_more: float = 0.0
    serve_more: float = 0.0
    exchange: float = 0.0
    loss: float = 0.0
    used: float = 1.0


LOADS = [
    Point("load", mode, 1, trainers, variables)
    for mode in ("sync", "async")
    for trainers, variables in ((8, 6), (128, 6), (1000, 6), (64, 12))
]
JOBS = [
    Point(name, mode, servers, trainers)
    for name in STEPS
    for mode in ("sync", "async")
    for servers, trainers in ((1, 3), (2, 2))
]
QUICK = [point for point in LOADS if point.trainers < 128] + [
    point for point in JOBS if (point.name, point.trainers) == ("mlp", 2)
]
Group = tuple[str, str]  # name and mode


# ---------------------------------------------------------------- measuring
def known_by(group: Group) -> list[Point]:
    """The jobs that costs of a group are taken from; none of them is one of the points."""
    name, mode = group
    if name == "load":
        return [Point(name, mode, 1, *each) for each in ((SOME, SMALL), (SOME, LARGE), (FEW, SMALL))]
    sharing = [Point(name, ALONE, 0, trainers) for trainers in (1, 2)]
    return [*sharing, *(Point(name, mode, *each) for each in ((1, 1), (1, 2), (2, 1)))]


def rates(mode: str, runs: Mapping[Point, Run]) -> Rates:
    """What messages and updates cost, from three loads; without barriers a round has no update, but it wakes the server."""
    small, large, few = (runs[point] for point in known_by(("load", mode)))
    points = known_by(("load", mode))
    messages, more = points[0].messages, points[1].messages - points[0].messages
    update = max((few.server - small.server) / SMALL / (1 / FEW - 1 / SOME), 0.0)
    message = (large.server - small.server - (LARGE - SMALL) * update / SOME) / more
    own_message = (large.own - small.own) / more
    wake = small.server - messages * message - SMALL * update / SOME
    return Rates(max(wake, 0.0), message, update, max(small.own - messages * own_message, 0.0), own_message)


def job(group: Group, runs: Mapping[Point, Run], cores: int) -> Job:
    """What a job costs, from one trainer, from two, and from one with two servers; loss from trainers without servers.

    Of two trainers and a server, three processes, some take turns on a processor. What they lose is in the times measured, and must
    not be in the costs: the simulation says how much it is.
    """
    one, pair, alone, both, split = (runs[point] for point in known_by(group))
    point = known_by(group)[3]
    loss = max(pair.own / one.own - 1, 0.0)
    more = Job(0.0, 0.0, 0.0, split.own - alone.own, split.server - alone.server, 0.0, loss)
    server, trainer, found = both.server, both.own, more
    for _ in range(SETTLED):
        update = max(2 * (alone.server - server), 0.0) if group[1] == "sync" else 0.0
        exchange = min(max(trainer - (one.own - update), 0.0), trainer)  # a trainer with servers does not update
        found = replace(more, trainer=trainer, serve=server - update / 2, update=update, exchange=exchange)
        found = replace(found, used=used(found, point, both.seconds, cores))
        said = simulated(point, _of_jobs(found, point), cores)
        server, trainer = both.server * server / said.server, both.own * trainer / said.trainer
    return found


def _of_jobs(found: Job, point: Point) -> dict[str, Any]:
    """The costs of one kind of job alone."""
    return {"jobs": {f"{point.name} {point.mode}": asdict(found)}}


def used(found: Job, point: Point, seconds: float, cores: int) -> float:
    """With which part of the cores' time the simulation of a job takes as long as the job did: at most 1."""
    low, high = 0.0, 1.0
    for _ in range(20):
        middle = (low + high) / 2
        known = _of_jobs(replace(found, used=middle), point)
        low, high = (middle, high) if simulated(point, known, cores).seconds > seconds else (low, middle)
    return high


def groups(points: Iterable[Point]) -> dict[Group, list[Point]]:
    """The points by what predicts them."""
    found: dict[Group, list[Point]] = {}
    for point in points:
        found.setdefault((point.name, point.mode), []).append(point)
    return found


def measure(points: Sequence[Point], rounds: int, runs: Runs) -> dict[str, Any] | None:
    """Costs, and points, with where and when they were measured, in so many rounds; None when the time was over before."""
    for number in range(rounds):
        for group, members in groups(points).items():
            if not runs.make(number, [*known_by(group), *members], f"round {number + 1} of {rounds}"):
                return None
    cores, found = os.cpu_count() or 1, [runs.of_round(number) for number in range(rounds)]
    return {
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "machine": f"{cores} virtual CPUs ({processor()})",
        "software": f"Python {platform.python_version()}",
        "cores": cores,
        "typical": round_of(points, {point: typical([each[point] for each in found]) for point in found[0]}, cores),
        "rounds": [round_of(points, each, cores) for each in found],
    }


def round_of(points: Sequence[Point], runs: Mapping[Point, Run], cores: int) -> dict[str, Any]:
    """Costs of one round and what was measured in it. foreign: of a point and of what it is predicted with."""
    costs: dict[str, dict[str, Any]] = {"loads": {}, "jobs": {}}
    measured = []
    for (name, mode), members in groups(points).items():
        if name == "load":
            costs["loads"][mode] = asdict(rates(mode, runs))
        else:
            costs["jobs"][f"{name} {mode}"] = asdict(job((name, mode), runs, cores))
        foreign = max(runs[point].foreign for point in known_by((name, mode)))
        for point in members:
            run = runs[point]
            others = max(foreign, run.foreign)
            measured.append(asdict(replace(point, seconds=run.seconds, server=run.server, foreign=others)))
    return {"costs": costs, "points": measured}


# ---------------------------------------------------------------- predicting
def costs_of(point: Point, known: dict[str, Any]) -> Costs:
    """What a point costs by the costs that were measured elsewhere."""
    if point.variables:
        found = Rates(**known["loads"][point.mode])
        # Reads are half of the messages, and answered after the round; the rest of a step comes before.
        serve = found.wake / 2 + (point.messages - point.variables) * found.message
        give = found.wake / 2 + point.variables * found.message
        own = found.own_wake + point.messages * found.own_message
        update = point.variables * found.update / (1 if point.mode == "sync" else point.trainers)
        return Costs(send=own / 2, take=own / 2, serve=serve, give=give, update=update)
    mine, more = _job_of(point, known), point.servers - 1
    share = (mine.serve + more * mine.serve_more / point.trainers) / point.servers
    each = (mine.exchange + more * mine.trainer_more) / 2 / point.servers
    return Costs(
        compute=mine.trainer - mine.exchange,
        send=each,
        take=each,
        serve=share / 2,
        give=share / 2,
        update=mine.update / point.servers,
        pieces=PIECES,
    )


def _job_of(point: Point, known: dict[str, Any]) -> Job:
    return Job(**known["jobs"][f"{point.name} {point.mode}"])


def simulated(point: Point, known: dict[str, Any], cores: int) -> Result:
    """A step of the point."""
    layout = Layout(point.servers, point.trainers, cores, together=bool(point.variables))
    if not point.variables:
        mine = _job_of(point, known)
        layout = replace(layout, used=mine.used, loss=mine.loss)
    return simulate(costs_of(point, known), layout, Network(), sync=point.mode == "sync")


def predicted(point: Point, known: dict[str, Any], cores: int) -> Point:
    """The point as the simulation has it."""
    found = simulated(point, known, cores)
    return replace(point, seconds=found.seconds, server=found.server)


def message_seconds(found: dict[str, Any]) -> float:
    """Processor seconds of a synchronous server for a small message of a step of fourteen."""
    load = found["typical"]["costs"]["loads"]["sync"]
    return float(load["wake"] / 14 + load["message"])


@dataclass(frozen=True, slots=True)
class Compared:
    """One figure of a point: by medians over the rounds that count. ratios: predicted to measured, in each round by itself."""

    guess: float
    real: float
    ratios: tuple[float, ...]

    @property
    def error(self) -> float:
        """By how much of itself the figure is predicted wrong."""
        return self.guess / self.real - 1


def compared(found: dict[str, Any]) -> dict[Point, tuple[Compared, Compared | None]]:
    """Of each point the time of servers, and that of a step by the clock; None where no round was quiet."""
    rounds = [_pairs(each, found["cores"]) for each in found["rounds"]]
    figures: dict[Point, tuple[Compared, Compared | None]] = {}
    for key, (guess, real) in _pairs(found["typical"], found["cores"]).items():
        each = [of[key] for of in rounds]
        quiet = [pair for pair in each if pair[1].foreign <= QUIET]
        by_the_clock = _compared(guess, real, quiet, "seconds") if quiet else None
        figures[key] = _compared(guess, real, each, "server"), by_the_clock
    return figures


Pair = tuple[Point, Point]  # as predicted, and as measured


def _pairs(each: dict[str, Any], cores: int) -> dict[Point, Pair]:
    """The points of a round."""
    found = {}
    for values in each["points"]:
        real = Point(**values)
        found[replace(real, seconds=0.0, server=0.0, foreign=0.0)] = predicted(real, each["costs"], cores), real
    return found


def _compared(guess: Point, real: Point, rounds: Sequence[Pair], name: str) -> Compared:
    ratios = tuple(getattr(one, name) / getattr(other, name) for one, other in rounds)
    return Compared(getattr(guess, name), getattr(real, name), ratios)


def table(found: dict[str, Any]) -> str:
    """Each point as predicted and as measured."""
    head = "| job | servers | trainers | servers' time for a step, predicted | measured | | a step, predicted | measured | |"
    lines = [head, "|---|---|---|---|---|---|---|---|---|"]
    for point, figures in compared(found).items():
        name = f"{point.variables} small variables" if point.variables else point.name.replace("_", " ")
        cells = [f"{name}, {point.mode}", str(point.servers), f"{point.trainers:,}"]
        for figure in figures:
            cells += (
                ["–", "–", "–"] if figure is None else [time_of(figure.guess), time_of(figure.real), spread(figure)]
            )
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def spread(figure: Compared) -> str:
    """By how much a prediction is wrong, and in which rounds least and most."""
    low, high = min(figure.ratios) - 1, max(figure.ratios) - 1
    return f"{figure.error:+.0%}" + (f" ({low:+.0%} to {high:+.0%})" if len(figure.ratios) > 1 else "")


def time_of(seconds: float) -> str:
    return f"{1e6 * seconds:.0f} µs" if seconds < 1e-3 else f"{1e3 * seconds:.3g} ms"


def counted(found: dict[str, Any]) -> int:
    """How many figures count."""
    return sum(1 + (clock is not None) for _, clock in compared(found).values())


def faults(found: dict[str, Any]) -> list[str]:
    """The figures that count and are predicted wrong."""
    return [
        f"{point.name} {point.mode}, {point.servers} servers, {point.trainers} trainers: {what} {figure.error:+.0%}"
        for point, figures in compared(found).items()
        for what, figure in zip(("servers' time", "a step"), figures, strict=True)
        if figure is not None and abs(figure.error) > ALLOWED
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer and smaller points")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--runs", type=Path, help="a file for what was measured: a call goes on where the last one ended"
    )
    parser.add_argument(
        "--seconds", type=float, default=float("inf"), help="begin no further run after so many seconds"
    )
    parser.add_argument("--save", action="store_true", help="keep what was measured in scaling.json")
    given = parser.parse_args()
    found = measure(QUICK if given.quick else [*LOADS, *JOBS], given.rounds, Runs(given.runs, given.seconds))
    if found is None:
        print("there is more to measure: call this again with the same --runs")
        return 2
    print(table(found))
    if given.save:
        kept = json.loads(FILE.read_text())
        kept["simulated"] = found
        FILE.write_text(json.dumps(kept, indent=2) + "\n")
    wrong, count = faults(found), counted(found)
    print(
        "\n" + ("\n".join(wrong) or "every figure that counts is within 15 %") + f" ({count - len(wrong)} of {count})"
    )
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
