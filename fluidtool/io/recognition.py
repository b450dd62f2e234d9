"""What a file is that is not a program: named by its content, with the way out. Reads headers, never weights."""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any

from fluidtool.errors import Hint, UnreadableError
from fluidtool.io import pickles
from fluidtool.io.checkpoints import MODEL_DIR, PREFIX, serials
from fluidtool.io.npy import NPY, NPZ
from fluidtool.io.safetensors import is_safetensors
from fluidtool.proto.scan import DELIMITED, VARINT, fields
from fluidtool.records import dataclass
from fluidtool.tensor.files import map_file
from fluidtool.tensor.streams import scan_tensor

ONNX_VERSION, ONNX_GRAPH = 1, 7  # fields of ONNX's ModelProto
MOST_FIELDS = 4096
WITH_PROGRAM = Hint(
    "give the program's file, and this one as params=", "give the program's file, and this one with --params"
)
NAMED = Hint(
    f"{WITH_PROGRAM.python}; fluidtool.open_parameters reads it as it is",
    f"{WITH_PROGRAM.command}; 'fluidtool params' reads it as it is",
)


@dataclass(frozen=True, slots=True)
class Recognized:
    """What a file is, and what to do with it."""

    what: str
    advice: str | Hint


def recognize(path: Path) -> Recognized | None:
    """What a file or folder is if not a program; None where nothing is known of it."""
    if path.is_dir():
        return _folder(path)
    try:
        data = map_file(path)
    except UnreadableError:
        return None
    return recognize_bytes(data)


def recognize_bytes(data: Any) -> Recognized | None:
    """What the bytes of a file are if not a program; None where nothing is known of them."""
    return next((found for look in LOOKS if (found := look(data)) is not None), None)


def _folder(path: Path) -> Recognized | None:
    found = serials(path)
    if found:
        what = f"a folder of checkpoints of 2018 (complete: {', '.join(map(str, found))}), parameters without a program"
        latest = Hint(
            f"give the program's file, and params={str(path)!r} for the latest one",
            f"give the program's file, and --params {path} for the latest one",
        )
        return Recognized(what, latest)
    if path.name.startswith(PREFIX) and (path / MODEL_DIR).is_dir():
        return Recognized("a checkpoint of 2018, parameters without a program", WITH_PROGRAM)
    return None


# ---------------------------------------------------------------- by how files start
def _by_start(data: Any) -> Recognized | None:
    start = bytes(data[:64])
    if not start:
        return Recognized("an empty file", "copy it again")
    return next((found for mark, found in STARTS if re.match(mark, start, re.DOTALL)), None)


STARTS: tuple[tuple[bytes, Recognized], ...] = (
    (re.escape(NPY), Recognized("an array of numpy (.npy)", "name the program's file")),
    (rb"\x89HDF\r\n", Recognized("an HDF5 file, as Keras writes them", "convert it with the library that wrote it")),
    (rb"....TFL3", Recognized("a TensorFlow Lite model", "fluidtool reads Fluid programs only")),
    (rb"\x1f\x8b|BZh|\xfd7zXZ", Recognized("a compressed file", "unpack it first")),
    (rb"\s*blocks\s*\{", Recognized("a program as protobuf text", "save it in the binary form, with SerializeToString")),
    (rb"version https://gi", Recognized("a pointer of Git LFS, not the file itself", "fetch it with: git lfs pull")),
    (rb"\s*<", Recognized("a page of HTML or XML", "download the file itself")),
)  # fmt: skip


def _zip(data: Any) -> Recognized | None:
    if bytes(data[:2]) != NPZ:
        return None
    if b"data.pkl" in bytes(data[:4096]):
        return Recognized("a checkpoint of PyTorch", "fluidtool reads Fluid programs only")
    if b".npy" in bytes(data[:4096]):
        return Recognized("arrays of numpy (.npz) without a program", NAMED)
    return Recognized("a zip archive", "unpack it first")


def _pickle(data: Any) -> Recognized | None:
    if pickles.is_pickle(data):
        return Recognized("a pickled state (.pdparams, .pdopt) without a program", NAMED)
    return None


def _safetensors(data: Any) -> Recognized | None:
    return Recognized("a safetensors file, parameters without a program", NAMED) if is_safetensors(data) else None


def _json(data: Any) -> Recognized | None:
    start = bytes(data[:4096]).lstrip()
    if start[:1] not in (b"{", b"["):
        return None
    if b'"base_code"' in start and b'"pir"' in start:
        advice = "save the model again with FLAGS_enable_pir_api=0, which writes a .pdmodel"
        return Recognized("a program of Paddle 3 (PIR, as JSON)", advice)
    return Recognized("JSON text", "name the program's file")


# ---------------------------------------------------------------- by their structure
def _streams(data: Any) -> Recognized | None:
    """One tensor after the other: a combined parameter file, or that of one parameter."""
    count, offset = 0, 0
    try:
        while offset < len(data):
            offset = scan_tensor(data, offset, "").end
            count += 1
    except UnreadableError:
        return None
    if count == 1:
        return Recognized("the file of one parameter", "give the folder that it is in, or the program's file")
    return Recognized(f"a combined parameter file with {count} tensors and no names", WITH_PROGRAM)


def _onnx(data: Any) -> Recognized | None:
    whole = (field for field in islice(fields(data), MOST_FIELDS) if field[3] <= len(data))
    kinds = {number: wire for number, wire, _, _ in whole}
    if kinds.get(ONNX_VERSION) == VARINT and kinds.get(ONNX_GRAPH) == DELIMITED:
        return Recognized("an ONNX model", "fluidtool writes ONNX and does not read it; run it with ONNX Runtime")
    return None


LOOKS: tuple[Callable[[Any], Recognized | None], ...] = (
    _by_start, _zip, _pickle, _safetensors, _json, _streams, _onnx,
)  # fmt: skip
