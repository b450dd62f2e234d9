"""How long every operator, and every step of the native engine, takes: `profile(model, feed)`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from time import perf_counter
from typing import Any

from fluidtool.model import Model
from fluidtool.profiling.machine import Peak, measure_peak
from fluidtool.profiling.recorder import Event, Recorder
from fluidtool.profiling.work import Work
from fluidtool.runtime.engines.native.library import library as native_library


@dataclass(frozen=True, slots=True)
class Item:
    """An operator that ran by itself, or a kernel call of a region.

    seconds: the median of the runs, without what ran within it. reached: part of the machine's peak, in terms of what
    limits it, 'multiply-adds' or 'memory' (`limit`); None where nothing is counted.
    """

    name: str
    kernel: str
    engine: str
    region: int | None
    result: str
    shape: tuple[int, ...]
    times: int
    seconds: float
    share: float
    work: Work
    limit: str = ""
    reached: float | None = None

    @property
    def flops(self) -> float | None:
        """Multiplications and additions per second."""
        return 2 * self.work.multiply_adds / self.seconds if self.work.multiply_adds and self.seconds else None

    @property
    def bandwidth(self) -> float | None:
        """Bytes read and written per second."""
        return self.work.bytes / self.seconds if self.work.bytes and self.seconds else None


@dataclass(frozen=True, slots=True)
class Point:
    """Bytes that are alive (parameters do not count) while item number `item` ran, `seconds` after the run began."""

    item: int
    seconds: float
    bytes: int


@dataclass(frozen=True, slots=True)
class Profile:
    """What a profile found. `plain` and `watched`: seconds of each run without and with a look at every item."""

    items: tuple[Item, ...]
    memory: tuple[Point, ...]
    peak: Peak
    plain: tuple[float, ...]
    watched: tuple[float, ...]
    events: tuple[Event, ...]

    @property
    def most(self) -> Point | None:
        """Where the most memory is alive."""
        return max(self.memory, key=lambda point: point.bytes, default=None)


def profile(
    model: Model, feed: Mapping[str, Any], fetch: Sequence[str] | None = None, *, repeat: int = 10, warmup: int = 1
) -> Profile:
    """Run a model `warmup` times, `repeat` times as it is, and as often while every operator and step is timed.

    The machine's peak is measured before and after, which takes a tenth of a second. Raises what Model.run raises.
    """
    engine = model.executor.engine
    library = native_library() if engine is not None else None
    peak = measure_peak(library)
    for _ in range(warmup):
        model.run(feed, fetch)
    plain = []
    for _ in range(repeat):
        start = perf_counter()
        model.run(feed, fetch)
        plain.append(perf_counter() - start)
    recorders = []
    watched = []
    for left in reversed(range(repeat)):
        recorders.append(recorder := Recorder(feed, details=not left))
        start = perf_counter()
        model.run(feed, fetch, observer=recorder)
        watched.append(perf_counter() - start)
    peak = peak.better(measure_peak(library))  # another process may have been at work during one of the two
    last = recorders[-1]
    items = _items(recorders, peak)
    numbers = {key: number for number, key in enumerate(last.totals)}
    memory = tuple(Point(numbers[key], seconds, size) for key, seconds, size in last.memory)
    return Profile(items, memory, peak, tuple(plain), tuple(watched), tuple(last.events))


def _items(recorders: Sequence[Recorder], peak: Peak) -> tuple[Item, ...]:
    last = recorders[-1]
    seconds = {key: median([run.seconds[key] for run in recorders if key in run.seconds]) for key in last.totals}
    whole = sum(seconds.values()) or 1.0
    found = []
    for key, total in last.totals.items():
        own, work, what = seconds[key], total.work, total.what
        limit, reached = peak.reached(work, own, total.times)
        found.append(
            Item(
                what.name, what.kernel, what.engine, what.region, what.result, what.shape, total.times, own, own / whole,
                work, limit, reached,
            )
        )  # fmt: skip
    return tuple(found)


__all__ = ["Event", "Item", "Peak", "Point", "Profile", "Work", "measure_peak", "profile"]
