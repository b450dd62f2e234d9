"""`paddle.dataset.common`: finding files, and cutting data sets into files."""

from __future__ import annotations

import json
import pickle
from pathlib import Path

import numpy as np
import pytest

from fluidtool.compat.dataset import common
from fluidtool.errors import ArgumentTypeError, DataFileNotFoundError, UnreadableError, UnsafePickleError

SUM = "900150983cd24fb0d6963f7d28e17f72"  # of "abc" (RFC 1321)


def test_download_finds_what_is_there(home: Path) -> None:
    (home / "mnist/a.gz").write_bytes(b"abc")
    assert common.download("http://example.org/x/a.gz", "mnist", SUM) == str(home / "mnist/a.gz")
    assert common.download("http://example.org/b", "mnist", SUM, save_name="a.gz") == str(home / "mnist/a.gz")


def test_download_downloads_nothing(home: Path) -> None:
    with pytest.raises(DataFileNotFoundError, match=r"downloads nothing; get it from http://example\.org/a\.gz"):
        common.download("http://example.org/a.gz", "mnist", SUM)


def test_download_refuses_another_file(home: Path) -> None:
    (home / "mnist/a.gz").write_bytes(b"abd")
    with pytest.raises(UnreadableError, match=rf"a\.gz must have the MD5 sum {SUM}, found"):
        common.download("http://example.org/a.gz", "mnist", SUM)


def test_a_split_data_set_is_shared_out_by_files(tmp_path: Path) -> None:
    samples = [(number, np.full(2, number, "float32")) for number in range(7)]
    common.split(lambda: iter(samples), 2, suffix=f"{tmp_path}/part-%05d.pickle")
    assert len(list(tmp_path.iterdir())) == 3
    found = [
        [number for number, _ in common.cluster_files_reader(f"{tmp_path}/part-*", 2, trainer)()] for trainer in (0, 1)
    ]
    assert found == [[0, 1, 2, 5, 6], [3, 4]]


def test_a_dumper_and_a_loader_of_ones_own(tmp_path: Path) -> None:
    common.split(
        lambda: iter([1, 2]),
        5,
        f"{tmp_path}/%d.json",
        dumper=lambda lines, file: file.write(json.dumps(lines).encode()),
    )
    assert list(common.cluster_files_reader(f"{tmp_path}/*.json", 1, 0, loader=json.load)()) == [1, 2]
    with pytest.raises(ArgumentTypeError, match="dumper should be callable"):
        common.split(lambda: [], 1, dumper="json")  # type: ignore[arg-type]
    with pytest.raises(ArgumentTypeError, match="loader should be callable"):
        common.cluster_files_reader("*", 1, 0, loader="json")  # type: ignore[arg-type]


class Command:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        import os

        return os.system, ("false",)


def test_files_of_samples_run_no_code(tmp_path: Path) -> None:
    (tmp_path / "a.pickle").write_bytes(pickle.dumps([Command()]))
    with pytest.raises(UnsafePickleError):
        list(common.cluster_files_reader(f"{tmp_path}/*.pickle", 1, 0)())
