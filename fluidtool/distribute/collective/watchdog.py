"""Watchdog: ends a call that never returns, for engines whose calls cannot be interrupted."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

INTERVAL_SECONDS = 0.5


class Watchdog:
    """Calls `bark` with what is going on when that takes longer than `seconds`. Watching costs next to nothing."""

    def __init__(self, seconds: float, bark: Callable[[object], None]) -> None:
        self.seconds, self._bark = seconds, bark
        self._what: object = None
        self._end = 0.0
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self, what: object) -> None:
        """Something begins."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._watch, daemon=True, name="collective watchdog")
            self._thread.start()
        self._what, self._end = what, time.monotonic() + self.seconds

    def finish(self) -> None:
        """It has ended."""
        self._end = 0.0

    def stop(self) -> None:
        """Watch no more."""
        self._stopped.set()

    def _watch(self) -> None:
        while not self._stopped.wait(min(INTERVAL_SECONDS, self.seconds)):
            end = self._end
            if end and time.monotonic() > end:
                self._end = 0.0
                self._bark(self._what)
