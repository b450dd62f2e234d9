"""Notes for a script on stderr, each once."""

from __future__ import annotations

import sys


class Notes:
    """Writes each note once."""

    def __init__(self) -> None:
        self._said: set[str] = set()

    def say(self, text: str) -> None:
        """Write one line to stderr, unless it was written before."""
        if text not in self._said:
            self._said.add(text)
            sys.stderr.write(f"note: {text}\n")
