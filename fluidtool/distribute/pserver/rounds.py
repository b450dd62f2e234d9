"""The rounds of a synchronous server as a state machine: what a call waits for, and what it changes.

It knows no thread, clock or value, so that tests can try every order of calls. A round has three phases: SEND, in which
trainers send gradients; UPDATE, in which the server computes; GET, in which trainers fetch. Before round 1 there is the
GET of round 0, in which they fetch what they start from. A trainer that is in step n belongs to round n.
"""

from __future__ import annotations

from dataclasses import field
from enum import Enum
from typing import NamedTuple

from fluidtool.distribute.rpc.handler import Call
from fluidtool.records import dataclass


class Phase(Enum):
    """What a round is at."""

    SEND = "send"
    UPDATE = "update"
    GET = "get"


class Asked(Enum):
    """What a trainer calls for."""

    ROWS = "rows of a table"  # or a value as it stands
    GRADIENT = "gradient"
    SENT = "send barrier"
    PARAMETER = "parameter"
    FETCHED = "fetch barrier"


class Due(NamedTuple):
    """When a call may be answered. step: that its caller must be in. update: the round whose update must be done (None:
    none); opened: whether a round must be open for gradients.
    """

    step: int
    update: int | None = None
    opened: bool = False


@dataclass(slots=True)
class Arrivals:
    """Who came to a barrier. Peers that do not say who they are can only be counted."""

    named: set[int] = field(default_factory=set)
    counted: int = 0
    guessed: set[int] = field(default_factory=set)

    def __len__(self) -> int:
        return len(self.named) + self.counted

    def add(self, call: Call, trainer: int | None) -> None:
        """One more; a trainer that is known comes once."""
        if call.trainer_id is not None:
            self.named.add(call.trainer_id)
        else:
            self.counted += 1
            self.guessed |= set() if trainer is None else {trainer}

    def who(self) -> set[int]:
        """Who came, as far as that is known."""
        return self.named | self.guessed

    def clear(self) -> None:
        """Start anew."""
        self.named.clear()
        self.guessed.clear()
        self.counted = 0


@dataclass(slots=True)
class Rounds:
    """Which round a server is in, and who has sent and fetched in it."""

    number: int = 0
    phase: Phase = Phase.GET
    sent: Arrivals = field(default_factory=Arrivals)
    fetched: Arrivals = field(default_factory=Arrivals)

    # -- what the server does
    def begin(self) -> None:
        """Open the next round for gradients."""
        self.number += 1
        self.phase = Phase.SEND

    def close(self) -> None:
        """Take no more gradients: the update begins."""
        self.phase = Phase.UPDATE
        self.sent.clear()

    def give(self) -> None:
        """The update is done: let trainers fetch."""
        self.phase = Phase.GET

    def end(self) -> None:
        """All have fetched."""
        self.fetched.clear()

    # -- where it stands
    @property
    def updated(self) -> int:
        """The last round whose update is done."""
        return self.number if self.phase is Phase.GET else self.number - 1

    @property
    def receiving(self) -> int:
        """The round that takes what is sent now: a gradient that comes early is kept for the next one."""
        return self.number if self.phase is Phase.SEND else self.number + 1

    # -- calls
    def due(self, asked: Asked, call: Call) -> Due:
        """When a call that came now may be answered, and the step that its caller must be in."""
        if asked is Asked.GRADIENT:
            return Due(self.receiving)
        if asked is Asked.SENT:
            return Due(self.receiving, opened=True)
        if asked is Asked.FETCHED:
            return Due(self.number, self.number)
        step = self.number + (self.phase is Phase.GET and call.sequence == self.number + 1)
        return Due(step, step if asked is Asked.PARAMETER else self._update_before_rows(call))

    def ready(self, due: Due) -> bool:
        """Whether the moment has come."""
        return (due.update is None or self.updated >= due.update) and (not due.opened or self.phase is Phase.SEND)

    def _update_before_rows(self, call: Call) -> int:
        """Trainers read the rows that the last round left, unless they have sent all of this one."""
        has_sent = self.phase is Phase.UPDATE or call.trainer_id in self.sent.named
        return self.number if has_sent else self.updated
