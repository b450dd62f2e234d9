"""A client's socket to one server, without a thread of its own: who waits for an answer reads, who sends writes.

Only where the system does not take at once what is to be sent does a thread write the rest, so that a trainer computes
meanwhile.
"""

from __future__ import annotations

import select
import socket
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress

from fluidtool.distribute.rpc.calls import Pending
from fluidtool.distribute.rpc.handler import Gone, RemoteError
from fluidtool.distribute.rpc.lasting import GATHERED, LOOK, Failure
from fluidtool.distribute.rpc.methods import changes_state
from fluidtool.distribute.rpc.options import HEADER_ROOM, TransportOptions
from fluidtool.distribute.rpc.sockets.connection import BUFFERS, JOINED, drop
from fluidtool.distribute.rpc.sockets.memory import Memory
from fluidtool.distribute.rpc.sockets.packets import TAKEN, Describer, Found, PacketReader, Pattern, answered
from fluidtool.distribute.rpc.statuses import OK, UNAVAILABLE, error_of
from fluidtool.distribute.rpc.wire import Buffer, Limits

SCRATCH = 64 << 10
PAUSE = 0.1
LAST_SECONDS = 0.5  # that a server has to end a connection on which nothing more comes


class Line:
    """One connection, from the moment that it was let in to its end."""

    def __init__(self, connection: socket.socket, limits: Limits, memory: Memory, silence: float) -> None:
        self.pending: dict[int, Pending] = {}
        self.changed = threading.Condition()
        self.ended = False
        self.failure: Failure | RemoteError | None = None
        self._socket, self._limits, self._silence = connection, limits, silence
        self._moved = time.monotonic()  # when bytes last came, or went
        self._describer = Describer()
        self._patterns: dict[int, Pattern | None] = {}  # of the calls that are to be answered
        self._gathered: list[Buffer] = []
        self._size = 0
        self._out: deque[Buffer] = deque()
        self._reader = PacketReader(limits.message + HEADER_ROOM, memory)
        self._scratch = memoryview(bytearray(SCRATCH))
        self._is_looked_at = False  # a thread waits for what comes
        self._writer: threading.Thread | None = None

    # -- sending
    def send(self, pending: Pending) -> None:
        """Queue a call. Small ones wait for others to travel with, until `flush`."""
        with self.changed:
            self.pending[pending.number] = pending
            parts, pattern = self._describer.packets(pending.number, pending.step, pending.method, pending.message)
            self._patterns[pending.number] = pattern
            self._gathered += parts
            self._size += sum(map(len, parts))
            if self._size > GATHERED:
                self.flush()

    def flush(self) -> None:
        """Let what was gathered go."""
        with self.changed:
            if not self._gathered:
                return
            parts = [b"".join(self._gathered)] if self._size <= JOINED else self._gathered
            self._out.extend(parts)
            self._gathered, self._size = [], 0
            self._write()
            if self._out and self._writer is None and not self.ended:
                self._writer = threading.Thread(target=self._write_rest, name="sending to a server", daemon=True)
                self._writer.start()

    def _write(self) -> None:
        """With the lock: send what the system takes."""
        out = self._out
        try:
            while out and not self.ended:
                parts = [out[place] for place in range(min(len(out), BUFFERS))]
                drop(out, self._socket.sendmsg(parts))
                self._moved = time.monotonic()
        except BlockingIOError:
            return
        except OSError as error:
            self._read()  # why the server closed it, if it said so
            self._end(Failure(UNAVAILABLE, f"the connection broke: {error}"))

    def _write_rest(self) -> None:
        """Until everything is sent. What the server answers meanwhile is read, as it may wait for that."""
        while True:
            with self.changed:
                self._write()
                if not self._out or self.ended:
                    self._writer = None
                    return
                reads = not self._is_looked_at
                self._is_looked_at = True
            self._look(LOOK, reads, writes=True)

    # -- waiting
    def await_answer(self, pending: Pending) -> None:
        """Wait until a call is answered, the connection has ended, or the time of the call is up."""
        while True:
            with self.changed:
                while self._is_looked_at and not self._is_over(pending):
                    self.changed.wait(min(pending.left, LOOK))
                if self._is_over(pending):
                    return
                self._is_looked_at = True
            self._look(min(max(pending.left, 0.0), LOOK), reads=True, writes=False)

    def _is_over(self, pending: Pending) -> bool:
        """With the lock: whether there is nothing to wait for. A server says now and then that it is there: where it does not,
        the connection ends here, so that the call can be made on another one.
        """
        if not (pending.done or self.ended) and pending.tries > 0 and time.monotonic() - self._moved > self._silence:
            self._end(Failure(UNAVAILABLE, f"nothing came for {self._silence:g} s", is_silence=True))
        return pending.done or self.ended or pending.left <= 0

    def peek(self) -> None:
        """Read what has come, without waiting."""
        with self.changed:
            if not self._is_looked_at:
                self._read()

    def _look(self, seconds: float, reads: bool, writes: bool) -> None:
        """Without the lock: wait until the socket can do something, and have it done. One thread at a time `reads`."""
        try:
            poll = select.poll()
            poll.register(self._socket, (select.POLLIN if reads else 0) | (select.POLLOUT if writes else 0))
            poll.poll(seconds * 1000)
        except ValueError:
            self._end(Failure(UNAVAILABLE, "the connection was closed"))  # by another thread
        finally:
            with self.changed:
                if reads:
                    self._is_looked_at = False
                    self._read()
                    self.changed.notify_all()

    # -- what comes
    def _read(self) -> None:
        """With the lock: read what has come."""
        try:
            while not self.ended:
                target = self._reader.target(self._scratch)
                count = self._socket.recv_into(target)
                if not count:
                    self._end(Failure(UNAVAILABLE, "the server ended the connection"))
                    return
                self._moved = time.monotonic()
                for found in self._reader.received(target, count):
                    self._answered(found)
        except RemoteError as error:  # which is an OSError, too
            self._end(error)
        except BlockingIOError:
            return
        except OSError as error:
            self._end(Failure(UNAVAILABLE, f"the connection broke: {error}"))

    def _answered(self, found: Found) -> None:
        number, _, code, kind, content = found
        if code != OK:
            self._refused(number, error_of(code, str(content, "utf-8", "replace")))
            return
        self._taken(number if kind == TAKEN else number - 1)
        if kind == TAKEN:
            return
        pending, pattern = self.pending.pop(number, None), self._patterns.pop(number, None)
        if pending is not None:
            try:
                pending.reply = answered(pattern, kind, content, self._limits)
            except RemoteError as error:
                pending.error = error
            pending.done = True

    def _taken(self, number: int) -> None:
        """The server has taken all calls up to this one."""
        pending = self.pending
        while pending:
            first = next(iter(pending))
            if first > number:
                return
            self._patterns.pop(first, None)
            pending.pop(first).done = True

    def _refused(self, number: int, error: RemoteError) -> None:
        """Note a refusal. After that of something that was sent, the server takes nothing more on this connection."""
        self._taken(number - 1)
        pending = self.pending.pop(number, None)
        if pending is not None:
            pending.error, pending.done = error, True
            if not changes_state(pending.method, pending.message):
                return
            error = Gone(f"an earlier message was refused: {error}")
        self.ended = True
        self.fail(error)

    def fail(self, error: RemoteError) -> None:
        """Nobody will answer what is still open."""
        for pending in self.pending.values():
            pending.error, pending.done = error, True
        self.pending.clear()

    def _end(self, failure: Failure | RemoteError) -> None:
        with self.changed:
            self.failure, self.ended = self.failure or failure, True
            self.changed.notify_all()

    # -- the end
    def cancel(self) -> None:
        """End the connection without more ado."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        with self.changed:
            self.ended = True
            self.changed.notify_all()
        self._socket.close()

    def finish(self) -> None:
        """Say that nothing more will come, and see the connection end."""
        self.flush()
        end = time.monotonic() + LAST_SECONDS
        while self._out and not self.ended and time.monotonic() < end:
            self._pause(end)
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_WR)
        while not self.ended and time.monotonic() < end:
            self._pause(end)
        self.cancel()

    def _pause(self, end: float) -> None:
        with self.changed:
            if self._is_looked_at:
                self.changed.wait(0.01)
                return
            self._is_looked_at = True
        self._look(max(end - time.monotonic(), 0.0), reads=True, writes=False)

    def leave_to_parent(self) -> None:
        """In the child of a fork: close this copy, which the parent does not notice. Takes no lock."""
        self._socket.close()


class Lines:
    """Opens connections to one server, one after the other. ask: a socket of the server within so many seconds, or None."""

    def __init__(
        self,
        ask: Callable[[float], socket.socket | None],
        first: socket.socket | None,
        endpoint: str,
        options: TransportOptions,
    ) -> None:
        self._ask, self._first, self._endpoint, self._options = ask, first, endpoint, options
        self._memory = Memory()

    def __call__(self, patience: float) -> Line:
        """The next one; raises RemoteError where the server lets nobody in for so many seconds."""
        found, self._first = self._first, None
        if found is None:
            found = self._reach(time.monotonic() + patience)
        return Line(found, self._options.limits, self._memory, self._options.silence)

    def _reach(self, end: float) -> socket.socket:
        """Ask again when the connection breaks meanwhile, too."""
        failure = Gone(f"server {self._endpoint} offers a socket, but refuses connections to it")
        for _ in range(self._options.retry_times + 1):
            try:
                found = self._ask(end - time.monotonic())
            except Gone as error:
                failure = error
            else:
                if found is not None:
                    return found
            if time.monotonic() + PAUSE > end:
                break
            time.sleep(PAUSE)
        raise failure
