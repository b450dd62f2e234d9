"""Stragglers: trainers that come to the barrier of a round much later than the others. It has no clock of its own."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import field
from statistics import median

from fluidtool.distribute.launch.contract import STRAGGLERS
from fluidtool.distribute.launch.progress import Note
from fluidtool.distribute.pserver.attendance import Tell
from fluidtool.errors import UsageError
from fluidtool.records import dataclass

LEAST = 0.5  # seconds after the opening of a round before which nobody is late
LEAST_AT_FIRST = 5.0  # for a trainer in its first round, in which it has to get ready
FACTOR = 2.0
MOST_ROUNDS = 64  # that one who is left out again and again stays away
NEVER = float("inf")


@dataclass(frozen=True, slots=True)
class StragglerPolicy:
    """A trainer is late that takes more than `factor` times as long as the median of the others. drops: it is left out."""

    drops: bool = False
    factor: float = FACTOR

    @classmethod
    def of(cls, text: str, what: str = STRAGGLERS) -> StragglerPolicy:
        """As "report", "drop", "report:FACTOR" or "drop:FACTOR" says; raises UsageError."""
        kind, colon, number = text.partition(":")
        try:
            factor = float(number) if colon else FACTOR
        except ValueError:
            factor = 0.0
        if kind not in ("report", "drop") or not 1.0 < factor < NEVER:
            raise UsageError(f"{what} must be report or drop, or either with a factor above 1 (drop:3), found {text!r}")
        return cls(kind == "drop", factor)


@dataclass(slots=True)
class Stragglers:
    """Measures one round after the other. took: seconds that each trainer needed in this round until its barrier.

    late: in how many rounds each trainer was late; dropped: how often it was left out, since it last was in time.
    """

    policy: StragglerPolicy
    took: dict[int, float] = field(default_factory=dict)
    late: Counter[int] = field(default_factory=Counter)
    dropped: Counter[int] = field(default_factory=Counter)
    _opened: float = 0.0
    _began: dict[int, float] = field(default_factory=dict)  # those that entered in this round, when their step began
    _entering: set[int] = field(default_factory=set)
    _noted: set[int] = field(default_factory=set)
    _last: dict[int, float] = field(default_factory=dict)

    def open(self, now: float, entering: Collection[int] = ()) -> None:
        """A round opens. entering: the trainers that take part for the first time, which have to begin first."""
        self._opened, self._last = now, dict(self.took) or self._last
        self.took.clear()
        self._began.clear()
        self._noted.clear()
        self._entering = {*entering}

    def begin(self, trainer: int, now: float) -> None:
        """A trainer begins its step. One that takes part again is judged from here on."""
        if trainer in self._entering and self.dropped[trainer]:
            self._began.setdefault(trainer, now)

    def arrive(self, trainer: int, now: float) -> None:
        """A trainer has sent everything of the round."""
        self.took.setdefault(trainer, self.waited(trainer, now))

    def waited(self, trainer: int, now: float) -> float:
        """How long the round has waited for a trainer."""
        return now - self._began.get(trainer, self._opened)

    def settle(self) -> None:
        """The round is over: who came in time starts anew."""
        for trainer in self.took.keys() - self._noted - self._entering:
            self.dropped.pop(trainer, None)

    def newly_late(self, members: Collection[int], now: float) -> dict[int, float]:
        """The trainers that are late now, and were not before in this round, with the median of the others."""
        found = {}
        for trainer in members:
            if trainer in self._noted:
                continue
            usual = self._of_others(trainer, members)
            least = LEAST_AT_FIRST if trainer in self._entering and trainer not in self._began else LEAST
            if self.took.get(trainer, self.waited(trainer, now)) > max(self.policy.factor * usual, least):
                found[trainer] = usual
        self._noted |= found.keys()
        self.late.update(found.keys())
        return found

    def _of_others(self, trainer: int, members: Collection[int]) -> float:
        """The median of the others; never, while too few of them have come to know it."""
        times = [self.took.get(other, NEVER) for other in members if other != trainer]
        return median(times) if times else NEVER

    def leave_out(self, trainer: int) -> int:
        """A trainer is left out: for how many rounds."""
        self.dropped[trainer] += 1
        return self.rounds_away(trainer)

    def rounds_away(self, trainer: int) -> int:
        """How many rounds a trainer stays away that was left out: twice as many each time, until it is in time again."""
        times = self.dropped[trainer]
        return min(2 ** (times - 1), MOST_ROUNDS) if times else 0

    def seconds(self) -> dict[int, float]:
        """Of the last round that is over: how long each trainer took."""
        return dict(self._last)

    def described(self, trainer: int, usual: float, now: float) -> str:
        """How late a trainer is, for messages."""
        took, times = self.took.get(trainer), self.late[trainer]
        said = (
            f"came after {took:.1f} s" if took is not None else f"has not come after {self.waited(trainer, now):.1f} s"
        )
        often = f"; late in {times} rounds so far" if times > 1 else ""
        return f"{said}, the others after {usual:.1f} s{often}"


class Watch:
    """Tells of stragglers of a job whose trainers do not change."""

    def __init__(self, policy: StragglerPolicy, tell: Tell, clock: Callable[[], float] = time.monotonic) -> None:
        self.seen, self._tell, self._clock = Stragglers(policy), tell, clock

    def open(self) -> None:
        """A round opens, for gradients or for fetching."""
        self.seen.open(self._clock())

    def arrive(self, trainer: int) -> None:
        """A trainer has sent, or fetched, everything of the round."""
        self.seen.arrive(trainer, self._clock())

    def check(self, members: Collection[int], number: int) -> None:
        """See who is late in a round."""
        now = self._clock()
        for trainer, usual in self.seen.newly_late(members, now).items():
            how = self.seen.described(trainer, usual, now)
            text = f"round {number}: trainer {trainer} {how}"
            self._tell(Note("late", text, trainer, number, self.seen.late[trainer]))
