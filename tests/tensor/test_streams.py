"""The byte streams of LoDTensor and SelectedRows: what real Paddle 1.8.5 and 2.6.2 write, and what is refused."""

import mmap
import struct
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from fluidtool.errors import UninitializedError, UnreadableError
from fluidtool.proto.enums import VarType
from fluidtool.tensor import LoDTensor, SelectedRows
from fluidtool.tensor.streams import (
    read_selected_rows,
    read_tensor,
    scan_tensor,
    write_selected_rows,
    write_tensor,
)

# The bias of an fc layer, one float 0.0, as Paddle 1.8.5 saved it.
FC_BIAS = bytes.fromhex("00000000 0000000000000000 00000000 04000000 0805 1001 00000000")
# Rows 0, 4, 7 of a table of height 10, three floats each, as Paddle 1.8.5 saved it.
ROWS = bytes.fromhex(
    "00000000 0300000000000000 0000000000000000 0400000000000000 0700000000000000 0a00000000000000"
    "00000000 06000000 0805 1003 1003"
    "00000000 00000080 0000c03f 000010c0 e6dcc9bf 2a482dbe e20b0840 74d4abbf 3d7964c0"
)
# A float32 of shape [0] whose LoD is [[0, 0, 0]], as Paddle 1.8.5 saved it.
EMPTY_WITH_LOD = bytes.fromhex("00000000 0100000000000000 1800000000000000" + "00" * 24 + "00000000 04000000 0805 1000")


def stream(value: LoDTensor) -> bytes:
    return b"".join(bytes(part) for part in write_tensor(value))


def rows_stream(value: SelectedRows) -> bytes:
    return b"".join(bytes(part) for part in write_selected_rows(value))


def described(message: bytes, data: bytes = b"") -> bytes:
    return struct.pack("<IQIi", 0, 0, 0, len(message)) + message + data


def test_reads_and_writes_the_bytes_of_paddle() -> None:
    tensor, end = read_tensor(FC_BIAS)
    assert end == len(FC_BIAS)
    assert tensor.numpy().dtype == np.float32
    assert tensor.numpy().tolist() == [0.0]
    assert stream(tensor) == FC_BIAS


def test_reads_and_writes_the_selected_rows_of_paddle() -> None:
    value, end = read_selected_rows(ROWS)
    assert end == len(ROWS)
    assert (value.rows(), value.height(), value.value.shape) == ([0, 4, 7], 10, (3, 3))
    assert value.value[0].tolist() == [0.0, -0.0, 1.5]
    assert rows_stream(value) == ROWS


def test_an_empty_tensor_keeps_its_lod() -> None:
    tensor, end = read_tensor(EMPTY_WITH_LOD)
    assert end == len(EMPTY_WITH_LOD)
    assert (tensor.shape(), tensor.lod()) == ([0], [[0, 0, 0]])
    assert stream(tensor) == EMPTY_WITH_LOD


@pytest.mark.parametrize(
    "dtype", ["bool", "int8", "uint8", "int16", "int32", "int64", "float16", "float32", "float64", ml_dtypes.bfloat16]
)
@pytest.mark.parametrize("shape", [(), (1,), (3, 4), (0, 4), (2, 1, 300)])
def test_every_data_type_and_shape_comes_back(dtype: object, shape: tuple[int, ...]) -> None:
    array = np.random.default_rng(0).integers(0, 2, shape).astype(dtype)
    data = stream(LoDTensor(array))
    back, end = read_tensor(b"xyz" + data + b"rest", 3)
    assert end == 3 + len(data)
    assert back.numpy().dtype == array.dtype
    np.testing.assert_array_equal(back.numpy(), array)
    assert back.shape() == list(shape)


def test_the_lod_comes_back() -> None:
    tensor = LoDTensor(np.arange(9, dtype=np.int64), [[0, 2, 3], [0, 4, 5, 9]])
    assert read_tensor(stream(tensor))[0].lod() == [[0, 2, 3], [0, 4, 5, 9]]


def test_strided_arrays_are_written_row_major() -> None:
    array = np.arange(6, dtype=np.float32).reshape(2, 3).T
    np.testing.assert_array_equal(read_tensor(stream(LoDTensor(array)))[0].numpy(), array)


def test_records_stand_one_after_the_other() -> None:
    arrays = [np.arange(n, dtype=np.float32) for n in (3, 1, 7)]
    data, offset = b"".join(stream(LoDTensor(a)) for a in arrays), 0
    for array in arrays:
        tensor, offset = read_tensor(data, offset)
        np.testing.assert_array_equal(tensor.numpy(), array)
    assert offset == len(data)


def test_an_array_read_is_a_view_of_the_memory_map(tmp_path: Path) -> None:
    file = tmp_path / "w"
    file.write_bytes(stream(LoDTensor(np.ones(4, np.float32))))
    with file.open("r+b") as handle, mmap.mmap(handle.fileno(), 0) as mapped:
        tensor, end = read_tensor(mapped)
        mapped[end - 4 : end] = struct.pack("<f", 5.0)
        assert tensor.numpy().tolist() == [1.0, 1.0, 1.0, 5.0]
        del tensor


def test_a_scan_tells_shape_and_place_without_the_data() -> None:
    record = scan_tensor(FC_BIAS)
    assert (record.shape, record.data_type, record.lod) == ((1,), VarType.FP32, [])
    assert (record.begin, record.end) == (len(FC_BIAS) - 4, len(FC_BIAS))


def test_packed_dims_and_unknown_fields_are_understood() -> None:
    message = b"\x08\x05" + b"\x12\x02\x02\x01" + b"\x1a\x01z"
    assert scan_tensor(described(message, bytes(8))).shape == (2, 1)


@pytest.mark.parametrize("cut", range(len(EMPTY_WITH_LOD)))
def test_every_truncation_is_refused(cut: int) -> None:
    with pytest.raises(UnreadableError, match="not readable at byte"):
        read_tensor(EMPTY_WITH_LOD[:cut])


@pytest.mark.parametrize("cut", range(0, len(ROWS), 3))
def test_every_truncation_of_selected_rows_is_refused(cut: int) -> None:
    with pytest.raises(UnreadableError, match="not readable at byte"):
        read_selected_rows(ROWS[:cut])


@pytest.mark.parametrize(
    ("data", "fault"),
    [
        (struct.pack("<I", 7) + bytes(30), "byte 0: LoDTensor version 7 is not supported, only version 0 is"),
        (struct.pack("<IQI", 0, 0, 3) + bytes(30), "byte 12: tensor version 3 is not supported, only version 0 is"),
        (
            struct.pack("<IQ", 0, 2**60) + b"\xff" * 8,
            "LoD level 0 of 1152921504606846976 takes 18446744073709551615 bytes",
        ),
        (struct.pack("<IQQ", 0, 1, 2**40) + bytes(8), "LoD level 0 of 1 takes 1099511627776 bytes, but only 8"),
        (struct.pack("<IQQ", 0, 1, 12) + bytes(12), "takes 12 bytes, not a multiple of 8"),
        (struct.pack("<IQIi", 0, 0, 0, -1), "the tensor description takes -1 bytes"),
        (struct.pack("<IQIi", 0, 0, 0, 5000) + bytes(5000), "claims 5000 bytes, more than any takes"),
        (described(b"\x08\x63\x10\x01", bytes(4)), "data type 99 is not a data type of tensors"),
        (described(b"\x08\x07\x10\x01", bytes(4)), "data type 7 is not a data type of tensors"),
        (described(b"\x10\x01", bytes(4)), "data type None is not a data type of tensors"),
        (described(b"\x08\x05\x10" + b"\xff" * 9 + b"\x01"), r"the shape \(-1,\) cannot be"),
        (described(b"\x08\x05" + b"\x10\x80\x80\x80\x80\x80\x80\x80\x40" * 2), "cannot be that of a tensor"),
        (described(b"\x08\x05" + b"\x10\x01" * 10, bytes(4)), "cannot be that of a tensor"),
        (described(b"\x08\x05\x10\x80"), "the tensor description ends within a number"),
        (described(b"\x08\x05\x15\x01\x01\x01\x01"), "is not a TensorDesc message"),
        (
            described(b"\x08\x05\x10\x80\x80\x40", bytes(9)),
            r"data of FP32 \(1048576,\) takes 4194304 bytes, but only 9",
        ),
    ],
)
def test_nonsense_is_refused(data: bytes, fault: str) -> None:
    with pytest.raises(UnreadableError, match=fault):
        read_tensor(data)


@pytest.mark.parametrize("lod", [[[0, 3]], [[0, 2, 1, 4]], [[1, 4]], [[0, 3], [0, 2, 4]]])
def test_a_lod_that_does_not_fit_is_refused(lod: list[list[int]]) -> None:
    with pytest.raises(UnreadableError, match=r"its LoD does not fit its shape \(4, 2\)"):
        read_tensor(stream(LoDTensor(np.zeros((4, 2), np.float32), lod)))


def test_selected_rows_whose_tensor_has_other_rows_are_refused() -> None:
    with pytest.raises(UnreadableError, match=r"its tensor of shape \(2, 1\) does not hold its 3 rows"):
        read_selected_rows(rows_stream(SelectedRows([0, 1, 2], 5, np.zeros((2, 1), np.float32))))


def test_the_message_names_the_file() -> None:
    with pytest.raises(UnreadableError, match=r"parameter file model/fc.w is not readable"):
        read_tensor(b"", what="parameter file model/fc.w")


def test_a_tensor_without_memory_is_an_empty_array() -> None:
    array = np.array(LoDTensor())
    assert (array.shape, array.dtype) == ((0,), np.float64)


def test_a_tensor_without_memory_cannot_be_written() -> None:
    with pytest.raises(UninitializedError, match="has no memory"):
        write_tensor(LoDTensor())
