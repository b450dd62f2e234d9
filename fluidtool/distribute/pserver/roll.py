"""Who takes part in the rounds of an elastic job, as a state machine: it knows no thread, clock or value.

The first server keeps the roll; the others ask it. A round has a set of trainers from the moment in which it opens. Who joins
enters when the next round opens. Who leaves, or is taken for dead, is waited for no more: what it sent counts in the round if
it said that this was all, and otherwise nowhere. A trainer that takes part anew has a new term, which tells what it sends
from what an older process of it may still send.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import field
from enum import Enum
from typing import Any

from fluidtool.distribute.pserver.rounds import Asked
from fluidtool.records import dataclass

Terms = dict[int, int]  # by trainer
AHEAD = 2  # rounds after the last update whose gradients are kept
SETS = ("expected", "leaving", "finished")  # of trainers, in a roll
KEPT = 4  # rounds whose trainers are remembered: other servers are at most two behind


class Verdict(Enum):
    """What becomes of a call. PAST: its round is over."""

    ANSWER = "answer"
    WAIT = "wait"
    PAST = "past"


def verdict(asked: Asked, number: int, updated: int) -> Verdict:
    """Of a call by a trainer in step `number`, when `updated` is the last round whose update is done.

    Gradients are kept for the round that is open and for the next one. Parameters are those that the round left, rows those
    that the round before did; as long as a round waits for a trainer, it reads neither too late.
    """
    if asked is Asked.GRADIENT:
        first, last = updated + 1, updated + AHEAD
    elif asked is Asked.PARAMETER:
        first = last = updated
    else:
        first, last = updated, updated + 1
    if number < first:
        return Verdict.PAST
    return Verdict.ANSWER if number <= last else Verdict.WAIT


@dataclass(frozen=True, slots=True)
class Joining:
    """A trainer that waits for a round to open, for `number` or a later one."""

    term: int
    number: int = 0


@dataclass(slots=True)
class Roll:
    """number: the round that is open, or opens next. least: trainers without which no round opens. expected: those that the
    first round waits for. members: who takes part; leaving: who does so no more when the round is closed; sent: who said in this
    round that it has sent everything; counted: of the last rounds, whose gradients count.
    """

    number: int
    least: int = 1
    last_term: int = 0
    expected: set[int] = field(default_factory=set)
    is_open: bool = False
    is_updating: bool = False
    members: Terms = field(default_factory=dict)
    sent: Terms = field(default_factory=dict)
    joining: dict[int, Joining] = field(default_factory=dict)
    leaving: set[int] = field(default_factory=set)
    finished: set[int] = field(default_factory=set)
    counted: dict[int, Terms] = field(default_factory=dict)

    # -- trainers
    def join(self, trainer: int, number: int = 0) -> int:
        """A trainer wants to take part, from round `number` at the earliest; its term. An older process of it does so no more."""
        self.remove(trainer)
        self.last_term += 1
        self.joining[trainer] = Joining(self.last_term, number)
        self.expected.discard(trainer)
        return self.last_term

    def remove(self, trainer: int) -> None:
        """A trainer takes part no more. What it sent counts if it said that this was all."""
        self.members.pop(trainer, None)
        self.joining.pop(trainer, None)
        self.expected.discard(trainer)
        self.leaving.discard(trainer)

    def leave(self, trainer: int) -> bool:
        """A trainer wants to take part no more; whether the open round still has it, as the others count on that."""
        if self.is_open and trainer in self.members and trainer not in self.sent:
            self.leaving.add(trainer)
            return True
        self.remove(trainer)
        return False

    def finish(self, trainer: int, term: int) -> None:
        """A trainer has made all of its steps, also if it was left out since; unless a newer process of it takes part."""
        if self.is_member(trainer, term) or not (trainer in self.members or trainer in self.joining):
            self.remove(trainer)
            self.finished.add(trainer)

    def is_member(self, trainer: int, term: int) -> bool:
        """Whether a trainer takes part, with this term."""
        return self.members.get(trainer) == term

    def counts(self, trainer: int, term: int, number: int) -> bool:
        """Whether what it sent in a round counts."""
        return self.counted.get(number, {}).get(trainer) == term

    def is_joining(self, trainer: int, term: int) -> bool:
        """Whether it waits for a round to open."""
        return trainer in self.joining and self.joining[trainer].term == term

    def arrive(self, trainer: int) -> None:
        """A member says that it has sent everything of this round."""
        self.sent[trainer] = self.members[trainer]

    # -- rounds
    @property
    def missing(self) -> list[int]:
        """The members that this round still waits for."""
        return sorted(self.members.keys() - self.sent.keys()) if self.is_open else []

    @property
    def is_over(self) -> bool:
        """Whether all that took part have finished."""
        return not (self.members or self.joining or self.expected or self.is_updating) and bool(self.finished)

    @property
    def can_open(self) -> bool:
        """Whether a round may open: there are enough trainers, and the first one has those that it waits for."""
        if self.is_open or self.is_updating or self.expected:
            return False
        return bool(self._entering()) or len(self.members) >= max(self.least, 1)

    @property
    def is_stuck(self) -> bool:
        """Whether no round is open, and none may open with those who are there."""
        return not (self.is_open or self.is_updating or self.can_open)

    def _entering(self) -> list[int]:
        """Who enters the next round; all that are there, if it could not open without them."""
        due = [trainer for trainer, each in self.joining.items() if each.number <= self.number]
        if len(self.members) + len(due) >= max(self.least, 1):
            return due
        return list(self.joining) if len(self.members) + len(self.joining) >= max(self.least, 1) else []

    def open(self) -> None:
        """The round begins, with those who take part now."""
        for trainer in self._entering():
            self.members[trainer] = self.joining.pop(trainer).term
        self.is_open = True

    @property
    def is_deserted(self) -> bool:
        """Whether the open round has lost all of its trainers, and nobody's gradients count in it."""
        return self.is_open and not self.members and not self.sent

    def desert(self) -> None:
        """The round is not open any more, and opens again with others."""
        self.is_open = False

    @property
    def is_complete(self) -> bool:
        """Whether everybody that the open round waits for has sent."""
        return self.is_open and bool(self.sent) and not self.missing

    def close(self) -> Terms:
        """Whose gradients count in the round."""
        self.is_open, self.is_updating = False, True
        found, self.sent = self.sent, {}
        for trainer in list(self.leaving):
            self.remove(trainer)
        self.counted[self.number] = found
        for number in [each for each in self.counted if each <= self.number - KEPT]:
            del self.counted[number]
        return found

    def end(self) -> None:
        """The update of the round is done."""
        self.is_updating = False
        self.number += 1


def state_of(roll: Roll) -> dict[str, Any]:
    """A roll in terms of JSON."""
    return {
        "number": roll.number,
        "least": roll.least,
        "last_term": roll.last_term,
        "is_open": roll.is_open,
        "is_updating": roll.is_updating,
        "members": numbers_of(roll.members),
        "sent": numbers_of(roll.sent),
        "joining": [[trainer, each.term, each.number] for trainer, each in roll.joining.items()],
        "counted": [[number, numbers_of(terms)] for number, terms in roll.counted.items()],
        **{name: sorted(getattr(roll, name)) for name in SETS},
    }


def roll_of(state: Mapping[str, Any]) -> Roll:
    """The other way round."""
    found = Roll(state["number"], state["least"], state["last_term"])
    found.is_open, found.is_updating = state["is_open"], state["is_updating"]
    found.members, found.sent = terms_of(state["members"]), terms_of(state["sent"])
    found.joining = {trainer: Joining(term, number) for trainer, term, number in state["joining"]}
    found.counted = {number: terms_of(terms) for number, terms in state["counted"]}
    for name in SETS:
        setattr(found, name, set(state[name]))
    return found


def numbers_of(terms: Terms) -> list[int]:
    """Trainers and their terms, one after the other, as they travel."""
    return [number for pair in sorted(terms.items()) for number in pair]


def terms_of(numbers: Iterable[int]) -> Terms:
    """The other way round."""
    found = [int(number) for number in numbers]
    return dict(zip(found[::2], found[1::2], strict=True))
