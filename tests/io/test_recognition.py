"""What is not a program is named by its content, in the error of whatever command was given it."""

from __future__ import annotations

import gzip
import io
import json
import os
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fluidtool
from fluidtool.errors import ModelNotFoundError, UnreadableError, UsageError
from fluidtool.io import checkpoints, pickles
from fluidtool.io.arrays import archive_bytes, npy_bytes
from fluidtool.io.layout import open_model
from fluidtool.io.recognition import recognize
from fluidtool.io.safetensors import safetensors_parts
from fluidtool.tensor import LoDTensor
from fluidtool.tensor.streams import write_tensor
from tests.cli.support import DIGITS, TOPICS

ONE = LoDTensor(np.ones(3, "float32"))
STREAM = b"".join(map(bytes, write_tensor(ONE)))
PIR = json.dumps({"base_code": {"magic": "pir", "trainable": False, "version": 2}, "program": {"regions": []}})


def zipped(name: str) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr(name, b"")
    return file.getvalue()


# ModelProto: ir_version 8, producer "x", graph {}, opset_import {version 17}
ONNX = b"\x08\x08\x12\x01x\x3a\x00\x42\x02\x10\x11"
FILES: dict[str, tuple[bytes, str]] = {
    "onnx": (ONNX, "an ONNX model"),
    "combined": (STREAM * 3, "a combined parameter file with 3 tensors and no names"),
    "one": (STREAM, "the file of one parameter"),
    "pickle": (pickles.dump_state({"w": np.ones(2)}), "a pickled state"),
    "npz": (bytes(archive_bytes({"w": ONE})), "arrays of numpy"),
    "npy": (bytes(npy_bytes(np.ones(2))), "an array of numpy"),
    "safetensors": (b"".join(map(bytes, safetensors_parts({"w": ONE}))), "a safetensors file"),
    "torch": (zipped("archive/data.pkl"), "a checkpoint of PyTorch"),
    "zip": (zipped("readme"), "a zip archive"),
    "pir": (PIR.encode(), "a program of Paddle 3"),
    "json": (b'{"a": 1}', "JSON text"),
    "gzip": (gzip.compress(b"x"), "a compressed file"),
    "text": (b"blocks {\n  idx: 0\n}", "a program as protobuf text"),
    "lfs": (b"version https://git-lfs.github.com/spec/v1\n", "a pointer of Git LFS"),
    "html": (b"\n<!DOCTYPE html>", "a page of HTML"),
    "empty": (b"", "an empty file"),
    "keras": (b"\x89HDF\r\n\x1a\n", "an HDF5 file"),
    "tflite": (b"\x1c\0\0\0TFL3", "a TensorFlow Lite model"),
}


@pytest.mark.parametrize("kind", FILES)
def test_a_file_is_named_by_its_content(kind: str, tmp_path: Path) -> None:
    data, expected = FILES[kind]
    (tmp_path / "given").write_bytes(data)
    found = recognize(tmp_path / "given")
    assert found is not None and found.what.startswith(expected)
    with pytest.raises(UnreadableError, match=f"given is {expected}.*, not a Fluid program; "):
        fluidtool.load(tmp_path / "given")


@pytest.mark.parametrize(
    "data", [b"\0" * 100, STREAM[:-1], ONNX[:3], b"\xff" * 40, b"\x08", b"plain text", STREAM + b"\1"]
)
def test_nothing_is_guessed(data: bytes, tmp_path: Path) -> None:
    (tmp_path / "given").write_bytes(data)
    assert recognize(tmp_path / "given") is None
    with pytest.raises(UnreadableError):
        fluidtool.load(tmp_path / "given")


def test_a_program_is_none_of_these() -> None:
    assert recognize(DIGITS / "__model__") is None and recognize(TOPICS / "model") is None
    assert recognize(DIGITS / "missing") is None


def test_a_folder_says_what_is_in_it_instead(tmp_path: Path) -> None:
    (tmp_path / "inference.json").write_text(PIR)
    with pytest.raises(ModelNotFoundError, match=r"inference\.json is a program of Paddle 3.*FLAGS_enable_pir_api=0"):
        fluidtool.load(tmp_path)
    with pytest.raises(ModelNotFoundError, match=r"no inference\.pdmodel.*inference\.json is a program of Paddle 3"):
        fluidtool.load(tmp_path / "inference")


def test_a_link_to_nothing_is_named(tmp_path: Path) -> None:
    (tmp_path / "__model__").symlink_to("elsewhere")
    with pytest.raises(ModelNotFoundError, match="__model__ is a link to elsewhere, where there is no file"):
        fluidtool.load(tmp_path)


def test_a_folder_named_like_a_program_is_named(tmp_path: Path) -> None:
    (tmp_path / "__model__").mkdir()
    with pytest.raises(ModelNotFoundError, match="__model__ is a folder"):
        fluidtool.load(tmp_path)


def test_a_pipe_is_not_opened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "__model__")
    with pytest.raises(ModelNotFoundError, match="__model__ is neither a file nor a folder"):
        fluidtool.load(tmp_path)


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    """Two checkpoints of the parameters of samples/digits; the second one has zeros."""
    values: dict[str, Any] = dict(fluidtool.load(DIGITS).files.parameters)
    checkpoints.save(tmp_path, values)
    checkpoints.save(tmp_path, {name: LoDTensor(np.zeros_like(value.numpy())) for name, value in values.items()})
    return tmp_path


def test_a_folder_of_checkpoints_is_named(saved: Path) -> None:
    with pytest.raises(ModelNotFoundError, match=r"checkpoints of 2018 \(complete: 0, 1\).*params="):
        fluidtool.load(saved)


def test_a_folder_of_checkpoints_stands_for_the_latest(saved: Path) -> None:
    found = open_model(DIGITS / "__model__", params=saved)
    assert found.parameter_source == str(saved / "checkpoint_1" / "__model__")
    assert not any(value.numpy().any() for value in found.parameters.values())


@pytest.mark.parametrize("below", ["checkpoint_0", "checkpoint_0/__model__"])
def test_one_checkpoint_can_be_named(below: str, saved: Path) -> None:
    found = open_model(DIGITS / "__model__", params=saved / below)
    own = fluidtool.load(DIGITS).files.parameters
    assert all(np.array_equal(found.parameters[name].numpy(), own[name].numpy()) for name in own)


def test_an_empty_path_is_not_the_current_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(DIGITS)
    with pytest.raises(UsageError, match="the path of the model is empty"):
        fluidtool.load("")
