"""Processes that take turns at measuring, so that what else the machine does falls on all of them."""

from __future__ import annotations

import json
import os
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parent.parent
CLEAN = 0.15  # part of the processors that others may use while a burst counts


@dataclass(frozen=True)
class Engine:
    """A name, how its worker is started (without model and options), and whether its numbers are float32."""

    name: str
    command: tuple[str, ...]
    environment: tuple[tuple[str, str], ...] = ()
    single: bool = True

    def start(self, model: Path, batch: int, threads: int, *more: str) -> list[str]:
        return [*self.command, str(model), "--bs", str(batch), "--threads", str(threads), *more]

    def variables(self) -> dict[str, str]:
        return {**os.environ, "PYTHONPATH": str(ROOT), "GLOG_minloglevel": "3", **dict(self.environment)}


class Absent(Exception):
    """An engine that cannot run a model, and why."""


@dataclass
class Worker:
    """An engine with a model in a process of its own, stopped while others measure."""

    engine: Engine
    process: subprocess.Popen[str]
    facts: dict[str, object]
    runs: int = 3
    bursts: list[float] = field(default_factory=list)
    foreign: list[float] = field(default_factory=list)

    @classmethod
    def begin(cls, engine: Engine, model: Path, batch: int, threads: int) -> Worker:
        try:
            process = subprocess.Popen(
                engine.start(model, batch, threads),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                env=engine.variables(),
            )
        except OSError as error:
            raise Absent(str(error)) from error
        assert process.stdout is not None and process.stderr is not None
        line = process.stdout.readline()
        if not line:
            text = process.stderr.read().strip().splitlines()
            process.wait()
            raise Absent(text[-1] if text else f"exit code {process.returncode}")
        worker = cls(engine, process, json.loads(line))
        worker.pause()
        return worker

    def pause(self) -> None:
        self.process.send_signal(signal.SIGSTOP)

    def burst(self, seconds: float) -> float:
        """The median milliseconds of one burst of runs."""
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.send_signal(signal.SIGCONT)
        own, all_, start = cpu_of(self.process.pid), cpu_of_all(), time.perf_counter()
        self.process.stdin.write(f"{self.runs}\n")
        self.process.stdin.flush()
        times = json.loads(self.process.stdout.readline())
        elapsed = time.perf_counter() - start
        self.pause()
        others = (cpu_of_all() - all_) - (cpu_of(self.process.pid) - own)
        self.foreign.append(others / elapsed / (os.cpu_count() or 1))
        middle = statistics.median(times)
        self.bursts.append(middle)
        self.runs = max(3, min(400, int(seconds * 1e3 / middle)))
        return middle

    def end(self) -> None:
        self.process.send_signal(signal.SIGCONT)
        self.process.kill()
        self.process.communicate()


def take_turns(workers: Sequence[Worker], rounds: int, seconds: float) -> list[dict[str, float]]:
    """Rounds of bursts, each starting with another worker; a first one that does not count. Milliseconds by engine."""
    found = []
    for number in range(rounds + 1):
        shift = number % len(workers)
        found.append({w.engine.name: w.burst(seconds) for w in [*workers[shift:], *workers[:shift]]})
    for worker in workers:
        del worker.bursts[0], worker.foreign[0]
    return found[1:]


def cold(engine: Engine, model: Path, threads: int) -> tuple[float, float]:
    """(seconds of a whole process that runs the model once, its largest resident memory in MB)."""
    start = time.perf_counter()
    process = subprocess.Popen(
        engine.start(model, 1, threads, "--cold"),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=engine.variables(),
    )
    _, _, usage = os.wait4(process.pid, 0)
    process.returncode = 0
    scale = 1024 if sys.platform != "darwin" else 1024 * 1024
    return time.perf_counter() - start, usage.ru_maxrss / scale


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
