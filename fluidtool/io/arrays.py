"""Values in .npy and .npz files: feeds, fetched values, expectations.

In an archive a LoDTensor is NAME and, where it has a LoD, NAME.lod (its sequence lengths as JSON text); SelectedRows are
NAME, NAME.rows and NAME.height; a LoDTensorArray is NAME.0, NAME.1 and so on. bfloat16, which numpy files cannot name, is
written as float32. Files with pickled objects are refused.
"""

from __future__ import annotations

import io
import json
import os
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from fluidtool.errors import LoDError, UnreadableError
from fluidtool.io.atomic import held_names, new_folder, write_file, write_files, write_into
from fluidtool.io.npy import NPY, NPZ, read_archive, read_array
from fluidtool.io.parameter_path import parameter_path
from fluidtool.shapes import shape_text
from fluidtool.tensor import LoDTensor, LoDTensorArray, SelectedRows
from fluidtool.tensor.files import open_file
from fluidtool.tensor.lod import LoD, check_lod, lengths_to_offsets

Array = np.ndarray[Any, Any]
LOD = ".lod"


# ---------------------------------------------------------------- reading
def read_values(path: Path) -> dict[str, LoDTensor]:
    """The values of a .npy file (under the name '') or .npz file; raises UnreadableError."""
    with open_file(path) as file:
        size = os.fstat(file.fileno()).st_size
        try:
            return _values(file, size, str(path))
        except OSError as error:
            raise UnreadableError(f"cannot read {path}: {error.strerror or error}") from error


def read_folder(folder: Path) -> dict[str, LoDTensor]:
    """The values of all .npy and .npz files below a folder, those of a .npy by its path without the suffix.

    Raises UnreadableError, also for a folder without any.
    """
    arrays: dict[str, Array] = {}
    values: dict[str, LoDTensor] = {}
    for path in sorted(each for each in folder.rglob("*") if each.suffix in (".npy", ".npz") and each.is_file()):
        found = read_values(path)
        if path.suffix == ".npz":
            values |= found
        else:
            arrays[path.relative_to(folder).as_posix().removesuffix(".npy")] = found[""].numpy()
    if not (arrays or values):
        raise UnreadableError(
            f"{folder} has no .npy or .npz files; 'fluidtool run MODEL --fetch-all -o DIR' writes some"
        )
    return values | _with_lod(arrays, str(folder))


def parse_values(data: bytes, source: str) -> dict[str, LoDTensor]:
    """The same from the bytes of a file; `source` is how messages call it."""
    return _values(io.BytesIO(data), len(data), source)


def read_stream(stream: BinaryIO, source: str) -> dict[str, LoDTensor]:
    """The same from what comes through a pipe: of a .npy file no more is read than its header says."""
    start = stream.read(len(NPY))
    if not start:
        raise UnreadableError(f"{source} is empty; expected a .npy or .npz file (a pipe can be read only once)")
    if start == NPY:
        return _with_lod({"": read_array(_After(start, stream), None, source)}, source)
    return parse_values(start + stream.read() if start.startswith(NPZ) else start, source)


class _After:
    """A stream of which the start has been read already."""

    def __init__(self, start: bytes, stream: BinaryIO) -> None:
        self.start, self.stream = start, stream

    def read(self, size: int, /) -> bytes:
        """The next bytes, fewer only at the end."""
        start, self.start = self.start[:size], self.start[size:]
        return start + self.stream.read(size - len(start))


def _values(file: BinaryIO, size: int, source: str) -> dict[str, LoDTensor]:
    start = file.read(len(NPY))
    file.seek(0)
    if start == NPY:
        return _with_lod({"": read_array(file, size, source)}, source)
    if start.startswith(NPZ):
        return _with_lod(read_archive(file, size, source), source)
    raise UnreadableError(f"{source} is neither a .npy nor a .npz file; save arrays with numpy.save or numpy.savez")


def _with_lod(arrays: Mapping[str, Array], source: str) -> dict[str, LoDTensor]:
    lods = {name for name in arrays if name.endswith(LOD) and name.removesuffix(LOD) in arrays}
    values = {name: LoDTensor(_native(array)) for name, array in arrays.items() if name not in lods}
    for key in lods:
        name = key.removesuffix(LOD)
        values[name].set_lod(_lod(arrays[key], values[name].shape(), f"{name} in {source}"))
    return values


def _lod(lengths: Array, shape: list[int], what: str) -> LoD:
    if lengths.dtype.kind != "U" or lengths.size != 1:
        raise LoDError(f"invalid LoD for {what}: expected JSON text, found {lengths.dtype} {shape_text(lengths.shape)}")
    return parse_lengths(str(lengths.reshape(())), shape[0] if shape else 1, what)


def _native(array: Array) -> Array:
    """The array in the byte order of this machine."""
    return array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("="))


def parse_lengths(text: str, rows: int | None, what: str) -> LoD:
    """Sequence lengths as JSON, [[2, 3]] -> offsets; raises LoDError naming `what`."""
    shown = repr(text if len(text) <= 80 else text[:77] + "...")
    try:
        lengths = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise LoDError(f"invalid LoD for {what}: {shown} is not JSON; expected lengths such as [[2,3]]") from error
    fine = isinstance(lengths, list) and all(isinstance(level, list) for level in lengths)
    if not fine or not all(type(length) is int and 0 <= length < 2**62 for level in lengths for length in level):
        raise LoDError(f"invalid LoD for {what}: {shown}; expected one list of lengths per level, such as [[2,3]]")
    offsets = lengths_to_offsets(lengths)
    check_lod(offsets, rows, what)
    return offsets


# ---------------------------------------------------------------- writing
def archive_bytes(values: Mapping[str, Any]) -> memoryview:
    """The bytes of a .npz file with these values; the same values always give the same bytes."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED, allowZip64=True) as archive:
        for name, array in arrays_of(values).items():
            with archive.open(zipfile.ZipInfo(name + ".npy"), "w", force_zip64=True) as member:
                np.lib.format.write_array(member, np.asanyarray(array), allow_pickle=False)
    return file.getbuffer()


def write_archive(path: Path, values: Mapping[str, Any], *, overwrite: bool = False) -> None:
    """Write a .npz file; raises OutputExistsError, OutputError."""
    write_file(path, [archive_bytes(values)], overwrite=overwrite)


def write_folder(folder: Path, values: Mapping[str, Any], *, overwrite: bool = False) -> None:
    """Write one .npy file for each array into a new folder; with `overwrite` also into one that exists.

    Raises OutputExistsError, OutputError, and ParameterFileError for a name that leads out of the folder.
    """
    arrays = {parameter_path(folder, name + ".npy"): array for name, array in arrays_of(values).items()}
    if overwrite and folder.is_dir() and not {folder / name for name in held_names(folder)} <= set(arrays):
        write_files({path: [npy_bytes(array)] for path, array in arrays.items()})
        return
    with new_folder(folder, replace=overwrite) as temporary:
        write_into(temporary, {str(path.relative_to(folder)): [npy_bytes(array)] for path, array in arrays.items()})


def npy_bytes(array: Array) -> memoryview:
    """The bytes of a .npy file."""
    file = io.BytesIO()
    np.lib.format.write_array(file, np.asanyarray(array), allow_pickle=False)
    return file.getbuffer()


def arrays_of(values: Mapping[str, Any]) -> dict[str, Array]:
    """Plain arrays by name, in the way that the module's docstring says."""
    return {key: array for name, value in values.items() for key, array in _entries(name, value)}


def _entries(name: str, value: Any) -> Iterator[tuple[str, Array]]:
    if isinstance(value, LoDTensorArray):
        for index, item in enumerate(value):
            yield from _entries(f"{name}.{index}", item)
    elif isinstance(value, SelectedRows):
        yield name, _writable(value.tensor.numpy())
        yield name + ".rows", value.row_ids
        yield name + ".height", np.asarray(value.height())
    elif isinstance(value, LoDTensor):
        if value.is_initialized():
            yield name, _writable(value.numpy())
            if (
                value.offsets and value.has_valid_recursive_sequence_lengths()
            ):  # what an lstm notes for its gradient is none
                yield name + LOD, np.asarray(json.dumps(value.recursive_sequence_lengths()))
    else:
        yield name, _writable(np.asarray(value))


def _writable(array: Array) -> Array:
    return (
        array.astype(np.float32) if array.dtype.name == "bfloat16" else np.ascontiguousarray(array).reshape(array.shape)
    )
