"""How long operators take: an observer that measures every step, and a table of the results."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable

from fluidtool import locks
from fluidtool.records import dataclass
from fluidtool.runtime.step import BoundStep


@dataclass(frozen=True, slots=True)
class Event:
    """One run of one operator: milliseconds since the profile began, in which block and on which thread."""

    name: str
    block: int
    thread: int
    start: float
    end: float

    @property
    def length(self) -> float:
        """Milliseconds."""
        return self.end - self.start


@dataclass(frozen=True, slots=True)
class Row:
    """The times of all runs of an operator on a thread, in milliseconds. `ended`: when the first one ended."""

    name: str
    calls: int
    total: float
    minimum: float
    maximum: float
    ended: float

    @property
    def average(self) -> float:
        """Milliseconds per run."""
        return self.total / self.calls


SORTING: dict[str, tuple[str, Callable[[Row], float]]] = {
    "default": ("event first end time", lambda row: row.ended),
    "calls": ("number of calls", lambda row: -row.calls),
    "total": ("total time", lambda row: -row.total),
    "max": ("maximum time", lambda row: -row.maximum),
    "min": ("minimum time", lambda row: -row.minimum),
    "ave": ("average time", lambda row: -row.average),
}


class Profile:
    """Collects events of all threads; pass `observe` to a run. An operator's time includes that of its sub-blocks.

    wait: let the device finish every operator before its time is taken.
    """

    def __init__(self, wait: bool = False) -> None:
        self.wait = wait
        self.events: list[Event] = []
        self._threads: dict[int, int] = {}
        self._lock = locks.lock()
        self._origin, self._began = time.perf_counter(), time.time_ns()

    def reset(self) -> None:
        """Forget the events so far."""
        with self._lock:
            self.events.clear()

    def observe(self, step: BoundStep, block: int) -> None:
        """Run a step and record its time."""
        start = time.perf_counter()
        step.run()
        if self.wait:
            step.context.runtime.device.wait()
        end = time.perf_counter()
        with self._lock:
            thread = self._threads.setdefault(threading.get_ident(), len(self._threads))
            self.events.append(
                Event(step.context.op.type, block, thread, (start - self._origin) * 1e3, (end - self._origin) * 1e3)
            )

    def rows(self) -> list[Row]:
        """A row per operator and thread, in the order in which they first ended."""
        found: dict[str, list[Event]] = {}
        for event in self.events:
            found.setdefault(f"thread{event.thread}::{event.name}", []).append(event)
        return [_row(name, events) for name, events in found.items()]

    def message(self) -> bytes:
        """The events as a message of proto/profiler.proto: Paddle's tools/timeline.py makes a Chrome trace of it."""
        from fluidtool.proto import profiler_pb2 as messages

        found = messages.Profile(start_ns=self._began, end_ns=time.time_ns())
        for event in self.events:
            start, end = (self._began + int(moment * 1e6) for moment in (event.start, event.end))
            found.events.add(
                type=messages.Event.CPU,
                name=event.name,
                start_ns=start,
                end_ns=end,
                device_id=event.block,
                sub_device_id=event.thread,
            )
        return found.SerializeToString()


def _row(name: str, events: Iterable[Event]) -> Row:
    lengths = [event.length for event in events]
    return Row(name, len(lengths), sum(lengths), min(lengths), max(lengths), min(event.end for event in events))


def report(rows: Iterable[Row], place: str, sorted_key: str) -> str:
    """The table that Paddle 1.8.5 prints (profiler_helper.h), times in milliseconds."""
    title, key = SORTING[sorted_key]
    rows = sorted(rows, key=key)
    total = sum(row.total for row in rows)
    order = "" if sorted_key == "default" else " in descending order"
    lines = [
        "",
        "------------------------->     Profiling Report     <-------------------------",
        "",
        f"Place: {place}",
        "Time unit: ms",
        f"Sorted by {title}{order} in the same thread",
        "",
        f"Total time: {total:.6g}",
        "",
        "-------------------------       Event Summary       -------------------------",
        "",
    ]
    width = max([32, *(len(row.name) + 4 for row in rows)])
    heads = ("Calls", "Total", "Min.", "Max.", "Ave.", "Ratio.")
    lines.append("Event".ljust(width) + "".join(head.ljust(12) for head in heads))
    for row in rows:
        times = (row.total, row.minimum, row.maximum, row.average, row.total / total if total else 0.0)
        lines.append(row.name.ljust(width) + str(row.calls).ljust(12) + "".join(f"{t:.6g}".ljust(12) for t in times))
    return "\n".join(lines) + "\n"
