"""Packets of sockets: whatever is sent arrives as it was, however it is cut; what is no packet is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fluidtool.distribute.rpc.handler import Barrier, Message, NotFound, Refused
from fluidtool.distribute.rpc.methods import Method
from fluidtool.distribute.rpc.sockets.connection import Asked, Client, Connection
from fluidtool.distribute.rpc.sockets.memory import Memory
from fluidtool.distribute.rpc.sockets.offers import Offer, Tickets
from fluidtool.distribute.rpc.sockets.packets import (
    DESCRIBED,
    HEADER,
    ROWS_ALONE,
    SMALL,
    WHOLE,
    Describer,
    Found,
    PacketReader,
    Pattern,
    answer,
    answered,
    packet,
)
from fluidtool.distribute.rpc.wire import LIMITS, Limits
from fluidtool.tensor import LoDTensor, SelectedRows

LONGEST = 1 << 20
DTYPES = st.sampled_from(["float32", "float64", "int64", "uint8"])
SHAPES = st.lists(st.integers(0, 5), min_size=0, max_size=3)
NAMES = st.text(max_size=8)


def numbers(shape: list[int], dtype: str) -> np.ndarray[Any, Any]:
    return np.arange(int(np.prod(shape)), dtype=dtype).reshape(shape)


@st.composite
def values(draw: Any) -> Any:
    shape, dtype = draw(SHAPES), draw(DTYPES)
    kind = draw(st.sampled_from(["none", "tensor", "rows", "lod", "bytes"]))
    if kind == "none":
        return None
    if kind == "bytes":
        return draw(st.binary(max_size=200))
    if kind == "rows":
        ids = draw(st.lists(st.integers(0, 99), max_size=5))
        return SelectedRows(ids, 100, numbers([len(ids), *shape], dtype))
    array = numbers([draw(st.integers(0, 2000)), *shape] if draw(st.booleans()) else shape, dtype)
    return LoDTensor(array, [[0, len(array)]] if kind == "lod" and array.ndim else [])


MESSAGES = st.builds(Message, NAMES.map(lambda name: f"v{name}"), values(), NAMES, NAMES, st.integers(0, 9))


def same(one: Any, other: Any) -> bool:
    """Whether two values are the same, down to the bytes; a message has no shape without dimensions."""
    if isinstance(one, LoDTensor):
        shape = one.array.shape or (1,)
        return (
            isinstance(other, LoDTensor)
            and (shape, one.array.dtype, one.offsets) == (other.array.shape, other.array.dtype, other.offsets)
            and one.array.tobytes() == other.array.tobytes()
        )
    if isinstance(one, SelectedRows):
        return (
            isinstance(other, SelectedRows)
            and (one.rows(), one.table_height) == (other.rows(), other.table_height)
            and (one.value.shape, one.value.tobytes()) == (other.value.shape, other.value.tobytes())
        )
    return bool(one == other)


def cut(data: bytes, places: list[int]) -> list[bytes]:
    """The data in parts."""
    ends = sorted({min(place, len(data)) for place in places} | {len(data)})
    return [data[begin:end] for begin, end in zip([0, *ends], ends, strict=False)]


def read(reader: PacketReader, parts: list[bytes]) -> list[Found]:
    """What a reader makes of parts that come one after the other."""
    scratch, found = memoryview(bytearray(1 << 16)), []
    for part in parts:
        while part:
            target = reader.target(scratch)
            count = min(len(target), len(part))
            target[:count] = part[:count]
            found += reader.received(target, count)
            part = part[count:]
    return found


def connection() -> Connection:
    """The server's side, without a socket."""
    return Connection(None, Client(0, "client", ""), PacketReader(LONGEST, Memory()))  # type: ignore[arg-type]


def asked(messages: list[Message], places: list[int], method: Method) -> list[Asked]:
    """What a server makes of calls with these messages."""
    describer, data = Describer(), b""
    for number, message in enumerate(messages, 1):
        data += b"".join(describer.packets(number, 7, method, message)[0])
    server = connection()
    server.arrived(read(server.reader, cut(data, places)))
    found = []
    while (call := server.next(LIMITS)) is not None:
        found.append(call)
    return found


@given(st.lists(MESSAGES.filter(lambda message: message.value is not None), max_size=6), st.lists(st.integers(0, 9000)))
def test_what_is_sent_arrives_however_it_is_cut(messages: list[Message], places: list[int]) -> None:
    found = asked([*messages, *messages], places, Method.SendVariable)
    assert [call.number for call in found] == list(range(1, 2 * len(messages) + 1))
    for call, sent in zip(found, [*messages, *messages], strict=True):
        assert call.step == 7 and call.changes
        assert call.message.name == sent.name and call.message.trainer_id == sent.trainer_id
        assert same(sent.value, call.message.value)


@given(st.lists(values().filter(lambda value: isinstance(value, (LoDTensor, SelectedRows))), max_size=8))
def test_answers_arrive_whether_or_not_they_are_like_the_one_before(given_: list[Any]) -> None:
    asking = Message("w", None, "out")
    server, client = (Pattern.of(1, Method.GetVariable, asking) for _ in range(2))
    for value in given_:
        parts = b"".join(answer(1, 0, server, "out", value))
        _, _, code, kind, length = HEADER.unpack_from(parts)
        got = answered(client, kind, parts[HEADER.size : HEADER.size + length], LIMITS)
        assert code == 0 and got.name == "out" and same(value, got.value)


def test_an_answer_like_the_last_one_consists_of_its_rows() -> None:
    pattern, value = Pattern.of(1, Method.GetVariable, Message("w")), LoDTensor(np.ones((3, 2), np.float32))
    kinds = [HEADER.unpack_from(answer(1, 0, pattern, "", value)[0])[3] for _ in range(2)]
    assert kinds == [WHOLE, ROWS_ALONE]
    assert sum(map(len, answer(1, 0, pattern, "", value))) == HEADER.size + 32


def test_a_variable_is_described_once() -> None:
    describer, message = Describer(), Message("g", LoDTensor(np.ones((4, 4), np.float32)))
    first, again = (b"".join(describer.packets(n, 1, Method.SendVariable, message)[0]) for n in (1, 2))
    assert HEADER.unpack_from(first)[2] == DESCRIBED
    assert len(again) == HEADER.size + 64


def test_long_contents_are_received_where_they_stay() -> None:
    array = np.arange(1 << 16, dtype=np.float32)
    (call,) = asked([Message("g", LoDTensor(array))], [], Method.SendVariable)
    assert call.is_long and isinstance(call.message.value, LoDTensor)
    assert call.message.value.array.flags.aligned and not call.message.value.array.flags.owndata


class TestWhatIsNoPacket:
    @given(st.binary(max_size=3000), st.lists(st.integers(0, 3000)))
    def test_any_bytes_give_calls_or_a_refusal(self, data: bytes, places: list[int]) -> None:
        server = connection()
        try:
            server.arrived(read(server.reader, cut(data, places)))
            while server.next(LIMITS) is not None:
                pass
        except (Refused, NotFound):
            return

    @given(st.binary(max_size=200), st.integers(0, 8), st.integers(0, 3))
    def test_any_content_of_a_packet_is_taken_or_refused(self, content: bytes, code: int, pattern: int) -> None:
        server = connection()
        described = b"".join(
            Describer().packets(1, 0, Method.SendVariable, Message("g", SelectedRows([1], 9, np.ones((1, 3)))))[0]
        )
        parts = packet(2, 0, code, pattern, [content])
        server.arrived(read(server.reader, [described, *(bytes(part) for part in parts)]))
        first = server.next(LIMITS)
        assert first is not None and first.message.name == "g"
        try:
            server.next(LIMITS)
        except (Refused, NotFound):
            return

    @pytest.mark.parametrize("length", [LONGEST + 1, (1 << 64) - 1])
    def test_a_length_beyond_the_limit_takes_no_memory(self, length: int) -> None:
        reader = PacketReader(LONGEST, Memory())
        with pytest.raises(Refused, match=f"at most {LONGEST} are allowed"):
            read(reader, [HEADER.pack(1, 0, 1, 0, length)])

    @pytest.mark.parametrize("pattern", [1, 1 << 31])
    def test_a_pattern_that_was_not_described(self, pattern: int) -> None:
        server = connection()
        server.arrived(read(server.reader, [HEADER.pack(1, 0, 1, pattern, 0)]))
        with pytest.raises(Refused, match="but 0 are known"):
            server.next(LIMITS)

    @pytest.mark.parametrize("content", [b"", b"\0", b"\xff", b"\1\xff"])
    def test_a_description_of_nothing(self, content: bytes) -> None:
        server = connection()
        server.arrived(read(server.reader, [b"".join(map(bytes, packet(0, 0, DESCRIBED, 1, [content])))]))
        with pytest.raises(Refused):
            server.next(LIMITS)

    @pytest.mark.parametrize("size", [1, 15, 17])
    def test_half_a_row(self, size: int) -> None:
        pattern = Pattern.of(1, Method.SendVariable, Message("g", LoDTensor(np.empty((0, 4), np.float32))))
        with pytest.raises(Refused, match="not rows of 16 bytes each"):
            pattern.filled(bytes(size))

    def test_a_value_where_there_is_none(self) -> None:
        with pytest.raises(Refused, match="which has no value"):
            Pattern.of(1, Method.SendVariable, Message(Barrier.SEND.value)).filled(b"1")

    def test_an_answer_like_none_before(self) -> None:
        with pytest.raises(Refused, match="unknown kind 1"):
            answered(Pattern.of(1, Method.GetVariable, Message("w")), ROWS_ALONE, bytes(16), Limits())


class TestMemory:
    def test_it_is_taken_again_when_nobody_holds_it(self) -> None:
        memory = Memory()
        first = memory.take(1 << 16)
        place = first.ctypes.data
        del first
        assert memory.take(1 << 16).ctypes.data == place

    def test_what_a_view_looks_into_stays(self) -> None:
        memory = Memory()
        view = np.frombuffer(memory.take(1 << 16).data[:100], np.uint8)
        view_again = memory.take(1 << 16)
        assert not np.shares_memory(view, view_again)

    def test_so_much_is_kept_and_no_more(self) -> None:
        memory = Memory(most=1 << 20)
        held = [memory.take(size << 12) for size in range(10, 200)]
        assert sum(len(each) for each in held) > 1 << 20
        assert memory.kept <= 1 << 20

    def test_contents_of_nearly_one_size_share_it(self) -> None:
        memory = Memory()
        places = {memory.take((1 << 20) + size).ctypes.data for size in range(1, 50_000, 5000)}
        assert len(places) == 1


class TestOffers:
    def test_an_offer_arrives(self) -> None:
        offer = Offer("name", 6174, bytes(range(32)))
        assert Offer.of(offer.encoded()) == offer

    @pytest.mark.parametrize("data", [b"", b"something else", b"fluidtool socket 2\nname"])
    def test_nothing_is_offered_by_others(self, data: bytes) -> None:
        assert Offer.of(data) is None

    @pytest.mark.parametrize("fields", ["", "\n1", "\nx\n00", "name\n70000\n" + "00" * 32, "name\n1\n" + "00" * 31])
    def test_what_is_malformed_is_refused(self, fields: str) -> None:
        with pytest.raises(Refused):
            Offer.of(b"fluidtool socket\n" + fields.encode())

    def test_a_ticket_is_good_once(self) -> None:
        tickets: Tickets[int] = Tickets()
        ticket = tickets.give(7)
        assert (tickets.take(ticket), tickets.take(ticket)) == (7, None)

    def test_a_ticket_is_good_for_a_while(self) -> None:
        tickets: Tickets[int] = Tickets(seconds=0.0)
        assert tickets.take(tickets.give(7)) is None

    def test_there_are_not_too_many(self) -> None:
        tickets: Tickets[int] = Tickets(most=2)
        first, second, third = (tickets.give(number) for number in range(3))
        assert [tickets.take(each) for each in (first, second, third)] == [None, 1, 2]


def test_small_contents_travel_in_one_buffer() -> None:
    assert len(packet(1, 0, 1, 0, [bytes(SMALL)])) == 1
    assert len(packet(1, 0, 1, 0, [bytes(SMALL + 16)])) == 2
