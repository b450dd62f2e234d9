"""The synchronous server: rounds, in which all trainers send, the server updates, and all trainers fetch."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from fluidtool.distribute.metrics.exposition import Family
from fluidtool.distribute.metrics.roles import of_trainers
from fluidtool.distribute.pserver.expected import Expected
from fluidtool.distribute.pserver.in_rounds import RoundServer
from fluidtool.distribute.pserver.limits import Limits
from fluidtool.distribute.pserver.roster import Roster
from fluidtool.distribute.pserver.rounds import Asked, Phase, Rounds
from fluidtool.distribute.pserver.store import Store
from fluidtool.distribute.pserver.stragglers import Watch
from fluidtool.distribute.rpc.handler import Barrier, Call, Message, Refused, Value


class SynchronousServer(RoundServer):
    """Rounds as Paddle 1.8.5 runs them, with these repairs, which a conforming peer does not see.

    Nothing of one round counts in another, so that the contribution of a trainer that completed stops; the factor by
    which gradients are scaled stays that of the program. A gradient that comes early is kept for the next round. Every
    read and every barrier waits for its round, also where a server has only tables, or no variables at all: there
    nothing is fetched that could be waited for, and Paddle's server counts a trainer's fetch before the update.
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
        watch: Watch | None = None,
    ) -> None:
        super().__init__(store, roster, limits, endpoint, expected, update, after_round=after_round)
        self.watch, self._first = watch, first_round
        self.rounds = Rounds(first_round)
        self._received: dict[str, tuple[Value, int | None]] = {}

    @property
    def step(self) -> int:
        """The round that it is in."""
        return self.rounds.number

    def trainer_metrics(self) -> list[Family]:
        """Who is late, if anybody looks."""
        return [] if self.watch is None else of_trainers(self.watch.seen.seconds(), self.watch.seen.late, None)

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
        self._turn(self.rounds.begin)
        if self.watch is not None:
            self.watch.open()
        with self._arrived:
            if not self._until(self._all_sent):
                return None
            self._watch_out()
            self.rounds.close()
            received, self._received = self._received, {}
        return {name: value for name, (value, _) in received.items()}

    def _check_limits(self) -> None:
        self._watch_out()
        super()._check_limits()

    def _watch_out(self) -> None:
        """See whether a trainer is much later than the others."""
        if self.watch is not None and self.rounds.updated > self._first:
            self.watch.check(self.roster.missing(()), self.rounds.number)

    def _give(self) -> bool:
        """Give the parameters of the round to all; False when nobody is left."""
        self._turn(self.rounds.give)
        if self.watch is not None:
            self.watch.open()
        self._after_round(self.rounds.number)
        with self._arrived:
            return self._until_fetched()

    def _until_fetched(self) -> bool:
        going = self._until(self._all_fetched)
        self.rounds.end()
        return going

    def _all_sent(self) -> bool:
        return len(self.rounds.sent) >= self.roster.live

    def _all_fetched(self) -> bool:
        return len(self.rounds.fetched) >= self.roster.live

    def _turn(self, change: Callable[[], None]) -> None:
        with self._lock:
            change()
        self._wake()

    def _state(self) -> str:
        rounds = self.rounds
        fetching = rounds.phase is Phase.GET
        missing = self.roster.missing((rounds.fetched if fetching else rounds.sent).who())
        what = "fetched the parameters" if fetching else "sent the gradients"
        return f"{self.roster.named(missing)} has not {what} of round {rounds.number}"

    # -- calls
    def _admit(self, asked: Asked, call: Call, trainer: int | None) -> None:
        """With the lock held: wait until a call may be answered. Raises Refused for a trainer that is in another step."""
        self._check_running()
        due = self.rounds.due(asked, call)
        if call.sequence is not None and call.sequence != due.step:
            raise Refused(
                f"trainer {call.trainer_id} ({call.peer}) is in step {call.sequence}, the server at {self.endpoint} "
                f"expects step {due.step}: they started from different checkpoints, or only one of them was restarted; "
                "restart all roles of a synchronous job together"
            )
        if not self.rounds.ready(due):
            self._wait(lambda: self.rounds.ready(due), call, trainer)

    def _read(self, asked: Asked, call: Call, trainer: int | None) -> None:
        self._admit(asked, call, trainer)

    def send(self, message: Message, call: Call) -> None:
        """Keep a gradient for the round; the value must be what was declared."""
        trainer = self.roster.heard(call, message)
        value = self._checked(message)
        with self._lock:
            if self._stopped or call.sequence != self.rounds.receiving:  # mostly it is, and waits for nothing
                self._admit(Asked.GRADIENT, call, trainer)
            self._received[message.name] = value, trainer

    def barrier(self, kind: Barrier, call: Call) -> None:
        """Count a trainer in: when the round is open (Paddle's server does the same), or when its update is done."""
        trainer = self.roster.heard(call)
        sends = kind is Barrier.SEND
        with self._lock:
            self._admit(Asked.SENT if sends else Asked.FETCHED, call, trainer)
            (self.rounds.sent if sends else self.rounds.fetched).add(call, trainer)
            if self.watch is not None and trainer is not None:
                self.watch.arrive(trainer)
            if self._all_sent() if sends else self._all_fetched():
                self._arrived.notify_all()

    def _forget(self, trainer: int, call: Call) -> None:
        """Paddle's trainers complete after their fetch, which the round has counted already."""
        rounds = self.rounds
        if call.trainer_id is None and rounds.phase is Phase.GET and rounds.fetched.counted:
            rounds.fetched.counted -= 1
        has_sent = trainer in rounds.sent.named
        rounds.sent.named.discard(trainer)
        rounds.fetched.named.discard(trainer)
        if not has_sent:
            self._received = {name: part for name, part in self._received.items() if part[1] != trainer}
