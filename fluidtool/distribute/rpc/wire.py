"""VariableMessage on the wire: Paddle's fields in the order in which Paddle's own sender writes them.

A codec of its own, because a protobuf object would copy every tensor twice. `encode` gives parts to send one after the
other, the tensor's memory among them; `decode` gives arrays that look into what was received. Fields may come in any
order; Paddle's receiver wants 1 to 7 before the tensor (8) and that before the row numbers (9), and gets them so.
Nothing in a message can do more than hold numbers: there are no pickles and no names of types.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import numpy as np

from fluidtool.distribute.rpc.handler import Message, NotFound, Refused
from fluidtool.errors import FluidError
from fluidtool.records import dataclass
from fluidtool.shapes import shape_text
from fluidtool.tensor import LoDTensor, SelectedRows, numpy_dtype, var_type_of

Buffer = bytes | bytearray | memoryview

LOD_TENSOR, SELECTED_ROWS, NCCL_ID = 0, 1, 2
NAME, TYPE, DATA_TYPE, DIMS, LOD_LEVEL, LOD, HEIGHT, SERIALIZED, ROWS = range(1, 10)
OUT_NAME, PROFILE, TRAINER, TABLE = range(10, 14)
VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
TEXTS = frozenset({NAME, OUT_NAME, TABLE})
NUMBERS = frozenset({TYPE, DATA_TYPE, LOD_LEVEL, HEIGHT, PROFILE, TRAINER})
INTEGERS_64 = np.dtype("<i8")
LARGEST_INT = 2**31 - 1
LARGEST_ARRAY = 2**62
SHORT, KEPT_REQUESTS = 256, 1 << 15  # bytes of a request that is kept, and how many are


@dataclass(frozen=True, slots=True)
class Limits:
    """How much of a message is believed: bytes in all, of a name, of a level of LoD; dimensions, levels of LoD.

    Paddle's sender stops at 2 GiB - 1 of a tensor.
    """

    message: int = LARGEST_INT
    name: int = 4096
    dims: int = 16
    lod_levels: int = 16
    lod_level: int = 1 << 26


LIMITS = Limits()


# -- writing
def encode(message: Message) -> list[Buffer]:
    """The message as buffers to send one after the other; tensors are not copied.

    Raises Refused for a tensor that Paddle's peers could not take (2 GiB or more).
    """
    value = message.value
    if value is None:
        return [_header(*_names(message))]
    if isinstance(value, bytes):
        return [_header(*_names(message), NCCL_ID), field_start(SERIALIZED, len(value)), value]
    sparse = isinstance(value, SelectedRows)
    tensor = value.tensor if isinstance(value, SelectedRows) else value
    if tensor.array is None:
        raise NotFound(f"variable {message.name} holds no value: it was never written")
    if tensor.array.nbytes > LARGEST_INT:
        raise Refused(
            f"variable {message.name} has {tensor.array.nbytes} bytes, but a message takes at most {LARGEST_INT}; "
            "transpile with slice_var_up=True and more servers, so that each keeps a slice"
        )
    array = contiguous(tensor.array)
    kind = SELECTED_ROWS if sparse else LOD_TENSOR
    lod = () if sparse else tuple(tuple(level) for level in tensor.offsets)
    height = value.table_height if isinstance(value, SelectedRows) else 0
    dtype = int(var_type_of(array.dtype))
    head = _header(*_names(message), kind, dtype, array.shape or (1,), lod, height) + field_start(
        SERIALIZED, array.nbytes
    )
    parts: list[Buffer] = [head, array.reshape(-1).view(np.uint8).data]
    if isinstance(value, SelectedRows):
        rows = np.ascontiguousarray(value.row_ids, INTEGERS_64)
        parts += [field_start(ROWS, rows.nbytes), rows.view(np.uint8).data]
    return parts


def encoded(message: Message) -> bytes:
    """The message in one chunk."""
    return b"".join(encode(message))


def contiguous(array: Any) -> np.ndarray[Any, Any]:
    """The array on the host, row after row and little-endian; itself when it is so already."""
    host = array.get() if hasattr(array, "get") else np.asarray(array)
    return np.ascontiguousarray(host, host.dtype.newbyteorder("<"))


def _names(message: Message) -> tuple[str, str, int, int, str]:
    return message.name, message.out_name, message.profile, message.trainer_id, message.table_name


@lru_cache(maxsize=4096)
def _header(
    name: str,
    out_name: str,
    profile: int,
    trainer_id: int,
    table_name: str,
    kind: int = LOD_TENSOR,
    dtype: int = 0,
    dims: tuple[int, ...] = (),
    lod: tuple[tuple[int, ...], ...] = (),
    height: int = 0,
) -> bytes:
    """Every field but 8 and 9. The same variables come in every step, so that this is mostly looked up."""
    parts = [_text(NAME, name), _number(TYPE, kind), _number(DATA_TYPE, dtype)]
    if dims:
        parts.append(_packed(DIMS, dims))
    if lod:
        parts.append(_number(LOD_LEVEL, len(lod)))
        for level in lod:
            offsets = _packed(1, level)
            parts += [field_start(LOD, len(offsets)), offsets]
    parts += [_number(HEIGHT, height), _text(OUT_NAME, out_name), _number(PROFILE, profile)]
    parts += [_number(TRAINER, trainer_id), _text(TABLE, table_name)]
    return b"".join(parts)


def varint(number: int) -> bytes:
    """A number in groups of seven bits, the lowest first; negative ones as 64-bit two's complement."""
    number &= (1 << 64) - 1
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def field_start(field: int, length: int) -> bytes:
    """What comes before the bytes of a field."""
    return varint(field << 3 | BYTES) + varint(length)


def _number(field: int, number: int) -> bytes:
    return varint(field << 3) + varint(number) if number else b""


def _text(field: int, text: str) -> bytes:
    data = text.encode()
    return field_start(field, len(data)) + data if data else b""


def _packed(field: int, numbers: tuple[int, ...]) -> bytes:
    data = b"".join(varint(int(number)) for number in numbers)
    return field_start(field, len(data)) + data


# -- reading
def decode(data: Buffer | None, limits: Limits = LIMITS) -> Message:
    """The message; arrays are read-only views of `data`. None and b"" give a message without name or value.

    Raises Refused for what is no VariableMessage, contradicts itself, or is beyond the limits.
    """
    if not data:
        return Message("")
    if len(data) > limits.message:
        raise Refused(f"received a message of {len(data)} bytes, but at most {limits.message} are allowed")
    found: dict[int, Any] = {}
    dims: list[int] = []
    lod: list[list[int]] = []
    for field, content in _fields(memoryview(data).toreadonly()):
        if field == DIMS and len(dims) <= limits.dims:
            dims += [content] if isinstance(content, int) else _numbers(content[: 10 * limits.dims + 10])
        elif field == LOD:
            if len(_chunk(field, content)) > limits.lod_level or len(lod) > limits.lod_levels:
                raise _malformed(f"level {len(lod)} of its LoD is more than allowed")
            lod.append([n for f, c in _fields(_chunk(field, content)) if f == 1 for n in _some(c)])
        elif field in NUMBERS:
            if not isinstance(content, int):
                raise _malformed(f"field {field} is not a number")
            found[field] = _signed(content)
        else:
            found[field] = _chunk(field, content) if field <= TABLE else content
    if len(dims) > limits.dims or len(lod) > limits.lod_levels:
        raise _malformed(f"{len(dims)} dimensions and {len(lod)} levels of LoD are more than allowed")
    names = [_name(found.get(field), limits) for field in (NAME, OUT_NAME, TABLE)]
    value = _value(names[0], found, [_signed(size) for size in dims], [[_signed(n) for n in level] for level in lod])
    return Message(names[0], value, names[1], names[2], found.get(TRAINER, 0), found.get(PROFILE, 0))


class Requests:
    """Decodes messages; those without a value only once, as every step asks for the same."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._known: dict[bytes, Message] = {}

    def decode(self, data: Buffer) -> Message:
        """As `decode`."""
        if len(data) > SHORT:
            return decode(data, self._limits)
        key = bytes(data)
        found = self._known.get(key)
        if found is None:
            found = decode(key, self._limits)
            if found.value is None:
                if len(self._known) >= KEPT_REQUESTS:
                    self._known.clear()
                self._known[key] = found
        return found


def _value(name: str, found: dict[int, Any], dims: list[int], lod: list[list[int]]) -> Any:
    kind, data = found.get(TYPE, LOD_TENSOR), found.get(SERIALIZED)
    if kind == NCCL_ID:
        return bytes(data or b"")
    if kind not in (LOD_TENSOR, SELECTED_ROWS):
        raise _malformed(
            f"the type of variable {name!r} must be 0 (LoDTensor), 1 (SelectedRows) or 2 (NCCL id), found {kind}"
        )
    if data is None and not dims:
        return None
    array = _array(name, found.get(DATA_TYPE, 0), dims, b"" if data is None else data)
    if kind == LOD_TENSOR:
        return LoDTensor(array, lod)
    height = found.get(HEIGHT, 0)
    if height < 0:
        raise _malformed(f"variable {name!r} is of a table of {height} rows")
    rows = found.get(ROWS, b"")
    if len(rows) % INTEGERS_64.itemsize or len(rows) // INTEGERS_64.itemsize != (dims[0] if dims else 0):
        raise _malformed(
            f"variable {name!r} has values of shape {shape_text(dims)}, but row numbers of {len(rows)} bytes"
        )
    return SelectedRows(aligned(np.frombuffer(rows, INTEGERS_64)), height, array)


def _array(name: str, data_type: int, dims: list[int], data: Buffer) -> np.ndarray[Any, Any]:
    try:
        dtype = numpy_dtype(data_type)
    except FluidError as error:
        raise _malformed(f"variable {name!r}: {error}") from error
    largest = math.prod(size or 1 for size in dims) * dtype.itemsize  # numpy counts no dimension of 0 either
    if any(size < 0 for size in dims) or math.prod(dims) * dtype.itemsize != len(data) or largest > LARGEST_ARRAY:
        raise _malformed(f"variable {name!r} of {dtype} and shape {shape_text(dims)} has {len(data)} bytes")
    return aligned(np.frombuffer(data, dtype)).reshape(dims)


def aligned(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The array, or a copy of one that does not start at a multiple of its item's size."""
    return array if array.flags.aligned else array.copy()


def _name(data: Buffer | None, limits: Limits) -> str:
    if data is None:
        return ""
    if len(data) > limits.name:
        raise _malformed(f"a name has {len(data)} bytes, but at most {limits.name} are allowed")
    try:
        return str(data, "utf-8")
    except UnicodeDecodeError as error:
        raise _malformed(f"a name is not UTF-8: {bytes(data[:40])!r}") from error


def _chunk(field: int, content: memoryview | int) -> memoryview:
    if isinstance(content, int):
        raise _malformed(f"field {field} is a number")
    return content


def _some(content: memoryview | int) -> list[int]:
    return [content] if isinstance(content, int) else _numbers(content)


def _numbers(data: memoryview) -> list[int]:
    numbers, at = [], 0
    while at < len(data):
        number, at = _varint(data, at)
        numbers.append(number)
    return numbers


def _fields(data: memoryview) -> Iterator[tuple[int, memoryview | int]]:
    """Field numbers and contents: a number, or the bytes. Fields of fixed length are none of ours and left out."""
    at, end = 0, len(data)
    while at < end:
        key, at = _varint(data, at)
        kind = key & 7
        if kind == VARINT:
            number, at = _varint(data, at)
            yield key >> 3, number
            continue
        if kind == BYTES:
            length, at = _varint(data, at)
        elif kind in (FIXED64, FIXED32):
            length = 8 if kind == FIXED64 else 4
        else:
            raise _malformed(f"wire type {kind} at byte {at}")
        if length > end - at:
            raise _malformed(f"field {key >> 3} has {length} bytes, but {end - at} are left")
        if kind == BYTES:
            yield key >> 3, data[at : at + length]
        at += length


def _varint(data: memoryview, at: int) -> tuple[int, int]:
    result = shift = 0
    for place in range(at, min(at + 10, len(data))):
        byte = data[place]
        result |= (byte & 0x7F) << shift
        if byte < 0x80:
            return result & (1 << 64) - 1, place + 1
        shift += 7
    raise _malformed(f"a number at byte {at} does not end")


def _signed(number: int) -> int:
    return number - (1 << 64) if number >= 1 << 63 else number


def _malformed(what: str) -> Refused:
    return Refused(
        f"this is not a VariableMessage of a parameter server: {what}; is the peer a Paddle or fluidtool role?"
    )
