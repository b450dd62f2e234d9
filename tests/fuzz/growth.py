"""Growth: every command and every step of building, on programs of 100,000 operators of each kind.

Prints a row for each: how many times the lines for twice the program (counted at COUNTED operators, see
tests/support/counted_work.py), and the processor's time and the most memory at half of LARGEST and at LARGEST. A finding is
whatever more than LIMIT times as much for twice the program, or more than SECONDS or MEMORY. Time is compared because
lines of C are not counted, and measured again before it is a finding. The seed says where to begin.
"""

from __future__ import annotations

import os
import random
import resource
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.fuzz._growth import API, KINDS, commands_on, models_of
from tests.fuzz.campaign import Budget, Finding
from tests.support.counted_work import LIMIT, Work, lines

SMALLEST, COUNTED, LARGEST = 64, 3_000, 100_000
SECONDS, MEMORY = 60.0, 2 << 30
ROOM = 2 * MEMORY  # address space, so that what is much too large does not take the machine's memory
LONG_ENOUGH, LARGE_ENOUGH = 1.0, 64 << 20  # seconds and bytes: less says nothing
UNIT = 1 if sys.platform == "darwin" else 1024  # of ru_maxrss
TITLE = f"{'':45} lines  seconds at {LARGEST // 2:,} and {LARGEST:,}  MiB at both"


def nothing(size: int) -> Work:
    """No work at all."""
    return lambda: None


@dataclass(frozen=True, slots=True)
class Curve:
    """What is measured by its size, and what is made before it in a process of its own."""

    name: str
    work_of: Callable[[int], Work]
    made_before: Callable[[int], Work] = nothing


@dataclass(frozen=True, slots=True)
class Cost:
    """What work took: lines or seconds, and the most memory of its process in bytes; or what went wrong."""

    amount: float = 0.0
    memory: int = 0
    fault: str = ""


@dataclass(frozen=True, slots=True)
class Growth:
    """A curve: lines for a very small program, COUNTED operators and twice as many; costs of a very small one, half and all."""

    counts: tuple[Cost, ...]
    costs: tuple[Cost, ...]

    @property
    def times_the_lines(self) -> float:
        """How many times the lines twice the program takes."""
        return _times([count.amount for count in self.counts])

    @property
    def times_the_seconds(self) -> float:
        """How many times the processor's time, where it takes long enough to tell."""
        _, half, _ = amounts = [cost.amount for cost in self.costs]
        return _times(amounts) if half > LONG_ENOUGH else 0.0

    @property
    def times_the_memory(self) -> float:
        """How many times the memory, where it is large enough to tell."""
        least, half, _ = memory = [float(cost.memory) for cost in self.costs]
        return _times(memory) if half - least > LARGE_ENOUGH else 0.0

    def faults(self) -> Iterator[str]:
        """What is wrong with it."""
        if broken := next((cost.fault for cost in (*self.counts, *self.costs) if cost.fault), ""):
            yield broken
            return
        _, half, all_ = self.costs
        if self.times_the_lines > LIMIT:
            yield f"takes {self.times_the_lines:.1f} times the lines for twice the program"
        if self.times_the_seconds > LIMIT:
            yield f"takes {all_.amount:.1f} s, half of it {half.amount:.1f} s"
        if self.times_the_memory > LIMIT:
            yield f"takes {all_.memory >> 20:,} MiB, half of it {half.memory >> 20:,} MiB"
        if all_.amount > SECONDS:
            yield f"takes {all_.amount:.1f} s, more than {SECONDS:.0f}"
        if all_.memory > MEMORY:
            yield f"takes {all_.memory >> 20:,} MiB, more than {MEMORY >> 20:,}"

    def row(self, name: str) -> str:
        """The line of the table."""
        _, half, all_ = self.costs
        seconds = f"{half.amount:8.1f} {all_.amount:8.1f}"
        return f"{name:45} {self.times_the_lines:5.2f}  {seconds} {half.memory >> 20:15,} {all_.memory >> 20:7,}"


def _times(amounts: list[float]) -> float:
    least, once, twice = amounts
    return (twice - least) / (once - least) if once > least else 0.0


def search(budget: Budget) -> Iterator[Finding]:
    """Follow one curve after the other."""
    print(TITLE, flush=True)
    with TemporaryDirectory() as folder:
        found = [curve for curve in curves(Path(folder)) if fnmatch(curve.name, budget.only)]
        random.Random(budget.seed).shuffle(found)
        for curve, _ in zip(found, budget.seeds(), strict=False):
            growth = measured(curve)
            print(growth.row(curve.name), flush=True)
            yield from (Finding(curve.name, fault) for fault in growth.faults())


def curves(folder: Path) -> list[Curve]:
    """Everything that is measured."""
    found = [
        Curve(f"{name} of {kind.name}", commands_on(folder, kind.name, name), models_of(folder, kind.name))
        for kind in KINDS.values()
        for name in kind.commands
    ]
    return [*found, *(Curve(name, work_of) for name, work_of in API.items())]


def measured(curve: Curve, counted: int = COUNTED, largest: int = LARGEST) -> Growth:
    """Measure a curve, each size in a process of its own."""
    counts = tuple(apart(curve, size, lines) for size in (SMALLEST, counted, 2 * counted - SMALLEST))
    costs = [apart(curve, size) for size in (SMALLEST, largest // 2, largest)]
    if Growth(counts, tuple(costs)).times_the_seconds > LIMIT:
        costs[-1] = min(costs[-1], apart(curve, largest), key=lambda cost: (cost.fault, cost.amount))
    return Growth(counts, tuple(costs))


def processor_seconds(work: Work) -> float:
    """The processor's time that work takes."""
    start = time.process_time()
    work()
    return time.process_time() - start


def apart(curve: Curve, size: int, measure: Callable[[Work], float] = processor_seconds) -> Cost:
    """Measure the work in a child, once what it needs was made in another."""
    made = _in_a_child(lambda: (curve.made_before(size)(), 0.0)[1])
    return made if made.fault else _in_a_child(lambda: measure(_limited(curve.work_of(size))))


def _limited(work: Work) -> Work:
    """The same work, which is stopped when it takes much too long."""

    def limited() -> None:
        limit = int(4 * SECONDS + time.process_time())
        resource.setrlimit(resource.RLIMIT_CPU, (limit, limit))
        work()

    return limited


def _in_a_child(measure: Callable[[], float]) -> Cost:
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        status = 1
        try:
            resource.setrlimit(resource.RLIMIT_AS, (ROOM, ROOM))
            sys.stdout = open(os.devnull, "w")  # noqa: SIM115
            os.write(writing, f"{measure()}".encode())
            status = 0
        except BaseException as error:
            os.write(writing, f"{type(error).__name__}: {error}"[:500].encode())
        os._exit(status)
    os.close(writing)
    with os.fdopen(reading, "rb") as answer:
        text = answer.read().decode(errors="replace")
    _, status, usage = os.wait4(child, 0)
    if status:
        return Cost(fault=text or f"ended with status {status}, after at most {4 * SECONDS:.0f} s")
    return Cost(float(text), usage.ru_maxrss * UNIT)
