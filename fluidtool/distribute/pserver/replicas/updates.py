"""Asynchronous servers of which there are two copies.

The primary applies an update and passes it on while it holds the lock of the variable, so that the backup applies the updates of
each variable in the same order. Each has the ledger that belongs to its values: what comes again after a change of the primary
counts once. A trainer keeps what it has sent until its step is over, which is answered when the backup has all of the step.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from fluidtool.distribute.pserver.asynchronous import AsynchronousServer
from fluidtool.distribute.pserver.replicas.copied import Copied
from fluidtool.distribute.pserver.replicas.messages import ENDED, FINISHED, Passed, values_and
from fluidtool.distribute.pserver.store import COUNTER
from fluidtool.distribute.rpc.handler import Barrier, Call, Message, Refused


class CopiedUpdates(Copied, AsynchronousServer):
    """One copy. As the backup it applies what the primary has applied."""

    def _admit_backup(self) -> None:
        with self.store.unchanged():
            super()._admit_backup()

    def _end_job(self) -> None:
        self._at_end(self.step)

    # -- calls
    def send(self, message: Message, call: Call) -> None:
        """Apply an update, and pass it on."""
        self._check_numbered(message, call)
        super().send(message, call)

    def notify(self, message: Message, call: Call) -> None:
        """Count a trainer's steps, and pass them on."""
        self._check_numbered(message, call)
        super().notify(message, call)

    def _check_numbered(self, message: Message, call: Call) -> None:
        if call.update_step is None or call.trainer_id is None:
            raise Refused(
                f"{call.peer or 'a trainer'} sends {message.name} without the number of its step: of a server with two copies it "
                "could count twice; train with 'fluidtool launch' or 'fluidtool run'"
            )

    def _note(self, message: Message, call: Call) -> None:
        super()._note(message, call)
        self.pass_on(message, call)

    def barrier(self, kind: Barrier, call: Call) -> None:
        """A trainer's step is over: answered when the backup has all of it."""
        super().barrier(kind, call)
        if call.update_step is not None:
            with self._lock:
                self._mark(ENDED, call)

    # -- the backup
    def follow(self, message: Message, call: Call) -> None:
        """What the primary has applied, or was told."""
        if message.name == ENDED:
            super().barrier(Barrier.FETCH, call)
        elif message.name == FINISHED:
            super().complete(message.trainer_id, call)
        elif COUNTER in message.name:
            super().notify(message, call)
        else:
            super().send(message, call)

    def copied(self) -> Iterator[Passed]:
        """While nothing is updated: everything that a backup begins with."""
        yield from values_and(self.state(), self.store)

    def state(self) -> dict[str, Any]:
        """What it begins with beside values, in terms of JSON."""
        return {"ledger": self._ledger.state(), "count": self._count, "finished": self.roster.finished}

    def restore(self, state: dict[str, Any]) -> None:
        """Begin with what the primary had."""
        self._ledger.restore(state["ledger"])
        self._count = int(state["count"])
        self._marks.clear()
        self.roster.finish(state["finished"])
