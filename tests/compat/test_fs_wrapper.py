"""`paddle.distributed.fs_wrapper`: this machine's files, and Hadoop's, which are a script's here."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from fluidtool.compat import install
from fluidtool.compat.distributed.fs_wrapper import BDFS, LocalFS
from fluidtool.errors import AssertedError, NotOfferedImportError, OutputError
from tests.support.hadoop import hadoop


@pytest.fixture(params=["local", "hadoop"])
def files(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LocalFS | BDFS:
    if request.param == "local":
        return LocalFS()
    monkeypatch.setenv("PATH", f"{hadoop(tmp_path / 'home') / 'bin'}:{os.environ['PATH']}")
    return BDFS("hdfs://nowhere", "me,secret", time_out=0, sleep_inter=1)


def test_folders_are_made_listed_moved_and_removed(files: LocalFS | BDFS, tmp_path: Path) -> None:
    made, moved = str(tmp_path / "r" / "a"), str(tmp_path / "r" / "b")
    assert files.list_dirs(str(tmp_path / "r")) == []
    files.mkdir(made)
    files.mkdir(made)
    files.mv(made, moved)
    assert (files.stat(made), files.stat(moved)) == (False, True)
    files.delete(moved)
    files.delete(moved)
    assert not files.stat(moved)


def test_a_file_is_removed(files: LocalFS | BDFS, tmp_path: Path) -> None:
    (tmp_path / "f").write_text("x")
    files.delete(str(tmp_path / "f"))
    assert not files.stat(str(tmp_path / "f"))


def test_files_go_to_hadoop_and_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", f"{hadoop(tmp_path / 'home') / 'bin'}:{os.environ['PATH']}")
    files = BDFS("hdfs://nowhere", "me,secret", time_out=0, sleep_inter=1)
    (tmp_path / "f").write_text("x")
    files.upload(str(tmp_path / "f"), str(tmp_path / "r"))
    assert files.ls_dir(str(tmp_path / "r")) == ([], ["f"])
    files.download(str(tmp_path / "r" / "f"), str(tmp_path / "home"))
    assert (tmp_path / "home" / "f").read_text() == "x"
    with pytest.raises(OutputError, match=r"hadoop fs -get .*nothing.* failed"):
        files.download(str(tmp_path / "nothing"), str(tmp_path / "home"))


def test_a_folder_in_place_of_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("x")
    with pytest.raises(AssertedError, match="f is already a file"):
        LocalFS().mkdir(str(tmp_path / "f"))


def test_scripts_import_file_systems_but_no_launcher() -> None:
    with install():
        from paddle.distributed.fs_wrapper import LocalFS as found  # type: ignore[import-not-found]

        assert found is LocalFS
        with pytest.raises(NotOfferedImportError, match="'fluidtool launch SCRIPT' starts the processes of a job"):
            import paddle.distributed.launch  # noqa: F401
