"""Small files of text and JSON, and the checkpoints that are made of them: whatever they hold, an error says so."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fluidtool.errors import UnreadableError
from fluidtool.io import checkpoints
from fluidtool.io.json_files import read_json, read_json_object, read_text


def test_text_and_json_are_read(tmp_path: Path) -> None:
    (tmp_path / "file").write_text('{"ü": [1]}', encoding="utf-8")
    assert read_json(tmp_path / "file") == read_json_object(tmp_path / "file") == {"ü": [1]}


@pytest.mark.parametrize("data", [b"", b"{", b"\xff", b"[" * 200_000, b"9" * 5000])
def test_what_is_no_json_is_refused(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "file").write_bytes(data)
    with pytest.raises(UnreadableError, match="cannot read"):
        read_json(tmp_path / "file")


def test_another_value_than_an_object_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("[]")
    with pytest.raises(UnreadableError, match="must contain a JSON object, found list"):
        read_json_object(tmp_path / "file")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="the system has no named pipes")
def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(UnreadableError, match="not a regular file"):
        read_text(tmp_path / "pipe")


@pytest.mark.parametrize("name", ["checkpoint_²", "checkpoint_٣", "checkpoint_", "checkpoint_01", "checkpoint_-1"])
def test_a_folder_of_another_name_is_no_checkpoint(tmp_path: Path, name: str) -> None:
    (tmp_path / name / checkpoints.MODEL_DIR).mkdir(parents=True)
    (tmp_path / name / checkpoints.MODEL_DIR / checkpoints.SUCCESS).touch()
    assert checkpoints.serials(tmp_path) == []


def test_a_position_that_is_not_text_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "checkpoint_0" / "trainer_0"
    folder.mkdir(parents=True)
    (folder / "step_id").write_bytes(b"\xff\xfe")
    with pytest.raises(UnreadableError, match="does not give the position of trainer 0"):
        checkpoints.load_trainer_args(tmp_path, 0, 0, ["step_id"])


@pytest.mark.parametrize(
    "states", [5, "x", [5], {"a": 1}, [{}], [{"bit_generator": "PCG64", "state": {"state": 2**4000, "inc": -1}}]]
)
def test_a_state_of_random_numbers_that_is_none_is_refused(states: Any) -> None:
    with pytest.raises(UnreadableError, match="random state"):
        checkpoints.set_random_states([np.random.default_rng(0)], states)
