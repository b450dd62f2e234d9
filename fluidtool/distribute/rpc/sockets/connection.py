"""One client's socket at a server: what has arrived of it, what waits, and what is still to be sent."""

from __future__ import annotations

import socket
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress

from fluidtool.distribute.rpc.handler import Call, Refused, Waits
from fluidtool.distribute.rpc.methods import Method, answerer, changes_state
from fluidtool.distribute.rpc.sockets.packets import (
    DESCRIBED,
    METHODS,
    MOST_PATTERNS,
    Found,
    PacketReader,
    Pattern,
    described,
)
from fluidtool.distribute.rpc.wire import Buffer, Limits, decode
from fluidtool.records import dataclass

MOST_QUEUED = 64 << 10  # bytes that wait behind a call that waits, before no more are read
MOST_UNSENT = 1 << 20  # bytes of answers that a client does not take, before no more are made
BUFFERS = 512  # that one system call sends
JOINED = 64 << 10  # bytes that are sent as one buffer


@dataclass(frozen=True, slots=True)
class Client:
    """Who has a socket: the trainer, and the process of it. peer: the address, for messages."""

    trainer_id: int
    name: str
    peer: str


class Asked:
    """A call that has arrived. changes: whether it must not count twice. is_long: whether its content took room."""

    __slots__ = ("answer_by", "changes", "is_long", "message", "number", "pattern", "saves", "size", "step")

    def __init__(self, packet: Found, pattern: Pattern | None, limits: Limits) -> None:
        """Raises Refused for a packet that is no call, NotFound for one that nobody can answer."""
        self.number, self.step, code, _, content = packet
        self.size, self.is_long, self.pattern = len(content), type(content) is memoryview, pattern
        if pattern is not None:
            self.message = pattern.filled(content)
            self.changes, self.answer_by = pattern.changes, pattern.answer_by
            self.saves = pattern.method is Method.CheckpointNotify
            return
        if code not in METHODS:
            raise Refused(f"received a packet of method {code}, which does not exist")
        method = METHODS[code]
        self.message = decode(content, limits)
        self.changes, self.saves = changes_state(method, self.message), method is Method.CheckpointNotify
        self.answer_by = answerer(method, self.message)


class Connection:
    """A socket that was let in. It knows no other one, and no handler."""

    def __init__(self, connection: socket.socket, client: Client, reader: PacketReader) -> None:
        self.socket, self.client, self.reader = connection, client, reader
        self.again: Callable[[], object] = lambda: None  # tells the loop that the call that waits may be made
        self.done = 0  # the client's last change that is taken
        self.last_seen = time.monotonic()  # when bytes last moved
        self.asked: Asked | None = None  # the call that waits
        self.waits: Waits | None = None  # in the handler
        self.is_busy = False  # a thread answers the call
        self.was_woken = False  # the handler said meanwhile that the call may be made again
        self.has_ended = False  # nothing more will come
        self.is_ending = False  # nothing more is taken
        self.is_shut = False  # and nothing more is said
        self.is_closed = False
        self.taken: tuple[int, int] | None = None  # number and step of the last change that the client was not told of
        self.unsent = 0
        self._todo: deque[Found] = deque()
        self._queued = 0
        self._patterns: list[Pattern] = []
        self._out: deque[Buffer] = deque()
        self._call = Call()

    # -- what comes
    @property
    def may_read(self) -> bool:
        """Whether more should be read: not while much waits, or the client does not take its answers."""
        if self.is_ending:
            return not self.has_ended
        if self.has_ended or self.reader.is_waiting or self.unsent > MOST_UNSENT:
            return False
        return self._queued <= MOST_QUEUED

    @property
    def may_answer(self) -> bool:
        """Whether the next call may be made: not while one waits, or the client does not take its answers."""
        return not (self.is_busy or self.waits or self.is_ending or self.unsent > MOST_UNSENT)

    @property
    def is_owing(self) -> bool:
        """Whether the client waits for something that takes time, and would read a word meanwhile."""
        if self.is_ending or self.unsent or (self.reader.is_within and not self.reader.is_waiting):
            return False
        return self.waits is not None or self.is_busy or self.has_more or self.reader.is_waiting

    @property
    def has_more(self) -> bool:
        """Whether calls have arrived that were not made."""
        return bool(self._todo)

    def arrived(self, found: list[Found]) -> None:
        """Queue packets."""
        self._todo.extend(found)
        self._queued += sum([len(each[4]) for each in found]) if len(found) > 1 else len(found[0][4]) if found else 0

    def next(self, limits: Limits) -> Asked | None:
        """The next call, decoded; None when there is none. Raises Refused for what is not a call."""
        while self._todo:
            packet = self._todo.popleft()
            place = packet[3]
            self._queued -= len(packet[4])
            if packet[2] == DESCRIBED:
                self._describe(place, packet[4], limits)
            elif place > len(self._patterns):
                raise Refused(f"received a packet of pattern {place}, but {len(self._patterns)} are known")
            else:
                return Asked(packet, self._patterns[place - 1] if place else None, limits)
        return None

    def call(self, step: int) -> Call:
        """The call of a packet, for the handler."""
        if step != self._call.sequence:
            self._call = Call(self.client.trainer_id, step, self.client.peer, self._is_active, self.again)
        return self._call

    def _describe(self, place: int, content: Buffer, limits: Limits) -> None:
        if place != len(self._patterns) + 1 or place > MOST_PATTERNS:
            raise Refused(f"received the description of pattern {place}, but {len(self._patterns)} are known")
        self._patterns.append(described(place, content, limits))

    def _is_active(self) -> bool:
        return not self.is_closed

    # -- what goes
    def answer(self, parts: list[Buffer]) -> None:
        """Queue an answer."""
        self._out.extend(parts)
        self.unsent += len(parts[0]) if len(parts) == 1 else sum(map(len, parts))

    def send(self) -> None:
        """Send what the socket takes; raises OSError where it is broken."""
        out = self._out
        while out:
            if self.unsent <= JOINED and len(out) > 1:
                joined = b"".join(out)
                out.clear()
                out.append(joined)
            try:
                if len(out) == 1:
                    sent = self.socket.send(out[0])
                else:
                    sent = self.socket.sendmsg([out[i] for i in range(min(len(out), BUFFERS))])
            except BlockingIOError:
                return
            self.last_seen = time.monotonic()
            self.unsent -= sent
            drop(out, sent)

    def shut(self) -> None:
        """Say that nothing more will be said; what still comes is dropped, so that the client can read the last answer."""
        self.is_shut, self.last_seen = True, time.monotonic()
        self._todo.clear()
        with suppress(OSError):
            self.socket.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        """Close the socket, and let the handler forget the call that waits."""
        self.is_closed = self.is_ending = True
        if self.waits is not None:
            self.waits.give_up()
        self.asked = self.waits = None
        self._todo.clear()
        self._out.clear()
        self.socket.close()


def drop(out: deque[Buffer], count: int) -> None:
    """Take `count` bytes off the front of what is to be sent."""
    while count:
        first = out[0]
        if len(first) > count:
            out[0] = memoryview(first)[count:]
            return
        count -= len(first)
        out.popleft()
