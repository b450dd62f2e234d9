"""What a program asks of the GPU, counted: kernel launches, waits for the device, copies between it and the host."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

KINDS = ("launches", "synchronizations", "copies to the host", "copies to the device", "atomic additions")


@dataclass(eq=False)
class Events:
    """Counts by kind; any thread may add to them."""

    counts: Counter[str] = field(default_factory=Counter)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def note(self, kind: str, number: int = 1) -> None:
        """Add to a kind."""
        with self.lock:
            self.counts[kind] += number

    @contextmanager
    def counted(self) -> Iterator[Counter[str]]:
        """The counts of the block, complete at its end."""
        before, found = self.counts.copy(), Counter[str]()
        yield found
        found.update(self.counts - before)


EVENTS = Events()


def launch() -> None:
    """A kernel is launched."""
    EVENTS.note("launches")


def synchronize() -> None:
    """The host waits for the device."""
    EVENTS.note("synchronizations")


def to_host() -> None:
    """An array is copied to the host, which waits for it."""
    EVENTS.note("copies to the host")


def to_device() -> None:
    """Memory of the host is copied to the device."""
    EVENTS.note("copies to the device")


def atomics() -> None:
    """A kernel adds floating point numbers atomically, in an order, and with a rounding, that differ from run to run."""
    EVENTS.note("atomic additions")
