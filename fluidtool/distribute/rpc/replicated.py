"""Calls of a client to a server of which there are two copies: they go to the one that serves.

What was sent is kept until a barrier behind it is answered, by which time both copies have it. When the copy that served is lost,
it is sent again to the other one, which knows by trainer and step what it has. A call that is made again still ends at the instant
at which it would have ended: its deadline is that of its first try.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import numpy as np

from fluidtool.distribute.rpc.calls import Pending
from fluidtool.distribute.rpc.handler import Barrier, Gone, Late, Message, RemoteError
from fluidtool.distribute.rpc.lasting import Lasting, LastingTransport
from fluidtool.distribute.rpc.methods import COMPLETE, STATUS, changes_state
from fluidtool.distribute.rpc.options import TransportOptions
from fluidtool.errors import FluidError

ENDS = frozenset({*(barrier.value for barrier in Barrier), COMPLETE})
ANSWER = 2.0  # seconds that a copy has to say whether it serves
REACH = 5.0  # seconds that the one that serves has to let a client in, and without one after which none is expected
QUIET = 2.0  # seconds of waiting after which the other copy is asked
PAUSE = 0.1
MOST_IN_A_ROW = 3  # times that a copy which says that it serves may fail to


class ReplicatedTransport(LastingTransport):
    """client_of: a client of one of the places, with so many seconds for each of its calls."""

    def __init__(
        self, client_of: Callable[[str, float], Any], places: tuple[str, str], options: TransportOptions
    ) -> None:
        super().__init__(self._reach, places[0], options)
        self._client_of, self._places = client_of, places
        self._kept: deque[Pending] = deque()  # sent, and perhaps not yet with both copies
        self._serving = (0, "")  # term and endpoint of the copy that serves
        self._client: Any = None
        self._failures = 0
        self._since: float | None = None  # when somebody began to wait
        self._is_closed = False
        self._watch: threading.Thread | None = None

    # -- calls
    def post(self, pending: Pending) -> None:
        """Queue the call, and keep it where it changes something."""
        with self._lock:
            self._forget()
            if changes_state(pending.method, pending.message):
                self._kept.append(pending)
            if self._stream is not None and not self._stream.ended:
                self._stream.send(pending)
                return
            unanswered = [] if self._stream is None else list(self._stream.pending.values())
            if self._stream is not None:
                self._stream.cancel()
                self._stream = None
            self._again([*unanswered, pending], pending.left)

    def _forget(self) -> None:
        """What came before a barrier that is answered is with both copies."""
        kept = self._kept
        if not (kept and kept[0].done):
            return
        done = next((each for each in reversed(kept) if each.message.name in ENDS and is_taken(each)), None)
        while done is not None and kept and kept[0].number <= done.number:
            kept.popleft()

    def wait(self, pending: Pending) -> Message:
        """The answer, of whichever copy serves."""
        if self._watch is None:
            self._watch = threading.Thread(target=self._look_around, name="the other copy", daemon=True)
            self._watch.start()
        while True:
            self._since = time.monotonic()
            try:
                found = super().wait(pending)
            except (Gone, Late) as error:
                with self._lock:
                    self._turn(pending, error)
            else:
                self._failures = 0
                return found
            finally:
                self._since = None

    def _turn(self, pending: Pending, error: RemoteError) -> None:
        """A call has failed: make it again, and those before, where a copy serves; else raise the error."""
        if pending.done and pending.error is None:
            return
        self._failures += 1
        if self._failures > MOST_IN_A_ROW or isinstance(error, Late) or pending.left <= 0:
            raise error
        stream = self._stream
        if stream is not None and not stream.ended and self._failures == 1:  # another call has begun again meanwhile
            reopen(pending)
            stream.send(pending)
            stream.flush()
            return
        unanswered = [] if stream is None else list(stream.pending.values())
        if stream is not None:
            stream.cancel()
            self._stream = None
        self._again([*unanswered, pending], pending.left)

    def _again(self, unanswered: list[Pending], patience: float) -> None:
        """Send on a new connection, to be found within so many seconds, what is kept, and what nobody has answered."""
        calls = {each.number: each for each in (*self._kept, *unanswered)}
        stream = self._open_one(patience)
        for _, call in sorted(calls.items()):
            if is_taken(call):  # somebody has its answer already
                call = replace(call)
            reopen(call)
            stream.send(call)
        stream.flush()
        self._stream = stream

    def _reopen(self, old: Lasting, pending: Pending) -> None:
        """The connection broke: begin again, with whichever copy serves by then."""
        reason = self._resume(old, [pending], pending.left)
        if reason is not None:
            pending.error, pending.done = pending.error or reason, True

    def _resume(self, old: Lasting, calls: list[Pending], patience: float) -> RemoteError | None:
        """Make on a new connection what the old one left unanswered, and `calls`; why that cannot be, or None."""
        unanswered = [*old.pending.values(), *calls]
        reason = self._end_of(old)
        old.cancel()
        self._stream = None
        if reason is None:
            try:
                self._again(unanswered, patience)
            except RemoteError as error:
                reason = error
        if reason is not None:
            old.fail(reason)
        return reason

    def close(self) -> None:
        """End the connection."""
        self._is_closed = True
        super().close()
        if self._client is not None:
            self._client.close()

    def abandon(self) -> None:
        """Break off whatever is under way."""
        self._is_closed = True
        super().abandon()

    # -- who serves
    def _reach(self, patience: float) -> Lasting:
        """A connection to the copy that serves, within so many seconds. Raises Gone where none does, and Late where that cannot be
        known, as there was little time.
        """
        begin = time.monotonic()
        end = begin + patience
        while time.monotonic() < end:
            serving = self._found(end)
            found = None if serving is None else self._connected(serving, end)
            if found is not None:
                return found
            time.sleep(max(min(PAUSE, end - time.monotonic()), 0.0))
        places = f"neither copy of the server at {self._places[0]} serves (the other is at {self._places[1]})"
        if time.monotonic() - begin >= REACH:
            raise Gone(f"{places}; if both are lost, restart the job from its last checkpoint")
        raise Late(
            f"{places}, and the call had {max(patience, 0.0):.1f} s left to find one that does; its deadline is "
            f"{self._options.deadline:g} s (FLAGS_rpc_deadline)"
        )

    def _connected(self, serving: tuple[int, str], end: float) -> Lasting | None:
        """A connection to the copy that serves; None where it lets nobody in by then."""
        patience = min(max(end - time.monotonic(), 0.0), REACH)
        client = self._client_of(serving[1], patience)
        try:
            found: Lasting = client.open_line(patience)
        except RemoteError:
            client.close()
            return None
        if self._client is not None:
            self._client.close()
        self._client, self._serving = client, serving
        return found

    def _found(self, end: float) -> tuple[int, str] | None:
        """Term and endpoint of the copy that serves; one that was passed over does not know yet, so that the newest counts."""
        patience = min(max((end - time.monotonic()) / 2, 0.0), ANSWER)  # some time is kept to connect
        newest = max(self._terms(self._places, patience), default=None)
        return newest if newest is not None and newest[0] >= self._serving[0] else None

    def _terms(self, places: Sequence[str], patience: float) -> list[tuple[int, str]]:
        """Term and endpoint of each of these copies that says that it serves. All are asked at once: one of them may be halted."""
        asked = [(place, self._client_of(place, patience)) for place in places]
        with ThreadPoolExecutor(len(asked)) as threads:
            answers = [threads.submit(term_of, client) for _, client in asked]
            found = zip((answer.result() for answer in answers), places, strict=True)
            return [(term, place) for term, place in found if term is not None]

    def _look_around(self) -> None:
        """In a thread: where an answer is long in coming, see whether the other copy has taken over. Where nobody waits, see
        whether what was sent has to be sent again: others may wait for it.
        """
        while not self._is_closed:
            time.sleep(QUIET / 2)
            since = self._since
            if since is None:
                self._mend()
            elif time.monotonic() - since > QUIET:
                self._compare()

    def _compare(self) -> None:
        stream, (term, serving) = self._stream, self._serving
        others = self._terms([place for place in self._places if place != serving], ANSWER)
        if any(other > term for other, _ in others) and stream is not None and self._stream is stream:
            stream.cancel()

    def _mend(self) -> None:
        with self._lock:
            self._forget()
            stream = self._stream
            if stream is None or not self._kept:
                return
            stream.peek()
            if stream.ended and self._since is None and not self._is_closed:
                self._resume(stream, [], min(REACH, self._options.deadline))


def term_of(client: Any) -> int | None:
    """The term in which a copy serves; None where it says nothing, or does not serve. Closes the client."""
    try:
        value: Any = client.get(STATUS, with_barrier=False)
        leads, term = (int(number) for number in np.asarray(value.array).reshape(-1)[:2])
    except (FluidError, ValueError):
        return None
    finally:
        client.abandon()
    return term if leads else None


def reopen(call: Pending) -> None:
    """Nobody has answered the call yet, as far as is known: it is made again, and has the time that is left of its own."""
    call.reply, call.error, call.done = None, None, False


def is_taken(pending: Pending) -> bool:
    """Whether a call was answered well."""
    return pending.done and pending.error is None
