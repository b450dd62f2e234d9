"""Who hears of a workflow while it goes on: nobody by default, a terminal in the command line."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Protocol

Advance = Callable[..., None]


class Watcher(Protocol):
    """Hears what is worth telling."""

    @property
    def shows_progress(self) -> bool:
        """Whether it is worth counting what is done."""

    def progress(self, title: str, total: int | None = None) -> AbstractContextManager[Advance]:
        """Around what may take long; what this gives is called after each of `total` pieces of work."""

    def say(self, text: str) -> None:
        """A sentence for the user."""


class Silent:
    """Hears nothing."""

    shows_progress = False

    def progress(self, title: str, total: int | None = None) -> AbstractContextManager[Advance]:
        """Nothing is shown."""
        return nullcontext(_ignore)

    def say(self, text: str) -> None:
        """Nothing is said."""


def _ignore(*_: Any) -> None: ...


SILENT = Silent()
