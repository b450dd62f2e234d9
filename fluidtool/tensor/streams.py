"""The bytes of a LoDTensor and of a SelectedRows: parameter files, the records of `save_combine`, `.pdiparams`.

Both are little-endian and equal in Fluid 0.12 to Paddle 2.6. Readers take any buffer (bytes, a memory map) and an
offset; the arrays that they return are views of the buffer, so that reading a memory map touches no weights.

    LoDTensor:     uint32 0 | uint64 levels | per level: uint64 bytes, uint64 offsets | tensor
    SelectedRows:  uint32 0 | uint64 rows | int64 row ids | int64 height | tensor
    tensor:        uint32 0 | int32 length | TensorDesc message (data_type, dims) | row-major data
"""

from __future__ import annotations

import struct
from math import prod
from typing import Any

import numpy as np

from fluidtool.errors import ArgumentTypeError, UnreadableError
from fluidtool.proto.enums import VarType
from fluidtool.records import dataclass
from fluidtool.shapes import shape_text
from fluidtool.tensor.data_types import numpy_dtype, var_type_of
from fluidtool.tensor.lod import LoD, lod_fault
from fluidtool.tensor.lod_tensor import LoDTensor
from fluidtool.tensor.selected_rows import SelectedRows

MAX_RANK = 9
LONGEST_DESCRIPTION = 1 << 12  # bytes
VARINT, LENGTH_DELIMITED = 0, 2


@dataclass(frozen=True, slots=True)
class TensorRecord:
    """Where one tensor stands within a buffer: its data are the bytes `begin` to `end`."""

    shape: tuple[int, ...]
    data_type: VarType
    lod: LoD
    begin: int
    end: int

    def array(self, buffer: Any) -> np.ndarray[Any, Any]:
        """The data as an array, a view of `buffer`."""
        dtype = numpy_dtype(self.data_type)
        if self.begin == self.end:
            return np.empty(self.shape, dtype)
        count = (self.end - self.begin) // dtype.itemsize
        return np.frombuffer(buffer, dtype, count, self.begin).reshape(self.shape)


class _Cursor:
    """Reads forward through a buffer; every fault says at which byte it stands."""

    __slots__ = ("offset", "size", "view", "what")

    def __init__(self, buffer: Any, offset: int, what: str) -> None:
        self.view = memoryview(buffer).cast("B")
        self.size, self.offset, self.what = len(self.view), offset, what

    def fail(self, fault: str) -> UnreadableError:
        return UnreadableError(
            f"{self.what} is not readable at byte {self.offset}: {fault}; it is truncated, corrupted or not a "
            "parameter file of Paddle"
        )

    def skip(self, count: int, unit: str) -> int:
        """Move on by `count` bytes and return where they begin."""
        begin, left = self.offset, self.size - self.offset
        if count < 0 or count > left:
            raise self.fail(f"{unit} takes {count} bytes, but only {left} are left")
        self.offset += count
        return begin

    def number(self, form: str, unit: str) -> int:
        begin = self.skip(struct.calcsize(form), unit)
        value: int = struct.unpack_from(form, self.view, begin)[0]
        return value

    def numbers(self, count: int, dtype: str, unit: str) -> np.ndarray[Any, Any]:
        begin = self.skip(8 * count, unit)
        return np.frombuffer(self.view, dtype, count, begin) if count else np.empty(0, dtype)

    def version(self, unit: str) -> None:
        version = self.number("<I", f"the version of the {unit}")
        if version != 0:
            self.offset -= 4
            raise self.fail(f"{unit} version {version} is not supported, only version 0 is")


def scan_tensor(buffer: Any, offset: int = 0, what: str = "the tensor stream") -> TensorRecord:
    """Read all but the data of the LoDTensor at `offset`; raises UnreadableError, which names `what`."""
    cursor = _Cursor(buffer, offset, what)
    cursor.version("LoDTensor")
    lod = _lod(cursor)
    record = _tensor(cursor, lod)
    fault = lod_fault(lod, record.shape[0] if record.shape else None)
    if fault:
        cursor.offset = offset
        raise cursor.fail(f"its LoD does not fit its shape {shape_text(record.shape)}: {fault}")
    return record


def read_tensor(buffer: Any, offset: int = 0, what: str = "the tensor stream") -> tuple[LoDTensor, int]:
    """The LoDTensor at `offset` and the offset after it; raises UnreadableError, which names `what`."""
    record = scan_tensor(buffer, offset, what)
    return LoDTensor(record.array(buffer), record.lod), record.end


def read_selected_rows(buffer: Any, offset: int = 0, what: str = "the SelectedRows stream") -> tuple[SelectedRows, int]:
    """The SelectedRows at `offset` and the offset after it; raises UnreadableError, which names `what`."""
    cursor = _Cursor(buffer, offset, what)
    cursor.version("SelectedRows")
    count = cursor.number("<Q", "the number of rows")
    rows = cursor.numbers(count, "<i8", f"{count} row numbers")
    height = cursor.number("<q", "the height")
    record = _tensor(cursor, [])
    fault = _rows_fault(rows, height, record.shape)
    if fault:
        cursor.offset = offset
        raise cursor.fail(fault)
    return SelectedRows(rows.astype(np.int64), height, record.array(buffer)), record.end


def write_tensor(tensor: LoDTensor) -> list[Any]:
    """The stream of a LoDTensor as byte strings and buffers to write one after the other."""
    head = [struct.pack("<IQ", 0, len(tensor.offsets))]
    for level in tensor.offsets:
        head.append(struct.pack(f"<Q{len(level)}Q", 8 * len(level), *level))
    return [b"".join(head), *_tensor_parts(tensor)]


def write_selected_rows(value: SelectedRows) -> list[Any]:
    """The stream of a SelectedRows as byte strings and buffers to write one after the other."""
    rows = np.ascontiguousarray(value.row_ids, "<i8")
    head = struct.pack("<IQ", 0, len(rows)) + rows.tobytes() + struct.pack("<q", value.table_height)
    return [head, *_tensor_parts(value.tensor)]


def _lod(cursor: _Cursor) -> LoD:
    levels = cursor.number("<Q", "the number of LoD levels")
    lod: LoD = []
    for depth in range(levels):
        unit = f"LoD level {depth} of {levels}"
        size = cursor.number("<Q", f"the size of {unit}")
        if size % 8:
            raise cursor.fail(f"{unit} takes {size} bytes, not a multiple of 8")
        lod.append([int(offset) for offset in cursor.numbers(size // 8, "<u8", unit)])
    return lod


def _tensor(cursor: _Cursor, lod: LoD) -> TensorRecord:
    cursor.version("tensor")
    length = cursor.number("<i", "the length of the tensor description")
    if length > LONGEST_DESCRIPTION:
        raise cursor.fail(f"the tensor description claims {length} bytes, more than any takes")
    begin = cursor.skip(length, "the tensor description")
    data_type, shape = _description(cursor, begin)
    numel, itemsize = prod(shape), numpy_dtype(data_type).itemsize
    unit = f"data of {data_type.name} {shape_text(shape)}"
    data = cursor.skip(numel * itemsize, unit)
    return TensorRecord(shape, data_type, lod, data, cursor.offset)


def _description(cursor: _Cursor, begin: int) -> tuple[VarType, tuple[int, ...]]:
    number, dims = None, []
    for field, value in _fields(cursor, begin):
        if field == 1 and isinstance(value, int):
            number = value
        elif field == 2:
            dims += [value] if isinstance(value, int) else _packed(cursor, value)
    try:
        data_type = VarType(number)  # type: ignore[arg-type]
        numpy_dtype(data_type)
    except (ValueError, ArgumentTypeError):
        raise cursor.fail(f"data type {number} is not a data type of tensors") from None
    shape = tuple(_signed(dim) for dim in dims)
    if len(shape) > MAX_RANK or min(shape, default=0) < 0 or prod(dim or 1 for dim in shape) >= 2**60:
        raise cursor.fail(f"the shape {shape_text(shape[: MAX_RANK + 1])} cannot be that of a tensor")
    return data_type, shape


def _fields(cursor: _Cursor, begin: int) -> list[tuple[int, int | slice]]:
    """The fields of the message from `begin` to the cursor: numbers as they are, others as the slice that they fill."""
    end, position = cursor.offset, begin
    fields: list[tuple[int, int | slice]] = []
    while position < end:
        key, position = _varint(cursor, position, end)
        value, position = _varint(cursor, position, end)
        if key & 7 == VARINT:
            fields.append((key >> 3, value))
            continue
        if key & 7 != LENGTH_DELIMITED or position + value > end:
            raise cursor.fail("the tensor description is not a TensorDesc message")
        fields.append((key >> 3, slice(position, position + value)))
        position += value
    return fields


def _packed(cursor: _Cursor, where: slice) -> list[int]:
    values, position = [], where.start
    while position < where.stop:
        value, position = _varint(cursor, position, where.stop)
        values.append(value)
    return values


def _varint(cursor: _Cursor, position: int, end: int) -> tuple[int, int]:
    value = shift = 0
    while position < end and shift < 70:
        byte = cursor.view[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        shift += 7
    raise cursor.fail("the tensor description ends within a number")


def _signed(value: int) -> int:
    return value - 2**64 if value >= 2**63 else value


def _rows_fault(rows: np.ndarray[Any, Any], height: int, shape: tuple[int, ...]) -> str | None:
    if height < 0:
        return f"the height {height} is negative"
    if (shape[0] if shape else 0) < len(rows):  # a table that grows as it is asked has room for more
        return f"its tensor of shape {shape_text(shape)} does not hold its {len(rows)} rows"
    return None


def _tensor_parts(tensor: LoDTensor) -> list[Any]:
    array = np.asarray(tensor.numpy(), order="C")
    message = b"\x08" + _encode_varint(var_type_of(array.dtype))
    message += b"".join(b"\x10" + _encode_varint(size) for size in array.shape)
    return [struct.pack("<Ii", 0, len(message)) + message, array.reshape(-1).view(np.uint8).data]


def _encode_varint(value: int) -> bytes:
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)
