"""Values in .npy and .npz files: what is written is read again, and nothing is executed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from fluidtool.errors import LoDError, OutputExistsError, ParameterFileError, UnreadableError
from fluidtool.io.arrays import archive_bytes, parse_lengths, parse_values, read_values, write_archive, write_folder
from fluidtool.tensor import LoDTensor, LoDTensorArray, SelectedRows


def test_tensors_and_their_lengths_come_back(tmp_path: Path) -> None:
    values = {
        "plain": LoDTensor(np.arange(6, dtype="float32").reshape(2, 3)),
        "words": LoDTensor(np.arange(5), [[0, 1, 2], [0, 2, 5]]),
        "a/b": LoDTensor(np.array(True)),
    }
    write_archive(tmp_path / "v.npz", values)
    back = read_values(tmp_path / "v.npz")
    assert list(back) == list(values)
    for name, value in values.items():
        assert np.array_equal(back[name].numpy(), value.numpy()) and back[name].lod() == value.lod()
        assert back[name].numpy().dtype == value.numpy().dtype and back[name].shape() == value.shape()


def test_other_values_are_written_as_arrays() -> None:
    values = {
        "rows": SelectedRows([4, 0], 9, np.ones((2, 3), "float32")),
        "list": LoDTensorArray([LoDTensor(np.zeros(2)), LoDTensor()]),
    }
    back = parse_values(bytes(archive_bytes(values)), "x")
    assert list(back) == ["rows", "rows.rows", "rows.height", "list.0"]
    assert back["rows.rows"].numpy().tolist() == [4, 0] and back["rows.height"].numpy() == 9


def test_bfloat16_is_written_as_float32() -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes", reason="bfloat16 needs the extra bf16")
    array = np.array([1.5, -2], ml_dtypes.bfloat16)
    back = parse_values(bytes(archive_bytes({"x": LoDTensor(array)})), "x")["x"].numpy()
    assert back.dtype == "float32" and back.tolist() == [1.5, -2]


def test_a_folder_of_files(tmp_path: Path) -> None:
    write_folder(tmp_path / "out", {"a": LoDTensor(np.zeros(2)), "b/c": LoDTensor(np.ones(3))})
    assert read_values(tmp_path / "out" / "b" / "c.npy")[""].numpy().tolist() == [1, 1, 1]
    with pytest.raises(OutputExistsError):
        write_folder(tmp_path / "out", {"a": LoDTensor(np.zeros(2))})


@pytest.mark.parametrize("name", ["../a", "/a", "b/../../a"])
def test_a_name_that_leads_out_of_the_folder(tmp_path: Path, name: str) -> None:
    with pytest.raises(ParameterFileError, match="leads outside the folder"):
        write_folder(tmp_path / "out", {"fine": LoDTensor(np.zeros(2)), name: LoDTensor(np.zeros(2))})
    assert list(tmp_path.iterdir()) == []


def test_objects_are_refused() -> None:
    import io

    file = io.BytesIO()
    np.save(file, np.array([{}], dtype=object), allow_pickle=True)
    with pytest.raises(UnreadableError, match="it contains pickled objects"):
        parse_values(file.getvalue(), "x")


@pytest.mark.parametrize("data", [b"", b"text", b"\x93NUMPY", b"PK\x03\x04rubbish"])
def test_what_is_no_array(data: bytes) -> None:
    with pytest.raises(UnreadableError):
        parse_values(data, "x")


def test_lengths() -> None:
    assert parse_lengths("[[2, 3]]", 5, "x") == [[0, 2, 5]]
    assert parse_lengths("[[2, 1], [1, 0, 4]]", 5, "x") == [[0, 2, 3], [0, 1, 1, 5]]
    assert parse_lengths("[]", 5, "x") == []


@pytest.mark.parametrize("text", ["", "[1]", "{}", "[[1.5]]", "[[true]]", "[[-1, 6]]", "[[2, 2]]", "[[3], [2, 3]]"])
def test_lengths_that_cannot_be(text: str) -> None:
    with pytest.raises(LoDError, match="invalid LoD for x"):
        parse_lengths(text, 5, "x")
