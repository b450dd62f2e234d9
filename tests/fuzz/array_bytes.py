"""Arrays of feeds: .npy and .npz files, from a file and through a pipe, and sequence lengths as JSON."""

from __future__ import annotations

import io
import random
import zipfile
from collections.abc import Iterator, Sequence

import numpy as np

from fluidtool.errors import FluidError
from fluidtool.io.arrays import archive_bytes, parse_lengths, parse_values, read_stream
from fluidtool.tensor import LoDTensor
from tests.fuzz import _bytes
from tests.fuzz.campaign import Budget, Finding

WORDS = (
    b"'", b'"', b"(", b")", b"[", b"]", b"{", b"}", b",", b":", b"'<f4'", b"'|O'", b"'|V2'", b"'<U0'", b"True", b"-1", b"L",
    b"9" * 19, b"9" * 5000, b"[" * 2000, b"1e999", b"[[2,3]]", b"4611686018427387904",
)  # fmt: skip


def seeds() -> Sequence[bytes]:
    """Arrays of several kinds, and archives of them."""
    arrays = [np.arange(6, dtype=np.float32).reshape(2, 3), np.array("[[1,1]]"), np.zeros(3, ">i8"), np.array(True)]
    files = [io.BytesIO() for _ in arrays]
    for file, array in zip(files, arrays, strict=True):
        np.save(file, array)
    stored = io.BytesIO()
    np.savez(stored, x=arrays[0], y=arrays[2])
    packed = archive_bytes({"x": LoDTensor(arrays[0], [[0, 1, 2]]), "y": LoDTensor(np.zeros(1000))})
    return [*(file.getvalue() for file in files), stored.getvalue(), bytes(packed), b"[[2, 3], [1, 0, 2, 1, 1]]"]


def check(data: bytes) -> None:
    """A file and a pipe give the same; lengths end at the rows."""
    values = _values(lambda: parse_values(data, "file"))
    piped = _values(lambda: read_stream(io.BytesIO(data), "pipe"))
    assert (values is None) == (piped is None) and (values or {}).keys() == (piped or {}).keys()
    for value in (values or {}).values():
        repr(value)
    if data[:1] == b"[":
        offsets = parse_lengths(data.decode("latin1"), 5, "x")
        assert all(level[-1] >= 0 for level in offsets)


def _values(read):  # type: ignore[no-untyped-def]
    try:
        return read()
    except FluidError:
        return None


def change_words(chance: random.Random, data: bytes, others: Sequence[bytes]) -> bytes:
    """Something that has a meaning in a header or in JSON, in the first bytes."""
    at = chance.randint(0, min(len(data), 160))
    return data[:at] + chance.choice(WORDS) + data[at + chance.choice((0, 1, 4)) :]


def change_member(chance: random.Random, data: bytes, others: Sequence[bytes]) -> bytes:
    """An archive with members that were changed, in order again; or an archive of the array."""
    members = _bytes.members(data) or [("x.npy", data)]
    changed = []
    for name, content in members:
        change = chance.choice((change_words, *_bytes.ANY))
        name = chance.choice((name, name, name[:-4] or "a", "x.lod.npy", "y.rows.npy"))
        changed.append((name, change(chance, content, others)[: _bytes.LONGEST]))
    return _bytes.archive(changed, chance.choice((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)))


TARGET = _bytes.Bytes(seeds, check, (change_words, change_member))


def search(budget: Budget) -> Iterator[Finding]:
    """Look for arrays that are not refused as they should be."""
    return _bytes.search(budget, TARGET, "array_bytes")
