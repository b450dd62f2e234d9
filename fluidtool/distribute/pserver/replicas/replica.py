"""One of the two copies of a server, from its start to the end of the job: it becomes the primary, or copies what that has."""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable
from typing import Any

from fluidtool.distribute.metrics.exposition import Family
from fluidtool.distribute.pserver.replicas.copied import Copied
from fluidtool.distribute.pserver.replicas.copies import LOOK, Candidate, Connect, Copies
from fluidtool.distribute.pserver.replicas.messages import (
    BEAT,
    COPYING,
    FROM_PRIMARY,
    OVER,
    STATE,
    VALUE,
    WHOLE,
    numbers,
    numbers_in,
    state_in,
)
from fluidtool.distribute.pserver.replicas.succession import Configuration, Copy, Part, are_gone, part_of
from fluidtool.distribute.rpc.handler import Barrier, BothLost, Call, Gone, Message, Refused, Value
from fluidtool.distribute.rpc.methods import STATUS
from fluidtool.errors import FluidError
from fluidtool.tensor import LoDTensor, SelectedRows

STARTING = 120.0  # seconds that a copy looks for the other one
NUMBERS = 1 << 30
ASKING = FROM_PRIMARY - 1  # the number of a copy where trainers have theirs


class Replica:
    """A Handler. begins: is called when this copy is the first primary, before anybody is served.

    places: where the two copies listen.
    """

    def __init__(
        self,
        server: Copied,
        copies: Copies,
        places: tuple[str, str],
        connect: Connect,
        begins: Callable[[], object] = lambda: None,
    ) -> None:
        self.server, self.copies, self.roster = server, copies, server.roster
        self._places, self._connect, self._begins = places, connect, begins
        self._taking = threading.RLock()  # a primary that was passed over takes nothing between two of its messages
        self._is_open = self._is_whole = self._is_stopped = False
        self._expected: int | None = None  # the number of the primary that may pass things on; trainers count from 0
        copies.changed = server._wake

    # -- the main loop
    def serve(self) -> None:
        """Serve until the job is over. Raises Superseded where the other copy serves instead, BothLost where nothing is left."""
        try:
            if self._begin():
                self.server.serve()
        finally:
            self.copies.close()

    def _begin(self) -> bool:
        """Become the primary, or a backup that has everything; False when the server is to stop."""
        copies, end = self.copies, time.monotonic() + STARTING
        while not self._is_stopped:
            found = copies.register.newest()
            part = part_of(found, copies.me)
            if part is Part.FIRST and copies.begin():
                return self._lead()
            if part is Part.LOST or time.monotonic() > end:
                raise self._lost(found)
            if part is Part.JOIN and found is not None:
                try:
                    if self._join(found):
                        return True
                except BothLost:
                    raise
                except FluidError:
                    pass_time()
            pass_time()
        return False

    def _lead(self) -> bool:
        """As the first primary: wait for the backup before any trainer is served."""
        self._begins()
        self.copies.leads = True
        while not self.copies.is_paired and not self._is_stopped:
            self.copies.admit(self.server.copied)
            self.copies.check()
            pass_time()
        self._is_open = True
        return not self._is_stopped

    def _join(self, found: Configuration) -> bool:
        """Copy what the primary has, if the other copy is it; whether this is the backup then."""
        copies, me = self.copies, self.copies.me
        client = self._connect(self._places[1 - me.place], ASKING)
        try:
            _, _, process, leads = asked(client, STATUS)
            if not leads:
                present = {me, Copy(1 - me.place, f"{process:014x}")}
                if are_gone(found, present) and copies.register.newest() == found:
                    raise self._lost(found)
                return False
            with self._taking:
                self._is_whole, self._expected = False, FROM_PRIMARY + 1 + secrets.randbelow(NUMBERS)
                copies.hear()
            asked(client, COPYING, f"{me.process} {self._expected} {self._places[me.place]}")
        finally:
            client.abandon()
        while not (copies.is_forsaken or self._is_stopped):
            newest = copies.register.newest()
            if self._is_whole and newest is not None and newest.backup == me:
                copies.follow(newest)
                self._is_open = True
                return True
            pass_time()
        return False

    def _lost(self, found: Configuration | None) -> BothLost:
        term = 0 if found is None else found.term
        return BothLost(
            f"both copies of {self.copies.name} are lost: the processes that had its values in term {term} have ended, and this "
            "one, which replaces one of them, has none; restart the job from its last checkpoint (--checkpoint, --resume)"
        )

    def stop(self) -> None:
        """Let `serve` return soon."""
        self._is_stopped = True
        self.server.stop()

    def lost(self, trainer_id: int) -> None:
        """The connection of a trainer, or of the primary, broke."""
        if trainer_id == self._expected:
            self.copies.lose()
        elif trainer_id < ASKING:
            self.server.lost(trainer_id)

    # -- for metrics
    @property
    def step(self) -> int:
        """As of the server."""
        return self.server.step

    @property
    def waiting(self) -> int:
        """As of the server."""
        return self.server.waiting

    def trainer_metrics(self) -> list[Family]:
        """As of the server."""
        return self.server.trainer_metrics()

    # -- calls
    def _serving(self, call: Call) -> Copied:
        """The server, for a trainer; raises Gone where the other copy serves, Refused for real Paddle's trainers."""
        if call.trainer_id is None:
            raise Refused(
                f"{call.peer or 'a peer'} is not a trainer of fluidtool's: the protocol of Paddle 1.8.5 has no second server for "
                "the same variables, so real Paddle's trainers cannot take part in a job with replicas; launch it without "
                "--replicas"
            )
        if not self._serves:
            raise Gone(f"this copy of {self.copies.name} does not serve: the other one does, or will soon")
        return self.server

    @property
    def _serves(self) -> bool:
        return self._leads_now and self._is_open

    def send(self, message: Message, call: Call) -> None:
        """A gradient of a trainer, or what the primary passes on."""
        if call.trainer_id is not None and call.trainer_id > FROM_PRIMARY:
            self._take(message, call)
        else:
            self._serving(call).send(message, call)

    def barrier(self, kind: Barrier, call: Call) -> None:
        """As of the server."""
        self._serving(call).barrier(kind, call)

    def complete(self, trainer_id: int, call: Call) -> None:
        """As of the server."""
        self._serving(call).complete(trainer_id, call)

    def get(self, request: Message, call: Call) -> Value:
        """As of the server."""
        return self._serving(call).get(request, call)

    def get_without_barrier(self, request: Message, call: Call) -> Value:
        """As of the server, or what trainers and the other copy ask."""
        if request.name == STATUS:
            term = 0 if self.copies.found is None else self.copies.found.term
            return numbers([self._serves, term, int(self.copies.me.process, 16), self._leads_now])
        if request.name == COPYING:
            return self._asked_to_copy(request.out_name)
        return self._serving(call).get_without_barrier(request, call)

    @property
    def _leads_now(self) -> bool:
        return self.copies.leads and not self._is_stopped

    def _asked_to_copy(self, words: str) -> LoDTensor:
        process, number, endpoint = words.split(" ")
        if not self._leads_now:
            raise Gone(f"this copy of {self.copies.name} is not the primary")
        if endpoint not in self._places:
            raise Refused(f"{endpoint!r} is none of the places of {self.copies.name}: {', '.join(self._places)}")
        self.copies.ask(Candidate(Copy(self._places.index(endpoint), process), endpoint, int(number)))
        return numbers([1])

    def prefetch(self, request: Message, call: Call) -> Value:
        """As of the server."""
        return self._serving(call).prefetch(request, call)

    def checkpoint(self, request: Message, call: Call) -> None:
        """As of the server."""
        self._serving(call).checkpoint(request, call)

    def notify(self, message: Message, call: Call) -> None:
        """As of the server."""
        self._serving(call).notify(message, call)

    # -- what the primary passes on
    def _take(self, message: Message, call: Call) -> None:
        with self._taking:
            if self.copies.leads or call.trainer_id != self._expected:
                raise Refused(f"{self.copies.name} takes nothing from this primary: there is a newer one")
            self.copies.hear()
            name = message.name
            if name == STATE:
                self.server.restore(state_in(message))
            elif name.startswith(VALUE):
                self.server.store.put(name.removeprefix(VALUE), own(message.value))
            elif name == WHOLE:
                self._is_whole = True
            elif name == OVER:
                self.stop()
            elif name != BEAT:
                origin = Call(message.trainer_id, call.sequence, call.peer, call.active, call.again)
                self.server.follow(message, origin)


def own(value: object) -> Value:
    """A value that came, in memory of its own: it is updated in place."""
    if isinstance(value, SelectedRows):
        return SelectedRows(value.row_ids, value.table_height, value.value.copy())
    if not isinstance(value, LoDTensor) or value.array is None:
        raise Refused(f"a copy of a variable must have a value, found {type(value).__name__}")
    return LoDTensor(value.array.copy(), value.offsets)


def asked(client: Any, name: str, out_name: str = "") -> list[int]:
    """What a server answers to a question, as numbers."""
    return numbers_in(Message(name, client.get(name, out_name, with_barrier=False)))


def pass_time() -> None:
    """Until it is worth looking again."""
    time.sleep(LOOK / 2)
