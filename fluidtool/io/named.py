"""Files that have parameters by name and no program: pickled states, .npz, safetensors, folders with one file per parameter."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fluidtool.errors import UnreadableError
from fluidtool.io import pickles
from fluidtool.io.arrays import read_values
from fluidtool.io.npy import NPZ
from fluidtool.io.parameters import ParameterStore, store_of
from fluidtool.io.safetensors import is_safetensors, open_safetensors
from fluidtool.tensor.files import map_file, read_file
from fluidtool.tensor.streams import TensorRecord, scan_tensor


def open_named(path: Path) -> ParameterStore | None:
    """The parameters of a file or folder that names them itself; None for anything else. Raises UnreadableError."""
    if path.is_dir():
        return _open_folder(path)
    if not path.is_file():
        return None
    data = map_file(path)
    if is_safetensors(data):
        return open_safetensors(data, str(path))
    if bytes(data[:2]) == NPZ:
        return store_of(read_values(path), str(path))
    if pickles.is_pickle(data):
        return store_of(pickles.load_state(read_file(path), str(path)), str(path))
    return None


def _open_folder(folder: Path) -> ParameterStore | None:
    """One tensor in every file below a folder."""
    entries: dict[str, tuple[Any, TensorRecord | None, str]] = {}
    for file in sorted(each for each in folder.rglob("*") if each.is_file()):
        try:
            data = map_file(file)
            record = scan_tensor(data, 0, str(file))
        except UnreadableError:
            return None
        if record.end != len(data):
            return None
        entries[str(file.relative_to(folder))] = (data, record, str(file))
    return ParameterStore(entries) if entries else None
