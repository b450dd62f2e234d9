"""How a client gets a socket: it asks by gRPC, which lets nobody in without the token, and is told addresses and a ticket.

A ticket is the first that a socket brings. It is good for one connection, soon, and names the caller, so that nothing of what
strangers send is ever read beyond it.
"""

from __future__ import annotations

import secrets
import socket
import sys
import threading
import time
from collections import OrderedDict
from collections.abc import Iterator
from typing import Generic, TypeVar

from fluidtool.distribute.endpoints import host_and_port
from fluidtool.distribute.rpc.handler import Refused
from fluidtool.records import dataclass

GREETING = b"fluidtool socket"
TICKET_BYTES = 32
FIRST_BYTES = len(GREETING) + TICKET_BYTES  # what a client sends before anything else
WELCOME = b"fluidtool packet"
SECONDS = 30.0  # that a ticket is good for
MOST_TICKETS = 1 << 13
LONGEST_OFFER = 4096
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Offer:
    """Where a server takes sockets: a name on its own machine ("": none), a port (0: none); and the ticket."""

    name: str
    port: int
    ticket: bytes

    def encoded(self) -> bytes:
        """For the wire."""
        return b"\n".join((GREETING, self.name.encode(), str(self.port).encode(), self.ticket.hex().encode()))

    @classmethod
    def of(cls, data: bytes) -> Offer | None:
        """The offer that a server sent; None for nothing, or one of another version. Raises Refused for what is malformed."""
        greeting, *fields = data[:LONGEST_OFFER].split(b"\n")
        if greeting != GREETING:
            return None
        try:
            name, port, ticket = (field.decode("ascii") for field in fields)
            offer = cls(name, int(port), bytes.fromhex(ticket))
        except ValueError as error:
            raise Refused(f"the server's offer of a socket is not one of fluidtool's: {data[:80]!r}") from error
        if len(offer.ticket) != TICKET_BYTES or not 0 <= offer.port < 1 << 16:
            raise Refused(
                f"the server offers a socket at port {offer.port} with {len(offer.ticket)} bytes as its ticket"
            )
        return offer


class Tickets(Generic[T]):
    """Tickets that were given out, each with what is known of the caller."""

    def __init__(self, seconds: float = SECONDS, most: int = MOST_TICKETS) -> None:
        self._seconds, self._most = seconds, most
        self._given: OrderedDict[bytes, tuple[float, T]] = OrderedDict()
        self._lock = threading.Lock()

    def give(self, caller: T) -> bytes:
        """A new ticket; the oldest is worth nothing any more where there are too many."""
        ticket = secrets.token_bytes(TICKET_BYTES)
        with self._lock:
            self._given[ticket] = time.monotonic() + self._seconds, caller
            if len(self._given) > self._most:
                self._given.popitem(last=False)
        return ticket

    def take(self, ticket: bytes) -> T | None:
        """Whose ticket this is, which is used up then; None for one that was never given, or is too old."""
        with self._lock:
            end, caller = self._given.pop(ticket, (0.0, None))
        return caller if end > time.monotonic() else None


# -- addresses
def local_name() -> str:
    """A new name for sockets of this machine; "" where the system has none that need no file."""
    return f"fluidtool-{secrets.token_hex(16)}" if sys.platform == "linux" else ""


def listen(name: str, endpoint: str) -> tuple[list[socket.socket], int]:
    """Sockets that listen at a name and beside an endpoint, at a port of their own; and that port."""
    found = []
    if name:
        local = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        local.bind(f"\0{name}")
        found.append(local)
    family, kind, protocol, _, address = socket.getaddrinfo(
        host_and_port(endpoint)[0], 0, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )[0]
    remote = socket.socket(family, kind, protocol)
    remote.bind(address)
    found.append(remote)
    for each in found:
        each.listen(1024)
        each.setblocking(False)
    return found, int(remote.getsockname()[1])


def reached(offer: Offer, endpoint: str, patience: float, vanished: float) -> socket.socket | None:
    """A socket to the server that made the offer, let in within so many seconds, and not blocking; None where there is no way.
    vanished: see `tune`.
    """
    end = time.monotonic() + patience
    for connection in _connections(offer, endpoint, end):
        try:
            connection.settimeout(_left(end))
            connection.sendall(GREETING + offer.ticket)
            if _received(connection, len(WELCOME), end) == WELCOME:
                tune(connection, vanished)
                return connection
        except OSError:
            pass  # such as a reset, by something else that listens there
        connection.close()
    return None


def _left(end: float) -> float:
    """Seconds until then; raises TimeoutError where there are none, as 0 would mean not to wait at all."""
    left = end - time.monotonic()
    if left <= 0:
        raise TimeoutError
    return left


def _connections(offer: Offer, endpoint: str, end: float) -> Iterator[socket.socket]:
    """The ways to a server, the shortest first; a name is one of this machine, or is not there."""
    if offer.name and sys.platform == "linux":
        local = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            local.connect(f"\0{offer.name}")
        except OSError:
            local.close()
        else:
            yield local
    if offer.port:
        try:
            made = socket.create_connection((host_and_port(endpoint)[0], offer.port), _left(end))
        except OSError:
            return
        yield made


def _received(connection: socket.socket, count: int, end: float) -> bytes:
    data = b""
    while len(data) < count:
        connection.settimeout(_left(end))
        more = connection.recv(count - len(data))
        if not more:
            break
        data += more
    return data


BUFFER = 4 << 20  # bytes that the system keeps of what was sent; it may allow fewer


def tune(connection: socket.socket, vanished: float) -> None:
    """Not to block, to wait for nothing before sending, and to break when the other machine has said nothing for so many seconds:
    neither to what was sent nor, where nothing is on its way, to questions of the system.
    """
    connection.setblocking(False)
    for which in (socket.SO_SNDBUF, socket.SO_RCVBUF):
        connection.setsockopt(socket.SOL_SOCKET, which, BUFFER)
    if connection.family == getattr(socket, "AF_UNIX", None):
        return
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _patience(vanished).items():
        if hasattr(socket, name):
            connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


def _patience(vanished: float) -> dict[str, int]:
    """Options of TCP. Where the system knows TCP_USER_TIMEOUT, it counts instead of the number of questions."""
    between = max(1, int(vanished / 6))
    return {
        "TCP_KEEPIDLE": max(1, int(vanished / 2)),
        "TCP_KEEPINTVL": between,
        "TCP_KEEPCNT": max(1, int(vanished / 2 / between)),
        "TCP_USER_TIMEOUT": max(1, int(1000 * vanished)),
    }
