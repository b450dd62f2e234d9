"""Files on Hadoop, as jobs of fleet reach them (Paddle 1.8.5 incubate/fleet/utils/hdfs.py, which fails on Python 3)."""

from __future__ import annotations

import os
from collections.abc import Sequence

from fluidtool.fluid.contrib.utils import hdfs_utils

__all__ = ["HDFSClient"]


class HDFSClient(hdfs_utils.HDFSClient):
    """The client of `fluid.contrib.utils`, which also reads files and uploads folders."""

    def cat(self, hdfs_path: str | None = None) -> str:
        """The text of a file without white space around it; "" if there is no such file, or it cannot be read."""
        if not self.is_file(hdfs_path):
            return ""
        code, text, _ = self._run(["-cat", str(hdfs_path)], 1)
        return "" if code else text.strip()

    def lsr(self, hdfs_path: str, excludes: Sequence[str] = ()) -> list[str]:  # type: ignore[override]
        """The paths of the files in a folder and in those below it, in Hadoop's order; without those in `excludes`."""
        return [path for path in super().lsr(hdfs_path, sort=False) if path not in excludes]

    def is_file(self, hdfs_path: str | None = None) -> bool:
        """Whether there is a file that is not a folder."""
        return self.is_exist(hdfs_path) and not self.is_dir(hdfs_path)

    @staticmethod
    def split_files(files: Sequence[str], trainer_id: int, trainers: int) -> list[str]:
        """The share of a trainer: of neighbors in the list, the first trainers get one more if they do not come out even."""
        size, more = divmod(len(files), trainers)
        start = trainer_id * size + min(trainer_id, more)
        return list(files[start : start + size + (trainer_id < more)])

    def upload_dir(self, dest_dir: str, local_dir: str, overwrite: bool = False) -> bool:
        """Put a local folder with what it contains into a folder, which is made; overwrite: in place of one of its name."""
        target = f"{dest_dir.rstrip('/')}/{os.path.basename(local_dir.rstrip('/'))}"
        if overwrite and self.is_exist(target):
            self.delete(target)
        if not self.is_exist(dest_dir):
            self.makedirs(dest_dir)
        return self._done(["-put", local_dir.rstrip("/"), dest_dir.rstrip("/")], 5)
