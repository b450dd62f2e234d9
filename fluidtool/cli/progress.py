"""Progress on stderr, for whatever takes longer than two seconds, where somebody looks at a terminal."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Lock, Timer
from typing import Any, TextIO

DELAY = 2.0


class _Bar:
    """A bar of rich that appears late and counts from the start."""

    def __init__(self, title: str, total: int | None, stream: TextIO) -> None:
        self.title, self.total, self.stream = title, total, stream
        self.done = 0
        self.lock = Lock()
        self.closed = False
        self.shown: Any = None
        self.task: Any = None

    def appear(self) -> None:
        """Draw the bar; nothing happens when the work is over by now."""
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

        with self.lock:
            if self.closed:
                return
            count = [MofNCompleteColumn()] if self.total is not None else []
            columns = (TextColumn("{task.description}"), BarColumn(), *count, TimeElapsedColumn())
            self.shown = Progress(*columns, console=Console(file=self.stream), transient=True)
            self.task = self.shown.add_task(self.title, total=self.total, completed=self.done)
            self.shown.tasks[0].start_time -= DELAY
            self.shown.start()

    def advance(self, note: str = "") -> None:
        """One more is done; `note` is shown beside the title."""
        self.done += 1
        if self.shown is not None:
            self.shown.update(self.task, completed=self.done, description=f"{self.title}  {note}".rstrip())

    def close(self) -> None:
        """Take the bar away."""
        with self.lock:
            self.closed = True
            if self.shown is not None:
                self.shown.stop()


@contextmanager
def progress(title: str, total: int | None = None, *, stream: TextIO | None = None) -> Iterator[Callable[..., None]]:
    """Within the block, call what this gives after each of `total` pieces of work (None: nobody knows how many).

    It takes a text to show beside the title.
    """
    bar = _Bar(title, total, sys.stderr if stream is None else stream)
    if not bar.stream.isatty():
        yield bar.advance
        return
    timer = Timer(DELAY, bar.appear)
    timer.daemon = True
    timer.start()
    try:
        yield bar.advance
    finally:
        timer.cancel()
        bar.close()
