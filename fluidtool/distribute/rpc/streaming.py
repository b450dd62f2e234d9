"""Calls of a client on one lasting stream: what a step sends goes in few chunks, and each call waits only for what it needs."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator
from typing import Any

from fluidtool.distribute.rpc.calls import Pending
from fluidtool.distribute.rpc.frames import Frame, FrameReader, chunks, frame_parts
from fluidtool.distribute.rpc.handler import Gone, Late, RemoteError
from fluidtool.distribute.rpc.methods import changes_state
from fluidtool.distribute.rpc.options import HEADER_ROOM, Options
from fluidtool.distribute.rpc.statuses import OK, UNAVAILABLE, error_of
from fluidtool.distribute.rpc.wire import Buffer, encode
from fluidtool.records import dataclass

LOOK = 1.0
GATHERED = 64 << 10  # small calls travel together in up to so many bytes
PATIENCE = 0.5  # seconds that a server has to end a stream after which nothing comes
LONGEST_END = 5.0  # seconds that gRPC has to end a stream that was cancelled


@dataclass(frozen=True, slots=True)
class Failure:
    """How a stream broke: gRPC's status and its text. status None: by an error of this process."""

    status: int | None
    text: str

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


class Stream:
    """One stream, from its opening to its end: a queue to write, a thread of gRPC that writes, one that reads."""

    def __init__(self, open_call: Callable[[Iterator[bytes]], Any], longest: int) -> None:
        self.pending: dict[int, Pending] = {}
        self.changed = threading.Condition()
        self.ended = False
        self.failure: Failure | RemoteError | None = None
        self._queue: queue.SimpleQueue[list[Buffer] | None] = queue.SimpleQueue()
        self._gathered: list[Buffer] = []
        self._size = 0
        self._reader = FrameReader(longest)
        self._call = open_call(self._outgoing())
        self._thread = threading.Thread(target=self._read, name="replies of a server", daemon=True)
        self._thread.start()

    def send(self, pending: Pending) -> None:
        """Queue a call. Small ones wait for others to travel with, until `flush`."""
        with self.changed:
            self.pending[pending.number] = pending
        parts = frame_parts(pending.number, pending.step, pending.method, encode(pending.message))
        self._gathered += parts
        self._size += sum(map(len, parts))
        if self._size > GATHERED:
            self.flush()

    def flush(self) -> None:
        """Let what was gathered go."""
        if self._gathered:
            gathered, self._gathered, self._size = self._gathered, [], 0
            self._queue.put(gathered)

    def await_answer(self, pending: Pending) -> None:
        """Wait until a call is answered, the stream has ended, or the time of the call is up."""
        with self.changed:
            while not (pending.done or self.ended) and pending.left > 0:
                self.changed.wait(min(pending.left, LOOK))

    def cancel(self) -> None:
        """End the stream without more ado. Not with `changed` held: the thread that reads takes it at its end."""
        self._queue.put(None)
        if self._call is not None:
            self._call.cancel()
            self._release(LONGEST_END)

    def finish(self) -> None:
        """Say that nothing more will come, and see the stream end."""
        self.flush()
        self._queue.put(None)
        if not self._release(PATIENCE):
            self.cancel()

    def _release(self, patience: float) -> bool:
        """Let go of gRPC's call once it has ended; False while it has not.

        Its destructor takes a lock. One that ran when the interpreter ends would wait forever where a thread of gRPC,
        which the interpreter has stopped by then, still holds that lock.
        """
        self._thread.join(patience)
        if self._thread.is_alive():
            return False
        self._call = None
        return True

    def _outgoing(self) -> Iterator[bytes]:
        while True:
            waiting = [self._queue.get()]
            while not self._queue.empty():
                waiting.append(self._queue.get())
            yield from chunks(part for parts in waiting if parts is not None for part in parts)
            if None in waiting:
                return

    def _read(self) -> None:
        try:
            for chunk in self._call:
                with self.changed:
                    for frame in self._reader.frames(chunk):
                        self._answered(frame)
                    self.changed.notify_all()
                if self.ended:
                    break
        except Exception as error:  # every way in which a stream can end is judged by those who wait
            self.failure = Failure.of(error)
        finally:
            self._queue.put(None)
            with self.changed:
                self.ended = True
                self.changed.notify_all()

    def _answered(self, frame: Frame) -> None:
        """Note an answer. After a refusal of something that was sent, the server takes nothing more on this stream."""
        pending = self.pending.pop(frame.number, None)
        if pending is None:
            return
        if frame.code == OK:
            pending.reply = frame.content
        else:
            pending.error = error_of(frame.code, str(frame.content, "utf-8", "replace"))
            if changes_state(pending.method, pending.message):
                self.ended = True
                self.fail(Gone(f"what was sent before was refused: {pending.error}"))
        pending.done = True

    def fail(self, error: RemoteError) -> None:
        """Nobody will answer what is still open."""
        for pending in self.pending.values():
            pending.error, pending.done = error, True
        self.pending.clear()


class StreamTransport:
    """Keeps a stream open. When it breaks, a new one is opened and what was not answered is sent again: the server knows
    repetitions by their numbers.
    """

    ordered = own = True

    def __init__(self, open_call: Callable[[Iterator[bytes]], Any], endpoint: str, options: Options) -> None:
        self._open_call, self._endpoint, self._options = open_call, endpoint, options
        self._lock = threading.RLock()
        self._stream: Stream | None = None

    def post(self, pending: Pending) -> None:
        """Queue the call; waits only while very much is under way."""
        with self._lock:
            stream = self._alive()
            stream.send(pending)

    def flush(self) -> None:
        """Let what was posted go; small calls wait for one another until then."""
        with self._lock:
            if self._stream is not None:
                self._stream.flush()

    def wait(self, pending: Pending) -> Buffer | None:
        """The answer. Raises Late when it does not come in time, and what the server refused."""
        self.flush()
        while not pending.done:
            stream = self._stream
            if stream is None:
                raise Gone(f"server {self._endpoint}: {pending} was given up")
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
        return pending.reply

    def close(self) -> None:
        """End the stream."""
        with self._lock:
            if self._stream is not None:
                self._stream.finish()
                self._stream = None

    def _alive(self) -> Stream:
        """The open stream; one that broke while nobody waited is opened again first."""
        if self._stream is not None and self._stream.ended:
            waiting = next(iter(self._stream.pending.values()), None)
            if waiting is None:
                self._stream.cancel()
                self._stream = None
            else:
                self._reopen(self._stream, waiting)
        if self._stream is None:
            self._stream = self._open()
        return self._stream

    def _open(self) -> Stream:
        return Stream(self._open_call, self._options.limits.message + HEADER_ROOM)

    def _reopen(self, old: Stream, pending: Pending) -> None:
        """Send again on a new stream what the old one left unanswered, unless it ended for good."""
        reason = self._end_of(old)
        old.cancel()
        pending.tries -= 1
        if reason is None and (pending.tries < 0 or pending.left <= 0):
            reason = Gone(f"the connection broke, and breaks again ({self._details(old)})")
        if reason is not None:
            self._stream = None
            old.fail(reason)
            return
        self._stream = self._open()
        for other in sorted(old.pending.values(), key=lambda one: one.number):
            self._stream.send(other)
        self._stream.flush()

    def _end_of(self, stream: Stream) -> RemoteError | None:
        """Why a stream ended for good; None when the connection broke, and may be made again."""
        failure = stream.failure
        if failure is None or isinstance(failure, RemoteError):
            return failure
        if failure.status is None:
            return RemoteError(failure.text)
        return None if failure.status == UNAVAILABLE else error_of(failure.status, failure.text)

    def _details(self, stream: Stream) -> str:
        return stream.failure.text if isinstance(stream.failure, Failure) else "it ended"
