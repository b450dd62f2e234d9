"""Growth: every command and every step of building, on programs of up to 100,000 operators of each kind.

Sizes are doubled up to LARGEST. A finding is whatever takes more than LIMIT times the processor's time of half the size (of
those that take long enough to tell), or more than SECONDS, or more memory than MEMORY. The seed says where to begin.
"""

from __future__ import annotations

import os
import random
import resource
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.fuzz._growth import API, COMMANDS, commands_on, models_of
from tests.fuzz.campaign import Budget, Finding
from tests.support.counted_work import LIMIT, Work
from tests.support.large_programs import INFERENCE

SMALLEST, LARGEST = 12_500, 100_000
SECONDS, MEMORY = 60.0, 2 << 30
LONG_ENOUGH = 1.0  # seconds: what takes less says nothing
UNIT = 1 if sys.platform == "darwin" else 1024  # of ru_maxrss


def search(budget: Budget) -> Iterator[Finding]:
    """Follow one curve after the other, each size in a process of its own."""
    with TemporaryDirectory() as folder:
        found = curves(Path(folder))
        random.Random(budget.seed).shuffle(found)
        for (name, work_of, made_before), _ in zip(found, budget.seeds(), strict=False):
            yield from follow(name, work_of, made_before=made_before)


def curves(folder: Path) -> list[tuple[str, Callable[[int], Work], Callable[[int], Work]]]:
    """Everything that is measured: its name, the work, and what is made in a process of its own before it."""
    found = [
        (f"{name} of {kind}", commands_on(folder, kind, name), models_of(folder, kind))
        for kind in INFERENCE
        for name in COMMANDS
    ]
    return [*found, *((name, work_of, nothing) for name, work_of in API.items())]


def nothing(size: int) -> Work:
    """No work at all."""
    return lambda: None


def follow(
    name: str,
    work_of: Callable[[int], Work],
    smallest: int = SMALLEST,
    largest: int = LARGEST,
    made_before: Callable[[int], Work] = nothing,
) -> Iterator[Finding]:
    """Double the size until it is the largest, or something is found."""
    before, size = 0.0, smallest
    while size <= largest:
        case = f"{name}, size {size:,}"
        apart(made_before, size)
        seconds, memory, fault = apart(work_of, size)
        if fault:
            yield Finding(case, fault)
        elif before > LONG_ENOUGH and seconds > LIMIT * before:
            yield Finding(case, f"takes {seconds:.1f} s, half of it {before:.1f} s")
        elif seconds > SECONDS:
            yield Finding(case, f"takes {seconds:.1f} s, more than {SECONDS:.0f}")
        elif memory > MEMORY:
            yield Finding(case, f"takes {memory / 2**30:.1f} GiB, more than {MEMORY / 2**30:.0f}")
        else:
            before, size = seconds, 2 * size
            continue
        return


def apart(work_of: Callable[[int], Work], size: int) -> tuple[float, int, str]:
    """Do the work in a child: the seconds of the processor that it takes, the most memory in bytes, and what went wrong."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        status = 1
        try:
            work = work_of(size)
            sys.stdout = open(os.devnull, "w")  # noqa: SIM115
            limit = int(2 * SECONDS + time.process_time())
            resource.setrlimit(resource.RLIMIT_CPU, (limit, limit))
            start = time.process_time()
            work()
            os.write(writing, f"{time.process_time() - start}".encode())
            status = 0
        except BaseException as error:
            os.write(writing, f"{type(error).__name__}: {error}"[:500].encode())
        os._exit(status)
    os.close(writing)
    with os.fdopen(reading, "rb") as answer:
        text = answer.read().decode(errors="replace")
    _, status, usage = os.wait4(child, 0)
    if status:
        return 0.0, 0, text or f"ended with status {status}, after at most {2 * SECONDS:.0f} s"
    return float(text), usage.ru_maxrss * UNIT, ""
