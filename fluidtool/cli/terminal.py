"""The watcher of the command line: bars and sentences on stderr."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from time import perf_counter

from fluidtool.cli.failures import say, say_detail
from fluidtool.cli.progress import progress
from fluidtool.cli.verbosity import LEVEL, QUIET


class Terminal:
    """Reports to the user on stderr."""

    @property
    def shows_progress(self) -> bool:
        """Whether stderr is a terminal."""
        return sys.stderr.isatty()

    def progress(self, title: str, total: int | None = None) -> AbstractContextManager[Callable[..., None]]:
        """A bar, once the work takes long; how long it took, for --verbose."""
        return nullcontext(_nothing) if LEVEL.get() == QUIET else _timed(title, total)

    def say(self, text: str) -> None:
        """One paragraph."""
        say(text)


@contextmanager
def _timed(title: str, total: int | None) -> Iterator[Callable[..., None]]:
    begun = perf_counter()
    with progress(title, total) as advance:
        yield advance
    say_detail(f"{title}: {perf_counter() - begun:.3f} s")


def _nothing(*_: str) -> None:
    """Progress that nobody sees."""


TERMINAL = Terminal()
