"""VariableMessage on the wire: Paddle's order of fields, any order back, and garbage is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from fluidtool.distribute.rpc.handler import Message, Refused, RemoteError
from fluidtool.distribute.rpc.wire import KEPT_REQUESTS, Limits, Requests, decode, encode, encoded
from fluidtool.errors import ArgumentTypeError
from fluidtool.proto import send_recv_pb2
from fluidtool.tensor import LoDTensor, SelectedRows

DTYPES = ["bool", "int8", "uint8", "int16", "int32", "int64", "float16", "float32", "float64"]


def field_numbers(data: bytes) -> list[int]:
    """The fields of a message in their order, read with protobuf's own rules for one-byte keys and lengths."""
    numbers, at = [], 0
    while at < len(data):
        key = data[at]
        numbers.append(key >> 3)
        at += 1
        if key & 7 == 2:
            at += 1 + data[at]
        else:
            while data[at] & 0x80:
                at += 1
            at += 1
    return numbers


def same(left: Any, right: Any) -> bool:
    """Whether two values are equal bit for bit."""
    if isinstance(left, SelectedRows):
        return (
            isinstance(right, SelectedRows)
            and left.rows() == right.rows()
            and left.height() == right.height()
            and same(left.tensor, right.tensor)
        )
    if isinstance(left, LoDTensor):
        return (
            isinstance(right, LoDTensor)
            and left.numpy().dtype == right.numpy().dtype
            and left.shape() == right.shape()
            and left.numpy().tobytes() == right.numpy().tobytes()
            and left.lod() == right.lod()
        )
    return bool(left == right)


names = st.text(max_size=40)
numbers = st.integers(0, 2**40)
tensors = st.sampled_from(DTYPES).flatmap(
    lambda dtype: arrays.arrays(np.dtype(dtype), arrays.array_shapes(min_dims=1, max_dims=4, min_side=0, max_side=5))
)
lods = st.lists(st.lists(st.integers(0, 2**40), min_size=1, max_size=4), max_size=3)


@st.composite
def selected_rows(draw: Any) -> SelectedRows:
    rows = draw(st.lists(st.integers(0, 2**62), max_size=6))
    value = draw(arrays.arrays(np.float32, (len(rows), 3)))
    return SelectedRows(rows, draw(numbers), value)


values = st.one_of(st.none(), st.binary(max_size=128), st.builds(LoDTensor, tensors, lods), selected_rows())
messages = st.builds(Message, names, values, names, names, numbers, numbers)


class TestOrder:
    """Fields come as Paddle 1.8.5 writes them (observed on its own connections)."""

    def test_a_tensor_comes_after_what_describes_it(self) -> None:
        message = Message("w", LoDTensor(np.ones((2, 3), np.float32)), trainer_id=1)
        assert field_numbers(encoded(message)) == [1, 3, 4, 12, 8]

    def test_row_numbers_come_last(self) -> None:
        rows = SelectedRows([3, 7, 3], 10, np.ones((3, 2), np.float32))
        assert field_numbers(encoded(Message("w", rows, trainer_id=1))) == [1, 2, 3, 4, 7, 12, 8, 9]

    def test_a_prefetch_names_its_table_before_the_ids(self) -> None:
        ids = LoDTensor(np.array([[3], [7]], np.int64))
        message = Message("prefetch_send@e", ids, "prefetch_recv@e", "emb", 1)
        assert field_numbers(encoded(message)) == [1, 3, 4, 10, 12, 13, 8]

    def test_a_barrier_is_a_name(self) -> None:
        assert encoded(Message("BATCH_BARRIER@RECV")) == b"\n\x12BATCH_BARRIER@RECV"


class TestProtobuf:
    """protobuf's own reader and writer understand the same bytes."""

    def test_reads_what_we_write(self) -> None:
        message = Message("w", LoDTensor(np.arange(6, dtype=np.int64).reshape(3, 2), [[0, 1, 3]]), "o", "t", 4, 2)
        found = send_recv_pb2.VariableMessage.FromString(encoded(message))
        assert (found.varname, found.out_varname, found.table_name) == ("w", "o", "t")
        assert (found.data_type, list(found.dims), found.lod_level) == (3, [3, 2], 1)
        assert list(found.lod[0].lod_data) == [0, 1, 3]
        assert (found.trainer_id, found.profile) == (4, 2)
        assert np.frombuffer(found.serialized, np.int64).tolist() == [0, 1, 2, 3, 4, 5]

    @given(messages)
    def test_its_order_is_accepted(self, message: Message) -> None:
        standard = send_recv_pb2.VariableMessage.FromString(encoded(message)).SerializeToString(deterministic=True)
        again = decode(standard)
        assert same(again.value, message.value) or (message.value == b"" and again.value == b"")
        assert (again.name, again.out_name, again.table_name) == (message.name, message.out_name, message.table_name)

    def test_dims_that_are_not_packed_are_accepted(self) -> None:
        data = b"\x0a\x01w\x18\x05\x20\x01\x20\x02\x42\x08" + bytes(8)
        assert decode(data).value.shape() == [1, 2]  # type: ignore[union-attr]

    def test_fields_of_later_versions_are_left_out(self) -> None:
        later = b"\xf8\x01\x07" + b"\xfa\x01\x03abc" + b"\xf9\x01" + bytes(8) + b"\xfd\x01" + bytes(4)
        assert decode(encoded(Message("w")) + later) == Message("w")


class TestRoundTrip:
    @given(messages)
    def test_a_message_comes_back(self, message: Message) -> None:
        again = decode(encoded(message))
        assert same(again.value, message.value)
        assert (again.name, again.out_name, again.table_name, again.trainer_id, again.profile) == (
            message.name,
            message.out_name,
            message.table_name,
            message.trainer_id,
            message.profile,
        )

    def test_a_tensor_is_sent_from_its_own_memory(self) -> None:
        array = np.arange(8, dtype=np.float32)
        assert np.shares_memory(np.frombuffer(encode(Message("w", LoDTensor(array)))[1], np.float32), array)

    def test_a_tensor_is_received_without_a_copy(self) -> None:
        data = encoded(Message("w", LoDTensor(np.arange(8, dtype=np.uint8))))
        value = decode(data).value
        assert isinstance(value, LoDTensor) and not value.array.flags.writeable
        assert np.shares_memory(value.array, np.frombuffer(data, np.uint8))

    def test_numbers_that_lie_askew_are_put_right(self) -> None:
        for name in ("w", "w1", "w12", "w123"):
            value = decode(encoded(Message(name, LoDTensor(np.arange(8, dtype=np.float64))))).value
            assert isinstance(value, LoDTensor) and value.array.flags.aligned

    def test_columns_are_sent_row_by_row(self) -> None:
        array = np.arange(6, dtype=np.float32).reshape(2, 3).T
        value = decode(encoded(Message("w", LoDTensor(array)))).value
        assert isinstance(value, LoDTensor) and value.array.tolist() == array.tolist()

    def test_a_number_alone_is_one_row(self) -> None:
        value = decode(encoded(Message("w", LoDTensor(np.float32(4))))).value
        assert isinstance(value, LoDTensor) and value.array.tolist() == [4]

    @pytest.mark.parametrize("empty", [None, b""])
    def test_an_empty_answer_has_no_value(self, empty: bytes | None) -> None:
        assert decode(empty) == Message("")


class TestRefusals:
    @given(st.binary(max_size=200))
    def test_garbage_is_a_message_or_refused(self, data: bytes) -> None:
        try:
            decode(data)
        except Refused as error:
            assert "VariableMessage" in str(error)

    @given(messages, st.data())
    def test_a_message_that_was_changed_is_a_message_or_refused(self, message: Message, data: Any) -> None:
        good = bytearray(encoded(message))
        if good:
            good[data.draw(st.integers(0, len(good) - 1))] = data.draw(st.integers(0, 255))
        cut = data.draw(st.integers(0, len(good)))
        try:
            decode(bytes(good[:cut]))
        except Refused as error:
            assert "VariableMessage" in str(error)

    @pytest.mark.parametrize(
        ("data", "reason"),
        [
            (b"\x18\x05\x22\x01\x04\x42\x04" + bytes(4), r"shape \(4,\) has 4 bytes"),
            (b"\x18\x63\x22\x01\x01\x42\x04" + bytes(4), "is not a data type"),
            (b"\x10\x07\x42\x01\x00", "found 7"),
            (b"\x0a\x02\xff\xfe", "not UTF-8"),
            (b"\x0a\x7f", "127 bytes, but 0 are left"),
            (b"\x0a", "does not end"),
            (b"\x0b\x00", "wire type 3"),
            (b"\x18\x05\x22\x0a" + b"\xff" * 9 + b"\x01\x42\x04" + bytes(4), r"shape \(-1,\)"),
            (b"\x18\x05\x22\x0a\x00" + b"\x80" * 8 + b"\x40\x42\x00", r"shape \(0, 4611686018427387904\)"),
            (b"\x10\x01\x18\x05\x38" + b"\xff" * 9 + b"\x01\x22\x01\x00\x42\x00\x4a\x00", "a table of -1 rows"),
            (b"\x10\x01\x18\x05\x22\x01\x01\x42\x04" + bytes(4) + b"\x4a\x04" + bytes(4), "row numbers of 4 bytes"),
        ],
    )
    def test_contradictions_are_named(self, data: bytes, reason: str) -> None:
        with pytest.raises(Refused, match=reason):
            decode(data)

    def test_long_names_are_refused(self) -> None:
        with pytest.raises(Refused, match="a name has 5000 bytes, but at most 4096 are allowed"):
            decode(encoded(Message("n" * 5000)))

    def test_many_dimensions_are_refused(self) -> None:
        with pytest.raises(Refused, match="17 dimensions"):
            decode(b"\x18\x05\x22\x11" + b"\x01" * 17 + b"\x42\x04" + bytes(4))

    def test_many_numbers_are_refused_before_they_are_read(self) -> None:
        with pytest.raises(Refused, match=r"dimensions|does not end"):
            decode(b"\x22\x80\x80\x40" + b"\x01" * (1 << 20))
        with pytest.raises(Refused, match="level 0 of its LoD is more than allowed"):
            decode(b"\x32\x0c\x0a\x0a" + b"\x01" * 10, Limits(lod_level=8))

    def test_long_messages_are_refused(self) -> None:
        with pytest.raises(Refused, match="101 bytes, but at most 100"):
            decode(bytes(101), Limits(message=100))

    def test_what_paddle_could_not_take_is_not_sent(self) -> None:
        huge = np.broadcast_to(np.int8(0), (2**31,))
        with pytest.raises(Refused, match="has 2147483648 bytes, but a message takes at most 2147483647"):
            encode(Message("w", LoDTensor(huge)))

    def test_text_is_no_tensor(self) -> None:
        with pytest.raises(ArgumentTypeError, match="has no counterpart"):
            encode(Message("w", LoDTensor(np.array(["a"]))))

    def test_refusals_are_remote_errors(self) -> None:
        assert issubclass(Refused, RemoteError) and issubclass(RemoteError, ConnectionError)


class TestRequests:
    """Messages without a value are decoded once."""

    def test_what_comes_again_is_the_same_message(self) -> None:
        requests, data = Requests(Limits()), encoded(Message("w", None, "w", "", 3))
        first = requests.decode(data)
        assert first == decode(data)
        assert requests.decode(memoryview(bytearray(data))) is first

    def test_values_are_never_shared(self) -> None:
        requests, data = Requests(Limits()), encoded(Message("w", LoDTensor(np.ones(2, "float32"))))
        first, second = requests.decode(data), requests.decode(data)
        assert first.value is not second.value and same(first.value, second.value)

    def test_garbage_is_refused_every_time(self) -> None:
        requests = Requests(Limits())
        for _ in range(2):
            with pytest.raises(Refused):
                requests.decode(b"\xff" * 20)

    def test_no_more_than_a_number_of_them_are_kept(self) -> None:
        requests = Requests(Limits())
        for number in range(KEPT_REQUESTS + 10):
            requests.decode(encoded(Message("w", trainer_id=number + 1)))
        assert len(requests._known) <= KEPT_REQUESTS
