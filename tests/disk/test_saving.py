"""What a save does in which order, and what is there after it failed or was killed."""

from __future__ import annotations

import errno
import os
import resource
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fluidtool import disk
from fluidtool.disk import writing
from fluidtool.disk.committing import COMMIT
from tests.support.checkout import child_environment

PAIR = {"m.pdmodel": b"new program", "m.pdiparams": b"new parameters"}


def write(folder: Path, contents: dict[str, bytes]) -> None:
    disk.write_files({folder / name: [data] for name, data in contents.items()})


def replace(folder: Path, contents: dict[str, bytes]) -> None:
    with disk.new_folder(folder) as temporary:
        for name, data in contents.items():
            (temporary / name).parent.mkdir(exist_ok=True)
            (temporary / name).write_bytes(data)


def content(folder: Path) -> dict[str, bytes]:
    """Every file below a folder."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def killed(folder: Path, what: str, times: int, save: str) -> None:
    """Have another process die at the given call of a method of Path while it saves."""
    script = f"""
import os
from pathlib import Path
from tests.disk.test_saving import PAIR, replace, write
real, left = Path.{what}, [{times}]
def die(self, *rest, **more):
    left[0] -= 1
    return real(self, *rest, **more) if left[0] else os._exit(9)
Path.{what} = die
{save}
"""
    ended = subprocess.run([sys.executable, "-c", script], cwd=folder, env=child_environment(), check=False)
    assert ended.returncode == 9


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """What is brought to the disk, and what gets a name, one after the other."""
    found: list[str] = []
    real_sync, real_replace = os.fsync, Path.replace

    def sync(handle: int) -> None:
        name = Path(os.readlink(f"/proc/self/fd/{handle}")).name
        found.append("sync " + ("temporary" if name.endswith(".tmp") else name))
        real_sync(handle)

    def replace(self: Path, target: Any) -> Path:
        found.append(f"name {Path(target).name}")
        return real_replace(self, target)

    monkeypatch.setattr(os, "fsync", sync)
    monkeypatch.setattr(Path, "replace", replace)
    return found


needs_proc = pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="names of handles are read from /proc")


# ---------------------------------------------------------------- order
@needs_proc
def test_bytes_are_on_the_disk_before_a_file_has_its_name_and_the_name_after_that(
    tmp_path: Path, calls: list[str]
) -> None:
    write(tmp_path / "out", {"x": b"1"})
    assert calls == [f"sync {tmp_path.name}", "sync temporary", "name x", "sync out"]


@needs_proc
def test_a_folder_is_on_the_disk_with_all_files_before_it_has_its_name(tmp_path: Path, calls: list[str]) -> None:
    replace(tmp_path / "out", {"a": b"1", "deep/b": b"2"})
    assert sorted(calls[:3]) == ["sync a", "sync b", "sync deep"]
    assert calls.index("sync b") < calls.index("sync deep")
    assert calls[3:] == ["sync temporary", "name out", f"sync {tmp_path.name}"]


@needs_proc
def test_no_file_of_several_has_its_name_before_all_are_on_the_disk(tmp_path: Path, calls: list[str]) -> None:
    write(tmp_path, PAIR)
    names = [call for call in calls if call.startswith("name")]
    assert names == [f"name {COMMIT}", "name m.pdmodel", "name m.pdiparams"]
    before = calls[: calls.index(names[0])]
    assert {"sync 0", "sync 1", "sync temporary", f"sync {tmp_path.name}"} <= set(before)
    assert calls[calls.index(names[0]) + 1] == f"sync {tmp_path.name}"  # COMMIT counts from here on
    assert calls[-1] == f"sync {tmp_path.name}"


def test_the_users_mask_decides_who_may_read(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        write(tmp_path, {"x": b"1"})
        replace(tmp_path / "out", {"y": b"1"})
    finally:
        os.umask(before)
    modes = [stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("x", "out", "out/y")]
    assert modes == [0o640, 0o750, 0o640]


def test_many_files_need_few_handles(tmp_path: Path) -> None:
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir("/proc/self/fd")) + 64, limits[1]))
    try:
        write(tmp_path, {f"p{number}": b"x" for number in range(500)})
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    assert len(content(tmp_path)) == 500


# ---------------------------------------------------------------- failures
@pytest.mark.parametrize("number", range(1, 8))
def test_a_save_of_several_files_that_fails_once_leaves_the_old_ones_or_all_the_new_ones(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = {"m.pdmodel": b"old program", "m.pdiparams": b"old parameters"}
    write(tmp_path, old)
    left, real = [number], os.fsync

    def fail_once(handle: int) -> None:
        left[0] -= 1
        if not left[0]:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        real(handle)

    monkeypatch.setattr(os, "fsync", fail_once)
    try:
        write(tmp_path, PAIR)
    except OSError:
        assert content(tmp_path) == old
    else:
        assert content(tmp_path) == PAIR
    assert sorted(os.listdir(tmp_path)) == sorted(PAIR)


def test_a_folder_in_the_place_of_a_file_is_found_before_anything_has_its_name(tmp_path: Path) -> None:
    (tmp_path / "m.pdiparams").mkdir()
    (tmp_path / "m.pdmodel").write_bytes(b"old program")
    with pytest.raises(IsADirectoryError):
        write(tmp_path, PAIR)
    assert (tmp_path / "m.pdmodel").read_bytes() == b"old program"
    assert sorted(os.listdir(tmp_path)) == sorted(PAIR)


def test_a_folder_that_cannot_be_exchanged_is_replaced_in_two_steps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writing, "_exchange", lambda one, other: False)
    replace(tmp_path / "out", {"x": b"old"})
    replace(tmp_path / "out", {"x": b"new"})
    assert content(tmp_path) == {"out/x": b"new"}


# ---------------------------------------------------------------- kills
@pytest.mark.parametrize("number", [1, 2, 3])
def test_a_pair_that_was_killed_between_its_names_is_finished_by_who_comes_next(number: int, tmp_path: Path) -> None:
    old = {"m.pdmodel": b"old program", "m.pdiparams": b"old parameters"}
    write(tmp_path, old)
    killed(tmp_path, "replace", number, "write(Path('.'), PAIR)")
    disk.finish(tmp_path)
    visible = {name: data for name, data in content(tmp_path).items() if name in PAIR}
    assert visible == (old if number == 1 else PAIR)
    write(tmp_path, {"another": b"x"})
    assert content(tmp_path) == {**visible, "another": b"x"}
    assert len(list(tmp_path.iterdir())) == 3


def test_what_a_killed_save_left_goes_with_the_next_save_into_the_folder(tmp_path: Path) -> None:
    killed(tmp_path, "replace", 1, "write(Path('.'), {'x': b'1'})")
    killed(tmp_path, "replace", 1, "replace(Path('out'), {'y': b'1'})")
    assert len(os.listdir(tmp_path)) == 1  # the second one had removed what the first one left
    write(tmp_path, {"another": b"x"})
    assert os.listdir(tmp_path) == ["another"]


def test_what_a_living_process_writes_is_left_alone(tmp_path: Path) -> None:
    with disk.new_folder(tmp_path / "out") as temporary:
        (temporary / "x").write_bytes(b"1")
        write(tmp_path, {"another": b"x"})
        assert temporary.is_dir()
    assert content(tmp_path) == {"another": b"x", "out/x": b"1"}


def test_a_folder_that_stepped_aside_comes_back(tmp_path: Path) -> None:
    replace(tmp_path / "out", {"x": b"old"})
    patch = "import fluidtool.disk.writing as w; w._exchange = lambda one, other: False; "
    killed(tmp_path, "rename", 2, patch + "replace(Path('out'), {'x': b'new'})")
    assert not (tmp_path / "out").exists()
    write(tmp_path, {"another": b"x"})
    assert content(tmp_path) == {"another": b"x", "out/x": b"old"}


def test_a_child_that_was_forked_meanwhile_keeps_nobody_waiting(tmp_path: Path) -> None:
    end_out, end_in = os.pipe()
    with disk.new_folder(tmp_path / "out") as temporary:
        (temporary / "x").write_bytes(b"1")
        child = os.fork()
        if not child:
            os.close(end_in)
            os.read(end_out, 1)
            os._exit(0)
    try:
        write(tmp_path / "out", {"y": b"1", "z": b"1"})  # takes the lock that the child still has a handle of
    finally:
        os.close(end_in)
        os.waitpid(child, 0)
    assert sorted(os.listdir(tmp_path / "out")) == ["x", "y", "z"]


# ---------------------------------------------------------------- what others put there
@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        '{"names": 1}',
        '{"names": [["a", "b"]]}',
        '{"names": [[1, 2, 3]]}',
        "[" * 100_000,
        '{"names": [[".a.0123456789abcdef.fluidtool.tmp/0", "victim", [1, 2, 3]]]}',
        '{"names": [[".a.0123456789abcdef.fluidtool.tmp/0", "../victim", []]]}',
        '{"names": [["../other/0", "victim", []]]}',
        '{"names": [[".a.fedcba9876543210.fluidtool.tmp/0", "victim", []]]}',
        '{"names": [[".\\u0000.0123456789abcdef.fluidtool.tmp/0", "vic\\u0000tim", []]]}',
    ],
)
def test_a_commit_that_came_with_a_folder_means_nothing(tmp_path: Path, text: str) -> None:
    model = tmp_path / "model"
    (model / ".a.0123456789abcdef.fluidtool.tmp").mkdir(parents=True)
    (model / ".a.0123456789abcdef.fluidtool.tmp" / "0").write_bytes(b"hostile")
    for victim in (model / "victim", tmp_path / "victim"):
        victim.write_bytes(b"mine")
    (model / COMMIT).write_text(text)
    disk.finish(model)
    assert (model / "victim").read_bytes() == b"mine"
    assert (tmp_path / "victim").read_bytes() == b"mine"


def test_a_commit_that_is_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / COMMIT)
    disk.finish(tmp_path)
    write(tmp_path, {"x": b"1"})
    assert (tmp_path / "x").read_bytes() == b"1"


def test_a_temporary_name_that_is_a_link_is_not_followed(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.mkdir()
    (victim / "x").write_bytes(b"mine")
    (tmp_path / "place").mkdir()
    (tmp_path / "place" / ".a.0123456789abcdef.fluidtool.tmp").symlink_to(victim)
    write(tmp_path / "place", {"y": b"1"})
    assert content(victim) == {"x": b"mine"}
