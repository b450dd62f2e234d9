"""Golden data: what real Paddle computed, read from the packed archives and compared at each case's own tolerance."""

from __future__ import annotations

import json
import os
import tarfile
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import numpy as np

from fluidtool.runtime import Scope
from fluidtool.tensor import LoDTensor, LoDTensorArray, SelectedRows

ARCHIVES = Path(__file__).parent.parent / "golden"
Record = dict[str, Any]


@cache
def corpus(name: str) -> Path:
    """The folder of a corpus ('optest', 'models', 'formats'): below $FLUIDTOOL_GOLDEN if set, else from its archive."""
    chosen = os.environ.get("FLUIDTOOL_GOLDEN")
    if chosen:
        return Path(chosen) / name
    target = Path(mkdtemp(prefix="fluidtool-golden-"))
    import atexit
    import shutil

    atexit.register(shutil.rmtree, target, ignore_errors=True)
    with tarfile.open(ARCHIVES / f"{name}.tar.xz") as tar:
        tar.extractall(target, filter="data")
    return target / name


@cache
def names_in(name: str) -> tuple[str, ...]:
    """The case folders of a corpus, relative to it, without unpacking."""
    if os.environ.get("FLUIDTOOL_GOLDEN"):
        root = corpus(name)
        return tuple(sorted(str(file.parent.relative_to(root)) for file in root.rglob("case.json")))
    with tarfile.open(ARCHIVES / f"{name}.tar.xz") as tar:
        files = [member.name for member in tar if member.name.endswith("/case.json")]
    return tuple(sorted(file.removeprefix(name + "/").removesuffix("/case.json") for file in files))


def read_json(path: Path) -> Any:
    """The content of a JSON file."""
    return json.loads(path.read_text())


def read_arrays(path: Path) -> dict[str, np.ndarray[Any, Any]]:
    """Every array of an npz file."""
    with np.load(path) as archive:
        return {name: archive[name] for name in archive.files}


# ---------------------------------------------------------------- operator cases: entries of case.json
def value_of(entry: Record | None, arrays: Mapping[str, Any]) -> Any:
    """The value that an entry describes: LoDTensor, SelectedRows, LoDTensorArray; None for an empty place."""
    if entry is None:
        return LoDTensor()
    kind = entry["kind"]
    if kind == "lod_tensor_array":
        return LoDTensorArray(value_of(item, arrays) for item in entry["items"])
    array = arrays[entry["key"]]
    if kind == "selected_rows":
        return SelectedRows(entry["rows"], entry["height"], array)
    tensor = LoDTensor(array)
    if entry.get("lod"):
        tensor.set_recursive_sequence_lengths(entry["lod"])
    return tensor


def fill_scope(scope: Scope, entries: Iterable[Record], arrays: Mapping[str, Any]) -> None:
    """Put the scope variables of a case in."""
    for entry in entries:
        scope.var(entry["name"]).value = value_of(entry, arrays)


def difference(got: Any, entry: Record | None, arrays: Mapping[str, Any], tolerance: Mapping[str, Any]) -> str | None:
    """What is wrong with a value, in a line; None when it is what the entry says."""
    if entry is None:
        return None if got is None or not got.is_initialized() else "a value, expected an empty place"
    kind = entry["kind"]
    if kind == "uninitialized":
        shape = got.shape() if isinstance(got, LoDTensor) else None
        if isinstance(got, LoDTensor) and got.is_initialized() and got.numpy().size == 0:
            shape = [0]  # what Paddle's fetch makes of an empty tensor
        return None if shape == entry["shape"] else f"dims {shape}, expected {entry['shape']}"
    if kind == "lod_tensor_array":
        if not isinstance(got, LoDTensorArray) or len(got) != len(entry["items"]):
            return f"{type(got).__name__} of {len(got)}, expected an array of {len(entry['items'])}"
        found = (difference(g, e, arrays, tolerance) for g, e in zip(got, entry["items"], strict=True))
        return next((text for text in found if text), None)
    if kind == "selected_rows":
        if not isinstance(got, SelectedRows):
            return f"a {type(got).__name__}, expected SelectedRows"
        if "key" in entry and (got.rows() != entry["rows"] or got.height() != entry["height"]):
            return f"rows {got.rows()} of {got.height()}, expected {entry['rows']} of {entry['height']}"
        array = got.tensor.numpy()
    else:
        if not isinstance(got, LoDTensor) or not got.is_initialized():
            return f"{got!r}, expected a tensor"
        if "key" in entry and got.recursive_sequence_lengths() != entry.get("lod", []):
            return f"LoD {got.recursive_sequence_lengths()}, expected {entry.get('lod', [])}"
        array = got.numpy()
    if str(array.dtype) != entry["dtype"]:
        return f"{array.dtype}, expected {entry['dtype']}"
    if "key" not in entry:
        return None if array.ndim == len(entry["shape"]) else f"shape {array.shape}, expected {entry['shape']}"
    return array_difference(array, arrays[entry["key"]], tolerance)


def array_difference(got: Any, want: Any, tolerance: Mapping[str, Any]) -> str | None:
    """What is wrong with an array, in a line; never asks for more than 16 units in the last place."""
    if got.dtype != want.dtype or got.shape != want.shape:
        return f"{got.dtype} {list(got.shape)}, expected {want.dtype} {list(want.shape)}"
    if want.size == 0:
        return None
    if want.dtype.kind not in "fc":
        same = np.array_equal(got, want) if tolerance.get("atol", 0) < 1 or want.dtype.kind == "b" else None
        if same is not None:
            return None if same else "other integers"
    a, b = got.astype("f8"), want.astype("f8")
    equal = (a == b) | (np.isnan(a) & np.isnan(b))
    if not np.all(equal | (np.isfinite(a) & np.isfinite(b))):
        return "NaN or infinity in other places"
    a, b = np.where(np.isfinite(a), a, 0), np.where(np.isfinite(b), b, 0)
    units = 16 * (np.finfo(want.dtype).eps if want.dtype.kind == "f" else 0)
    error, size = np.abs(a - b), np.abs(b)
    if tolerance["kind"] == "allclose":
        over = error - tolerance["atol"] - max(tolerance["rtol"], units) * size
    else:
        over = error / _scale(size, tolerance) - max(tolerance["max_relative_error"], units)
    over = np.where(equal, 0, over)
    return None if float(over.max()) <= 0 else f"differs by up to {float(error.max()):.3g}"


def _scale(size: Any, tolerance: Mapping[str, Any]) -> Any:
    """What Paddle's operator tests divide a gradient's error by."""
    if not tolerance.get("fp64_scaled"):
        return np.where(size < 1e-3, 1.0, size)
    small = np.where(size < 1e-8, size * 1e4, size * 1e2)
    return np.where(size < 1e-10, 1e-3, np.where(size < 1e-6, small, size))
