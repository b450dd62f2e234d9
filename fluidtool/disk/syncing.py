"""Bringing bytes and names to the disk."""

from __future__ import annotations

import errno
import os
import stat
import sys
from collections.abc import Iterable
from pathlib import Path

if os.name == "posix":
    import fcntl

UNSUPPORTED = frozenset({errno.ENOSYS, errno.EINVAL, errno.ENOTSUP, errno.EOPNOTSUPP})  # not on this file system
AT_A_TIME = 16  # a file system brings to the disk together what is asked for together


def sync_folder(folder: Path) -> None:
    """Bring the names in a folder to the disk, where the system has that."""
    if os.name == "posix":
        sync(folder)


def sync(path: Path) -> None:
    """Bring a file, or the names in a folder, to the disk."""
    handle = os.open(path, os.O_RDONLY if os.name == "posix" else os.O_RDWR)
    try:
        _bring(handle)
    finally:
        os.close(handle)


def _bring(handle: int) -> None:
    try:
        if sys.platform == "darwin":  # fsync leaves bytes in the drive's own memory there
            fcntl.fcntl(handle, fcntl.F_FULLFSYNC)
        else:
            os.fsync(handle)
    except OSError as error:
        if error.errno not in UNSUPPORTED:
            raise


def sync_files(paths: Iterable[Path]) -> None:
    """Bring files to the disk, many at a time."""
    waiting = list(paths)
    if len(waiting) < AT_A_TIME:
        for path in waiting:
            sync(path)
        return
    from concurrent.futures import ThreadPoolExecutor  # with logging

    with ThreadPoolExecutor(AT_A_TIME, thread_name_prefix="sync") as pool:
        for done in [pool.submit(sync, path) for path in waiting]:
            done.result()


def sync_tree(folder: Path) -> None:
    """Bring a folder to the disk: files first, then the names of them, from the inside out."""
    found = [(Path(place), names) for place, _, names in os.walk(folder, topdown=False)]
    files = (place / name for place, names in found for name in names)
    sync_files(path for path in files if stat.S_ISREG(os.lstat(path).st_mode))
    for place, _ in found:
        sync_folder(place)
