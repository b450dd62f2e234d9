"""Watchdog: ends a call that never returns, for engines whose calls cannot be interrupted."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

INTERVAL_SECONDS = 0.5


class Watchdog:
    """Calls `bark` with what is going on when that takes longer than `seconds`.

    A call pays for two assignments and an addition: only the watching thread looks at the clock.
    """

    def __init__(self, seconds: float, bark: Callable[[object], None]) -> None:
        self.seconds, self._bark = seconds, bark
        self._what: object = None
        self._calls = 0
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self, what: object) -> None:
        """Something begins."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._watch, daemon=True, name="collective watchdog")
            self._thread.start()
        self._calls += 1
        self._what = what

    def finish(self) -> None:
        """It has ended."""
        self._what = None

    def stop(self) -> None:
        """Watch no more."""
        self._stopped.set()

    def _watch(self) -> None:
        call, since = 0, 0.0
        while not self._stopped.wait(min(INTERVAL_SECONDS, self.seconds / 4)):
            what = self._what
            if what is None or self._calls != call:
                call, since = self._calls, time.monotonic()
            elif time.monotonic() - since > self.seconds:
                since = float("inf")
                self._bark(what)
