"""Data sets: a folder of their own for each test, and archives to put there."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Mapping
from pathlib import Path

import pytest

FOLDERS = "MQ2007 cifar conll05st corpora flowers imdb imikolov mnist movielens uci_housing voc2012 wmt14 wmt16"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder where data sets are looked for, with an empty folder for each."""
    monkeypatch.setenv("PADDLE_DATASET_HOME", str(tmp_path))
    monkeypatch.delenv("FLUIDTOOL_DATASET", raising=False)
    for name in FOLDERS.split():
        (tmp_path / name).mkdir()
    return tmp_path


@pytest.fixture
def made_up(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Data sets are made up."""
    monkeypatch.setenv("FLUIDTOOL_DATASET", "synthetic")


def pack(path: Path, members: Mapping[str, bytes], mode: str = "w:gz") -> None:
    """Write a tar file."""
    with tarfile.open(path, mode) as tar:  # type: ignore[call-overload]
        for name, data in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
