"""What servers of all modes do of which there are two copies."""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Iterator
from typing import Any

from fluidtool.distribute.pserver.replicas.copies import LOOK, Copies, Told
from fluidtool.distribute.pserver.replicas.messages import FINISHED, OVER, Passed, signal
from fluidtool.distribute.pserver.server import ParameterServer
from fluidtool.distribute.rpc.handler import Call, Message

LAST_SECONDS = 5.0  # that trainers have to say again that they are finished


class Copied(ParameterServer):
    """One copy of a server. As the primary it passes on what it takes, as the backup it takes what is passed on."""

    def __init__(self, *args: Any, copies: Copies, **options: Any) -> None:
        super().__init__(*args, **options)
        self.copies = copies
        # Of each trainer, the last message that it waits for the backup to have, and the step in which it was sent.
        self._marks: dict[tuple[str, int], tuple[int | None, Told | None]] = {}

    # -- the main loop
    def _serve(self) -> None:
        super()._serve()  # type: ignore[safe-super]  # that of the mode
        self.copies.check()
        if not self.copies.leads:
            self._outlast()
        elif not self._stopped:
            self.copies.wait(self.copies.tell(signal(OVER), 0))

    def _outlast(self) -> None:
        """As a backup that knows all trainers to be finished: be there until the primary has told them that it knows, too."""
        while not self._stopped:
            if self.copies.is_forsaken:
                self.copies.take_over()
                self._end_job()
                time.sleep(LAST_SECONDS)
                return
            time.sleep(LOOK)

    def _end_job(self) -> None:
        """What a primary does when all trainers are finished."""

    def _check_limits(self) -> None:
        copies = self.copies
        if not copies.leads:
            if copies.is_forsaken:
                copies.take_over()
                self._takes_over()
            return
        copies.check()
        if copies.is_asked:
            self._admit_backup()
        super()._check_limits()

    def _admit_backup(self) -> None:
        """With the lock held, in the main loop."""
        self.copies.admit(self.copied)

    def _takes_over(self) -> None:
        """With the lock held: this copy is the primary now."""

    # -- calls
    def pass_on(self, message: Message, call: Call) -> None:
        """Pass on what a trainer has sent, if there is a backup."""
        self.copies.tell(message._replace(trainer_id=number_of(call)), call.sequence or 0)

    def complete(self, trainer_id: int, call: Call) -> None:
        """A trainer has made all of its steps, which the backup knows when this is answered."""
        known = self._marks.get((FINISHED, number_of(call)))
        if known is not None and known[0] == call.sequence and self.copies.has(known[1]):
            return  # the server may have ended since
        super().complete(trainer_id, call)
        with self._lock:
            self._mark(FINISHED, call)

    def _mark(self, name: str, call: Call) -> None:
        """With the lock held: tell the backup, once, and wait until it has it and what came before."""
        trainer = number_of(call)
        known = self._marks.get((name, trainer))
        if known is None or known[0] != call.sequence:
            known = call.sequence, self.copies.tell(signal(name, trainer), call.sequence or 0)
            self._marks[name, trainer] = known
        told = known[1]
        if not self.copies.has(told):
            self._wait(lambda: self.copies.has(told), call, trainer)

    # -- the backup
    @abstractmethod
    def follow(self, message: Message, call: Call) -> None:
        """What the primary has taken, or decided. call: as of the trainer that sent it."""

    @abstractmethod
    def copied(self) -> Iterator[Passed]:
        """While nothing is updated: everything that a backup begins with."""

    @abstractmethod
    def restore(self, state: dict[str, Any]) -> None:
        """Begin with what the primary had beside values."""


def number_of(call: Call) -> int:
    """The trainer of a call; -1 where nobody says."""
    return -1 if call.trainer_id is None else call.trainer_id
