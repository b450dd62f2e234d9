"""Peers of another version, or of other programs: each is turned away with a reason, and nothing of it counts.

The server is one of fluidtool's own with variables that count what they are sent; the peers speak as a later, an earlier or a
foreign version would.
"""

from __future__ import annotations

import random
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any
from unittest import mock

import grpc
import numpy as np

from fluidtool.distribute.rpc import client as clients
from fluidtool.distribute.rpc import service
from fluidtool.distribute.rpc.client import Client, connect
from fluidtool.distribute.rpc.handler import Message, RemoteError
from fluidtool.distribute.rpc.methods import Method
from fluidtool.distribute.rpc.options import TransportOptions
from fluidtool.distribute.rpc.service import CALL_KEY, OWN_SERVICE, TRAINER_KEY, VERSION, Server
from fluidtool.distribute.rpc.sockets import line, offers
from fluidtool.distribute.rpc.sockets.offers import Offer, reached
from fluidtool.distribute.rpc.sockets.packets import HEADER, WHOLE, packet
from fluidtool.distribute.rpc.wire import encode
from fluidtool.tensor import LoDTensor
from tests.distribute.rpc.support import Keeper, served

SENT = Message("g", LoDTensor(np.ones(4, np.float32)))
PATIENT = TransportOptions(deadline=60.0)
Case = Callable[[Server, Keeper, random.Random], list[str]]


def meet(dice: random.Random, count: int) -> Iterator[tuple[str, list[str]]]:
    """So many peers, one after the other: what each was, and what went wrong."""
    names = list(CASES)
    for number in range(count):
        name = names[number % len(names)]
        keeper = Keeper(w=LoDTensor(np.arange(4, dtype=np.float32)))
        with served(keeper) as server:
            wrong = CASES[name](server, keeper, dice)
            wrong += [] if _is_well(server) else ["an honest peer is not served any more"]
        yield name, wrong


def _is_well(server: Server) -> bool:
    honest = connect(server.endpoint, 1, PATIENT)
    try:
        return bool(np.array_equal(honest.get("w").numpy(), np.arange(4)))  # type: ignore[union-attr]
    finally:
        honest.close()


def _once(keeper: Keeper) -> list[str]:
    """Something that was sent has to arrive once."""
    count = sum(heard[0] == "send" for heard in keeper.heard)
    return [] if count == 1 else [f"what was sent once arrived {count} times"]


def _never(keeper: Keeper) -> list[str]:
    count = sum(heard[0] != "get" for heard in keeper.heard)
    return [f"{count} calls of a foreign version counted"] if count else []


@contextmanager
def _client(server: Server) -> Iterator[Client]:
    made = connect(server.endpoint, 0, PATIENT)
    try:
        yield made
    finally:
        made.close()


def other_hello(server: Server, keeper: Keeper, dice: random.Random) -> list[str]:
    """A server that calls itself by another version: a client then talks to it as to Paddle's."""
    with mock.patch.object(clients, "VERSION", b"fluidtool.Parameters 2"), _client(server) as peer:
        peer.send("g", SENT.value)  # type: ignore[arg-type]
        wrong = ["it takes a server of another version for its own"] if peer.own else []
    return wrong + _once(keeper)


def other_offer(server: Server, keeper: Keeper, dice: random.Random) -> list[str]:
    """A server that offers sockets in another way: a stream serves."""
    with mock.patch.object(Offer, "encoded", lambda offer: b"fluidtool sock 2\n0"), _client(server) as peer:
        peer.send("g", SENT.value)  # type: ignore[arg-type]
        wrong = ["it stays on a socket that it does not know"] if _is_on_a_socket(peer) else []
    return wrong + _once(keeper)


def other_welcome(server: Server, keeper: Keeper, dice: random.Random) -> list[str]:
    """A door that answers otherwise: a stream serves."""
    with mock.patch.object(offers, "WELCOME", b"fluidtool pack 2"), _client(server) as peer:
        peer.send("g", SENT.value)  # type: ignore[arg-type]
        wrong = ["it stays on a socket that it does not know"] if _is_on_a_socket(peer) else []
    return wrong + _once(keeper)


def other_packets(server: Server, keeper: Keeper, dice: random.Random) -> list[str]:
    """A client whose packets are of another version: methods and patterns that do not exist, another header."""
    kind = dice.choice([7, 99, 1 << 31])
    odd: list[Any] = dice.choice(
        [
            packet(1, 0, kind, 0, [b"x" * 16]),
            packet(1, 0, Method.SendVariable, 5, [b"x" * 16]),
            [dice.randbytes(8) + b"".join(map(bytes, packet(1, 0, Method.SendVariable, WHOLE, encode(SENT))))],
        ]
    )
    with grpc.insecure_channel(server.endpoint, options=[("grpc.use_local_subchannel_pool", 1)]) as channel:
        ask = channel.unary_unary(f"/{OWN_SERVICE}/Socket")
        offer = Offer.of(ask(VERSION, timeout=60, metadata=((TRAINER_KEY, "0"), (CALL_KEY, "odd-0"))))
    assert offer is not None
    found = reached(offer, server.endpoint, 60.0, 60.0)
    if found is None:
        return ["no socket"]
    found.settimeout(60.0)
    with found, suppress(ConnectionError):
        found.sendall(b"".join(map(bytes, odd)))
        found.shutdown(socket.SHUT_WR)
        said = b""
        while more := found.recv(1 << 16):
            said += more
        # Half a packet of the other header may be all that comes: then the end of the connection is the answer.
        told = len(said) < HEADER.size or HEADER.unpack_from(said)[2] != 0
        return _never(keeper) + ([] if told else ["it was answered as if it were understood"])
    return _never(keeper)


def other_answers(server: Server, keeper: Keeper, dice: random.Random) -> list[str]:
    """A server whose answers are of a kind that the client does not know."""
    with mock.patch.object(line, "answered", _unknown), _client(server) as peer:
        try:
            peer.get("w")
        except RemoteError as error:
            return [] if "version" in str(error) else [f"the message names no way out: {error}"]
    return ["an answer of an unknown kind was taken"]


def other_programs(server: Server, keeper: Keeper, dice: random.Random) -> list[str]:
    """A trainer of another job asks for what this server does not keep."""
    with _client(server) as peer:
        try:
            peer.get("v")
        except RemoteError as error:
            return [] if "v" in str(error) and server.endpoint in str(error) else [f"it names no role: {error}"]
    return ["a variable that is not there was given"]


def other_metadata(server: Server, keeper: Keeper, dice: random.Random) -> list[str]:
    """A client that says who it is in another way."""
    with mock.patch.object(clients, "TRAINER_KEY", service.CALL_KEY), _client(server) as peer:
        try:
            peer.send("g", SENT.value)  # type: ignore[arg-type]
        except RemoteError:
            return _never(keeper)
    return _once(keeper)


def _unknown(*given: Any) -> Message:
    pattern, _, content, limits = given
    from fluidtool.distribute.rpc.sockets.packets import answered

    return answered(pattern, 77, content, limits)


def _is_on_a_socket(peer: Client) -> bool:
    return type(getattr(peer._way(), "_stream", None)).__name__ == "Line"


CASES: dict[str, Case] = {
    "another hello": other_hello,
    "another offer": other_offer,
    "another welcome": other_welcome,
    "other packets": other_packets,
    "other answers": other_answers,
    "other programs": other_programs,
    "other metadata": other_metadata,
}
