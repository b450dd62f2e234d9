"""First runs of a model by several threads at the same moment: each gives the bits of a run that nothing disturbs.

Threads take turns as often as Python allows. Some runs have another number of rows than
the others, so that specializations are compiled while others run; every fourth model is run once before, so that plans, but no
specializations, are there.
"""

from __future__ import annotations

import random
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from tests.fuzz._runs import Source, run, sources
from tests.fuzz.campaign import Budget, Finding

THREADS = 8
SWITCH = 1e-6  # seconds after which another thread has its turn


def search(budget: Budget) -> Iterator[Finding]:
    """A case is a model that eight threads run."""
    interval = sys.getswitchinterval()
    with sources() as found, ThreadPoolExecutor(THREADS) as pool:
        sys.setswitchinterval(SWITCH)
        try:
            for seed in budget.seeds():
                yield from first_runs(seed, random.Random(seed), found, pool)
        finally:
            sys.setswitchinterval(interval)


def first_runs(seed: int, choose: random.Random, found: list[Source], pool: ThreadPoolExecutor) -> Iterator[Finding]:
    """What goes wrong where threads run a model that was just loaded."""
    source = choose.choice(found)
    counts = [choose.choice((0, 1, 3, 3, 3, 3, 5)) for _ in range(THREADS)]
    cases = [source.case(count) for count in counts]
    model, start = source.load(), threading.Barrier(THREADS)
    if choose.random() < 0.25:
        run(model, source.case(2)[0])

    def work(number: int) -> str:
        value, want = cases[number]
        start.wait()
        return fault_of(lambda: run(model, value), want)

    faults = [fault for fault in pool.map(work, range(THREADS)) if fault]
    if model.scope.kids:
        faults.append(f"{len(model.scope.kids)} scopes of runs are left")
    if faults:
        yield Finding(f"seed {seed}, {source.name} on {source.engine}, {counts} rows", "; ".join(faults))


def fault_of(runs: Callable[[], np.ndarray], want: np.ndarray) -> str:
    """What is wrong with the result of a run; '' for nothing."""
    try:
        got = runs()
    except Exception as error:  # whatever it is, it is what was looked for
        return f"{type(error).__name__}: {error}"
    if got.shape != want.shape:
        return f"shape {got.shape}, not {want.shape}"
    return "" if np.array_equal(got, want) else f"other bits, {np.abs(got - want).max():.1e} apart"
