"""Temporary files and folders, which say by a lock that their owner lives."""

from __future__ import annotations

import errno
import os
import re
import shutil
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from fluidtool.disk.syncing import UNSUPPORTED

if os.name == "posix":
    import fcntl

TEMPORARY = re.compile(r"\..{0,40}\.[0-9a-f]{16}\.fluidtool\.tmp", re.DOTALL)
WITHOUT_LOCKS = UNSUPPORTED | {errno.ENOLCK, errno.EBADF}
PATIENCE, LOOK = 30.0, 0.01  # seconds: for another who changes names in the same folder


class Temporary:
    """A file or folder under a temporary name, locked for as long as this process lives and does not close it."""

    def __init__(self, path: Path, handle: int) -> None:
        self.path, self._handle, self.is_promised = path, handle, False

    @classmethod
    def file(cls, target: Path) -> Temporary:
        """An empty file beside `target`."""
        flags = os.O_CREAT | os.O_EXCL | os.O_RDWR | getattr(os, "O_BINARY", 0)
        while True:
            path = temporary_name(target)
            made = cls(path, os.open(path, flags, 0o666))
            if made._is_ours():
                return made

    @classmethod
    def folder(cls, target: Path) -> Temporary:
        """An empty folder beside `target`."""
        while True:
            path = temporary_name(target)
            path.mkdir()
            if os.name != "posix":
                return cls(path, -1)
            try:
                made = cls(path, os.open(path, os.O_RDONLY))
            except OSError:
                path.rmdir()
                raise
            if made._is_ours():
                return made

    def _is_ours(self) -> bool:
        """Lock it. False if somebody took it for a leftover before that, and removed it."""
        if os.name != "posix":
            return True
        try:
            lock_where_possible(self._handle, PATIENCE)
            return os.path.samestat(os.fstat(self._handle), os.stat(self.path))
        except FileNotFoundError:
            self.close()
            return False
        except BaseException:
            self.close()
            raise

    def write(self, parts: Iterable[Any]) -> None:
        """Write byte strings and buffers, one after the other, to a file."""
        with open(self._handle, "wb", closefd=False) as file:
            for part in parts:
                file.write(part)
        if os.name != "posix":  # an open file cannot take another name there
            self._handle = closed(self._handle)

    def close(self) -> None:
        """Remove it if it still has its temporary name and no COMMIT promises another, and give the lock back."""
        try:
            if not self.is_promised:
                remove(self.path)
        finally:
            self._handle = closed(self._handle)


def temporary_name(target: Path) -> Path:
    """A name beside `target` that nobody has."""
    return target.with_name(f".{target.name[:40]}.{os.urandom(8).hex()}.fluidtool.tmp")


def remove(path: Path) -> None:
    """Remove a file or folder as far as that goes: what stays is unlocked, and somebody else's turn."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        with suppress(OSError):
            path.unlink(missing_ok=True)


def closed(handle: int) -> int:
    """Close it; the lock goes at once, also where a process forked meanwhile has the handle too."""
    if handle >= 0:
        if os.name == "posix":
            with suppress(OSError):
                fcntl.flock(handle, fcntl.LOCK_UN)
        with suppress(OSError):  # its bytes are on the disk, or given up
            os.close(handle)
    return -1


def lock_where_possible(handle: int, patience: float) -> None:
    """The same; on a file system without locks nothing is locked, and nothing is ever taken for a leftover."""
    try:
        lock(handle, patience)
    except OSError as error:
        if error.errno not in WITHOUT_LOCKS:
            raise


def lock(handle: int, patience: float = 0.0) -> None:
    """Lock a file or folder until its handle is closed; raises BlockingIOError when somebody else keeps it locked."""
    end = time.monotonic() + patience
    while True:
        try:
            return fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if not isinstance(error, BlockingIOError) or time.monotonic() >= end:
                raise
        time.sleep(LOOK)


@contextmanager
def locked(folder: Path, patience: float = PATIENCE) -> Iterator[None]:
    """Only one process at a time changes several names in a folder."""
    if os.name != "posix" or TEMPORARY.fullmatch(folder.name):  # what is temporary is its owner's, and locked already
        yield
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        lock_where_possible(handle, patience)
        yield
    finally:
        closed(handle)
