"""What a server's loop does with sockets of those who are slow, silent, too many, or gone."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Any

import grpc
import numpy as np
import pytest

from fluidtool.distribute.rpc import rooms
from fluidtool.distribute.rpc.client import Client, connect
from fluidtool.distribute.rpc.handler import Gone, Message, Refused
from fluidtool.distribute.rpc.methods import Method
from fluidtool.distribute.rpc.options import TransportOptions
from fluidtool.distribute.rpc.security import Security
from fluidtool.distribute.rpc.service import CALL_KEY, OWN_SERVICE, TRAINER_KEY, VERSION, Server
from fluidtool.distribute.rpc.sockets import door, loop
from fluidtool.distribute.rpc.sockets.offers import GREETING, TICKET_BYTES, WELCOME, Offer, reached
from fluidtool.distribute.rpc.sockets.packets import HEADER, WHOLE, packet
from fluidtool.distribute.rpc.wire import Limits, encode
from fluidtool.tensor import LoDTensor
from tests.distribute.rpc.support import Keeper, Proxies, connected, eventually, served, tensor

MIB = 1 << 20
TOKEN = "0123456789abcdef"
needs_proc = pytest.mark.skipif(not os.path.exists("/proc/self/statm"), reason="memory is read from /proc")


def offered(server: Server, name: str = "raw", token: str = "") -> Offer:
    """What the server offers a client of this name."""
    metadata: tuple[tuple[str, str], ...] = ((TRAINER_KEY, "0"), (CALL_KEY, f"{name}-0"))
    if token:
        metadata += (("fluidtool-token", token),)
    with grpc.insecure_channel(server.endpoint, options=[("grpc.use_local_subchannel_pool", 1)]) as channel:
        ask = channel.unary_unary(f"/{OWN_SERVICE}/Socket")
        found = Offer.of(ask(VERSION, timeout=20, metadata=metadata, wait_for_ready=True))
    assert found is not None
    return found


@contextmanager
def raw(server: Server, name: str = "raw") -> Iterator[socket.socket]:
    """A socket that was let in, of a client that may do anything."""
    found = reached(offered(server, name), server.endpoint, 20.0, 60.0)
    assert found is not None
    found.settimeout(20.0)
    with found:
        yield found


def is_closed(found: socket.socket) -> bool:
    """Whether the server closes a socket, whatever it says before."""
    with suppress(ConnectionError):
        while found.recv(MIB):
            pass
    return True


def memory() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def threads(name: str) -> int:
    return sum(name in thread.name for thread in threading.enumerate())


def way(client: Client) -> Any:
    """The connection that a client has."""
    return client._way()._stream  # type: ignore[attr-defined]


# ---------------------------------------------------------------- who gets one
class TestAdmission:
    def test_a_client_of_ours_gets_a_socket(self) -> None:
        with connected(Keeper(w=tensor(3))) as client:
            client.get("w")
            assert type(way(client)).__name__ == "Line"

    @pytest.mark.parametrize("which", ["client", "server"])
    def test_a_stream_serves_where_one_side_wants_no_socket(self, which: str) -> None:
        mine, theirs = TransportOptions(sockets=which != "client"), TransportOptions(sockets=which != "server")
        with connected(Keeper(w=tensor(3)), 0, mine, theirs) as client:
            client.get("w")
            assert client.streaming and type(way(client)).__name__ == "Stream"

    def test_a_stream_serves_where_no_socket_can_be_reached(self) -> None:
        with served(Keeper(w=tensor(3))) as server, socket.socket() as deaf:
            deaf.bind(("127.0.0.1", 0))
            assert server.loop is not None
            server.loop.door.name, server.loop.door.port = "", deaf.getsockname()[1]
            client = connect(server.endpoint)
            client.get("w")
            assert type(way(client)).__name__ == "Stream"
            client.close()

    @pytest.mark.parametrize(("repetitions", "reached"), [(3, True), (0, False)])
    def test_where_the_connection_breaks_meanwhile_it_is_made_again(self, repetitions: int, reached: bool) -> None:
        with served(Keeper(w=tensor(3))) as server:
            proxies, door, asked = Proxies(server), server.loop.door, []  # type: ignore[union-attr]
            offer = door.offer

            def break_once(trainer_id: int, client: str) -> Offer:
                asked.append(trainer_id)
                if len(asked) == 1:
                    proxies.cut()
                return offer(trainer_id, client)

            door.offer = break_once  # type: ignore[method-assign]
            client = connect(proxies.endpoint, 0, TransportOptions(retry_times=repetitions))
            if reached:
                assert client.get("w").shape() == [3]  # type: ignore[union-attr]
                assert type(way(client)).__name__ == "Line" and len(asked) in range(2, 2 + repetitions)
            else:
                with pytest.raises(Gone, match="offers no socket"):
                    client.get("w")
            client.close()
            proxies.close()

    def test_by_a_port_where_the_name_is_of_another_machine(self) -> None:
        with served(Keeper(w=tensor(3))) as server:
            assert server.loop is not None
            server.loop.door.name = "fluidtool-of-another-machine"
            client = connect(server.endpoint)
            client.get("w")
            assert way(client)._socket.family == socket.AF_INET
            client.close()

    def test_no_ticket_without_the_token(self) -> None:
        with served(Keeper(), TransportOptions(security=Security(token=TOKEN))) as server:
            with pytest.raises(grpc.RpcError) as caught:
                offered(server)
            assert caught.value.code().name == "UNAUTHENTICATED"
            assert offered(server, token=TOKEN).port

    @pytest.mark.parametrize(
        "brought",
        [b"", b"G", GREETING, GREETING + bytes(TICKET_BYTES), b"GET / HTTP/1.1\r\n" + bytes(TICKET_BYTES), bytes(48)],
    )
    def test_nobody_gets_in_without_a_ticket(self, brought: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(door, "INTRODUCTION", 0.2)
        keeper = Keeper()
        with served(keeper) as server:
            offer = offered(server)
            with socket.create_connection(("127.0.0.1", offer.port), 20) as stranger:
                stranger.sendall(brought)
                assert is_closed(stranger)
        assert keeper.heard == []

    def test_a_ticket_lets_one_in(self) -> None:
        with served(Keeper()) as server:
            offer = offered(server)
            first = reached(offer, server.endpoint, 20.0, 60.0)
            assert first is not None and reached(offer, server.endpoint, 1.0, 60.0) is None
            first.close()

    @needs_proc
    def test_nothing_is_read_behind_a_wrong_ticket(self) -> None:
        with served(Keeper()) as server, socket.create_connection(("127.0.0.1", offered(server).port), 20) as stranger:
            before = memory()
            with suppress(ConnectionError):
                stranger.sendall(GREETING + bytes(TICKET_BYTES) + HEADER.pack(1, 0, 1, 0, 100 * MIB))
                for _ in range(100):
                    stranger.sendall(bytes(MIB))
            assert memory() - before < 30 * MIB

    def test_strangers_who_say_nothing_keep_nobody_out(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(door, "MOST_STRANGERS", 8)
        monkeypatch.setattr(door, "INTRODUCTION", 60.0)
        with served(Keeper(w=tensor(1))) as server, ExitStack() as silent:
            port = offered(server).port
            for _ in range(30):
                silent.enter_context(socket.create_connection(("127.0.0.1", port), 20))
            client = connect(server.endpoint)
            client.get("w")
            assert server.loop is not None
            server.loop.door.name = ""  # by the port, where the strangers are
            way(client).cancel()
            assert client.get("w").shape() == [1]  # type: ignore[union-attr]
            assert type(way(client)).__name__ == "Line"
            client.close()

    def test_one_that_is_turned_away_when_it_says_something_ends_nothing(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(door, "MOST_STRANGERS", 1)
        with served(Keeper(w=tensor(1))) as server, ExitStack() as strangers:
            assert server.loop is not None
            address = ("127.0.0.1", offered(server).port)
            first = strangers.enter_context(socket.create_connection(address, 20))
            assert eventually(lambda: len(server.loop.door._strangers) == 1)  # type: ignore[union-attr]
            server.loop._call_soon(lambda: time.sleep(0.5))  # what comes meanwhile is seen together
            time.sleep(0.1)
            strangers.enter_context(socket.create_connection(address, 20))
            first.sendall(b"x")
            assert is_closed(first)
            client = connect(server.endpoint)
            assert client.get("w").shape() == [1]  # type: ignore[union-attr]
            assert type(way(client)).__name__ == "Line"
            client.close()


# ---------------------------------------------------------------- bytes that are no calls
class TestMalformed:
    @pytest.mark.parametrize(
        "data",
        [
            bytes(64),
            b"\xff" * 64,
            HEADER.pack(1, 0, 99, 0, 0),
            HEADER.pack(1, 0, 1, 5, 0),
            HEADER.pack(1, 0, 1, 0, 1 << 60),
            b"".join(map(bytes, packet(1, 0, 1, 0, [b"\xff" * 40]))),
        ],
    )
    def test_one_error_and_the_end(self, data: bytes) -> None:
        keeper = Keeper(w=tensor(1))
        with served(keeper) as server:
            with raw(server) as bad:
                bad.sendall(data)
                answer = b""
                while more := bad.recv(MIB):
                    answer += more
            _, _, code, _, length = HEADER.unpack_from(answer)
            assert code and len(answer) == HEADER.size + length + -length % 16
            client = connect(server.endpoint)
            assert client.get("w").shape() == [1]  # type: ignore[union-attr]
            client.close()
        assert [heard[0] for heard in keeper.heard] == ["get"]

    def test_the_client_is_told_what_was_wrong(self) -> None:
        with (
            connected(
                Keeper(), 0, TransportOptions(deadline=20), TransportOptions(limits=Limits(message=1 << 16))
            ) as client,
            pytest.raises(Refused, match=r"received a packet of 2097\d* bytes, but at most"),
        ):
            client.send("g", tensor(1 << 19))

    def test_an_error_of_the_handler_ends_nothing_else(self) -> None:
        keeper = Keeper(w=tensor(1))

        def fail(what: str, call: Any) -> None:
            raise MemoryError("no room")

        with served(keeper) as server:
            clients = [connect(server.endpoint, number) for number in range(2)]
            clients[0].get("w")
            keeper.before = fail
            with pytest.raises(Exception, match="MemoryError: no room"):
                clients[1].get("w")
            keeper.before = lambda what, call: None
            for client in clients:
                client.get("w")
                client.close()


# ---------------------------------------------------------------- the slow and the silent
class TestSlow:
    @needs_proc
    def test_a_client_that_takes_no_answers_is_answered_no_more(self) -> None:
        keeper = Keeper(w=tensor(MIB // 4))  # of 1 MiB
        asking = b"".join(
            b"".join(map(bytes, packet(number, 0, Method.GetVariable, WHOLE, encode(Message("w")))))
            for number in range(1, 2001)
        )
        with served(keeper) as server, raw(server) as greedy:
            before = memory()
            greedy.sendall(asking)
            client = connect(server.endpoint, 1)
            for _ in range(20):
                client.get("w")
            client.close()
            assert memory() - before < 60 * MIB
            assert sum(heard[2] == 0 for heard in keeper.heard) < 20

    def test_half_a_message_stops_nobody(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(loop, "TICK", 0.05)
        monkeypatch.setattr("fluidtool.distribute.rpc.sockets.space.STALLED", 0.3)
        assert rooms.STALLED == 10.0
        small = TransportOptions(caller_bytes=4 * MIB, all_bytes=4 * MIB, limits=Limits(message=4 * MIB))
        with served(Keeper(), small) as server, raw(server) as slow:
            slow.sendall(HEADER.pack(1, 0, 1, 0, 3 * MIB) + bytes(100))
            time.sleep(0.1)
            client = connect(server.endpoint, 1)
            client.send("g", LoDTensor(np.ones(MIB // 2, np.float32)))
            client.close()
            assert is_closed(slow)

    def test_half_a_message_may_take_its_time_where_nobody_waits(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("fluidtool.distribute.rpc.sockets.space.STALLED", 0.1)
        keeper = Keeper()
        message = Message("g", LoDTensor(np.ones(MIB, np.float32)))
        data = b"".join(map(bytes, packet(1, 0, Method.SendVariable, WHOLE, encode(message))))
        with served(keeper) as server, raw(server) as slow:
            slow.sendall(data[: len(data) // 2])
            time.sleep(1.2)
            slow.sendall(data[len(data) // 2 :])
            assert HEADER.unpack_from(slow.recv(HEADER.size))[0] == 1
        assert "g" in keeper.received

    def test_a_connection_that_stands_still_within_a_message_ends(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(loop, "TICK", 0.05)
        with served(Keeper(), TransportOptions(deadline=0.3)) as server, raw(server) as slow:
            slow.sendall(HEADER.pack(1, 0, 1, 0, MIB))
            assert is_closed(slow)

    def test_one_that_says_nothing_may_stay(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(loop, "TICK", 0.05)
        with connected(Keeper(w=tensor(1)), 0, None, TransportOptions(deadline=0.2)) as client:
            client.get("w")
            time.sleep(0.6)
            client.get("w")

    def test_what_waits_behind_a_call_is_not_read_without_end(self) -> None:
        keeper = Keeper(w=tensor(1))
        keeper.opened.clear()
        sending = Message("g", LoDTensor(np.ones(1000, np.float32)))
        with served(keeper) as server, raw(server) as flood:
            flood.settimeout(1.0)
            flood.sendall(b"".join(map(bytes, packet(1, 0, Method.GetVariable, WHOLE, encode(Message("w"))))))
            sent = 0
            with pytest.raises(TimeoutError):
                while sent < 200 * MIB:
                    sent += flood.send(b"".join(map(bytes, packet(2, 0, Method.SendVariable, WHOLE, encode(sending)))))
            assert sent < 20 * MIB  # what the system keeps, and little more
            keeper.opened.set()


# ---------------------------------------------------------------- those who wait
class TestWaiting:
    def test_calls_that_wait_hold_no_threads(self) -> None:
        keeper = Keeper(w=tensor(1))
        keeper.opened.clear()
        with served(keeper) as server:
            clients = [connect(server.endpoint, number) for number in range(12)]
            before = threads("calls ") + threads("sockets ")
            waiting = [client.post_get("w") for client in clients]
            for client in clients:
                client.flush()
            assert eventually(lambda: len(keeper.heard) == 12)
            assert threads("calls ") + threads("sockets ") == before
            keeper.opened.set()
            for client, pending in zip(clients, waiting, strict=True):
                assert client.wait_value(pending).shape() == [1]  # type: ignore[union-attr]
                client.close()

    def test_the_handler_is_told_when_one_that_waits_is_gone(self) -> None:
        keeper = Keeper(w=tensor(1))
        keeper.opened.clear()
        lost: list[int] = []
        from fluidtool.distribute.rpc.service import serve

        with serve("127.0.0.1:0", keeper, lost=lost.append) as server:
            client = connect(server.endpoint, 5)
            client.post_get("w")
            client.flush()
            assert eventually(lambda: len(keeper.waiting) == 1)
            client.abandon()
            assert eventually(lambda: lost == [5])
            assert keeper.waiting == []

    def test_a_new_socket_of_a_client_takes_the_place_of_the_old_one(self) -> None:
        with served(Keeper()) as server, raw(server, "one") as old, raw(server, "one") as new:
            assert is_closed(old)
            new.sendall(b"".join(map(bytes, packet(1, 0, Method.GetVariable, WHOLE, encode(Message("w"))))))
            assert HEADER.unpack_from(new.recv(HEADER.size))[0] == 1

    def test_a_long_call_does_not_keep_others_waiting(self) -> None:
        keeper, go_on = Keeper(w=tensor(1)), threading.Event()

        def wait(what: str, call: Any) -> None:
            if what == "send":
                go_on.wait(20)

        keeper.before = wait
        with served(keeper) as server:
            busy, other = (connect(server.endpoint, number) for number in range(2))
            busy.post_send("g", tensor(MIB))
            busy.flush()
            assert eventually(lambda: bool(keeper.heard))
            assert other.get("w").shape() == [1]  # type: ignore[union-attr]
            go_on.set()
            busy.settle()
            busy.close()
            other.close()

    def test_a_call_that_runs_beside_the_loop_is_not_run_again(self) -> None:
        keeper, go_on = Keeper(), threading.Event()
        keeper.before = lambda what, call: go_on.wait(20)  # type: ignore[assignment,return-value]
        call = b"".join(map(bytes, packet(1, 0, Method.SendVariable, WHOLE, encode(Message("g", tensor(MIB // 4))))))
        with served(keeper) as server, raw(server, "one") as first:
            first.sendall(call)
            assert eventually(lambda: len(keeper.heard) == 1)
            with raw(server, "one"), raw(server, "one") as third:
                third.sendall(call)
                time.sleep(0.2)
                go_on.set()
                assert HEADER.unpack_from(third.recv(HEADER.size))[:3] == (1, 0, 0)
        assert len(keeper.heard) == 1


# ---------------------------------------------------------------- the end
class TestTheEnd:
    def test_a_client_that_closes_leaves_no_thread(self) -> None:
        with connected(Keeper(w=tensor(1))) as client:
            client.send("g", tensor(8 * MIB))
            client.get("w")
            client.close()
            assert threads("sending to a server") == 0

    def test_what_was_sent_before_a_client_closes_arrives(self) -> None:
        keeper = Keeper()
        with served(keeper) as server:
            client = connect(server.endpoint)
            for number in range(50):
                client.post_send(f"g{number}", tensor(1000))
            client.close()
            assert eventually(lambda: len(keeper.received) == 50)

    def test_a_server_that_stops_closes_its_sockets_and_its_thread(self) -> None:
        with served(Keeper(w=tensor(1))) as server:
            client = connect(server.endpoint, 0, TransportOptions(deadline=1.0))
            client.get("w")
            assert server.loop is not None
            port = server.loop.door.port
        assert threads(f"sockets {server.endpoint.rpartition(':')[0]}:0") == 0
        with pytest.raises(OSError):
            socket.create_connection(("127.0.0.1", port), 1)
        with pytest.raises(Exception, match="server"):
            client.get("w")
        client.close()

    @pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
    def test_the_child_of_a_fork_leaves_the_socket_to_its_parent(self) -> None:
        with connected(Keeper(w=tensor(1))) as client:
            client.get("w")
            child = os.fork()
            if not child:
                client.leave_to_parent()
                os._exit(0)
            os.waitpid(child, 0)
            assert client.get("w").shape() == [1]  # type: ignore[union-attr]

    def test_a_refused_reconnection_is_an_error(self) -> None:
        with served(Keeper(w=tensor(1))) as server:
            client = connect(server.endpoint, 0, TransportOptions(deadline=5.0, retry_times=0))
            client.get("w")
            assert server.loop is not None
            server.loop.door.name, server.loop.door.port = "", 1
            way(client).cancel()
            with pytest.raises(Gone):
                client.get("w")
            client.close()


def test_the_welcome_is_as_long_as_packets_are_aligned() -> None:
    assert len(WELCOME) % 16 == 0
