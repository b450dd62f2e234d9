"""Clients of servers of which there are two copies: they find the one that serves, and send again what the other one lacks."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import numpy as np
import pytest

pytest.importorskip("grpc", reason="parameter servers talk by gRPC: pip install 'fluidtool[dist]'")

from fluidtool.distribute.rpc.client import Client, ReplicatedClient, connect
from fluidtool.distribute.rpc.handler import Barrier, Call, Gone, Late, Message, Value
from fluidtool.distribute.rpc.methods import STATUS
from fluidtool.distribute.rpc.options import TransportOptions
from fluidtool.distribute.rpc.service import Server, serve
from fluidtool.errors import UsageError
from fluidtool.tensor import LoDTensor


class Copy:
    """One copy: it serves, or not, and remembers what it took."""

    def __init__(self, term: int) -> None:
        self.term, self.taken = term, list[tuple[str, int]]()
        self.has_closed = threading.Event()

    def _take(self, name: str, call: Call) -> None:
        if not self.term:
            raise Gone("this copy does not serve")
        self.taken.append((name, call.sequence or 0))

    def send(self, message: Message, call: Call) -> None:
        self._take(message.name, call)

    def barrier(self, kind: Barrier, call: Call) -> None:
        self._take(kind.name, call)

    def complete(self, trainer_id: int, call: Call) -> None:
        self._take("complete", call)

    def get(self, request: Message, call: Call) -> Value:
        self._take(request.name, call)
        return LoDTensor(np.array([float(self.term)], np.float32))

    def get_without_barrier(self, request: Message, call: Call) -> Value:
        if request.name == STATUS:
            return LoDTensor(np.array([bool(self.term), self.term, 1, bool(self.term)], np.int64))
        return self.get(request, call)

    prefetch = get

    def checkpoint(self, request: Message, call: Call) -> None:
        self._take("checkpoint", call)

    def notify(self, message: Message, call: Call) -> None:
        self._take(message.name, call)


Pair = tuple[Copy, Copy, list[Server], ReplicatedClient]


@pytest.fixture
def pair() -> Iterator[Pair]:
    """Two copies, of which the first one serves, and a client."""
    copies = Copy(1), Copy(0)
    with ExitStack() as stack:
        servers = [stack.enter_context(serve("127.0.0.1:0", copy)) for copy in copies]
        options = TransportOptions(deadline=20.0, replicas={servers[0].endpoint: servers[1].endpoint})
        client = connect(servers[0].endpoint, 0, options)
        assert isinstance(client, ReplicatedClient)
        try:
            yield (*copies, servers, client)
        finally:
            client.close()


def value() -> LoDTensor:
    return LoDTensor(np.ones(3, np.float32))


def read(client: ReplicatedClient) -> float:
    found: Any = client.get("w")
    return float(found.array[0])


def test_a_server_without_a_second_copy_has_a_plain_client() -> None:
    assert type(connect("127.0.0.1:1", 0, TransportOptions(replicas={"127.0.0.1:2": "127.0.0.1:3"}))) is Client


def test_replicas_that_are_no_pairs_are_an_error() -> None:
    with pytest.raises(UsageError, match="FLUIDTOOL_REPLICAS must be a list of HOST:PORT=HOST:PORT"):
        TransportOptions.from_environment({"FLUIDTOOL_REPLICAS": "127.0.0.1:1"})


def test_calls_go_to_the_copy_that_serves(pair: Pair) -> None:
    first, second, _, client = pair
    client.send("g", value())
    assert read(client) == 1.0
    assert first.taken == [("g", 0), ("w", 0)]
    assert not second.taken


def test_calls_find_the_second_copy_where_that_one_serves(pair: Pair) -> None:
    first, second, _, client = pair
    first.term, second.term = 0, 2
    assert read(client) == 2.0


def test_what_was_sent_since_the_last_barrier_is_sent_again_to_the_copy_that_takes_over(pair: Pair) -> None:
    first, second, servers, client = pair
    client.send("before", value())
    client.send_barrier()
    client.send("g", value())
    client.send("h", value())
    first.term, second.term = 0, 2
    servers[0].stop(0)
    assert read(client) == 2.0
    assert second.taken == [("g", 0), ("h", 0), ("w", 0)]


def test_a_step_that_ended_is_not_sent_again(pair: Pair) -> None:
    first, second, servers, client = pair
    client.send("g", value())
    client.send_barrier()
    client.fetch_barrier()
    first.term, second.term = 0, 2
    servers[0].stop(0)
    assert read(client) == 2.0
    assert second.taken == [("w", 1)]


def test_a_call_that_the_old_primary_refuses_is_made_to_the_new_one(pair: Pair) -> None:
    first, second, _, client = pair
    assert read(client) == 1.0
    first.term, second.term = 0, 2
    assert read(client) == 2.0


def test_a_primary_that_was_passed_over_and_does_not_know_it_is_left(pair: Pair) -> None:
    _, second, servers, client = pair
    assert read(client) == 1.0
    second.term = 5  # and the first one still says that it serves
    servers[0].stop(0)
    assert read(client) == 5.0


def test_an_answer_that_never_comes_is_asked_of_the_copy_that_has_taken_over(pair: Pair) -> None:
    first, second, _, client = pair
    assert read(client) == 1.0
    forever = threading.Event()
    first.get = lambda request, call: (forever.wait(15.0), value())[1]  # type: ignore[method-assign]
    threading.Timer(0.5, lambda: setattr(second, "term", 2)).start()
    begin = time.monotonic()
    client.wait_value(client.post_get("w", with_barrier=False))
    assert read(client) == 2.0
    assert time.monotonic() - begin < 15.0
    forever.set()


def test_calls_fail_where_neither_copy_serves() -> None:
    with socket.socket() as free, socket.socket() as other:
        for each in (free, other):
            each.bind(("127.0.0.1", 0))
        places = [f"127.0.0.1:{each.getsockname()[1]}" for each in (free, other)]
        client = connect(places[0], 0, TransportOptions(deadline=0.5, replicas={places[0]: places[1]}))
        with pytest.raises(Late, match="neither copy of the server"):
            client.get("w")
        client.close()
