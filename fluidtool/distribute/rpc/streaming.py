"""A client's stream of gRPC to one server: what a step sends goes in few chunks."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator
from typing import Any

from fluidtool.distribute.rpc.calls import Pending
from fluidtool.distribute.rpc.frames import Frame, FrameReader, chunks, frame_parts
from fluidtool.distribute.rpc.handler import Gone, RemoteError
from fluidtool.distribute.rpc.lasting import GATHERED, LOOK, Failure
from fluidtool.distribute.rpc.methods import changes_state
from fluidtool.distribute.rpc.options import HEADER_ROOM
from fluidtool.distribute.rpc.statuses import OK, error_of
from fluidtool.distribute.rpc.wire import Buffer, Limits, decode, encode

PATIENCE = 0.5  # seconds that a server has to end a stream after which nothing comes
LONGEST_END = 5.0  # seconds that gRPC has to end a stream that was cancelled


class Stream:
    """One stream, from its opening to its end: a queue to write, a thread of gRPC that writes, one that reads."""

    def __init__(self, open_call: Callable[[Iterator[bytes]], Any], limits: Limits) -> None:
        self.pending: dict[int, Pending] = {}
        self.changed = threading.Condition()
        self.ended = False
        self.failure: Failure | RemoteError | None = None
        self._queue: queue.SimpleQueue[list[Buffer] | None] = queue.SimpleQueue()
        self._gathered: list[Buffer] = []
        self._size = 0
        self._reader, self._limits = FrameReader(limits.message + HEADER_ROOM), limits
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

    def peek(self) -> None:
        """Nothing: what comes is read by a thread."""

    def leave_to_parent(self) -> None:
        """In the child of a fork: nothing, as gRPC's threads are the parent's."""

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
            try:
                pending.reply = decode(frame.content, self._limits)
            except RemoteError as error:
                pending.error = error
        else:
            pending.error = error_of(frame.code, str(frame.content, "utf-8", "replace"))
            if changes_state(pending.method, pending.message):
                self.ended = True
                self.fail(Gone(f"an earlier message was refused: {pending.error}"))
        pending.done = True

    def fail(self, error: RemoteError) -> None:
        """Nobody will answer what is still open."""
        for pending in self.pending.values():
            pending.error, pending.done = error, True
        self.pending.clear()
