"""Processes that take turns at measuring, so that what else the machine does falls on all of them.

A worker prints a line of JSON with fields about itself when it is ready; then, for every number on its standard input, it runs
so often and prints the milliseconds of each run as JSON. Lines that are not JSON - Paddle greets - are passed over.
"""

from __future__ import annotations

import json
import os
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import fluidtool

ROOT = Path(__file__).parent.parent
LEAST, MOST = 3, 400  # runs in a burst
LONG = 1000.0  # milliseconds of a run that may be alone in a burst
ERROR = re.compile(r"[\w.]*(Error|Exception|Exit)\b")  # how the message of an exception begins
SELDOM = 3  # a rare engine takes part in each so many-th round


def import_path() -> str:
    """PYTHONPATH of a process that imports the same fluidtool as this one, and the benchmarks."""
    return os.pathsep.join(str(folder) for folder in (Path(fluidtool.__file__).resolve().parents[1], ROOT))


@dataclass(frozen=True)
class Engine:
    """How a worker is started (before the arguments that say what it runs), and what its numbers are."""

    name: str
    command: tuple[str, ...]
    environment: tuple[tuple[str, str], ...] = ()
    precision: str = "float32"
    rare: bool = False  # slow, and nobody's rival: measured in some of the rounds only

    def variables(self) -> dict[str, str]:
        ours = {"PYTHONPATH": import_path()} if self.command[0] == sys.executable else {}
        return {**os.environ, "GLOG_minloglevel": "3", **ours, **dict(self.environment)}


@dataclass(frozen=True)
class Usage:
    """What a process and the whole machine had computed at a moment."""

    process: int
    own: float
    all: float
    moment: float

    @classmethod
    def now(cls, process: int | None = None) -> Usage:
        """Of a process; without one, of this one."""
        process = os.getpid() if process is None else process
        return cls(process, cpu_of(process), cpu_of_all(), time.perf_counter())

    def foreign(self) -> float:
        """The part of the processors that other processes have used since."""
        since = Usage.now(self.process)
        others = (since.all - self.all) - (since.own - self.own)
        return max(0.0, others / (since.moment - self.moment) / (os.cpu_count() or 1))


class Absent(Exception):
    """An engine that cannot run a model, and why."""


@dataclass
class Worker:
    """An engine at work in a process of its own, stopped while others measure. Bursts are in milliseconds of a run."""

    engine: Engine
    process: subprocess.Popen[str]
    fields: dict[str, Any]
    complaints: IO[str]
    runs: int = LEAST
    bursts: list[float] = field(default_factory=list)
    foreign: list[float] = field(default_factory=list)
    lost: str = ""  # why it has ended before its time

    @classmethod
    def begin(cls, engine: Engine, *arguments: str) -> Worker:
        """Start it and wait until it is ready; raises Absent where it cannot."""
        complaints = tempfile.TemporaryFile("w+", errors="replace")  # noqa: SIM115 - closed by end()
        try:
            process = subprocess.Popen(
                [*engine.command, *arguments],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=complaints,
                text=True,
                env=engine.variables(),
            )
        except OSError as error:
            raise Absent(str(error)) from error
        worker = cls(engine, process, {}, complaints)
        worker.fields = worker.heard()
        worker.pause()
        return worker

    def heard(self) -> Any:
        """The next JSON that the worker prints; raises Absent with its last words when it ends instead."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.startswith(("{", "[")):
                return json.loads(line)
        self.process.wait()
        self.complaints.seek(0)
        said = self.complaints.read().strip().splitlines()
        errors = [line for line in said if ERROR.match(line)]  # what follows its first line may be advice
        raise Absent((errors or said or [f"exit code {self.process.returncode}"])[-1])

    def pause(self) -> None:
        self.process.send_signal(signal.SIGSTOP)

    def burst(self, seconds: float) -> float:
        """The median milliseconds of one burst of runs; the next one is to take so many seconds."""
        assert self.process.stdin is not None
        self.process.send_signal(signal.SIGCONT)
        used = Usage.now(self.process.pid)
        try:
            self.process.stdin.write(f"{self.runs}\n")
            self.process.stdin.flush()
        except BrokenPipeError as error:
            raise Absent(f"ended after {len(self.bursts)} bursts") from error
        times = self.heard()
        self.foreign.append(used.foreign())
        self.pause()
        middle = statistics.median(times)
        self.bursts.append(middle)
        self.runs = 1 if middle > LONG else max(LEAST, min(MOST, int(seconds * 1e3 / middle)))
        return middle

    def end(self) -> None:
        self.process.send_signal(signal.SIGCONT)
        self.process.kill()
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout, self.complaints):
            with suppress(BrokenPipeError):
                stream.close()  # type: ignore[union-attr]


def take_turns(workers: Sequence[Worker], rounds: int, seconds: float) -> list[dict[str, float]]:
    """Rounds of bursts, each starting with another worker; a first one that does not count. Milliseconds by engine.

    A worker that ends meanwhile is left out from then on, and `lost`.
    """
    found = []
    for number in range(rounds + 1):
        shift = number % len(workers)
        times = {}
        for worker in [*workers[shift:], *workers[:shift]]:
            if worker.lost or (worker.engine.rare and number % SELDOM != 1):
                continue
            try:
                times[worker.engine.name] = worker.burst(seconds)
            except Absent as error:
                worker.lost = str(error)
        found.append(times)
        if number == 0:
            for worker in workers:
                worker.bursts.clear()
                worker.foreign.clear()
    return found[1:]


def median_ratio(rounds: Sequence[dict[str, float]], name: str, others: Sequence[str]) -> float | None:
    """The median, over the rounds, of an engine's time to the least time of others in the same round; None without."""
    ratios = [
        each[name] / min(rivals)
        for each in rounds
        if name in each and (rivals := [each[other] for other in others if other in each])
    ]
    return statistics.median(ratios) if ratios else None


def cold(engine: Engine, *arguments: str) -> tuple[float, float] | None:
    """(seconds of a whole process, the most memory in MB that it says it had); None where it fails."""
    start = time.perf_counter()
    done = subprocess.run(
        [*engine.command, *arguments], capture_output=True, text=True, env=engine.variables(), check=False
    )
    seconds = time.perf_counter() - start
    found = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    return (seconds, found[-1]["rss_peak_mb"]) if found and not done.returncode else None


def cpu_of(process: int) -> float:
    """Seconds of processor time; 0 where the system does not say."""
    try:
        fields = Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def cpu_of_all() -> float:
    """Seconds that all processors worked; 0 where the system does not say."""
    try:
        fields = [int(text) for text in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]]
    except OSError:
        return 0.0
    return (sum(fields[:3]) + sum(fields[5:8])) / os.sysconf("SC_CLK_TCK")
