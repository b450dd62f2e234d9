"""Connections on which nothing comes any more, though nobody has closed them: both sides notice, and nothing counts twice."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import grpc
import pytest

from fluidtool.distribute.rpc.client import connect
from fluidtool.distribute.rpc.handler import Late, RemoteError
from fluidtool.distribute.rpc.options import TransportOptions
from fluidtool.distribute.rpc.presence import KEPT, Presence, process_of
from fluidtool.distribute.rpc.service import CALL_KEY, OWN_SERVICE, TRAINER_KEY, VERSION, Server, asking, serve
from fluidtool.distribute.rpc.sockets import loop
from fluidtool.distribute.rpc.sockets.offers import WELCOME, Offer, reached, tune
from tests.distribute.rpc.support import ANY_PORT, Keeper, eventually, proxied, served, tensor

SILENCE = 0.6
A_LITTLE = 1.0  # seconds that a process may be late where others have the processors


@pytest.fixture(autouse=True)
def short_signs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Servers say that they are there more often than usual."""
    monkeypatch.setattr(loop, "TICK", 0.05)
    monkeypatch.setattr(loop, "SIGN", 0.15)


# ---------------------------------------------------------------- clients
class TestClients:
    def test_a_call_is_made_again_where_nothing_comes_any_more(self) -> None:
        keeper = Keeper(w=tensor(3))
        with proxied(keeper, TransportOptions(deadline=20, silence=SILENCE)) as (client, proxies):
            client.get("w")
            proxies.silence()
            began = time.monotonic()
            assert client.get("w").shape() == [3]  # type: ignore[union-attr]
            assert SILENCE <= time.monotonic() - began < 10

    def test_what_was_swallowed_counts_once(self) -> None:
        keeper = Keeper()
        with proxied(keeper, TransportOptions(deadline=20, silence=SILENCE)) as (client, proxies):
            client.send("first", tensor(3))
            proxies.swallow_answers(True)
            client.post_send("second", tensor(3))
            client.flush()
            assert eventually(lambda: "second" in keeper.received)
            proxies.silence()
            proxies.swallow_answers(False)
            client.post_send("third", tensor(3))
            client.settle()
        assert [heard[1] for heard in keeper.heard if heard[0] == "send"] == ["first", "second", "third"]

    def test_silence_uses_up_no_repetition(self) -> None:
        with proxied(Keeper(w=tensor(1)), TransportOptions(deadline=30, silence=SILENCE, retry_times=1)) as (
            client,
            proxies,
        ):
            client.get("w")
            for _ in range(3):
                proxies.silence()
                client.get("w")

    def test_a_client_that_may_repeat_nothing_waits_for_its_deadline(self) -> None:
        with proxied(Keeper(w=tensor(1)), TransportOptions(deadline=1.5, silence=0.2, retry_times=0)) as (
            client,
            proxies,
        ):
            client.get("w")
            proxies.silence()
            with pytest.raises(Late, match=r"no answer to GetVariable of 'w' within 1.5 s"):
                client.get("w")

    @pytest.mark.parametrize("retries", [0, 3])
    def test_no_wait_is_added_to_the_deadline(self, retries: int) -> None:
        """A server that takes connections and says nothing: neither greeting, nor asking for a socket, nor finding out why."""
        with socket.create_server(("127.0.0.1", 0), backlog=100) as mute:
            client = connect(
                f"127.0.0.1:{mute.getsockname()[1]}", 0, TransportOptions(deadline=2.0, retry_times=retries)
            )
            began = time.monotonic()
            with pytest.raises(RemoteError):
                client.get("w")
            assert time.monotonic() - began < 2.0 + A_LITTLE
            client.close()

    def test_a_broken_connection_is_not_made_again_for_longer_than_the_deadline(self) -> None:
        """Proxies go silent once a client is in: the call waits, finds out, and asks for another socket in vain."""
        with proxied(Keeper(w=tensor(1)), TransportOptions(deadline=3.0, silence=0.5)) as (client, proxies):
            client.get("w")
            proxies.silence()
            proxies.swallow_answers(True)  # of new connections, too
            began = time.monotonic()
            with pytest.raises(RemoteError):
                client.get("w")
            assert time.monotonic() - began < 3.0 + A_LITTLE

    def test_a_server_that_never_lets_a_socket_in_is_left_at_one_instant(self) -> None:
        """Each of connecting, sending and receiving could take all of the time."""
        with socket.create_server(("127.0.0.1", 0)) as mute:
            port = mute.getsockname()[1]
            began = time.monotonic()
            assert reached(Offer("", port, bytes(32)), f"127.0.0.1:{port}", 0.5, 60.0) is None
            assert time.monotonic() - began < 0.5 + A_LITTLE

    def test_a_server_that_lets_in_byte_by_byte_is_left_at_one_instant(self) -> None:
        def drip(listener: socket.socket) -> None:
            connection, _ = listener.accept()
            with connection, suppress(OSError):
                for byte in WELCOME:
                    time.sleep(0.3)
                    connection.send(bytes([byte]))

        with socket.create_server(("127.0.0.1", 0)) as slow:
            port = slow.getsockname()[1]
            thread = threading.Thread(target=drip, args=(slow,), daemon=True)
            thread.start()
            began = time.monotonic()
            assert reached(Offer("", port, bytes(32)), f"127.0.0.1:{port}", 0.5, 60.0) is None
            assert time.monotonic() - began < 0.5 + A_LITTLE
            thread.join(10)

    def test_no_time_is_left_once_the_deadline_has_passed(self) -> None:
        assert reached(Offer("", 1, bytes(32)), "127.0.0.1:1", -1.0, 60.0) is None

    def test_one_that_waits_for_long_stays_where_the_server_is_there(self) -> None:
        keeper = Keeper(w=tensor(1))
        with served(keeper) as server:
            client = connect(server.endpoint, 0, TransportOptions(deadline=20, silence=SILENCE))
            client.get("w")
            first = client._way()._stream  # type: ignore[attr-defined]
            keeper.opened.clear()
            threading.Timer(3 * SILENCE, keeper.opened.set).start()
            client.get("w")
            assert client._way()._stream is first  # type: ignore[attr-defined]
            client.close()

    def test_one_that_waits_for_a_long_update_stays(self) -> None:
        keeper = Keeper()
        keeper.before = lambda what, call: time.sleep(3 * SILENCE)
        with served(keeper) as server:
            client = connect(server.endpoint, 0, TransportOptions(deadline=20, silence=SILENCE))
            client.send("g", tensor(1 << 20))
            client.close()
        assert len(keeper.heard) == 1

    def test_a_stream_is_asked_whether_the_server_is_there(self) -> None:
        assert dict(asking(60.0))["grpc.keepalive_time_ms"] == dict(asking(60.0))["grpc.keepalive_timeout_ms"] == 30_000


@pytest.mark.parametrize(("deadline", "silence"), [("180000", 60.0), ("90000", 30.0), ("5000", 15.0), ("900000", 60.0)])
def test_silence_is_a_third_of_the_deadline(deadline: str, silence: float) -> None:
    """No less than 15 seconds, as a server says every 5 that it is there; no more than a minute."""
    assert TransportOptions.from_environment({"FLAGS_rpc_deadline": deadline}).silence == silence


# ---------------------------------------------------------------- machines that vanish
@pytest.mark.skipif(not hasattr(socket, "TCP_USER_TIMEOUT"), reason="needs Linux")
@pytest.mark.parametrize(("seconds", "idle", "between", "count"), [(60.0, 30, 10, 3), (6.0, 3, 1, 3), (0.5, 1, 1, 1)])
def test_the_system_asks_and_gives_up_in_time(seconds: float, idle: int, between: int, count: int) -> None:
    with socket.socket() as made:
        tune(made, seconds)
        names = ("TCP_KEEPIDLE", "TCP_KEEPINTVL", "TCP_KEEPCNT", "TCP_USER_TIMEOUT")
        found = [made.getsockopt(socket.IPPROTO_TCP, getattr(socket, name)) for name in names]
        assert found == [idle, between, count, int(1000 * seconds)]
        assert made.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)


@pytest.mark.skipif(not hasattr(socket, "TCP_USER_TIMEOUT"), reason="needs Linux")
def test_both_sides_give_up_before_the_deadline() -> None:
    with served(Keeper(w=tensor(1)), TransportOptions(deadline=40.0)) as server:
        assert server.loop is not None
        server.loop.door.name = ""
        client = connect(server.endpoint, 0, TransportOptions(silence=30.0))
        client.get("w")
        (theirs,), mine = server.loop._watched, client._way()._stream._socket  # type: ignore[attr-defined]
        found = [each.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) for each in (theirs.socket, mine)]
        assert found == [40_000, 30_000]
        client.close()


# ---------------------------------------------------------------- who is there
@contextmanager
def socket_of(server: Server, trainer: int, client: str) -> Iterator[socket.socket]:
    """A socket of a process of a trainer."""
    metadata = ((TRAINER_KEY, str(trainer)), (CALL_KEY, f"{client}-0"))
    with grpc.insecure_channel(server.endpoint, options=[("grpc.use_local_subchannel_pool", 1)]) as channel:
        ask = channel.unary_unary(f"/{OWN_SERVICE}/Socket")
        offer = Offer.of(ask(VERSION, timeout=20, metadata=metadata, wait_for_ready=True))
    found = None if offer is None else reached(offer, server.endpoint, 20.0, 60.0)
    assert found is not None
    with found:
        yield found


class TestPresence:
    def test_a_process_that_is_gone_is_lost_although_an_older_one_has_left_a_socket(self) -> None:
        lost: list[int] = []
        with serve(ANY_PORT, Keeper(), lost=lost.append) as server, socket_of(server, 3, "older.1"):
            with socket_of(server, 3, "newer.1"):
                assert lost == []
            assert eventually(lambda: lost == [3])

    def test_nothing_is_lost_with_the_socket_of_an_older_process(self) -> None:
        lost: list[int] = []
        with serve(ANY_PORT, Keeper(), lost=lost.append) as server, socket_of(server, 3, "older.1") as older:
            with socket_of(server, 3, "newer.1"):
                older.close()
                assert server.loop is not None
                assert eventually(lambda: len(server.loop._watched) == 1)  # type: ignore[union-attr]
                assert lost == []
            assert eventually(lambda: lost == [3])

    def test_two_sockets_of_one_process_are_both_counted(self) -> None:
        lost: list[int] = []
        with serve(ANY_PORT, Keeper(), lost=lost.append) as server, socket_of(server, 3, "one.1"):
            with socket_of(server, 3, "one.2"):
                pass
            assert server.loop is not None
            assert eventually(lambda: len(server.loop._watched) == 1)  # type: ignore[union-attr]
            assert lost == []

    def test_clients_of_one_process_have_one_name_in_common(self) -> None:
        first, second = connect("127.0.0.1:1"), connect("127.0.0.1:1")
        names = [each._name for each in (first, second)]
        assert names[0] != names[1] and process_of(names[0]) == process_of(names[1]) != ""
        first.close()
        second.close()

    def test_an_older_process_that_comes_back_stays_the_older_one(self) -> None:
        presence = Presence()
        for process in ("older", "newer", "older"):
            presence.begin(0, process)
        assert [presence.end(0, process) for process in ("newer", "older", "older")] == [True, False, False]

    def test_trainers_are_counted_apart(self) -> None:
        presence = Presence()
        presence.begin(0, "a")
        presence.begin(1, "a")
        assert presence.end(0, "a") and presence.end(1, "a")

    def test_few_processes_are_remembered(self) -> None:
        presence = Presence()
        for number in range(3 * KEPT):
            presence.begin(0, str(number))
        assert not presence.end(0, "0")
        assert presence.end(0, str(3 * KEPT - 1))
