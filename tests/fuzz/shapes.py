"""Runs with changing numbers of rows, by threads that share models: right results, and memory that does not grow without end.

Under ThreadSanitizer: `python -m tests.runtime.native.sanitize thread tests.fuzz shapes --minutes N`.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

from fluidtool.model import Model
from fluidtool.runtime import specialization
from tests.fuzz._runs import Source, run, sources
from tests.fuzz.campaign import Budget, Finding

THREADS = 4
RUNS = 100  # of a case, by all threads together
MOST_ROWS = 60
LARGE = 20_000  # rows of one run in so many cases that its specialization outweighs the room of the others
HOW_RARELY = 100
TOLERANCE = 1e-5
WARM = 40  # cases until memory may not grow any more
SHADOW = 10 if "TSAN_OPTIONS" in os.environ else 1  # bytes that ThreadSanitizer keeps for each, at most
GROWTH = SHADOW * 2 * specialization.ROOM  # bytes that a process may take more than when it was warm
STATUS = Path("/proc/self/statm")


def search(budget: Budget) -> Iterator[Finding]:
    """A case is a hundred runs, each of another size; sizes come again in later cases."""
    warm = 0
    with sources(engines=("native",)) as found, ThreadPoolExecutor(THREADS) as pool:
        models = [source.load() for source in found]
        tables = [Table(source) for source in found]
        for number, seed in enumerate(budget.seeds()):
            choose = random.Random(seed)
            which = choose.randrange(len(found))
            counts = [choose.randint(0, MOST_ROWS) for _ in range(RUNS)]
            if choose.randrange(HOW_RARELY) == 0:
                counts[0] = LARGE
            faults = set(filter(None, pool.map(lambda count: tables[which].fault(models[which], count), counts)))  # noqa: B023
            grown = resident() - warm
            if number == WARM:
                warm = resident()
            elif warm and grown > GROWTH:
                faults.add(f"the process has grown by {grown >> 20} MiB since case {WARM}")
                warm = resident()
            if faults:
                yield Finding(f"seed {seed}, {found[which].name}", "; ".join(sorted(faults)))


class Table:
    """Rows for a network with the result of each, as one run computed them: the first ones are a feed of any size."""

    def __init__(self, source: Source) -> None:
        self.value, self.want = source.case(MOST_ROWS)

    def fault(self, model: Model, count: int) -> str:
        """What is wrong with a run of so many rows, or ''."""
        repeated = -(-count // MOST_ROWS) if count else 1
        try:
            got = run(model, first(self.value, count))
        except Exception as error:  # whatever it is, it is what was looked for
            return f"{count} rows: {type(error).__name__}: {error}"
        want = np.concatenate([self.want] * repeated)[:count]
        if got.shape != want.shape:
            return f"{count} rows give the shape {got.shape}"
        apart = float(np.abs(got - want).max(initial=0))
        return "" if apart <= TOLERANCE else f"{count} rows are {apart:.1e} apart"


def first(value: object, count: int) -> object:
    """The first rows or sequences of a feed, from the beginning again where it has fewer."""
    from fluidtool.tensor import LoDTensor

    if not isinstance(value, LoDTensor):
        assert isinstance(value, np.ndarray)
        return np.concatenate([value] * max(-(-count // len(value)), 1))[:count]
    (offsets,) = value.lod()
    lengths = np.resize(np.diff(offsets), count)
    ends = [0, *np.cumsum(lengths).tolist()]
    ids = np.concatenate([value.numpy()] * max(-(-count // MOST_ROWS), 1))[: ends[-1]]
    return LoDTensor(ids, [ends])


def resident() -> int:
    """Bytes of memory that this process has; 0 where the system does not say."""
    return int(STATUS.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") if STATUS.exists() else 0
