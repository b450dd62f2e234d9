"""Checkpoints of the roles of a distributed job: complete or not there, newest ones kept, the newest that all roles have."""

from __future__ import annotations

import errno
import hashlib
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fluidtool.distribute.checkpoints import MANIFEST, Schedule, latest_complete, load, save, steps
from fluidtool.errors import ModelNotFoundError, OutputError, ParameterFileError, UnreadableError, UsageError
from fluidtool.tensor import LoDTensor, SelectedRows

ROLE = "pserver_0"


def values(number: float = 0.0) -> dict[str, Any]:
    """A dense variable with sequences, one of integers, rows of a table, and a name with a folder in it."""
    return {
        "w": LoDTensor(np.full((3, 2), number, np.float32), [[0, 1, 3]]),
        "@LR_DECAY_COUNTER@": LoDTensor(np.array([7], np.int64)),
        "table": SelectedRows([4, 1], 10, np.arange(6, dtype=np.float32).reshape(2, 3)),
        "layer/b": LoDTensor(np.zeros(2, np.float64)),
    }


def test_what_was_saved_comes_back(tmp_path: Path) -> None:
    state = {"epoch": 3, "random": [1, 2], "nested": {"name": "x"}}
    save(tmp_path, ROLE, 12, values(0.5), state)
    found = load(tmp_path, ROLE, 12)
    assert found.step == 12 and found.state == state
    assert set(found.values) == set(values())
    np.testing.assert_array_equal(found.values["w"].array, np.full((3, 2), 0.5, np.float32))
    assert found.values["w"].offsets == [[0, 1, 3]]
    assert found.values["@LR_DECAY_COUNTER@"].array.dtype == np.int64
    rows = found.values["table"]
    assert rows.rows() == [4, 1] and rows.height() == 10
    np.testing.assert_array_equal(rows.value, np.arange(6).reshape(2, 3))


def test_the_manifest_says_what_each_file_is(tmp_path: Path) -> None:
    folder = save(tmp_path, ROLE, 5, values())
    assert folder == tmp_path / ROLE / "step_5"
    manifest = json.loads((folder / MANIFEST).read_text())
    assert (manifest["role"], manifest["step"]) == (ROLE, 5)
    for name, entry in manifest["files"].items():
        data = (folder / name).read_bytes()
        assert entry["size"] == len(data) and entry["sha256"] == hashlib.sha256(data).hexdigest()


def test_files_have_the_format_of_parameter_files(tmp_path: Path) -> None:
    from fluidtool.tensor.streams import read_tensor

    folder = save(tmp_path, ROLE, 5, values(2.0))
    tensor, _ = read_tensor((folder / "w").read_bytes())
    np.testing.assert_array_equal(tensor.array, np.full((3, 2), 2.0, np.float32))


def test_the_newest_stay(tmp_path: Path) -> None:
    for step in range(10, 60, 10):
        save(tmp_path, ROLE, step, values(), keep=3)
    assert steps(tmp_path, ROLE) == [30, 40, 50]
    assert sorted(entry.name for entry in (tmp_path / ROLE).iterdir()) == ["step_30", "step_40", "step_50"]


def test_a_checkpoint_of_the_same_step_is_replaced(tmp_path: Path) -> None:
    save(tmp_path, ROLE, 10, values(1.0))
    save(tmp_path, ROLE, 10, values(2.0))
    assert load(tmp_path, ROLE, 10).values["w"].array[0, 0] == 2.0
    assert len(list((tmp_path / ROLE).iterdir())) == 1


def test_what_is_read_outlives_the_files(tmp_path: Path) -> None:
    save(tmp_path, ROLE, 10, values(1.0))
    found = load(tmp_path, ROLE, 10)
    for step in (20, 30):
        save(tmp_path, ROLE, step, values(9.0))
    assert steps(tmp_path, ROLE) == [20, 30]
    assert found.values["w"].array[0, 0] == 1.0


@pytest.mark.parametrize("keep", [-1, 0, 1])
def test_at_least_two_stay(tmp_path: Path, keep: int) -> None:
    with pytest.raises(UsageError, match="at least 2"):
        save(tmp_path, ROLE, 1, values(), keep=keep)


@pytest.mark.parametrize("role", ["", "a/b", "..", "."])
def test_a_role_is_one_name(tmp_path: Path, role: str) -> None:
    with pytest.raises(UsageError, match="a role and a step"):
        save(tmp_path, role, 1, values())


@pytest.mark.parametrize("name", ["../w", "/w", ""])
def test_a_name_that_leads_out_of_the_folder_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(ParameterFileError, match="leads out"):
        save(tmp_path, ROLE, 1, {name: LoDTensor(np.zeros(1, np.float32))})
    assert list((tmp_path / ROLE).iterdir()) == []


def test_a_variable_cannot_take_the_place_of_the_manifest(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="rename"):
        save(tmp_path, ROLE, 1, {MANIFEST: LoDTensor(np.zeros(1, np.float32))})


@pytest.mark.parametrize("state", [{"a": object()}, {"a": float("nan")}, {"a": b"x"}])
def test_a_state_that_json_cannot_hold_is_refused_before_anything_is_written(tmp_path: Path, state: Any) -> None:
    with pytest.raises(UsageError, match="JSON"):
        save(tmp_path, ROLE, 1, values(), state)
    assert not (tmp_path / ROLE).exists()


# ---------------------------------------------------------------- torn and damaged
def test_a_checkpoint_without_a_manifest_is_none(tmp_path: Path) -> None:
    save(tmp_path, ROLE, 10, values())
    save(tmp_path, ROLE, 20, values())
    (tmp_path / ROLE / "step_20" / MANIFEST).unlink()
    assert steps(tmp_path, ROLE) == [10]
    assert latest_complete(tmp_path, [ROLE]) == 10
    with pytest.raises(ModelNotFoundError, match="complete ones: 10"):
        load(tmp_path, ROLE, 20)


def test_what_a_killed_run_left_behind_goes_with_the_next_one(tmp_path: Path) -> None:
    save(tmp_path, ROLE, 10, values())
    for name in (".step_20.abc.tmp", "step_15"):
        (tmp_path / ROLE / name).mkdir()
        (tmp_path / ROLE / name / "w").write_bytes(b"half")
    assert steps(tmp_path, ROLE) == [10]
    save(tmp_path, ROLE, 20, values())
    assert sorted(entry.name for entry in (tmp_path / ROLE).iterdir()) == ["step_10", "step_20"]


@pytest.mark.parametrize("size", [0, 10, 40])
def test_a_torn_file_makes_an_older_one_the_latest(tmp_path: Path, size: int) -> None:
    save(tmp_path, ROLE, 10, values())
    torn = save(tmp_path, ROLE, 20, values()) / "w"
    torn.write_bytes(torn.read_bytes()[:size])
    assert latest_complete(tmp_path, [ROLE]) == 10
    with pytest.raises(UnreadableError, match=f"has {size} bytes"):
        load(tmp_path, ROLE, 20)


def test_a_missing_file_makes_an_older_one_the_latest(tmp_path: Path) -> None:
    save(tmp_path, ROLE, 10, values())
    (save(tmp_path, ROLE, 20, values()) / "table").unlink()
    assert latest_complete(tmp_path, [ROLE]) == 10
    with pytest.raises(UnreadableError, match="table"):
        load(tmp_path, ROLE, 20)


def test_a_changed_byte_is_found(tmp_path: Path) -> None:
    path = save(tmp_path, ROLE, 20, values()) / "w"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(bytes(data))
    with pytest.raises(UnreadableError, match="SHA-256"):
        load(tmp_path, ROLE, 20)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "{}",
        '{"format": 2, "role": "pserver_0", "step": 10, "state": {}, "files": {}}',
        '{"format": 1, "role": "pserver_1", "step": 10, "state": {}, "files": {}}',
        '{"format": 1, "role": "pserver_0", "step": 11, "state": {}, "files": {}}',
        '{"format": 1, "role": "pserver_0", "step": 10, "state": [], "files": {}}',
        '{"format": 1, "role": "pserver_0", "step": 10, "state": {}, "files": {"w": 1}}',
        '{"format": 1, "role": "pserver_0", "step": 10, "state": {}, "files": {"w": {"kind": "x", "size": 1, "sha256": ""}}}',
    ],
)
def test_a_manifest_of_something_else_is_refused(tmp_path: Path, text: str) -> None:
    (save(tmp_path, ROLE, 10, values()) / MANIFEST).write_text(text)
    assert latest_complete(tmp_path, [ROLE]) is None
    with pytest.raises(UnreadableError, match="another checkpoint"):
        load(tmp_path, ROLE, 10)


def test_when_the_disk_is_full_the_older_ones_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save(tmp_path, ROLE, 10, values(1.0))

    def full(handle: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OutputError, match="No space left"):
        save(tmp_path, ROLE, 20, values(2.0))
    monkeypatch.undo()
    assert [entry.name for entry in (tmp_path / ROLE).iterdir()] == ["step_10"]
    assert load(tmp_path, ROLE, 10).values["w"].array[0, 0] == 1.0


def test_a_folder_that_cannot_be_made_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(OutputError, match="cannot write the checkpoint"):
        save(tmp_path / "file", ROLE, 1, values())


# ---------------------------------------------------------------- all roles
def test_the_latest_is_one_that_all_roles_have(tmp_path: Path) -> None:
    roles = ["pserver_0", "pserver_1", "trainer_0"]
    for role, last in zip(roles, (30, 20, 30), strict=True):
        for step in range(10, last + 1, 10):
            save(tmp_path, role, step, values(), keep=5)
    assert latest_complete(tmp_path, roles) == 20
    assert latest_complete(tmp_path, [*roles, "trainer_1"]) is None
    assert latest_complete(tmp_path, []) is None
    assert latest_complete(tmp_path / "none", roles) is None


# ---------------------------------------------------------------- schedules
def test_the_environment_says_where_and_how_often(tmp_path: Path) -> None:
    environment = {
        "FLUIDTOOL_CHECKPOINT_DIR": str(tmp_path),
        "FLUIDTOOL_CHECKPOINT_EVERY": "5",
        "FLUIDTOOL_CHECKPOINT_KEEP": "4",
        "FLUIDTOOL_RESUME_STEP": "10",
    }
    schedule = Schedule.from_environment(environment, ROLE)
    assert schedule == Schedule(tmp_path, ROLE, 5, 4, 10)
    assert [step for step in range(12) if schedule.is_due(step)] == [5, 10]


def test_without_a_folder_there_is_no_schedule() -> None:
    assert Schedule.from_environment({}, ROLE) is None
    assert Schedule.from_environment({"FLUIDTOOL_RESUME_STEP": "0"}, ROLE) is None


def test_without_a_number_no_checkpoint_is_written(tmp_path: Path) -> None:
    schedule = Schedule.from_environment({"FLUIDTOOL_CHECKPOINT_DIR": str(tmp_path)}, ROLE)
    assert schedule is not None and not any(schedule.is_due(step) for step in range(100))


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("FLUIDTOOL_CHECKPOINT_EVERY", "often"),
        ("FLUIDTOOL_CHECKPOINT_EVERY", "-1"),
        ("FLUIDTOOL_CHECKPOINT_KEEP", "1"),
        ("FLUIDTOOL_RESUME_STEP", "1.5"),
    ],
)
def test_numbers_that_cannot_be_are_refused(tmp_path: Path, name: str, text: str) -> None:
    with pytest.raises(UsageError, match=name):
        Schedule.from_environment({"FLUIDTOOL_CHECKPOINT_DIR": str(tmp_path), name: text}, ROLE)


def test_a_step_to_go_on_from_needs_a_folder() -> None:
    with pytest.raises(UsageError, match="FLUIDTOOL_CHECKPOINT_DIR"):
        Schedule.from_environment({"FLUIDTOOL_RESUME_STEP": "10"}, ROLE)


@pytest.mark.parametrize(("step", "found"), [(5, 4), (4, 4), (100, 8), (3, None)])
def test_the_newest_of_at_most_a_step_is_resumed_from_and_later_ones_go(
    tmp_path: Path, step: int, found: int | None
) -> None:
    for each in (4, 8):
        save(tmp_path, ROLE, each, values())
    resumed = Schedule(tmp_path, ROLE).resume_by(step)
    assert (None if resumed is None else resumed.step) == found
    assert steps(tmp_path, ROLE) == [each for each in (4, 8) if each <= (found or 0)]


def test_a_damaged_one_is_passed_over(tmp_path: Path) -> None:
    for each in (4, 8):
        save(tmp_path, ROLE, each, values())
    file = tmp_path / ROLE / "step_8" / "w"
    file.write_bytes(bytes(file.stat().st_size))
    resumed = Schedule(tmp_path, ROLE).resume_by(9)
    assert resumed is not None and resumed.step == 4 and steps(tmp_path, ROLE) == [4]


def test_going_on_from_a_step_makes_later_ones_void(tmp_path: Path) -> None:
    for step in (10, 20, 30):
        save(tmp_path, ROLE, step, values(step), keep=5)
    found = Schedule(tmp_path, ROLE, 10, 2, 10).resume()
    assert found is not None and found.step == 10 and found.values["w"].array[0, 0] == 10.0
    assert steps(tmp_path, ROLE) == [10]
    assert Schedule(tmp_path, ROLE, 10, 2).resume() is None


def test_one_that_is_damaged_counts_no_more_so_that_a_restart_takes_the_one_before(tmp_path: Path) -> None:
    for step in (10, 20):
        save(tmp_path, ROLE, step, values(step))
    file = tmp_path / ROLE / "step_20" / "w"
    file.write_bytes(bytes(file.stat().st_size))
    assert latest_complete(tmp_path, [ROLE]) == 20  # only sizes are looked at
    with pytest.raises(UnreadableError, match=r"differs from what was written.* it is damaged_step_20 now"):
        Schedule(tmp_path, ROLE, 10, 2, 20).resume()
    assert latest_complete(tmp_path, [ROLE]) == 10
    assert (tmp_path / ROLE / "damaged_step_20" / "w").is_file()
    save(tmp_path, ROLE, 20, values(20.0))
    assert steps(tmp_path, ROLE) == [10, 20]
