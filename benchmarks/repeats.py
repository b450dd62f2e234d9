"""How a worker repeats what it measures: by one executor, or by several at once. Runs on Python 3.7 too, beside Paddle."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor


def milliseconds(runs: Sequence[Callable[[], object]], count: int) -> list[float]:
    """Of each of `count` runs; of several executors, each in a thread: the time that all their runs take, by their number."""
    if len(runs) == 1:
        return [timed(runs[0]) for _ in range(count)]
    each = max(1, count // len(runs))
    with ThreadPoolExecutor(len(runs)) as threads:
        begin = time.perf_counter()
        list(threads.map(lambda run: [run() for _ in range(each)], runs))
        return [(time.perf_counter() - begin) * 1e3 / (each * len(runs))]


def timed(run: Callable[[], object]) -> float:
    """Milliseconds of one run."""
    begin = time.perf_counter()
    run()
    return (time.perf_counter() - begin) * 1e3
