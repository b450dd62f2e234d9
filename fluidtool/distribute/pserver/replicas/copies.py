"""A copy's place among the two of its server: whether it is the primary, what its backup has, and when it takes over."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from fluidtool.distribute.launch.progress import Note, NoteKind
from fluidtool.distribute.pserver.attendance import Tell
from fluidtool.distribute.pserver.replicas.link import Link
from fluidtool.distribute.pserver.replicas.messages import WHOLE, Passed, signal
from fluidtool.distribute.pserver.replicas.register import Register
from fluidtool.distribute.pserver.replicas.succession import Configuration, Copy, alone, first, paired, succeeded
from fluidtool.distribute.rpc.handler import Message, Superseded
from fluidtool.errors import FluidError

SILENT = 5.0  # seconds without a sign of life after which a primary is taken for lost
BROKEN = 1.0  # seconds that a primary has to connect again
PATIENCE = 5.0  # seconds that a backup has to take something
LOOK = 0.2
Connect = Callable[[str, int], Any]  # a client of an endpoint, with the number that it has in place of a trainer's


class Told(NamedTuple):
    """A message that was passed on: the link, and the number that it has there."""

    link: Link
    number: int


class Candidate(NamedTuple):
    """A process that wants to be the backup. number: that it wants to hear from."""

    copy: Copy
    endpoint: str
    number: int


class Copies:
    """What one copy knows of both. found: the configuration that it acts by; changed: is called when calls may go on that wait
    for the backup.
    """

    def __init__(self, register: Register, me: Copy, name: str, connect: Connect, tell: Tell) -> None:
        self.register, self.me, self.name = register, me, name
        self.found: Configuration | None = None
        self.leads = False
        self.changed: Callable[[], None] = lambda: None
        self.clock = time.monotonic
        self._connect, self._tell_launcher = connect, tell
        self._lock = threading.RLock()
        self._settled = threading.Condition(self._lock)
        self._link: Link | None = None
        self._needs = False  # trainers are told of nothing that the backup does not have
        self._whole = self._up_to = 0
        self._candidate: Candidate | None = None
        self._error: FluidError | None = None
        self._heard = self._lost = 0.0

    # -- the primary
    def begin(self) -> bool:
        """Become the primary of a job that begins; whether nobody else has. One that is too late may be the backup."""
        wanted = first(self.me)
        if not self.register.claim(wanted):
            return False
        self.found = wanted
        return True

    @property
    def is_paired(self) -> bool:
        """Whether there is a backup that has everything."""
        return self.found is not None and self.found.backup is not None

    def tell(self, message: Message, step: int) -> Told | None:
        """Pass a message on, if there is a backup."""
        link = self._link
        return None if link is None else Told(link, link.tell(message, step))

    def has(self, told: Told | None) -> bool:
        """Whether the backup has a message, or there is none that must have it. A newer one began with what came of it."""
        return told is None or told.link is not self._link or not self._needs or told.link.taken >= told.number

    def wait(self, told: Told | None) -> None:
        """Until the backup has a message; raises Superseded where another copy serves by then."""
        with self._settled:
            while not self.has(told):
                self.check()
                self._settled.wait(LOOK)
        self.check()

    def check(self) -> None:
        """Raise what ended this copy."""
        if self._error is not None:
            raise self._error

    def ask(self, candidate: Candidate) -> None:
        """A process wants to be the backup."""
        with self._lock:
            self._candidate = candidate

    @property
    def is_asked(self) -> bool:
        """Whether a process waits to be the backup, and there is none."""
        return self._candidate is not None and self._link is None

    def admit(self, everything: Callable[[], Iterable[Passed]]) -> None:
        """Where a process waits to be the backup, and there is none, begin to pass on: first `everything`, which is all that
        trainers have been told. To be called when nothing changes meanwhile.
        """
        with self._lock:
            if self._candidate is None or self._link is not None or self.found is None:
                return
            candidate, self._candidate = self._candidate, None
            client = self._connect(candidate.endpoint, candidate.number)
            link = Link(client, lambda: self._advance(link, candidate.copy), self._fail)
            for message, step in everything():
                link.tell(message, step)
            self._whole, self._needs = link.tell(signal(WHOLE), 0), False
            self._link = link
            link.start()

    def _advance(self, link: Link, candidate: Copy) -> None:
        """The backup has more. When it has what it began with, everything else waits for it; and when it has what came meanwhile,
        it may take over.
        """
        with self._lock:
            if link is self._link and self.found is not None and self.found.backup is None:
                if not self._needs and link.taken >= self._whole:
                    self._needs, self._up_to, link.patience = True, link.told, PATIENCE
                if self._needs and link.taken >= self._up_to and self._claim(paired(self.found, candidate)):
                    self._say("paired", "both copies have everything")
            self._settled.notify_all()
        self.changed()

    def _fail(self, link: Link, error: FluidError) -> None:
        """The backup is lost: go on alone, unless it has taken over."""
        with self._lock:
            if link is not self._link or self.found is None:
                return
            if self.found.backup is None or self._claim(alone(self.found)):
                self._link, self._needs = None, False
                self._say("alone", f"goes on without a backup ({error})")
            self._settled.notify_all()
        self.changed()

    def as_primary(self, save: Callable[..., None]) -> Callable[..., None]:
        """What saves checkpoints, as long as this copy is the primary: the two would write the same ones."""

        def save_as_primary(step: int) -> None:
            if self.leads:
                save(step)

        return save_as_primary

    def close(self) -> None:
        """Pass nothing more on."""
        link = self._link
        if link is not None:
            link.close()

    # -- the backup
    def hear(self) -> None:
        """The primary has said something."""
        self._heard, self._lost = self.clock(), 0.0

    def lose(self) -> None:
        """The connection of the primary ended."""
        self._lost = self.clock()

    @property
    def is_forsaken(self) -> bool:
        """Whether nothing more is expected of the primary."""
        now = self.clock()
        return now - self._heard > SILENT or (self._lost > 0 and now - self._lost > BROKEN)

    def follow(self, found: Configuration) -> None:
        """This copy is the backup now."""
        self.found = found

    def take_over(self) -> None:
        """Be the primary, if this is still the backup; raises Superseded where it is not."""
        with self._lock:
            newest = self.register.newest()
            wanted = None if newest is None else succeeded(newest, self.me)
            if wanted is None or not self._claim(wanted):
                raise self._superseded()
            self.leads = True
            self._say("succeeded", "the backup takes over")

    # -- both
    def _claim(self, wanted: Configuration) -> bool:
        try:
            if self.register.claim(wanted):
                self.found = wanted
                return True
            self._error = self._superseded()
        except FluidError as error:
            self._error = error
        return False

    def _superseded(self) -> Superseded:
        return Superseded(
            f"{self.name}: another copy of this server serves since this one was not heard of; what trainers sent is there, and "
            "this copy ends, to be started again as its backup"
        )

    def _say(self, event: NoteKind, what: str) -> None:
        term = 0 if self.found is None else self.found.term
        self._tell_launcher(Note(event, f"{self.name}: {what}", 0, term, role=self.name))
