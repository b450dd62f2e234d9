"""A client that was closed leaves nothing of gRPC behind.

The destructor of a call of gRPC takes a lock. Where it runs as the interpreter ends, a thread of gRPC that was stopped may
hold that lock, and the process never ends: so calls are let go of while threads still run, and in no cycle of references.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator

import grpc
import pytest

from fluidtool.distribute.rpc.client import Client, connect
from fluidtool.distribute.rpc.handler import Gone, Late, Refused
from fluidtool.distribute.rpc.options import TransportOptions
from fluidtool.runtime.remote import Connections
from tests.distribute.rpc.support import Keeper, eventually, served, tensor

STREAM = TransportOptions(sockets=False)


@pytest.fixture(autouse=True)
def no_collection() -> Iterator[None]:
    """What the garbage collector would have to find counts as left behind."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def calls_left() -> int:
    """Streams of this process that gRPC has not taken apart."""
    return sum(isinstance(found, grpc.Call) and isinstance(found, Iterator) for found in gc.get_objects())


def step(client: Client) -> None:
    client.get("w")
    client.fetch_barrier()
    client.send_barrier()


def test_an_open_stream_is_seen() -> None:
    with served(Keeper(w=tensor(1))) as server:
        client = connect(server.endpoint, options=STREAM)
        step(client)
        assert calls_left() == 1
        client.close()


def test_a_trainer_that_has_completed() -> None:
    with served(Keeper(w=tensor(1))) as server:
        client = connect(server.endpoint, options=STREAM)
        step(client)
        client.complete()
        client.close()
        assert calls_left() == 0


def test_a_server_that_has_stopped() -> None:
    with served(Keeper(w=tensor(1))) as server:
        client = connect(server.endpoint, options=STREAM)
        step(client)
    client.close()
    assert calls_left() == 0


def test_a_server_that_is_gone_in_the_middle() -> None:
    with served(Keeper(w=tensor(1))) as server:
        client = connect(server.endpoint, options=TransportOptions(sockets=False, deadline=1.0))
        step(client)
    with pytest.raises((Late, Gone)) as caught:
        client.get("w")
    del caught
    client.close()
    assert calls_left() == 0


def test_an_answer_that_never_comes() -> None:
    keeper = Keeper(w=tensor(1))
    with served(keeper) as server:
        client = connect(server.endpoint, options=TransportOptions(sockets=False, deadline=0.5))
        step(client)
        keeper.opened.clear()
        with pytest.raises(Late):
            client.get("w")
        assert calls_left() == 0
        client.close()
        keeper.opened.set()


def test_a_message_that_was_refused() -> None:
    with served(Keeper(w=tensor(1))) as server:
        client = connect(server.endpoint, options=STREAM)
        with pytest.raises(Refused):
            client.send("refused", tensor(1))
        client.close()
        assert calls_left() == 0


def test_a_server_that_does_not_end_the_stream() -> None:
    keeper = Keeper(w=tensor(1))
    with served(keeper) as server:
        client = connect(server.endpoint, options=STREAM)
        step(client)
        keeper.opened.clear()
        client.post_get("w")
        client.flush()
        assert eventually(lambda: keeper.heard[-1][0] == "get")
        client.close()
        assert calls_left() == 0
        keeper.opened.set()


def test_a_process_that_ends_without_closing() -> None:
    connections = Connections()
    with served(Keeper(w=tensor(1))) as server:
        step(connections.to(server.endpoint, 0))
        connections.drain()
        assert calls_left() == 0
