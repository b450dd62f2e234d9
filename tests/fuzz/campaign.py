"""What every target shares: a budget of time, a count of cases, and what counts as a finding."""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Finding:
    """One case that went wrong: `case` says how to repeat it, `fault` what happened."""

    case: str
    fault: str

    def __str__(self) -> str:
        return f"{self.case}: {self.fault}"


TELLING = 60  # seconds between two words on how far a target is


@dataclass
class Budget:
    """How long a target may search (in seconds), and with which random numbers; counts the cases.

    only: a pattern of the names of cases, for targets that name theirs (growth).
    """

    seconds: float
    seed: int
    only: str = "*"
    cases: int = 0
    started: float = field(default_factory=time.monotonic)

    def seeds(self) -> Iterator[int]:
        """A seed for each case until the time is up, the same ones for the same seed of the campaign; one at least."""
        numbers, told = random.Random(self.seed), self.started
        while not self.cases or time.monotonic() - self.started < self.seconds:
            self.cases += 1
            if time.monotonic() - told > TELLING:
                told = time.monotonic()
                print(f"{self.cases:,} cases in {told - self.started:.0f} s", file=sys.stderr, flush=True)
            yield numbers.getrandbits(48)
