"""Elastic synchronous servers: trainers come and go, and every round has those trainers that its roll names.

One server, the first of the job, keeps the roll; it alone decides whose gradients count in a round. The others keep what they
are sent, ask it when the round is closed, and use the same trainers' gradients. A trainer tells the first server that it has
sent everything when the others have taken all of it, so what counts in a round is there everywhere.

Calls name the trainer, its term and its step; so a call that comes late, or twice, is known. There are no fetch barriers: a
round is closed when all of its trainers have sent, and each has read what the round before left by then.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from fluidtool.distribute.pserver.attendance import Attendance
from fluidtool.distribute.pserver.expected import Expected
from fluidtool.distribute.pserver.in_rounds import RoundServer
from fluidtool.distribute.pserver.limits import Limits
from fluidtool.distribute.pserver.roll import Terms, Verdict, verdict
from fluidtool.distribute.pserver.roster import Roster
from fluidtool.distribute.pserver.rounds import Asked
from fluidtool.distribute.pserver.store import Store
from fluidtool.distribute.rpc.handler import Barrier, Call, LeftOut, Message, Refused, Value
from fluidtool.distribute.rpc.methods import CLOSED, JOIN, LEAVE, ROLL
from fluidtool.tensor import LoDTensor, SelectedRows

CONTROLS = frozenset({JOIN, ROLL, LEAVE, CLOSED})
Key = tuple[str, int, int]  # variable, trainer, term


class ElasticServer(RoundServer):
    """What all servers of an elastic job do. updated: the last round whose update is done."""

    def __init__(
        self,
        store: Store,
        roster: Roster,
        limits: Limits,
        endpoint: str,
        expected: Mapping[str, Expected],
        update: Callable[[Mapping[str, Value]], None],
        *,
        first_round: int = 0,
        after_round: Callable[[int], None] = lambda number: None,
    ) -> None:
        super().__init__(store, roster, limits, endpoint, expected, update, after_round=after_round)
        self.updated = first_round
        self._received: dict[int, dict[Key, Value]] = {}

    @property
    def attendance(self) -> Attendance:
        """The roster, of a job whose trainers come and go."""
        assert isinstance(self.roster, Attendance)
        return self.roster

    @property
    def step(self) -> int:
        """The round that is collected, or updated."""
        return self.updated + 1

    # -- the main loop
    def _serve(self) -> None:
        while (counted := self._closed()) is not None:
            self._update(self._contributions(counted))
            with self._lock:
                self.updated += 1
                self._ended()
            self._wake()
            self._after_round(self.updated)

    @abstractmethod
    def _closed(self) -> Terms | None:
        """Wait until the next round is closed: whose gradients count in it; None when the job is over, or the server stops."""

    def _ended(self) -> None:
        """With the lock held: the update of a round is done."""

    def _contributions(self, counted: Terms) -> dict[str, Value]:
        """The gradients that count in the round. What its programs divide by, or add up of, all trainers of the job is that of
        those who take part.
        """
        with self._lock:
            received = self._received.pop(self.updated + 1, {})
        by = self._factor(counted)
        return {
            name: scaled(value, by) for (name, trainer, term), value in received.items() if counted.get(trainer) == term
        }

    def _factor(self, counted: Terms) -> float:
        """What gradients are multiplied by in a round of these trainers."""
        return self.roster.trainers / len(counted)

    # -- calls
    def _admit(self, asked: Asked, call: Call, trainer: int | None) -> bool:
        """With the lock held: wait until a call may be answered; whether its round is not over."""
        self._due(call, lambda: verdict(asked, call.round, self.updated) is not Verdict.WAIT, trainer)
        return verdict(asked, call.round, self.updated) is Verdict.ANSWER

    def _read(self, asked: Asked, call: Call, trainer: int | None) -> None:
        """With the lock held: wait until something may be read; raises LeftOut where the others are beyond that."""
        if not self._admit(asked, call, trainer):
            raise LeftOut(
                f"trainer {call.trainer_id} ({call.peer}) is in step {call.round}, but round {self.updated} is over: the others "
                "went on without it"
            )

    def _due(self, call: Call, ready: Callable[[], bool], trainer: int | None) -> None:
        """With the lock held: wait until a call may be answered. Raises LeftOut for a trainer that takes part no more."""
        self._check_running()
        self._check_member(call)
        if not ready():
            self._wait(lambda: ready() or not self._takes_part(call), call, trainer)
            self._check_member(call)

    def _takes_part(self, call: Call) -> bool:
        """Whether the caller is a trainer of the round, as far as this server knows."""
        return True

    def _check_member(self, call: Call) -> None:
        if not self._takes_part(call):
            raise LeftOut(
                f"round {self.updated + 1} goes on without trainer {call.trainer_id} ({call.peer}), which was in step "
                f"{call.round}"
            )

    def send(self, message: Message, call: Call) -> None:
        """Keep a gradient for its round; one of a round that is updated counts no more, and is dropped."""
        trainer = self.roster.heard(call, message)
        value = self._checked(message)
        assert trainer is not None
        with self._lock:
            if self._admit(Asked.GRADIENT, call, trainer):
                self._received.setdefault(call.round, {})[message.name, trainer, call.term] = value

    def barrier(self, kind: Barrier, call: Call) -> None:
        """Only the first server has one."""
        self.roster.heard(call)
        self._check_running()

    def get_without_barrier(self, request: Message, call: Call) -> Value:
        """The value of a variable as the round before left it, or what roles of an elastic job ask each other."""
        if request.name in CONTROLS:
            self._check_running()
            return LoDTensor(np.array(self._control(request, call), np.int64))
        return super().get_without_barrier(request, call)

    def _control(self, request: Message, call: Call) -> list[int]:
        raise Refused(
            f"the server at {self.endpoint} keeps no roll, as it is not the first one of its job; give all roles the same "
            "list of servers"
        )

    def _forget(self, trainer: int, call: Call) -> None:
        """The roll decides."""

    def _state(self) -> str:
        return f"round {self.updated + 1} is open"


def scaled(value: Value, by: float) -> Value:
    """A gradient, multiplied."""
    if by == 1.0:
        return value
    if isinstance(value, SelectedRows):
        array: Any = value.value
        return SelectedRows(value.row_ids, value.table_height, array * array.dtype.type(by))
    array = value.array
    return LoDTensor(array * array.dtype.type(by), value.offsets)
