"""How much of messages a server holds: nothing of strangers', so much of each caller's, so much of all."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import numpy as np
import pytest

from fluidtool.distribute.rpc import rooms as rooms_module
from fluidtool.distribute.rpc.client import connect
from fluidtool.distribute.rpc.frames import chunks, frame_parts
from fluidtool.distribute.rpc.gate import WAITING, Gate
from fluidtool.distribute.rpc.handler import Late, Refused
from fluidtool.distribute.rpc.options import CHUNK, TransportOptions
from fluidtool.distribute.rpc.rooms import Rooms
from fluidtool.distribute.rpc.security import Security
from fluidtool.distribute.rpc.wire import Limits
from fluidtool.tensor import LoDTensor
from tests.distribute.rpc.support import WAYS, Keeper, by, connected, served, tensor
from tests.support.checkout import child_environment

TOKEN = "0123456789abcdef"
MIB, ATTEMPTS, PATIENCE = 1 << 20, 3, 70.0
SEND = "/sendrecv.SendRecvService/SendVariable"
EXCHANGE = "/fluidtool.Parameters/Exchange"


def nothing() -> None:
    """Gives up nothing."""


# ---------------------------------------------------------------- room
class TestRooms:
    def test_a_caller_gets_so_much_and_no_more(self) -> None:
        rooms = Rooms(10, 100, 10, patience=0.0)
        with rooms.taken("a", 6, nothing):
            with pytest.raises(Late, match="no room for a message of 5 bytes"), rooms.taken("a", 5, nothing):
                pass
            with rooms.taken("a", 4, nothing), rooms.taken("b", 10, nothing):
                pass

    def test_all_together_get_so_much_and_no_more(self) -> None:
        rooms = Rooms(10, 12, 10, patience=0.0)
        with (
            rooms.taken("a", 6, nothing),
            rooms.taken("b", 6, nothing),
            pytest.raises(Late),
            rooms.taken("c", 1, nothing),
        ):
            pass

    def test_what_is_larger_than_everything_passes_alone(self) -> None:
        rooms = Rooms(10, 12, 10, patience=0.0)
        with rooms.taken("a", 50, nothing), pytest.raises(Late), rooms.taken("b", 1, nothing):
            pass
        with rooms.taken("b", 1, nothing):
            pass

    def test_what_arrived_holds_its_own_size(self) -> None:
        rooms = Rooms(10, 100, 10, patience=0.0)
        with rooms.taken("a", 10, nothing) as room:
            rooms.arrived(room, 3)
            with rooms.taken("a", 7, nothing):
                pass

    def test_room_that_is_given_back_goes_to_who_waits(self) -> None:
        rooms, got = Rooms(10, 100, 10, patience=60.0), threading.Event()

        def wait() -> None:
            with rooms.taken("a", 10, nothing):
                got.set()

        with ThreadPoolExecutor(1) as pool:
            with rooms.taken("a", 10, nothing):
                waiting = pool.submit(wait)
                assert not got.is_set()
            waiting.result(60)

    def test_who_does_not_bring_a_message_makes_way(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(rooms_module, "STALLED", 0.0)
        rooms, ended = Rooms(10, 10, 10, patience=60.0), threading.Event()

        def bring_nothing() -> None:
            with rooms.taken("slow", 10, ended.set):
                taken.set()
                ended.wait(60)

        taken = threading.Event()
        with ThreadPoolExecutor(1) as pool:
            pool.submit(bring_nothing)
            assert taken.wait(60)
            with rooms.taken("quick", 10, nothing):
                assert ended.is_set()

    def test_whose_message_has_arrived_keeps_it(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(rooms_module, "STALLED", 0.0)
        rooms, given_up = Rooms(10, 10, 10, patience=0.5), threading.Event()
        with rooms.taken("a", 10, given_up.set) as room:
            rooms.arrived(room, 10)
            with pytest.raises(Late), rooms.taken("b", 10, nothing):
                pass
        assert not given_up.is_set()

    def test_so_many_messages_arrive_at_a_time(self) -> None:
        rooms = Rooms(10, 100, 2, patience=0.0)
        with rooms.taken("a", 1, nothing) as room, rooms.taken("a", 1, nothing):
            with pytest.raises(Late), rooms.taken("b", 1, nothing):
                pass
            rooms.arrived(room, 1)
            with rooms.taken("b", 1, nothing):
                pass


# ---------------------------------------------------------------- strangers
def memory() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


STRANGER = """
import sys, grpc
endpoint, path, token, size = sys.argv[1:]
options = [("grpc.max_send_message_length", -1)]
channel = grpc.insecure_channel(endpoint, options=options)
body, metadata = bytes(int(size)), ((("fluidtool-token", token),) if token else ())
try:
    if path.endswith("Exchange"):
        list(channel.stream_stream(path)(iter([body]), timeout=60, metadata=metadata))
    else:
        channel.unary_unary(path)(body, timeout=60, metadata=metadata)
except grpc.RpcError as error:
    print(error.code().name)
"""


def bring(endpoint: str, path: str, token: str, size: int) -> tuple[str, int]:
    """What another process is told that brings so many bytes, and by how much this one grew meanwhile."""
    before = most = memory()
    command = [sys.executable, "-c", STRANGER, endpoint, path, token, str(size)]
    for _ in range(ATTEMPTS):
        end = time.monotonic() + PATIENCE
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=child_environment()) as other:
            while other.poll() is None and time.monotonic() < end:
                most = max(most, memory())
                time.sleep(0.002)
            if other.poll() is not None:
                assert other.stdout is not None
                return other.stdout.read().strip(), most - before
            other.kill()  # now and then the gRPC of a caller does not end a call, not even at its deadline
    return "nothing", most - before


needs_proc = pytest.mark.skipif(not os.path.exists("/proc/self/statm"), reason="memory is read from /proc")


@needs_proc
@pytest.mark.parametrize("path", [SEND, EXCHANGE])
@pytest.mark.parametrize("token", ["", TOKEN + "x"])
def test_nothing_is_read_of_a_message_without_the_token(path: str, token: str) -> None:
    with served(Keeper(), TransportOptions(security=Security(token=TOKEN))) as server:
        told, grown = bring(server.endpoint, path, token, 200 * MIB)
    assert told == "UNAUTHENTICATED"
    assert grown < 50 * MIB


@needs_proc
def test_a_message_that_is_too_long_is_not_read() -> None:
    limited = TransportOptions(security=Security(token=TOKEN), limits=Limits(message=MIB))
    with served(Keeper(), limited) as server:
        told, grown = bring(server.endpoint, SEND, TOKEN, 200 * MIB)
    assert told == "RESOURCE_EXHAUSTED"
    assert grown < 50 * MIB


def test_many_without_a_token_take_no_threads() -> None:
    handler = Gate(grpc, Security(token=TOKEN), {SEND: "handler"})

    class Call:
        method, invocation_metadata = SEND, ()

    try:
        answers = [handler.service(Call()) for _ in range(WAITING + 5)]
        assert all(answer is not None and answer != "handler" for answer in answers[:WAITING])
        assert answers[WAITING:] == [None] * 5
    finally:
        handler.close()


def test_strangers_do_not_keep_a_trainer_from_its_server() -> None:
    with (
        connected(
            Keeper(w=tensor(3)),
            0,
            TransportOptions(security=Security(token=TOKEN)),
            TransportOptions(security=Security(token=TOKEN)),
        ) as client,
        grpc.insecure_channel(client.endpoint) as channel,
    ):
        calls = [channel.unary_unary(SEND).future(bytes(1 << 16), timeout=60) for _ in range(300)]
        for _ in range(20):
            client.send("g", tensor(3))
            assert client.get("w").shape() == [3]  # type: ignore[union-attr]
        told = {call.exception(60).code().name for call in calls}
    assert told <= {"UNAUTHENTICATED", "UNIMPLEMENTED"}


# ---------------------------------------------------------------- callers that are slow on purpose
def hold(endpoint: str, count: int) -> tuple[Any, list[Any], threading.Event]:
    """So many calls that never bring a message."""
    end = threading.Event()

    def never() -> Iterator[bytes]:
        end.wait(60)
        yield from ()

    channel = grpc.insecure_channel(endpoint, options=[("grpc.use_local_subchannel_pool", 1)])
    return channel, [channel.stream_unary(SEND).future(never(), timeout=60) for _ in range(count)], end


@WAYS
def test_slow_callers_do_not_stop_a_trainer(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rooms_module, "STALLED", 0.5)  # longer than a call of the trainer takes to arrive
    small = TransportOptions(caller_bytes=4 * MIB, all_bytes=8 * MIB, limits=Limits(message=MIB))
    with served(Keeper(w=tensor(3)), small) as server:
        channel, calls, end = hold(server.endpoint, 12)
        client = connect(server.endpoint, 0, by(way))
        try:
            for _ in range(5):
                client.send("g", tensor(3))
                client.get("w")
        finally:
            client.close()
            end.set()
            for call in calls:
                call.cancel()
            channel.close()


# ---------------------------------------------------------------- streams
@pytest.mark.parametrize("way", ["socket", "stream"])
def test_long_messages_take_room(way: str) -> None:
    keeper = Keeper()
    options = TransportOptions(caller_bytes=3 * MIB, all_bytes=4 * MIB)
    value = LoDTensor(np.ones(MIB // 2, np.float32))  # 2 MiB
    with connected(keeper, 0, by(way), options) as client:
        for number in range(4):
            client.send(f"g{number}", value)
    assert len(keeper.received) == 4


def test_a_chunk_that_is_longer_than_chunks_are_is_refused() -> None:
    with served(Keeper()) as server, grpc.insecure_channel(server.endpoint) as channel:
        metadata = (("fluidtool-trainer", "0"),)
        with pytest.raises(grpc.RpcError, match=r"a chunk of \d+ bytes"):
            list(channel.stream_stream(EXCHANGE)(iter([bytes(CHUNK + 1)]), timeout=60, metadata=metadata))


def test_own_chunks_are_no_longer() -> None:
    parts = frame_parts(1, 0, 1, [bytes(100), bytes(3 * CHUNK)])
    assert max(map(len, chunks(parts))) == CHUNK


def test_the_refusal_is_an_error_of_the_protocol() -> None:
    with (
        connected(Keeper(), 0, TransportOptions(), TransportOptions(security=Security(token=TOKEN))) as client,
        pytest.raises(Refused, match="only calls that bring its token"),
    ):
        client.get("w")
