"""The watcher of the command line: bars and sentences on stderr."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import AbstractContextManager

from fluidtool.cli.failures import say
from fluidtool.cli.progress import progress


class Terminal:
    """Reports to the user on stderr."""

    @property
    def shows_progress(self) -> bool:
        """Whether stderr is a terminal."""
        return sys.stderr.isatty()

    def progress(self, title: str, total: int | None = None) -> AbstractContextManager[Callable[..., None]]:
        """A bar, once the work takes long."""
        return progress(title, total)

    def say(self, text: str) -> None:
        """One paragraph."""
        say(text)


TERMINAL = Terminal()
