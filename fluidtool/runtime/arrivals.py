"""When the inputs of a region in a loop came: which of them are worth a specialization."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import field
from typing import Any

from fluidtool.records import dataclass

EAGER = 8  # specializations that are compiled when their inputs come first
MOST_SEEN = 256  # signatures that are remembered


@dataclass(eq=False, slots=True)
class Arrivals:
    """Counts what comes. last: when each specialization was used last; seen: when every other signature came first.

    Shapes may change from step to step. If there were more of them than are kept, each would drive another one out, which the next
    run needs again, and all of them would be compiled in every run.
    """

    count: int = 0
    last: OrderedDict[Any, int] = field(default_factory=OrderedDict)
    seen: OrderedDict[Any, int] = field(default_factory=OrderedDict)

    def note(self, key: Any) -> None:
        """A specialization is used."""
        self.count += 1
        self.last[key] = self.count
        self.last.move_to_end(key)
        if len(self.last) > MOST_SEEN:
            self.last.popitem(last=False)

    def is_due(self, key: Any, kept: int, oldest: Any) -> bool:
        """Whether to compile for a signature: for the first few, and later for what comes again, if `oldest`, which would have to
        go, has not been used in between; None if there is room.
        """
        if kept < EAGER:
            return True
        first = self.seen.get(key)
        if first is not None and (oldest is None or self.last.get(oldest, 0) < first):
            del self.seen[key]
            return True
        self.count += 1
        self.seen.setdefault(key, self.count)
        if len(self.seen) > MOST_SEEN:
            self.seen.popitem(last=False)
        return False
