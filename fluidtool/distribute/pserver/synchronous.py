"""The synchronous server: rounds, in which all trainers send, the server updates, and all trainers fetch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum

from fluidtool.distribute.pserver.expected import Expected
from fluidtool.distribute.pserver.limits import Limits
from fluidtool.distribute.pserver.roster import Roster
from fluidtool.distribute.pserver.server import ParameterServer
from fluidtool.distribute.pserver.store import Store
from fluidtool.distribute.rpc.handler import Barrier, Call, Message, NotFound, Refused, Value


class Phase(Enum):
    """What a round is at. Before the first there is round 0, in which trainers fetch what they start from."""

    SEND = "send"
    UPDATE = "update"
    GET = "get"


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


class SynchronousServer(ParameterServer):
    """Rounds as Paddle 1.8.5 runs them, with these repairs, which a conforming peer does not see.

    Nothing of one round counts in another, so that the contribution of a trainer that completed stops; the factor by
    which gradients are scaled stays that of the program. A gradient that comes early is kept for the next round.
    """

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
        super().__init__(store, roster, limits, endpoint)
        self._expected, self._update, self._after_round = expected, update, after_round
        self.round, self.phase = first_round, Phase.GET
        self._received: dict[str, tuple[Value, int | None]] = {}
        self._sent, self._fetched = Arrivals(), Arrivals()

    # -- the main loop
    def _serve(self) -> None:
        with self._arrived:
            going = self._until_fetched()
        while going:
            received = self._gather()
            if received is None:
                return
            self._update(received)
            del received
            going = self._give()

    def _gather(self) -> dict[str, Value] | None:
        """Open a round, wait for its gradients, and take them; None when nobody is left."""
        with self._arrived:
            self.round += 1
            self._turn(Phase.SEND)
            if not self._until(lambda: len(self._sent) >= self.roster.live):
                return None
            self._turn(Phase.UPDATE)
            self._sent.clear()
            received, self._received = self._received, {}
        return {name: value for name, (value, _) in received.items()}

    def _give(self) -> bool:
        """Give the parameters of the round to all; False when nobody is left."""
        with self._arrived:
            self._turn(Phase.GET)
        self._after_round(self.round)
        with self._arrived:
            return self._until_fetched()

    def _until_fetched(self) -> bool:
        going = self._until(lambda: len(self._fetched) >= self.roster.live)
        self._fetched.clear()
        return going

    def _turn(self, phase: Phase) -> None:
        self.phase = phase
        self._turned.notify_all()

    def _state(self) -> str:
        fetching = self.phase is Phase.GET
        missing = self.roster.missing((self._fetched if fetching else self._sent).who())
        what = "fetched the parameters" if fetching else "sent the gradients"
        return f"{self.roster.named(missing)} has not {what} of round {self.round}"

    # -- calls
    def _open_round(self) -> int:
        """The round that takes what is sent now."""
        return self.round if self.phase is Phase.SEND else self.round + 1

    def _check_step(self, call: Call, expected: int) -> None:
        """Raises Refused for a trainer that is in another round than this server."""
        if call.sequence is not None and call.sequence != expected:
            raise Refused(
                f"trainer {call.trainer_id} ({call.peer}) is in step {call.sequence}, the server at {self.endpoint} "
                f"expects step {expected}: they started from different checkpoints, or only one of them was restarted; "
                "restart all roles of a synchronous job together"
            )

    def send(self, message: Message, call: Call) -> None:
        """Keep a gradient for the round; the value must be what was declared."""
        trainer = self.roster.heard(call, message)
        expected = self._expected.get(message.name)
        if expected is None:
            raise NotFound(
                f"the server at {self.endpoint} takes no variable {message.name}; it takes {', '.join(self._expected)}"
            )
        value = self.store.on_device(expected.check(message))
        with self._turned:
            self._check_running()
            self._check_step(call, self._open_round())
            self._received[message.name] = value, trainer

    def barrier(self, kind: Barrier, call: Call) -> None:
        """Count a trainer in. The one for sending waits for the round to begin, as Paddle's does."""
        trainer = self.roster.heard(call)
        with self._turned:
            self._check_running()
            if kind is Barrier.SEND:
                self._check_step(call, self._open_round())
                self._wait(lambda: self.phase is Phase.SEND, call, trainer)
                self._sent.add(call, trainer)
            else:
                self._check_step(call, self.round)
                self._fetched.add(call, trainer)
            self._arrived.notify_all()

    def get(self, request: Message, call: Call) -> Value:
        """A parameter of the round, as soon as it is updated."""
        trainer = self.roster.heard(call, request)
        self.store.value(request.name)
        with self._turned:
            self._check_running()
            # One that has fetched already is in the next step, which may not have begun here.
            ahead = self.phase is Phase.GET and call.sequence == self.round + 1
            wanted = self.round + ahead
            self._check_step(call, wanted)
            self._wait(lambda: self.phase is Phase.GET and self.round >= wanted, call, trainer)
            return self.store.value(request.name)

    def _forget(self, trainer: int, call: Call) -> None:
        """Paddle's trainers complete after their fetch, which the round has counted already."""
        if call.trainer_id is None and self.phase is Phase.GET and self._fetched.counted:
            self._fetched.counted -= 1
        has_sent = trainer in self._sent.named
        self._sent.named.discard(trainer)
        self._fetched.named.discard(trainer)
        if not has_sent:
            self._received = {name: part for name, part in self._received.items() if part[1] != trainer}
