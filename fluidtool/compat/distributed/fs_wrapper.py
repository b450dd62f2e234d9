"""File systems under one interface: this machine's, and Hadoop's by its command (Paddle 1.8.5 distributed/fs_wrapper.py)."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Sequence
from pathlib import PurePosixPath

from fluidtool.errors import AssertedError, OutputError
from fluidtool.fluid.contrib.utils import HDFSClient

__all__ = ["BDFS", "FS", "LocalFS"]


class FS:
    """What every file system does; `fleet.save_check_point` takes one."""

    def stat(self, fs_path: str) -> bool:
        """Whether there is a file or a folder."""
        raise NotImplementedError

    def need_upload_download(self) -> bool:
        """Whether files are copied from and to this machine."""
        raise NotImplementedError


class LocalFS(FS):
    """The files of this machine."""

    def list_dirs(self, fs_path: str) -> list[str]:
        """The names of the folders in a folder; none if it is not there."""
        return (
            [name for name in self.ls_dir(fs_path) if os.path.isdir(f"{fs_path}/{name}")] if self.stat(fs_path) else []
        )

    def ls_dir(self, fs_path: str) -> list[str]:
        """The names in a folder."""
        return os.listdir(fs_path)

    def stat(self, fs_path: str) -> bool:
        """Whether there is a file or a folder."""
        return os.path.exists(fs_path)

    def mkdir(self, fs_path: str) -> None:
        """Make a folder, with those above it."""
        if os.path.isfile(fs_path):
            raise AssertedError(f"{fs_path} is already a file")
        os.makedirs(fs_path, exist_ok=True)

    def mv(self, fs_src_path: str, fs_dst_path: str) -> None:
        """Rename a file or a folder."""
        os.rename(fs_src_path, fs_dst_path)

    def rmr(self, fs_path: str) -> None:
        """Remove a folder."""
        shutil.rmtree(fs_path)

    def rm(self, fs_path: str) -> None:
        """Remove a file."""
        os.remove(fs_path)

    def delete(self, fs_path: str) -> None:
        """Remove whatever is there."""
        if self.stat(fs_path):
            (self.rm if os.path.isfile(fs_path) else self.rmr)(fs_path)

    def need_upload_download(self) -> bool:
        """False."""
        return False


class BDFS(FS):
    """Hadoop's files, by the command `hadoop fs`, which must be in PATH. time_out and sleep_inter: milliseconds.

    A command that fails is run again every `sleep_inter`, until `time_out` is over; then OutputError.
    """

    def __init__(self, hdfs_name: str, hdfs_ugi: str, time_out: int = 20 * 60 * 1000, sleep_inter: int = 1000) -> None:
        self._client = HDFSClient("", {"fs.default.name": hdfs_name, "hadoop.job.ugi": hdfs_ugi})
        self._client.pre_commands[0] = "hadoop"
        self._time_out, self._sleep_inter = time_out / 1000, sleep_inter / 1000

    def _run(self, commands: Sequence[str]) -> str:
        end = time.monotonic() + self._time_out
        while True:
            code, text, errors = self._client._run(commands, 0)
            if code == 0:
                return text
            if time.monotonic() + self._sleep_inter > end:
                raise OutputError(f"hadoop fs {' '.join(commands)} failed: {errors.strip()}")
            time.sleep(self._sleep_inter)

    def list_dirs(self, fs_path: str) -> list[str]:
        """The names of the folders in a folder; none if it is not there."""
        return self.ls_dir(fs_path)[0] if self.stat(fs_path) else []

    def ls_dir(self, fs_path: str) -> tuple[list[str], list[str]]:
        """The names of the folders and of the files in a folder."""
        rows = [columns for columns in map(str.split, self._run(["-ls", fs_path]).splitlines()) if len(columns) == 8]
        names = [(columns[0].startswith("d"), PurePosixPath(columns[-1]).name) for columns in rows]
        return [name for folder, name in names if folder], [name for folder, name in names if not folder]

    def is_dir(self, fs_path: str) -> bool:
        """Whether there is a folder."""
        return self._client.is_dir(fs_path)

    def stat(self, fs_path: str) -> bool:
        """Whether there is a file or a folder."""
        return self._client.is_exist(fs_path)

    def upload(self, local_path: str, fs_path: str) -> None:
        """Put a file or a folder of this machine there."""
        self._run(["-put", local_path, fs_path])

    def download(self, fs_path: str, local_path: str) -> None:
        """Get a file or a folder into a folder of this machine."""
        self._run(["-get", fs_path, f"{local_path}/"])

    def mkdir(self, fs_path: str) -> None:
        """Make a folder if there is none."""
        if not self.stat(fs_path):
            self._run(["-mkdir", fs_path])

    def mv(self, fs_src_path: str, fs_dst_path: str) -> None:
        """Move a file or a folder."""
        self._run(["-mv", fs_src_path, fs_dst_path])

    def rmr(self, fs_path: str) -> None:
        """Remove a folder if it is there."""
        if self.stat(fs_path):
            self._run(["-rmr", fs_path])

    def rm(self, fs_path: str) -> None:
        """Remove a file if it is there."""
        if self.stat(fs_path):
            self._run(["-rm", fs_path])

    def delete(self, fs_path: str) -> None:
        """Remove whatever is there."""
        (self.rmr if self.is_dir(fs_path) else self.rm)(fs_path)

    def need_upload_download(self) -> bool:
        """True."""
        return True
