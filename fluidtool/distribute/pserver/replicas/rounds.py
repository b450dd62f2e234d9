"""Synchronous servers of which there are two copies.

Both collect gradients, and both compute the update of every round, in the same order from the same numbers. The primary decides
when a round is closed, and whose gradients count in it; it begins the update when its backup knows that. So whatever a trainer
has read can be computed again, and a call that is made again after a change of the primary counts once: it names its trainer and
its round.
"""

from __future__ import annotations

from abc import abstractmethod
from collections import deque
from collections.abc import Iterator
from typing import Any

from fluidtool.distribute.launch.progress import NoteKind
from fluidtool.distribute.pserver.elastic import ElasticServer
from fluidtool.distribute.pserver.follower import Follower
from fluidtool.distribute.pserver.registrar import Registrar
from fluidtool.distribute.pserver.replicas.copied import Copied, number_of
from fluidtool.distribute.pserver.replicas.copies import Told
from fluidtool.distribute.pserver.replicas.messages import (
    CLOSED,
    FINISHED,
    ROLL,
    SENT,
    Passed,
    numbers,
    numbers_in,
    signal,
    state_in,
    state_message,
    values_and,
)
from fluidtool.distribute.pserver.roll import Terms, numbers_of, roll_of, state_of, terms_of
from fluidtool.distribute.pserver.rounds import Asked
from fluidtool.distribute.rpc.handler import TERM, Barrier, Call, Message, Refused

COMING_BACK = 10.0  # seconds that trainers have to connect to the new primary
JUMP = 1 << 10  # terms that a primary may have given that its backup knows nothing of


class CopiedRounds(Copied, ElasticServer):
    """What both kinds of jobs have in common. As the backup it does what the primary has decided."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._decisions: deque[Terms] = deque()

    # -- the main loop
    def _closed(self) -> Terms | None:
        with self._arrived:
            if not self._until(lambda: bool(self._decisions) or self.copies.leads):
                return None
            if self._decisions:
                return self._decisions.popleft()
            self._admit_backup()
        counted = self._decide()
        if counted is not None:
            self.copies.wait(self._tell_decision(counted))
            self._decided()
        return counted

    @abstractmethod
    def _decide(self) -> Terms | None:
        """As the primary: wait until the next round is closed."""

    def _tell_decision(self, counted: Terms) -> Told | None:
        return self.copies.tell(signal(CLOSED, value=numbers(numbers_of(counted))), self.updated + 1)

    def _decided(self) -> None:
        """The backup knows of the decision."""

    # -- calls
    def send(self, message: Message, call: Call) -> None:
        """As of any server; the backup has it before the barrier behind it is answered."""
        super().send(message, call)
        self.pass_on(message, call)

    def barrier(self, kind: Barrier, call: Call) -> None:
        """A trainer has sent everything, which the backup has when this is answered."""
        super().barrier(kind, call)
        if kind is Barrier.SEND:
            with self._lock:
                self._mark(SENT, call)

    def _takes_part(self, call: Call) -> bool:
        """What the primary has taken counts."""
        return not self.copies.leads or super()._takes_part(call)

    # -- the backup
    def follow(self, message: Message, call: Call) -> None:
        """What the primary has taken, or decided."""
        if message.name == SENT:
            with self._lock:
                self._note_sent(call)
        elif message.name == FINISHED:
            super().complete(message.trainer_id, call)
        elif message.name == CLOSED:
            with self._arrived:
                self._check_follows()
                self._decisions.append(terms_of(numbers_in(message)))
                self._arrived.notify_all()
        elif message.name == ROLL:
            with self._lock:
                self._check_follows()
                self._restore_roll(state_in(message))
        else:
            super().send(message, call)

    def _check_follows(self) -> None:
        """With the lock held: raise Refused where this copy decides itself by now."""
        if self.copies.leads:
            raise Refused(f"the server at {self.endpoint} decides itself: it has taken over")

    def _note_sent(self, call: Call) -> None:
        """With the lock held: a trainer has sent everything of its step."""

    def _restore_roll(self, state: dict[str, Any]) -> None:
        raise Refused("this server keeps no roll")

    def copied(self) -> Iterator[Passed]:
        """With the lock held, between two updates: everything that a backup begins with."""
        yield from values_and(self.state(), self.store)
        for number, received in self._received.items():
            for (name, trainer, term), value in received.items():
                yield Message(name, value, trainer_id=trainer), TERM * term + number

    def state(self) -> dict[str, Any]:
        """What it begins with beside values, in terms of JSON."""
        return {"updated": self.updated, "finished": self.roster.finished}

    def restore(self, state: dict[str, Any]) -> None:
        """Begin with what the primary had."""
        with self._lock:
            self._decisions.clear()
            self._received.clear()
            self._marks.clear()
            self.updated = int(state["updated"])
            self.roster.finish(state["finished"])


class Steady(CopiedRounds):
    """A server of a job whose trainers do not change: a round is closed when all have sent that are not finished."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._sent: dict[int, set[int]] = {}  # by round

    def _decide(self) -> Terms | None:
        with self._arrived:
            if not self._until(self._all_sent):
                return None
            return dict.fromkeys(sorted(self._sent.pop(self.updated + 1)), 0)

    def _all_sent(self) -> bool:
        return not self._missing()

    def _missing(self) -> list[int]:
        return self.roster.missing(self._sent.get(self.updated + 1, ()))

    def _factor(self, counted: Terms) -> float:
        """That of the program, as in any job whose trainers do not change."""
        return 1.0

    def _read(self, asked: Asked, call: Call, trainer: int | None) -> None:
        """With the lock held: wait until something may be read."""
        if not self._admit(asked, call, trainer):
            raise Refused(
                f"trainer {call.trainer_id} ({call.peer}) is in step {call.round}, but the server at {self.endpoint} has ended "
                f"round {self.updated}: they started from different checkpoints; restart all roles of a synchronous job together"
            )

    def barrier(self, kind: Barrier, call: Call) -> None:
        """Count a trainer in; this is answered when the backup has everything."""
        self.roster.heard(call)
        if kind is Barrier.SEND:
            with self._lock:
                self._check_running()
                self._note_sent(call)
        super().barrier(kind, call)

    def _note_sent(self, call: Call) -> None:
        if call.round > self.updated:
            self._sent.setdefault(call.round, set()).add(number_of(call))
            if self._all_sent():
                self._arrived.notify_all()

    def state(self) -> dict[str, Any]:
        """And who has sent."""
        return {**super().state(), "sent": [[number, sorted(who)] for number, who in self._sent.items()]}

    def restore(self, state: dict[str, Any]) -> None:
        """Begin with what the primary had."""
        super().restore(state)
        self._sent = {int(number): {int(each) for each in who} for number, who in state["sent"]}

    def _state(self) -> str:
        return f"{self.roster.named(self._missing())} has not sent the gradients of round {self.updated + 1}"


class CopiedRegistrar(CopiedRounds, Registrar):
    """The first server of an elastic job. What it decides is told to others only when its backup knows."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._told_to_others = self.updated

    def _decide(self) -> Terms | None:
        return Registrar._closed(self)

    def _open(self) -> bool:
        if self.roll.is_open:  # the primary before had opened it
            return True
        found = super()._open()
        if found:
            self._tell_roll()
        return found

    def _tell_roll(self) -> None:
        with self._lock:
            self.copies.tell(state_message(ROLL, state_of(self.roll)), 0)

    def _tell_decision(self, counted: Terms) -> Told | None:
        self._tell_roll()
        return super()._tell_decision(counted)

    def _decided(self) -> None:
        with self._lock:
            self._told_to_others = self.updated + 1
        self._wake()

    def _ended(self) -> None:
        """The roll may be that of a later round already, which the primary has opened."""
        if self.roll.is_updating and self.roll.number == self.updated:
            super()._ended()

    def _change(self, event: NoteKind, trainer: int, what: str, times: int = 0) -> None:
        super()._change(event, trainer, what, times)
        self._tell_roll()

    def _closed_terms(self, call: Call) -> list[int]:
        """Another server asks whose gradients count in a round: the answer must not change any more."""
        with self._lock:
            if call.round in self.roll.counted and call.round > self._told_to_others:
                self._wait(lambda: call.round <= self._told_to_others, call, None)
        return super()._closed_terms(call)

    def _note_sent(self, call: Call) -> None:
        if self.roll.is_member(number_of(call), call.term):
            self.roll.arrive(number_of(call))

    def _restore_roll(self, state: dict[str, Any]) -> None:
        self.roll = roll_of(state)

    def _takes_over(self) -> None:
        """Trainers have some time to come back; none gets a term that the primary before may have given."""
        self.roll.last_term += JUMP
        self._told_to_others = max(self.roll.counted, default=self.updated)
        self.attendance.present = max(len(self.roll.members), 1)
        self._began = self._opened = self.roster.clock()
        for trainer in self.roll.members:
            self.attendance.expect(trainer, COMING_BACK)

    def state(self) -> dict[str, Any]:
        """And the roll."""
        return {**super().state(), "roll": state_of(self.roll)}

    def restore(self, state: dict[str, Any]) -> None:
        """Begin with what the primary had."""
        super().restore(state)
        self.roll = roll_of(state["roll"])


class CopiedFollower(CopiedRounds, Follower):
    """Another server of an elastic job: only its primary asks whose gradients count."""

    def _decide(self) -> Terms | None:
        return Follower._closed(self)
