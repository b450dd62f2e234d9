"""Files on Hadoop, by its command `hadoop fs` (Paddle 1.8.5 contrib/utils/hdfs_utils.py).

As in Paddle nothing raises when a command fails: it is logged, and the result is False or an empty list. There `ls` and `lsr` fail
on Python 3; here they work.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from fluidtool.errors import ArgumentTypeError, AssertedError
from fluidtool.fluid.log_helper import get_logger

__all__ = ["HDFSClient", "multi_download", "multi_upload"]

_logger = get_logger(__name__, logging.INFO, fmt="%(asctime)s-%(levelname)s: %(message)s")
COLUMNS = 8  # permissions, copies, owner, group, size, day, time, path


class HDFSClient:
    """Runs `<hadoop_home>/bin/hadoop fs` with `-D` settings, such as {"fs.default.name": "hdfs://…"}."""

    def __init__(self, hadoop_home: str, configs: Mapping[str, str]) -> None:
        settings = [f"-D{name}={value}" for name, value in configs.items()]
        self.pre_commands = [f"{hadoop_home}/bin/hadoop", "fs", *settings]

    def upload(self, hdfs_path: str, local_path: str, overwrite: bool = False, retry_times: int = 5) -> bool:
        """Put a local file into a folder; False for a folder, a file that is there already, and where it fails."""
        if local_path is None or not os.path.exists(local_path):
            raise AssertedError(f"there is no file {local_path!r} to upload")
        if os.path.isdir(local_path):
            _logger.warning("%s is a folder; give its files one by one, or use multi_upload", local_path)
            return False
        if not self.is_exist(hdfs_path):
            self.makedirs(hdfs_path)
        elif self.is_exist(os.path.join(hdfs_path, os.path.basename(local_path))):
            if not overwrite:
                _logger.error("%s exists in %s, and overwrite is False", local_path, hdfs_path)
                return False
            self.delete(os.path.join(hdfs_path, os.path.basename(local_path)))
        return self._done(["-put", local_path, hdfs_path], retry_times)

    def download(self, hdfs_path: str, local_path: str, overwrite: bool = False, unzip: bool = False) -> bool:
        """Get a file into a local folder, which is made; False if there is none, or it is there already without overwrite.

        unzip: kept for scripts; Paddle does not read it.
        """
        if not self.is_exist(hdfs_path):
            return False
        local = os.path.join(local_path, os.path.basename(hdfs_path))
        if os.path.exists(local):
            if not overwrite:
                _logger.error("%s already exists, and overwrite is False", local)
                return False
            os.remove(local)
        self.make_local_dirs(local_path)
        return self._done(["-get", hdfs_path, local_path], 5)

    def is_exist(self, hdfs_path: str | None = None) -> bool:
        """Whether there is a file or folder."""
        return self._done(["-test", "-e", str(hdfs_path)], 1)

    def is_dir(self, hdfs_path: str | None = None) -> bool:
        """Whether there is a folder."""
        return self.is_exist(hdfs_path) and self._done(["-test", "-d", str(hdfs_path)], 1)

    def delete(self, hdfs_path: str) -> bool:
        """Remove a file or a folder; True where there is none."""
        if not self.is_exist(hdfs_path):
            return True
        return self._done(["-rmr" if self.is_dir(hdfs_path) else "-rm", hdfs_path], 0)

    def rename(self, hdfs_src_path: str, hdfs_dst_path: str, overwrite: bool = False) -> bool:
        """Move a file or a folder."""
        if self.is_exist(hdfs_dst_path) and not overwrite:
            _logger.error("%s already exists, and overwrite is False", hdfs_dst_path)
        return self._done(["-mv", hdfs_src_path, hdfs_dst_path], 1)

    @staticmethod
    def make_local_dirs(local_path: str) -> None:
        """Make a local folder, with those above it."""
        os.makedirs(local_path, exist_ok=True)

    def makedirs(self, hdfs_path: str) -> bool | None:
        """Make a folder; None if it is there already."""
        if self.is_exist(hdfs_path):
            _logger.error("%s already exists", hdfs_path)
            return None
        return self._done(["-mkdir", hdfs_path], 1)

    def ls(self, hdfs_path: str) -> list[str]:
        """The paths in a folder."""
        if not self.is_exist(hdfs_path):
            return []
        return [columns[-1] for columns in self._listed("-ls", hdfs_path)]

    def lsr(self, hdfs_path: str, only_file: bool = True, sort: bool = True) -> list[str]:
        """The paths in a folder and in those below it; only_file: without folders, sort: the oldest first."""
        if not self.is_exist(hdfs_path):
            return []
        rows = [
            columns for columns in self._listed("-lsr", hdfs_path) if not (only_file and columns[0].startswith("d"))
        ]
        if sort:
            rows.sort(key=lambda columns: columns[5:7])
        return [columns[-1] for columns in rows]

    def _listed(self, command: str, path: str) -> Iterator[list[str]]:
        _, text, _ = self._run([command, path], 1)
        return (columns for columns in map(str.split, text.splitlines()) if len(columns) == COLUMNS)

    def _done(self, commands: Sequence[str], retry_times: int) -> bool:
        """Whether a command succeeds; if not, why is logged."""
        code, _, errors = self._run(commands, retry_times)
        (_logger.error if code else _logger.info)(
            "hadoop fs %s: %s", " ".join(commands), f"failed, {errors.strip()}" if code else "done"
        )
        return code == 0

    def _run(self, commands: Sequence[str], retry_times: int) -> tuple[int, str, str]:
        """Run a command, up to so many times again where it fails: its exit code, and what it wrote to stdout and stderr."""
        import subprocess

        words = [*self.pre_commands, *commands]
        sys.stdout.write(f"Running system command: {' '.join(words)}\n")
        for number in range(retry_times + 1):
            try:
                done = subprocess.run(words, capture_output=True, text=True, check=False)
            except OSError as error:
                return 127, "", f"cannot run {words[0]} ({error.strerror}): hadoop_home must be the folder of Hadoop"
            if done.returncode == 0:
                break
            _logger.warning("Times: %d, %s: exit code %d, %s", number, " ".join(words), done.returncode, done.stderr)
        return done.returncode, done.stdout, done.stderr


def multi_download(
    client: HDFSClient, hdfs_path: str, local_path: str, trainer_id: int, trainers: int, multi_processes: int = 5
) -> list[str]:
    """Get a trainer's share of the files in a folder: every `trainers`-th from the `trainer_id`-th on; their local paths."""
    _need_client(client)
    client.make_local_dirs(local_path)
    wanted = client.lsr(hdfs_path, sort=True)[trainer_id::trainers]
    folders = [os.path.normpath(os.path.join(local_path, _folder(path, hdfs_path))) for path in wanted]
    _each(multi_processes, client.download, wanted, folders)
    return [os.path.join(folder, os.path.basename(path)) for folder, path in zip(folders, wanted, strict=True)]


def multi_upload(
    client: HDFSClient,
    hdfs_path: str,
    local_path: str,
    multi_processes: int = 5,
    overwrite: bool = False,
    sync: bool = True,
) -> None:
    """Put the files of a local folder and of those below it into a folder.

    sync: kept for scripts; Paddle does not read it.
    """
    _need_client(client)
    files = [str(path) for path in sorted(Path(local_path).rglob("*")) if path.is_file()]
    if not files:
        _logger.info("there is nothing to upload in %s", local_path)
    targets = [os.path.normpath(os.path.join(hdfs_path, _folder(path, local_path))) for path in files]
    _each(multi_processes, lambda target, path: client.upload(target, path, overwrite), targets, files)


def _each(threads: int, call: Callable[[str, str], bool], *columns: Sequence[str]) -> None:
    """Call a function for each row, several at once: each waits for a process of Hadoop."""
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(call, *columns))


def _folder(path: str, above: str) -> str:
    return os.path.relpath(os.path.dirname(path), above)


def _need_client(client: HDFSClient) -> None:
    if not isinstance(client, HDFSClient):
        raise ArgumentTypeError(f"expected an HDFSClient, found {type(client).__name__}")
