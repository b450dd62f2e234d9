"""The trainers of a job: who is who, who has completed, when each was last heard of."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Iterable

from fluidtool.distribute.rpc.handler import Call, Message, Refused

ADDRESSES = 8  # remembered for each trainer: it has a new one after each broken connection
SUFFIX = re.compile(r"\.trainer_(\d+)(?:\.|$)")


class Roster:
    """Who takes part. Peers that are fluidtool say who they are in each call.

    Paddle's barriers say nothing, so a Paddle peer is known by its gradients' names and its address: well enough to name
    it in messages, not to count by.
    """

    def __init__(self, trainers: int, clock: Callable[[], float] = time.monotonic) -> None:
        self.trainers, self.clock = trainers, clock
        self._lock = threading.Lock()
        self._heard: dict[int, float] = {}
        self._addresses: dict[str, int] = {}
        self._vanished: dict[int, float] = {}
        self._completed: set[int] = set()
        self._completions = 0
        self._last = 0.0

    @property
    def live(self) -> int:
        """How many trainers have not completed."""
        return max(0, self.trainers - self._completions)

    def heard(self, call: Call, message: Message | None = None) -> int | None:
        """Note a sign of life; who it is, or None. Raises Refused for a trainer that cannot be."""
        trainer = call.trainer_id
        if trainer is None:
            trainer = self._who(call, message)
        elif not 0 <= trainer < self.trainers:
            raise Refused(
                f"trainer {trainer} calls from {call.peer}, but this server has trainers 0 to "
                f"{self.trainers - 1} (Fanin); transpile all roles with the same number of trainers"
            )
        self._last = now = self.clock()
        if trainer is not None:
            self._heard[trainer] = now
            if trainer in self._vanished or self._addresses.get(call.peer) != trainer:
                with self._lock:
                    self._vanished.pop(trainer, None)
                    self._note_address(call.peer, trainer)
        return trainer

    def _note_address(self, peer: str, trainer: int) -> None:
        if peer and self._addresses.get(peer) != trainer:
            self._addresses[peer] = trainer
            if len(self._addresses) > ADDRESSES * self.trainers:
                del self._addresses[next(iter(self._addresses))]

    def _who(self, call: Call, message: Message | None) -> int | None:
        if message is not None:
            suffix = SUFFIX.search(message.name)
            trainer = int(suffix[1]) if suffix else message.trainer_id
            return trainer if 0 <= trainer < self.trainers else None
        return self._addresses.get(call.peer)

    def vanished(self, trainer: int | None) -> None:
        """Note that a trainer's connection broke."""
        if trainer is not None:
            with self._lock:
                self._vanished.setdefault(trainer, self.clock())

    def complete(self, trainer_id: int, call: Call) -> int | None:
        """Note that a trainer is finished; who it was, or None when that is known already."""
        trainer = self._addresses.get(call.peer, trainer_id) if call.trainer_id is None else call.trainer_id
        with self._lock:
            if call.trainer_id is not None and trainer in self._completed:
                return None
            self._completed.add(trainer)
            self._completions += 1
            self._vanished.pop(trainer, None)
            self._last = self.clock()
        return trainer

    @property
    def finished(self) -> list[int]:
        """The trainers that are finished."""
        with self._lock:
            return sorted(self._completed)

    def finish(self, trainers: Iterable[int]) -> None:
        """Note that these trainers, and no others, are finished."""
        with self._lock:
            self._completed = {int(trainer) for trainer in trainers}
            self._completions = len(self._completed)

    def missing(self, arrived: Iterable[int]) -> list[int]:
        """The trainers that are neither finished nor among these."""
        return sorted({*range(self.trainers)} - self._completed - {*arrived})

    def gone(self, silence: float, vanished: float, waiting: Iterable[int] = ()) -> tuple[int, float] | None:
        """(trainer, seconds) of one that is not finished, does not wait for an answer, and was silent for too long.

        One that was never heard of counts from the last sign of any, and not at all before there was one.
        """
        with self._lock:
            now = self.clock()
            for trainer in self.missing(waiting):
                if trainer in self._vanished and now - self._vanished[trainer] > vanished:
                    return trainer, now - self._vanished[trainer]
                since = self._heard.get(trainer, self._last)
                if since and now - since > silence:
                    return trainer, now - since
        return None

    def address(self, trainer: int) -> str:
        """Where a trainer was last heard from; "" when it was not."""
        with self._lock:
            return next((peer for peer, known in reversed(self._addresses.items()) if known == trainer), "")

    def named(self, trainers: Iterable[int]) -> str:
        """ "trainer 1 (ipv4:127.0.0.1:50000), trainer 2" for messages."""
        texts = [(trainer, self.address(trainer)) for trainer in trainers]
        return (
            ", ".join(f"trainer {trainer}" + (f" ({peer})" if peer else "") for trainer, peer in texts) or "a trainer"
        )
