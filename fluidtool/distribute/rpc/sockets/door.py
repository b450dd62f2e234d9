"""Who gets in at a server's sockets: who brings a ticket. Of anybody else a few bytes are read, and for a few seconds."""

from __future__ import annotations

import selectors
import socket
import time
from collections.abc import Callable
from functools import partial

from fluidtool.distribute.rpc.sockets.connection import Client
from fluidtool.distribute.rpc.sockets.offers import FIRST_BYTES, GREETING, Offer, Tickets, listen, local_name

MOST_STRANGERS = 256
INTRODUCTION = 5.0  # seconds that a socket has to bring its ticket
READ = selectors.EVENT_READ


class Stranger:
    """A socket that has not brought a ticket yet."""

    __slots__ = ("data", "peer", "since", "socket")

    def __init__(self, connection: socket.socket, peer: str) -> None:
        self.socket, self.peer, self.data, self.since = connection, peer, b"", time.monotonic()


class Door:
    """Listens, reads tickets, and hands over the sockets that brought one. name, port: where it listens. let_in: takes a socket
    and whose it is; False where there are too many. All but `offer` is called by one thread.
    """

    def __init__(
        self, endpoint: str, selector: selectors.BaseSelector, let_in: Callable[[socket.socket, Client], bool]
    ) -> None:
        self.name = local_name()
        self._listeners, self.port = listen(self.name, endpoint)
        self._selector, self._let_in = selector, let_in
        self._tickets: Tickets[tuple[int, str]] = Tickets()
        self._strangers: dict[Stranger, None] = {}
        self._is_open = self._is_shut = False

    def offer(self, trainer_id: int, client: str) -> Offer:
        """What a client needs to get in. Any thread may ask."""
        return Offer(self.name, self.port, self._tickets.give((trainer_id, client)))

    def open(self) -> None:
        """Listen, unless it was shut."""
        if self._is_open or self._is_shut:
            return
        self._is_open = True
        for listener in self._listeners:
            self._selector.register(listener, READ, partial(self._accept, listener))

    def shut(self) -> None:
        """Listen no more."""
        self._is_shut = True
        self._pause()

    def close(self) -> None:
        """Close every socket here."""
        for stranger in list(self._strangers):
            self._turn_away(stranger)
        for listener in self._listeners:
            listener.close()

    def look_around(self, now: float) -> None:
        """Once in a while: turn away those who bring nothing."""
        for stranger in [each for each in self._strangers if now - each.since > INTRODUCTION]:
            self._turn_away(stranger)
        self.open()

    def _pause(self) -> None:
        if self._is_open:
            self._is_open = False
            for listener in self._listeners:
                self._selector.unregister(listener)

    def _accept(self, listener: socket.socket, events: int) -> None:
        try:
            connection, address = listener.accept()
        except BlockingIOError:
            return
        except OSError:  # such as too many open files: look again in a while
            self._pause()
            return
        connection.setblocking(False)
        stranger = Stranger(connection, _named(address, connection))
        self._strangers[stranger] = None
        self._selector.register(connection, READ, partial(self._introduce, stranger))
        if len(self._strangers) > MOST_STRANGERS:  # a client brings its ticket at once: the oldest is none
            self._turn_away(next(iter(self._strangers)))

    def _introduce(self, stranger: Stranger, events: int) -> None:
        """Read a ticket, and not a byte more."""
        if stranger not in self._strangers:
            return  # turned away in the round of the loop in which it said something
        try:
            data = stranger.socket.recv(FIRST_BYTES - len(stranger.data))
        except BlockingIOError:
            return
        except OSError:
            data = b""
        stranger.data += data
        expected = GREETING.startswith(stranger.data[: len(GREETING)])
        if data and expected and len(stranger.data) < FIRST_BYTES:
            return
        caller = self._tickets.take(stranger.data[len(GREETING) :]) if data and expected else None
        if caller is None:
            self._turn_away(stranger)
            return
        self._forget(stranger)
        if not self._let_in(stranger.socket, Client(*caller, stranger.peer)):
            stranger.socket.close()

    def _turn_away(self, stranger: Stranger) -> None:
        self._forget(stranger)
        stranger.socket.close()

    def _forget(self, stranger: Stranger) -> None:
        self._strangers.pop(stranger, None)
        self._selector.unregister(stranger.socket)


def _named(address: object, connection: socket.socket) -> str:
    """An address as gRPC writes it; one on this machine has no name, and gets a number."""
    if not isinstance(address, tuple):
        return f"unix:{connection.fileno()}"
    return f"ipv{6 if ':' in address[0] else 4}:{address[0]}:{address[1]}"
