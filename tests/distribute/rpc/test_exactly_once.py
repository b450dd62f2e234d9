"""Connections break; what a trainer says counts once all the same."""

from __future__ import annotations

import threading
import time
from contextlib import closing
from typing import Any

import grpc
import pytest

from fluidtool.distribute.rpc.calls import Pending, UnaryTransport
from fluidtool.distribute.rpc.handler import Gone, Late, Message, Refused
from fluidtool.distribute.rpc.ledger import Ledger
from fluidtool.distribute.rpc.methods import Method
from fluidtool.distribute.rpc.options import TransportOptions
from tests.distribute.rpc.support import WAYS, Keeper, by, eventually, proxied, tensor


@WAYS
class TestBrokenConnections:
    def test_what_was_taken_is_not_taken_again(self, way: str) -> None:
        keeper = Keeper()
        with proxied(keeper, by(way, deadline=20)) as (client, proxy):
            client.send("g0", tensor(1))
            proxy.swallow_answers(True)
            client.post_send("g1", tensor(1))
            client.post_send_barrier() if way != "calls" else None
            client.flush()
            expected = 3 if way != "calls" else 2
            assert eventually(lambda: len(keeper.heard) == expected)
            proxy.swallow_answers(False)
            proxy.cut()
            client.settle()
            client.send("g2", tensor(1))
        assert [heard[1] for heard in keeper.heard] == (
            ["g0", "g1", "SEND", "g2"] if way != "calls" else ["g0", "g1", "g2"]
        )

    def test_a_read_is_asked_again(self, way: str) -> None:
        keeper = Keeper(w=tensor(4))
        with proxied(keeper, by(way, deadline=20)) as (client, proxy):
            client.get("w")
            keeper.opened.clear()
            pending = client.post_get("w")
            client.flush()
            assert eventually(lambda: len(keeper.heard) == 2)
            proxy.cut()
            keeper.opened.set()
            assert client.wait_value(pending).shape() == [4]  # type: ignore[union-attr]

    def test_a_call_that_runs_is_not_run_beside_itself(self, way: str) -> None:
        keeper, go_on = Keeper(), threading.Event()

        def wait(what: str, call: Any) -> None:
            go_on.wait(10)

        with proxied(keeper, by(way, deadline=20)) as (client, proxy):
            client.send("g0", tensor(1))
            keeper.before = wait
            client.post_send("g1", tensor(1))
            client.flush()
            assert eventually(lambda: len(keeper.heard) == 2)
            proxy.cut()
            threading.Timer(0.5, go_on.set).start()
            client.settle()
        assert [heard[1] for heard in keeper.heard] == ["g0", "g1"]

    def test_a_large_variable_that_broke_off_arrives(self, way: str) -> None:
        keeper, value = Keeper(), tensor(4 << 20)
        with proxied(keeper, by(way, deadline=20)) as (client, proxy):
            client.send("g0", tensor(1))
            client.post_send("g", value)
            proxy.cut()
            client.settle()
        assert keeper.received["g"].numpy().tobytes() == value.numpy().tobytes()

    def test_a_server_that_stays_away_is_an_error(self, way: str) -> None:
        keeper = Keeper(w=tensor(1))
        with proxied(keeper, by(way, deadline=2)) as (client, proxy):
            client.get("w")
            proxy.close()
            with pytest.raises((Gone, Late)):
                client.get("w")


class StuckCall:
    """A call that gRPC never ends, whatever its deadline."""

    def __init__(self) -> None:
        self.waited: list[float] = []
        self.cancelled = False

    def result(self, timeout: float) -> bytes:
        self.waited.append(timeout)
        raise grpc.FutureTimeoutError

    def cancel(self) -> None:
        self.cancelled = True


def test_a_call_that_outlives_its_deadline_is_given_up() -> None:
    call, options = StuckCall(), TransportOptions(streaming=False, deadline=5)
    with closing(grpc.insecure_channel("127.0.0.1:1")) as channel:
        transport = UnaryTransport(grpc, channel, "127.0.0.1:1", options, "client", 0, own=True)
        pending = Pending(1, 0, Method.SendVariable, Message("g"), time.monotonic() + 5, tries=3, future=call)
        with pytest.raises(Late, match="SendVariable of 'g' was not answered in time"):
            transport.wait(pending)
    assert call.cancelled and len(call.waited) == 1 and 5 < call.waited[0] <= 6


class TestLedger:
    def test_a_number_runs_once(self) -> None:
        ledger, runs = Ledger(), []
        for _ in range(3):
            ledger.once("a", 1, lambda: runs.append(1), 1.0)
        assert runs == [1]

    def test_each_client_counts_for_itself(self) -> None:
        ledger, runs = Ledger(), []
        for client in ("a", "b"):
            ledger.once(client, 1, lambda: runs.append(1), 1.0)
        assert runs == [1, 1]

    def test_what_failed_may_run_again(self) -> None:
        ledger, runs = Ledger(), []

        def work() -> None:
            runs.append(1)
            if len(runs) == 1:
                raise Refused("not yet")

        with pytest.raises(Refused):
            ledger.once("a", 1, work, 1.0)
        ledger.once("a", 1, work, 1.0)
        assert runs == [1, 1]

    def test_a_repetition_waits_for_the_first(self) -> None:
        ledger, go_on, runs = Ledger(), threading.Event(), []

        def work() -> None:
            go_on.wait(10)
            runs.append(1)

        threads = [threading.Thread(target=ledger.once, args=("a", 1, work, 10.0)) for _ in range(3)]
        for thread in threads:
            thread.start()
        go_on.set()
        for thread in threads:
            thread.join(10)
        assert runs == [1]

    def test_a_repetition_does_not_wait_for_ever(self) -> None:
        ledger, go_on = Ledger(), threading.Event()
        first = threading.Thread(target=ledger.once, args=("a", 1, lambda: go_on.wait(10), 10.0))
        first.start()
        with pytest.raises(Late, match="call 1 was repeated"):
            ledger.once("a", 1, lambda: None, 0.1)
        go_on.set()
        first.join(10)
