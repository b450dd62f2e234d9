"""Calls of a client on one lasting connection, in their order; each waits only for what it needs."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Protocol

from fluidtool.distribute.rpc.calls import Pending
from fluidtool.distribute.rpc.handler import Gone, Late, Message, RemoteError
from fluidtool.distribute.rpc.options import TransportOptions
from fluidtool.distribute.rpc.statuses import UNAVAILABLE, error_of
from fluidtool.records import dataclass

LOOK = 1.0
GATHERED = 64 << 10  # small calls travel together in up to so many bytes
NOTHING = Message("")


@dataclass(frozen=True, slots=True)
class Failure:
    """How a connection broke: gRPC's status and its text. status None: by an error of this process. is_silence: nobody has said
    that it broke, but nothing came.
    """

    status: int | None
    text: str
    is_silence: bool = False

    @classmethod
    def of(cls, error: Exception) -> Failure | RemoteError:
        """The failure without gRPC's error, which is the call itself, and holds on to itself through its traceback."""
        error.with_traceback(None)
        if isinstance(error, RemoteError):
            return error
        code = getattr(error, "code", None)
        if not callable(code):
            return cls(None, f"{type(error).__name__}: {error}")
        return cls(code().value[0], str(error.details()))  # type: ignore[attr-defined]


class Lasting(Protocol):
    """One connection, from its opening to its end. pending: the calls without an answer, by number."""

    pending: dict[int, Pending]
    ended: bool
    failure: Failure | RemoteError | None

    def send(self, pending: Pending) -> None:
        """Queue a call. Small ones wait for others to travel with, until `flush`."""

    def flush(self) -> None:
        """Let what was gathered go."""

    def peek(self) -> None:
        """Note what has come, without waiting."""

    def await_answer(self, pending: Pending) -> None:
        """Wait until a call is answered, the connection has ended, or the time of the call is up."""

    def fail(self, error: RemoteError) -> None:
        """Nobody will answer what is still open."""

    def cancel(self) -> None:
        """End the connection without more ado."""

    def finish(self) -> None:
        """Say that nothing more will come, and see the connection end."""

    def leave_to_parent(self) -> None:
        """In the child of a fork: let go of it without a word."""


class LastingTransport:
    """Keeps a connection open. When it breaks, a new one is opened and what was not answered is sent again: the server knows
    repetitions by their numbers. open_one: opens one within so many seconds; raises RemoteError.
    """

    ordered = own = True

    def __init__(self, open_one: Callable[[float], Lasting], endpoint: str, options: TransportOptions) -> None:
        self._open_one, self._endpoint, self._options = open_one, endpoint, options
        self._lock = threading.RLock()
        self._stream: Lasting | None = None

    def post(self, pending: Pending) -> None:
        """Queue the call; waits only while a connection is opened."""
        with self._lock:
            self._alive(pending.left).send(pending)

    def flush(self) -> None:
        """Let what was posted go; small calls wait for one another until then."""
        with self._lock:
            if self._stream is not None:
                self._stream.flush()

    def look(self) -> None:
        """Note what has been answered meanwhile."""
        with self._lock:
            if self._stream is not None:
                self._stream.peek()

    def wait(self, pending: Pending) -> Message:
        """The answer. Raises Late when it does not come in time, and what the server refused."""
        self.flush()
        while not pending.done:
            stream = self._stream
            if stream is None:
                raise Gone(f"server {self._endpoint}: {pending} was abandoned")
            stream.await_answer(pending)
            if not (pending.done or stream.ended):
                stream.cancel()
                self._stream = None
                raise Late(f"server {self._endpoint}: no answer to {pending} within {self._options.deadline:g} s")
            if not pending.done:
                with self._lock:
                    if self._stream is stream:
                        self._reopen(stream, pending)
        if pending.error is not None:
            raise type(pending.error)(f"server {self._endpoint}: {pending} failed: {pending.error}")
        return NOTHING if pending.reply is None else pending.reply

    def close(self) -> None:
        """End the connection."""
        with self._lock:
            if self._stream is not None:
                self._stream.finish()
                self._stream = None

    def abandon(self) -> None:
        """Break off whatever is under way."""
        if self._stream is not None:
            self._stream.cancel()

    def leave_to_parent(self) -> None:
        """In the child of a fork: the connection stays the parent's."""
        if self._stream is not None:
            self._stream.leave_to_parent()

    def _alive(self, patience: float) -> Lasting:
        """The open connection; one that broke while nobody waited is opened again first."""
        if self._stream is not None and self._stream.ended:
            waiting = next(iter(self._stream.pending.values()), None)
            if waiting is None:
                self._stream.cancel()
                self._stream = None
            else:
                self._reopen(self._stream, waiting)
        if self._stream is None:
            self._stream = self._open_one(patience)
        return self._stream

    def _reopen(self, old: Lasting, pending: Pending) -> None:
        """Send again on a new connection what the old one left unanswered, unless it ended for good."""
        reason = self._end_of(old)
        old.cancel()
        pending.tries -= not (isinstance(old.failure, Failure) and old.failure.is_silence)
        if reason is None and (pending.tries < 0 or pending.left <= 0):
            reason = Gone(f"the connection broke, and broke again when it was repeated ({self._details(old)})")
        if reason is None:
            try:
                self._stream = self._open_one(max(pending.left, 0.0))
            except RemoteError as error:
                reason = error
        if reason is not None or self._stream is None:
            self._stream = None
            old.fail(reason or Gone(self._details(old)))
            return
        for other in sorted(old.pending.values(), key=lambda one: one.number):
            self._stream.send(other)
        self._stream.flush()

    def _end_of(self, stream: Lasting) -> RemoteError | None:
        """Why a connection ended for good; None when the connection broke, and may be made again."""
        failure = stream.failure
        if failure is None or isinstance(failure, RemoteError):
            return failure
        if failure.status is None:
            return RemoteError(failure.text)
        return None if failure.status == UNAVAILABLE else error_of(failure.status, failure.text)

    def _details(self, stream: Lasting) -> str:
        return stream.failure.text if isinstance(stream.failure, Failure) else "it ended"
