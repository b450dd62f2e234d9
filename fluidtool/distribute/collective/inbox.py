"""Inbox: what a rank's server does with the messages of other ranks."""

from __future__ import annotations

import threading
import time
from typing import NoReturn

from fluidtool.distribute.collective.mailbox import Mailbox, Parcel, Place
from fluidtool.distribute.rpc.handler import Barrier, Call, Message, Refused, Value
from fluidtool.errors import CollectiveError
from fluidtool.tensor import LoDTensor

IDENTIFIER_BYTES = 128
PREFIX = "@COLLECTIVE@"
LEAVE, ABORT = "leave", "abort"


class Inbox:
    """What a rank's server does with messages: keeps identifiers and puts values into the mailboxes of rings."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._identifiers: dict[str, bytes] = {}
        self._mailboxes: dict[tuple[str, int], Mailbox] = {}
        self._left: set[tuple[str, int]] = set()
        self._changed = threading.Condition()

    def identifier(self, name: str, endpoint: str) -> bytes:
        """The identifier that rank 0 sends for the variable `name`; raises CollectiveError when it does not come."""
        with self._changed:
            if not self._changed.wait_for(lambda: name in self._identifiers, self._seconds):
                raise CollectiveError(
                    f"rank 0 did not send the identifier {name} to {endpoint} within {self._seconds:g} s; start every "
                    "rank, with the same endpoints"
                )
            return self._identifiers.pop(name)

    def open(self, job: str, ring: int, mailbox: Mailbox) -> None:
        """Let values of a ring in."""
        with self._changed:
            self._mailboxes[job, ring] = mailbox
            self._changed.notify_all()

    def shut(self, job: str, ring: int) -> None:
        """Refuse values of a ring from now on."""
        with self._changed:
            self._mailboxes.pop((job, ring), None)
            self._left.add((job, ring))
            self._changed.notify_all()

    def send(self, message: Message, call: Call) -> None:
        """An identifier, a value, or the word that a rank leaves or fails."""
        if message.name.startswith(PREFIX):
            self._value(message, call)
        elif isinstance(message.value, bytes) and len(message.value) == IDENTIFIER_BYTES:
            with self._changed:
                self._identifiers[message.name] = message.value
                self._changed.notify_all()
        else:
            self._refuse(
                f"a rank of a collective job takes identifiers and values of its rings, not {message.name!r:.80}"
            )

    def barrier(self, kind: Barrier, call: Call) -> None:
        """Rank 0 has sent its identifiers; nothing waits for that."""

    def complete(self, trainer_id: int, call: Call) -> None:
        """Nothing ends with that."""

    def get(self, request: Message, call: Call) -> Value:
        """Refused: ranks send, they do not ask."""
        self._refuse(f"a rank of a collective job keeps no variables for others, asked for {request.name!r:.80}")

    get_without_barrier = prefetch = get

    def checkpoint(self, request: Message, call: Call) -> None:
        """Refused: ranks keep no tables."""
        self._refuse("a rank of a collective job keeps no tables")

    notify = checkpoint

    def _value(self, message: Message, call: Call) -> None:
        try:
            _, job, ring, source, what, label = message.name.split("|", 5)
            numbers = int(ring), int(source)
            place = None if what in (LEAVE, ABORT) else Place(numbers[1], *map(int, what.split(".")))
        except (ValueError, TypeError):
            self._refuse(f"the name {message.name!r:.80} does not belong to a ring")
        if place is None and (job, numbers[0]) in self._left:
            return
        mailbox = self._mailbox(job, numbers[0], call)
        if place is None:
            mailbox.leave(numbers[1]) if what == LEAVE else mailbox.abort(label)
        elif isinstance(message.value, LoDTensor):
            mailbox.put(place, Parcel(label, message.value.array), self._seconds)
        else:
            self._refuse(f"a message of ring {ring} has no array")

    def _mailbox(self, job: str, ring: int, call: Call) -> Mailbox:
        """The mailbox of a ring, which this rank may be about to join; others are refused."""
        end = time.monotonic() + self._seconds
        with self._changed:
            while (job, ring) not in self._mailboxes and (job, ring) not in self._left:
                if not call.is_active() or time.monotonic() > end:
                    break
                self._changed.wait(0.5)
            found = self._mailboxes.get((job, ring))
        if found is None:
            self._refuse(f"this rank is not in ring {ring} of that job")
        return found

    def _refuse(self, what: str) -> NoReturn:
        raise Refused(what)
