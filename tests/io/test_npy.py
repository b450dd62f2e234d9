"""Files of numpy.save and numpy.savez: what numpy writes is read, and no header is believed."""

from __future__ import annotations

import io
import os
import struct
import sys
import tracemalloc
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fluidtool.errors import LoDError, UnreadableError
from fluidtool.io.arrays import parse_values, read_stream, read_values


def npy(header: str, data: bytes = b"", version: int = 1) -> bytes:
    text = header.encode() + b"\n"
    return b"\x93NUMPY" + bytes([version, 0]) + struct.pack("<H" if version == 1 else "<I", len(text)) + text + data


def header(descr: str = "<f4", fortran: str = "False", shape: str = "(2,)") -> str:
    return f"{{'descr': '{descr}', 'fortran_order': {fortran}, 'shape': {shape}, }}"


def npz(**members: bytes) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members.items():
            archive.writestr(name + ".npy", data)
    return file.getvalue()


def saved(array: Any, **options: Any) -> bytes:
    file = io.BytesIO()
    np.save(file, array, **options)
    return file.getvalue()


TWO = struct.pack("<2f", 1, 2)


# ---------------------------------------------------------------- what is read
@pytest.mark.parametrize(
    "array",
    [
        np.arange(6, dtype=np.float32).reshape(2, 3),
        np.asfortranarray(np.arange(6.0).reshape(2, 3)),
        np.arange(4, dtype=">i8"),
        np.array(True),
        np.zeros((0, 3), np.float16),
        np.array(["ab", "ü"]),
        np.array([b"ab"]),
        np.ones(2, np.complex128),
        np.zeros(3, "V2"),
    ],
)
def test_what_numpy_writes_is_read(array: Any, tmp_path: Path) -> None:
    (tmp_path / "a.npy").write_bytes(saved(array))
    np.savez_compressed(tmp_path / "a.npz", x=array)
    for found in (
        read_values(tmp_path / "a.npy")[""],
        read_values(tmp_path / "a.npz")["x"],
        read_stream(io.BytesIO(saved(array)), "pipe")[""],
    ):
        np.testing.assert_array_equal(found.numpy(), array)
        assert found.numpy().dtype == array.dtype.newbyteorder("=") and found.numpy().flags.writeable


@pytest.mark.parametrize(
    "text",
    [
        header(),
        "{'descr':'<f4','fortran_order':False,'shape':(2,)}",
        '{"shape": (2L,), "fortran_order": False, "descr": "<f4"}   ',
    ],
)
@pytest.mark.parametrize("version", [1, 2, 3])
def test_headers_of_other_writers_are_read(text: str, version: int) -> None:
    assert parse_values(npy(text, TWO, version), "x")[""].numpy().tolist() == [1, 2]


def test_no_more_of_a_pipe_is_read_than_the_header_says() -> None:
    stream = io.BytesIO(npy(header(), TWO) + b"more")
    assert read_stream(stream, "pipe")[""].numpy().tolist() == [1, 2]
    assert stream.read() == b"more"


# ---------------------------------------------------------------- what is refused
@pytest.mark.parametrize(
    "text",
    [
        header(shape="(1099511627776,)"),  # 4 TiB
        header(shape="(4611686018427387904, 4)"),
        header(shape="(99999999999999999999,)"),
        header(shape="(0, 4611686018427387904)"),
        header(shape="(-2,)"),
        header(shape=f"({'1,' * 33})"),
        header(shape="(3,)"),
        header(shape="(2, 2)"),
        header(descr="<f5"),
        header(descr="<U0", shape="(1000000000,)"),
        header(descr="<M8[s]"),
        "{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (2,)}",
        "{'descr': '<f4', 'fortran_order': False}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (2,), 'more': 1}",
        "__import__('os').system('true')",
        "{'descr': " + "(" * 3000,
        "-" * 60000,
        "",
    ],
)
@pytest.mark.parametrize("read", ["file", "archive", "pipe"])
def test_a_header_that_cannot_be_is_refused(text: str, read: str) -> None:
    data = npy(text, TWO)
    with pytest.raises(UnreadableError, match="x cannot be read as numpy arrays"):
        if read == "pipe":
            read_stream(io.BytesIO(data), "x")
        else:
            parse_values(npz(a=data) if read == "archive" else data, "x")


@pytest.mark.parametrize("read", ["file", "archive", "pipe"])
def test_a_size_that_is_a_lie_takes_no_memory(read: str) -> None:
    data = npy(header(shape="(268435456,)"), TWO)  # 1 GiB
    tracemalloc.start()
    with pytest.raises(UnreadableError, match="truncated or corrupted"):
        if read == "pipe":
            read_stream(io.BytesIO(data), "x")
        else:
            parse_values(npz(a=data) if read == "archive" else data, "x")
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 1 << 22


@pytest.mark.parametrize("data", [b"\x93NUMPY", b"\x93NUMPY\x09\x00\x04\x00", b"\x93NUMPY\x02\x00\xff\xff\xff\xff{}"])
def test_a_header_that_is_not_there_is_refused(data: bytes) -> None:
    for parse in (lambda: parse_values(data, "x"), lambda: read_stream(io.BytesIO(data), "x")):
        with pytest.raises(UnreadableError):
            parse()


@pytest.mark.parametrize("order", "<>")
def test_numbers_that_are_no_characters_are_refused(order: str) -> None:
    file = io.BytesIO()
    np.save(file, np.array([sys.maxunicode, sys.maxunicode + 1], order + "u4").view(order + "U1"))
    with pytest.raises(UnreadableError, match=r"array of .U1 has a character of number 1114112; the last is 1114111"):
        parse_values(file.getvalue(), "file")


def test_arrays_of_objects_are_refused() -> None:
    data = saved(np.array([{}, None], dtype=object), allow_pickle=True)
    for bad in (data, npz(a=data)):
        with pytest.raises(UnreadableError, match="it contains pickled objects"):
            parse_values(bad, "x")


def spoiled(data: bytes, offset: int, value: int) -> bytes:
    """The archive with a number of 2 bytes of its directory replaced."""
    at = data.index(b"PK\x01\x02") + offset
    return data[:at] + struct.pack("<H", value) + data[at + 2 :]


@pytest.mark.parametrize(
    ("data", "fault"),
    [
        (spoiled(npz(a=npy(header(), TWO)), 8, 1), "is encrypted"),
        (spoiled(npz(a=npy(header(), TWO)), 10, zipfile.ZIP_LZMA), "compressed by a method that numpy does not use"),
        (spoiled(npz(a=npy(header(), TWO)), 10, zipfile.ZIP_STORED), "truncated or corrupted"),
        (spoiled(npz(a=npy(header(), TWO)), 26, 0xFFF), "claims to unpack .* bytes to 268"),
        (spoiled(npz(a=npy(header(), TWO)), 42, 7), "truncated or corrupted"),
        (npz(a=b"text"), "a.npy in x cannot be read"),
        (npz(a=b"")[:-10], "truncated or corrupted"),
        (b"PK\x05\x06" + bytes(17), "truncated or corrupted"),
    ],
    ids=[
        "encrypted",
        "lzma",
        "stored",
        "long name",
        "moved",
        "no array",
        "cut",
        "no directory",
    ],  # bytes hold the time of day
)
def test_an_archive_that_lies_is_refused(data: bytes, fault: str) -> None:
    with pytest.raises(UnreadableError, match=fault):
        parse_values(data, "x")


def test_members_that_lie_one_in_the_other_are_refused() -> None:
    """Each is as large as all of the file: a small archive would become as many arrays as it has names."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("a.npy", saved(np.zeros(1000)))
        (member,) = archive.filelist
        archive.filelist += [zipfile.ZipInfo.from_file(__file__, f"{n}.npy") for n in range(9)]
        for copy in archive.filelist[1:]:
            for field in ("header_offset", "file_size", "compress_size", "CRC", "orig_filename"):
                setattr(copy, field, getattr(member, field))
    with pytest.raises(UnreadableError, match="its members take"):
        parse_values(file.getvalue(), "x")


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_two_arrays_of_one_name_are_refused() -> None:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for _ in range(2):
            archive.writestr("a.npy", saved(np.zeros(1)))
    with pytest.raises(UnreadableError, match="two arrays called a"):
        parse_values(file.getvalue(), "x")


@pytest.mark.parametrize(
    "lod",
    [
        np.array("[" * 100_000),
        np.array("[[" + "9" * 4400 + "]]"),
        np.array("[[9223372036854775808]]"),
        np.array(5),
        np.zeros(1000),
        np.array(["[[2]]", "[[2]]"]),
        np.array(b"[[2]]"),
    ],
)
def test_lengths_that_cannot_be_are_refused(lod: Any) -> None:
    file = io.BytesIO()
    np.savez(file, **{"x": np.zeros(2), "x.lod": lod})
    with pytest.raises(LoDError, match="invalid LoD for x in file") as found:
        parse_values(file.getvalue(), "file")
    assert len(str(found.value)) < 400


@pytest.mark.parametrize("data", [b"", b"text", b"\x93NUMPX"])
def test_a_pipe_without_an_array_is_refused(data: bytes) -> None:
    with pytest.raises(UnreadableError, match="npz file"):
        read_stream(io.BytesIO(data), "pipe")


def test_a_device_that_never_ends_is_refused_at_once() -> None:
    if not os.path.exists("/dev/zero"):
        pytest.skip("the system has no /dev/zero")
    with pytest.raises(UnreadableError, match="not a regular file"):
        read_values(Path("/dev/zero"))
    with open("/dev/zero", "rb") as stream, pytest.raises(UnreadableError, match="neither a"):
        read_stream(stream, "pipe")
