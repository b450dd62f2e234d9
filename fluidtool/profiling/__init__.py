"""How long every operator, and every step of the native engine, takes: `profile(model, feed)`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean
from time import perf_counter
from typing import Any

from fluidtool.model import Model
from fluidtool.profiling.machine import Peak, measure_peak
from fluidtool.profiling.recorder import Event, Recorder
from fluidtool.profiling.work import Work
from fluidtool.records import dataclass
from fluidtool.runtime.engines.native.engine import NativeEngine
from fluidtool.runtime.engines.native.library import Library
from fluidtool.runtime.engines.native.library import library as native_library


@dataclass(frozen=True, slots=True)
class Item:
    """An operator that ran by itself, or a kernel call of a region.

    block, operator: its position in the program; of several operators in one kernel call, that of the last. seconds: the
    mean of the middle runs, without what ran within it; share: of their whole time. reached: part of the machine's peak,
    in terms of what limits it, 'multiply-adds' or 'memory' (`limit`); None where nothing is counted.
    """

    name: str
    kernel: str
    engine: str
    region: int | None
    block: int | None
    operator: int | None
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
    """What a profile found. `plain` and `watched`: seconds of each run without and with a look at every item.

    seconds: the mean of the middle half of the watched runs, of which `outside` passed outside all items. With these the
    items add up to it.
    """

    items: tuple[Item, ...]
    seconds: float
    outside: float
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
    """Run a model `warmup` times, `repeat` times as it is, as often while every operator and step is timed, and once more
    to see what each of them works on.

    The peak of the machine, or of the GPU, is measured before and after, which takes a tenth of a second. Raises what
    Model.run raises.
    """
    device = model.executor.device
    library = _library_to_measure_with(model)
    peak = measure_peak(library, device)
    for _ in range(warmup):
        model.run(feed, fetch)
    plain = []
    for _ in range(repeat):
        start = perf_counter()
        model.run(feed, fetch)
        device.wait()
        plain.append(perf_counter() - start)
    watched = []
    for _ in range(repeat):
        recorder = Recorder(feed, details=False)
        start = perf_counter()
        model.run(feed, fetch, observer=recorder)
        watched.append((perf_counter() - start, recorder))
    model.run(feed, fetch, observer=(last := Recorder(feed)))
    peak = peak.better(measure_peak(library, device))  # another process may have been at work during one of the two
    middle = _middle(watched)
    seconds = fmean(length for length, _ in middle)
    items = _items(last, [recorder for _, recorder in middle], seconds, peak)
    numbers = {key: number for number, key in enumerate(last.totals)}
    memory = tuple(Point(numbers[key], seconds, size) for key, seconds, size in last.memory)
    outside = max(seconds - sum(item.seconds for item in items), 0.0)
    lengths = tuple(length for length, _ in watched)
    return Profile(items, seconds, outside, memory, peak, tuple(plain), lengths, tuple(last.events))


def _library_to_measure_with(model: Model) -> Library | None:
    """The native engine's, which measures the machine for other engines too; None where the reference kernels run."""
    engine = model.executor.engine
    if isinstance(engine, NativeEngine):
        return engine.library
    return None if engine is None else native_library()


def _middle(runs: Sequence[tuple[float, Recorder]]) -> list[tuple[float, Recorder]]:
    """The runs without the fastest and the slowest quarter. A mean keeps sums as they are, which a median does not."""
    quarter = len(runs) // 4
    return sorted(runs, key=lambda run: run[0])[quarter : len(runs) - quarter]


def _items(last: Recorder, runs: Sequence[Recorder], whole: float, peak: Peak) -> tuple[Item, ...]:
    found = []
    for key, total in last.totals.items():
        own, work, what = fmean(run.seconds.get(key, 0.0) for run in runs), total.work, total.what
        limit, reached = peak.reached(work, own, total.times)
        found.append(
            Item(
                what.name, what.kernel, what.engine, what.region, what.block, what.operator, what.result, what.shape,
                total.times, own, own / whole, work, limit, reached,
            )
        )  # fmt: skip
    return tuple(found)


__all__ = ["Event", "Item", "Peak", "Point", "Profile", "Work", "measure_peak", "profile"]
