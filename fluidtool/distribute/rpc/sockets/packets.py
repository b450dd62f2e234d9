"""Packets: messages on a socket between fluidtool's own roles.

A packet is a header (number of the call, step, kind, pattern, length) and its content, filled up to a multiple of 16, so that
arrays can look into what was received. What the packets of a variable have in common - method, names, data type, shape of a
row - is a pattern, which a client describes once on a connection and numbers from 1; after that its packets contain numbers
only. Pattern 0 is for everything else: the content is a whole VariableMessage.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct
from typing import Any

import numpy as np

from fluidtool.distribute.rpc.handler import Message, Refused
from fluidtool.distribute.rpc.methods import Answerer, Method, answerer, changes_state
from fluidtool.distribute.rpc.sockets.memory import Memory
from fluidtool.distribute.rpc.statuses import OK
from fluidtool.distribute.rpc.wire import Buffer, Limits, aligned, contiguous, decode, encode
from fluidtool.records import dataclass
from fluidtool.tensor import LoDTensor, SelectedRows

HEADER = Struct("<QqIIQ")
ALIGNMENT = 16
NOTHING = bytes(ALIGNMENT)
DESCRIBED = 0  # in place of a method: the content is a pattern
# Of an answer: a whole message; rows like those of the last whole answer to the pattern; all changes up to this call are taken.
WHOLE, ROWS_ALONE, TAKEN = 0, 1, 2
MOST_PATTERNS = 1 << 14
SMALL = 4096  # bytes that are copied rather than sent from where they are
ROW_NUMBER = np.dtype("<i8")
METHODS = {int(method): method for method in Method}
Key = tuple[Any, ...]
Array = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True)
class Rows:
    """Numbers of which only the first dimension changes from packet to packet."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]  # of one row
    nbytes: int  # of one row

    @classmethod
    def of(cls, array: Array) -> Rows | None:
        """Those of an array; None for one without dimensions, or whose rows have no bytes to count them by."""
        if not array.ndim:
            return None
        shape = array.shape[1:]
        nbytes = array.dtype.itemsize * int(np.prod(shape, dtype=np.int64))
        return cls(array.dtype, shape, nbytes) if nbytes else None

    def array(self, content: Buffer) -> Array:
        """The rows in a content; raises Refused where it does not consist of whole rows."""
        count, rest = divmod(len(content), self.nbytes)
        if rest:
            raise Refused(f"received {len(content)} bytes, which are not rows of {self.nbytes} bytes each")
        return np.frombuffer(content, self.dtype).reshape((count, *self.shape))


@dataclass(slots=True, eq=False)
class Pattern:
    """What packets of one number have in common. message: with no rows, or no value. rows: of its value. answer: those of the
    last whole answer to it.
    """

    number: int
    method: Method
    message: Message
    changes: bool
    answer_by: Answerer
    rows: Rows | None
    is_sparse: bool
    answer: Rows | None = None

    @classmethod
    def of(cls, number: int, method: Method, message: Message) -> Pattern:
        """The pattern of a message like this one."""
        value = message.value
        sparse = isinstance(value, SelectedRows)
        tensor = value.tensor if isinstance(value, SelectedRows) else value
        rows = Rows.of(contiguous(tensor.array)) if isinstance(tensor, LoDTensor) else None
        return cls(number, method, message, changes_state(method, message), answerer(method, message), rows, sparse)

    def filled(self, content: Buffer) -> Message:
        """The message of a packet; raises Refused for a content that is none of this pattern."""
        rows, like = self.rows, self.message
        if rows is None:
            if len(content):
                raise Refused(f"received {len(content)} bytes with a request for {like.name!r}, which has no value")
            return like
        value: LoDTensor | SelectedRows
        if self.is_sparse:
            count = len(content) // (ROW_NUMBER.itemsize + rows.nbytes)
            numbers = np.frombuffer(content, ROW_NUMBER, count)
            array = rows.array(memoryview(content)[numbers.nbytes :])
            if len(array) != count:
                raise Refused(f"received {count} row numbers with {len(array)} rows of {like.name!r}")
            assert isinstance(like.value, SelectedRows)
            value = SelectedRows(numbers, like.value.table_height, aligned(array))
        else:
            value = LoDTensor(rows.array(content))
        return Message(like.name, value, like.out_name, like.table_name, like.trainer_id, like.profile)


# -- writing
def packet(number: int, step: int, kind: int, pattern: int, parts: list[Buffer]) -> list[Buffer]:
    """A packet as buffers to send one after the other; small ones in one."""
    length = len(parts[0]) if len(parts) == 1 else sum(map(len, parts))
    head = HEADER.pack(number, step, kind, pattern, length)
    end = NOTHING[: -length % ALIGNMENT]
    if length <= SMALL:
        return [b"".join((head, *parts, end))]
    return [part for part in (head, *parts, end) if len(part)]


class Describer:
    """A client's patterns on one connection: it describes each once."""

    def __init__(self) -> None:
        self._patterns: dict[Key, Pattern] = {}

    def packets(self, number: int, step: int, method: Method, message: Message) -> tuple[list[Buffer], Pattern | None]:
        """A call as buffers to send one after the other, and its pattern. Raises what `encode` raises."""
        key = _key(method, message)
        if key is None or (len(self._patterns) >= MOST_PATTERNS and key not in self._patterns):
            return packet(number, step, method, WHOLE, encode(message)), None
        described: list[Buffer] = []
        pattern = self._patterns.get(key)
        if pattern is None:
            pattern = Pattern.of(len(self._patterns) + 1, method, _without_rows(message))
            described = packet(0, 0, DESCRIBED, pattern.number, [description(pattern)])
            self._patterns[key] = pattern
        return described + packet(number, step, method, pattern.number, contents(message)), pattern


def description(pattern: Pattern) -> bytes:
    """What a pattern is, for the other side."""
    return b"".join((bytes([pattern.method]), *encode(pattern.message)))


def described(number: int, content: Buffer, limits: Limits) -> Pattern:
    """The pattern that a client describes; raises Refused for what is no description."""
    if not len(content) or content[0] not in METHODS:
        raise Refused("received a description of packets of no known method")
    message = decode(bytes(content[1:]), limits)
    value = message.value
    if isinstance(value, bytes) or (isinstance(value, LoDTensor) and value.offsets):
        raise Refused(f"received a description of {message.name!r} with a value that differs from packet to packet")
    pattern = Pattern.of(number, METHODS[content[0]], message)
    if value is not None and pattern.rows is None:
        raise Refused(f"received a description of {message.name!r} whose rows have no bytes")
    return pattern


def contents(message: Message) -> list[Buffer]:
    """What changes from packet to packet: nothing, rows, or row numbers and rows."""
    value = message.value
    if isinstance(value, SelectedRows):
        return [raw(np.ascontiguousarray(value.row_ids, ROW_NUMBER)), raw(value.tensor.array)]
    return [raw(value.array)] if isinstance(value, LoDTensor) else []


def raw(array: Array) -> Buffer:
    """The bytes of an array: a copy of few, the memory itself of many."""
    if array.nbytes <= SMALL and type(array) is np.ndarray and array.dtype.byteorder != ">":
        return array.tobytes()
    return contiguous(array).reshape(-1).view(np.uint8).data


def _key(method: Method, message: Message) -> Key | None:
    """What tells patterns apart; None for a message that has none."""
    value = message.value
    names = method, message.name, message.out_name, message.table_name, message.trainer_id, message.profile
    if value is None:
        return names
    if isinstance(value, SelectedRows):
        array = value.tensor.array
        if array is None or array.ndim == 0 or len(array) != len(value.row_ids):
            return None
        rest: Key = (array.dtype, array.shape[1:], value.table_height)
    elif isinstance(value, LoDTensor):
        if value.array is None or value.offsets:
            return None
        array = value.array
        rest = (array.dtype, array.shape[1:])
    else:
        return None
    return (*names, *rest) if array.size else None


def _without_rows(message: Message) -> Message:
    value: Any = message.value
    if isinstance(value, SelectedRows):
        array = contiguous(value.tensor.array)
        value = SelectedRows((), value.table_height, array[:0])
    elif isinstance(value, LoDTensor):
        array = contiguous(value.array)
        value = LoDTensor(np.empty((0, *array.shape[1:]), array.dtype))
    return Message(message.name, value, message.out_name, message.table_name, message.trainer_id, message.profile)


# -- answers
def answer(number: int, step: int, pattern: Pattern | None, out_name: str, value: Any) -> list[Buffer]:
    """The packet that answers a read; raises what `encode` raises."""
    if pattern is not None:
        known, pattern.answer = pattern.answer, None
        if type(value) is LoDTensor and not value.offsets and value.array is not None:
            array = value.array
            if known is not None and array.ndim and array.dtype == known.dtype and array.shape[1:] == known.shape:
                pattern.answer = known
                return packet(number, step, OK, ROWS_ALONE, [raw(array)])
            pattern.answer = Rows.of(contiguous(array))
    return packet(number, step, OK, WHOLE, encode(Message(out_name, value)))


def answered(pattern: Pattern | None, kind: int, content: Buffer, limits: Limits) -> Message:
    """The message of a packet that answers a read; raises Refused for one that is no answer."""
    if kind == WHOLE:
        message = decode(content, limits)
        value = message.value
        if pattern is not None:
            plain = isinstance(value, LoDTensor) and not value.offsets
            pattern.answer = Rows.of(value.array) if plain else None  # type: ignore[union-attr]
        return message
    if pattern is None or pattern.answer is None or kind != ROWS_ALONE:
        raise Refused(f"received an answer of the unknown kind {kind}; is the peer a fluidtool role of this version?")
    return Message(pattern.message.out_name, LoDTensor(pattern.answer.array(content)))


# -- reading
Found = tuple[int, int, int, int, Buffer]  # number, step, code (method or status), pattern, content


class PacketReader:
    """Puts together what a socket receives. Long contents are received into memory of their own; others are copied once.

    make_room is asked with the size of a long content before it takes memory; False: not now (`is_waiting`, until `go_on`).
    """

    def __init__(self, longest: int, memory: Memory) -> None:
        self.longest, self._memory = longest, memory
        self.make_room: Callable[[int], bool] = lambda size: True
        self._rest = b""  # the beginning of a packet
        self._long: memoryview | None = None
        self._filled = self._size = 0
        self._head = (0, 0, 0, 0, 0)
        self.is_waiting = False

    @property
    def is_within(self) -> bool:
        """Whether a packet has begun and not ended."""
        return self._long is not None or bool(self._rest)

    @property
    def is_long(self) -> bool:
        """Whether a long content has begun and not ended."""
        return self._long is not None

    def target(self, scratch: memoryview) -> memoryview:
        """Where to receive next: the rest of a long content, or `scratch`."""
        return scratch if self._long is None else self._long[self._filled : self._size]

    def received(self, scratch: memoryview, count: int) -> list[Found]:
        """The packets that end in what was received into `target`; raises Refused for one that is longer than allowed."""
        if self._long is None:
            return self._read(b"".join((self._rest, scratch[:count])) if self._rest else scratch[:count])
        self._filled += count
        return self._ended()

    def go_on(self) -> list[Found]:
        """After `is_waiting`: try again to get room."""
        return self._read(self._rest)

    def _read(self, data: Buffer) -> list[Found]:
        found: list[Found] = []
        at, end = 0, len(data)
        self._rest, self.is_waiting = b"", False
        while end - at >= HEADER.size:
            number, step, code, pattern, length = head = HEADER.unpack_from(data, at)
            begin = at + HEADER.size
            after = begin + length + -length % ALIGNMENT
            if length > self.longest:
                raise Refused(f"received a packet of {length} bytes, but at most {self.longest} are allowed")
            if after > end:
                if after - begin > SMALL:
                    self._begin(head, after - begin, data, at)
                    return found + (self._ended() if self._long is not None else [])
                break
            found.append((number, step, code, pattern, bytes(data[begin : begin + length])))
            at = after
        self._rest = bytes(data[at:])
        return found

    def _begin(self, head: tuple[int, int, int, int, int], size: int, data: Buffer, at: int) -> None:
        """A long content begins, of which a part is here."""
        if not self.make_room(size):
            self._rest, self.is_waiting = bytes(data[at:]), True
            return
        here = memoryview(data)[at + HEADER.size :]
        self._head, self._size, self._filled = head, size, len(here)
        self._long = self._memory.take(size).data
        self._long[: len(here)] = here

    def _ended(self) -> list[Found]:
        if self._long is None or self._filled < self._size:
            return []
        content, self._long = self._long, None
        number, step, code, pattern, length = self._head
        return [(number, step, code, pattern, content[:length].toreadonly())]
