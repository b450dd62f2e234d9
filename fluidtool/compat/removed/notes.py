"""What a script is told on stderr, each thing once."""

from __future__ import annotations

import sys


class Notes:
    """Says each thing once."""

    def __init__(self) -> None:
        self._said: set[str] = set()

    def say(self, text: str) -> None:
        """One line on stderr, unless it has been said."""
        if text not in self._said:
            self._said.add(text)
            sys.stderr.write(f"note: {text}\n")
