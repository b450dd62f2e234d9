"""How fast each processor is while something runs: `with paced() as pace: …`, then `pace.during(begin, end)`.

A rented processor has less than 0.6 of its speed for seconds at a time, each one by itself, and nothing on this machine tells so.
So on each of them a process does the same small work every 20 ms, which takes 2 % of it, and notes how long that takes. Figures of
different moments can be compared once each is divided by that.

What a processor does in a time is in proportion to its speed, not to the seconds of the small work: a mean of it is one of speeds.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from statistics import harmonic_mean

EVERY = 0.02
WORK = 5_000  # about 0.4 ms


def sample() -> float:
    """Processor seconds of the small work."""
    begin = time.process_time()
    total, kept = 0, dict.fromkeys(range(256), 0)
    for number in range(WORK):
        kept[number & 255] = number
        total += kept[number & 127]
    return time.process_time() - begin


def watch(processor: int) -> None:
    """Sample on one processor until stdin ends; prints moments and seconds."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {processor})
    over = threading.Event()

    def read() -> None:
        sys.stdin.read()
        over.set()

    threading.Thread(target=read, daemon=True).start()
    found = []
    while not over.wait(EVERY):
        found.append((time.monotonic(), sample()))
    print("\n".join(f"{moment} {seconds}" for moment, seconds in found))


class Pace:
    """samples: of each processor the moments (of `time.monotonic`) and the seconds of the small work then."""

    def __init__(self) -> None:
        self.samples: list[list[tuple[float, float]]] = []

    def during(self, begin: float, end: float, processor: int | None = None) -> float:
        """Seconds of the small work between two moments, by the mean speed of one processor, by its place, or of all."""
        chosen = self.samples if processor is None else [self.samples[processor]]
        return harmonic_mean([seconds for of in chosen for moment, seconds in of if begin <= moment <= end])


def processors() -> list[int]:
    """Those that this process may use."""
    return sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else [0]


@contextmanager
def paced() -> Iterator[Pace]:
    """Watch every processor meanwhile."""
    pace = Pace()
    started = [
        subprocess.Popen(
            [sys.executable, "-m", "benchmarks.pace", str(processor)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for processor in processors()
    ]
    try:
        yield pace
    finally:
        said = [each.communicate()[0] for each in started]
    for text in said:
        pairs = [line.split() for line in text.splitlines()]
        pace.samples.append([(float(moment), float(seconds)) for moment, seconds in pairs])


if __name__ == "__main__":
    watch(int(sys.argv[1]))
