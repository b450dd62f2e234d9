"""Safetensors files: `uint64 length | JSON header | data`, little-endian, the data of each tensor by offsets in the header.

The format is as published at https://github.com/huggingface/safetensors; it is small enough that a package would be more to
install than this is to read. A header is text whose sizes are not believed; data are mapped, not read.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from math import prod
from typing import Any

import numpy as np

from fluidtool.errors import UnreadableError
from fluidtool.io.parameters import ParameterStore
from fluidtool.proto.enums import VarType
from fluidtool.tensor import LoDTensor
from fluidtool.tensor.data_types import var_type_of
from fluidtool.tensor.streams import TensorRecord

LONGEST_HEADER = 100_000_000  # bytes, as in the reference implementation
MOST_DIMENSIONS = 32
METADATA = "__metadata__"
NAMES = {
    VarType.BOOL: "BOOL",
    VarType.UINT8: "U8",
    VarType.INT8: "I8",
    VarType.INT16: "I16",
    VarType.INT32: "I32",
    VarType.INT64: "I64",
    VarType.SIZE_T: "U64",
    VarType.FP16: "F16",
    VarType.BF16: "BF16",
    VarType.FP32: "F32",
    VarType.FP64: "F64",
    VarType.COMPLEX64: "C64",
}
SIZES = {"BOOL": 1, "U8": 1, "I8": 1, "I16": 2, "F16": 2, "BF16": 2, "I32": 4, "F32": 4}  # 8 bytes otherwise
_TYPES = {name: data_type for data_type, name in NAMES.items()}


def is_safetensors(buffer: Any) -> bool:
    """Whether bytes start like such a file: a length that fits, and a brace."""
    return len(buffer) > 8 and buffer[8] == ord("{") and _header_size(buffer) <= len(buffer) - 8


def _header_size(buffer: Any) -> int:
    return int.from_bytes(bytes(buffer[:8]), "little")


# ---------------------------------------------------------------- reading
def open_safetensors(buffer: Any, source: str) -> ParameterStore:
    """The tensors of a file by name, as views of `buffer`; raises UnreadableError."""
    size = _header_size(buffer)
    if len(buffer) < 8 or size > min(LONGEST_HEADER, len(buffer) - 8):
        raise _fault(source, f"its header claims {size} bytes, but the file has {len(buffer)}")
    entries = _header(bytes(buffer[8 : 8 + size]), source)
    records = {name: _record(entry, 8 + size, f"{name} in {source}") for name, entry in entries.items()}
    _check_contiguous(records.values(), 8 + size, len(buffer), source)
    return ParameterStore({name: (buffer, record, source) for name, record in records.items()})


def _header(text: bytes, source: str) -> dict[str, Any]:
    try:
        header = json.loads(text, object_pairs_hook=_distinct)
    except (ValueError, RecursionError) as error:
        raise _fault(source, f"its header is not a JSON object with distinct names ({error})") from error
    if not isinstance(header, dict):
        raise _fault(source, "its header is not a JSON object")
    header.pop(METADATA, None)
    return header


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a name occurs twice")
    return found


def _record(entry: Any, start: int, what: str) -> TensorRecord:
    match entry:
        case {"dtype": str(name), "shape": list(shape), "data_offsets": [begin, end], **rest} if not rest:
            if name not in _TYPES:
                raise _fault(what, f"Fluid programs have no data type {name[:20]}; expected one of {', '.join(_TYPES)}")
            sizes = (*shape, begin, end)
            fine = len(shape) <= MOST_DIMENSIONS and all(type(size) is int and 0 <= size < 2**62 for size in sizes)
            if fine and end - begin == prod(shape) * SIZES.get(name, 8):
                return TensorRecord(tuple(shape), _TYPES[name], [], start + begin, start + end)
    raise _fault(what, "data type, shape and offsets do not fit together")


def _check_contiguous(records: Any, start: int, size: int, source: str) -> None:
    """No byte of the data belongs to two tensors, or to none."""
    for record in sorted(records, key=lambda record: (record.begin, record.end)):
        if record.begin != start:
            raise _fault(source, f"its tensors overlap or leave a gap at byte {start}")
        start = record.end
    if start != size:
        raise _fault(source, f"its tensors end at byte {start}, but the file has {size} bytes")


def _fault(source: str, fault: str) -> UnreadableError:
    return UnreadableError(f"{source} cannot be read as safetensors: {fault}; truncated or corrupted?")


# ---------------------------------------------------------------- writing
def safetensors_parts(values: Mapping[str, LoDTensor]) -> Iterator[Any]:
    """The file as byte strings and buffers; data types must be among NAMES. Larger elements first: all of them are aligned."""
    arrays = {name: value.numpy() for name, value in values.items()}
    order = sorted(arrays, key=lambda name: (-arrays[name].itemsize, name))
    header: dict[str, Any] = {}
    end = 0
    for name in order:
        begin, end = end, end + arrays[name].nbytes
        header[name] = {
            "dtype": NAMES[var_type_of(arrays[name].dtype)],
            "shape": list(arrays[name].shape),
            "data_offsets": [begin, end],
        }
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)
    yield len(text).to_bytes(8, "little") + text
    for name in order:
        yield np.ascontiguousarray(arrays[name]).reshape(-1).view(np.uint8)
