"""What saves left behind that were killed: finished, or removed, by the next one into the same folder."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from fluidtool.disk.committing import COMMIT, finish_locked
from fluidtool.disk.temporary import TEMPORARY, closed, lock, locked, remove

ASIDE = re.compile(r"\.(.+)\.[0-9a-f]{16}\.fluidtool\.old", re.DOTALL)  # a folder that stepped aside for a new one
REMEMBERED = 1024

_settled: dict[str, int] = {}  # folders without leftovers, and when they had changed last: a cache for `settle`


def settle(folder: Path) -> None:
    """Finish a save of several files that was killed between their names, and remove what owners that died left.

    Raises OSError when a save cannot be finished. Leftovers that cannot be removed stay, for the next one.
    """
    key = os.path.abspath(folder)
    changed = os.stat(folder).st_mtime_ns
    if _settled.get(key) == changed:
        return
    try:
        with locked(folder, patience=0):
            finish_locked(folder)
            names = os.listdir(folder)
            for name in filter(TEMPORARY.fullmatch, names):
                _remove_leftover(folder / name)
            for aside in filter(None, map(ASIDE.fullmatch, names)):
                _bring_back(folder / aside[0], folder / aside[1])
    except BlockingIOError:
        return  # somebody else is at it
    note_settled(folder)


def is_leftover(name: str) -> bool:
    """Whether a file of this name is one that a save made for itself."""
    return name == COMMIT or TEMPORARY.fullmatch(name) is not None or ASIDE.fullmatch(name) is not None


def note_settled(folder: Path) -> None:
    """Note that there are no leftovers in a folder as it is now."""
    if len(_settled) >= REMEMBERED:
        _settled.clear()
    with suppress(OSError):
        _settled[os.path.abspath(folder)] = os.stat(folder).st_mtime_ns


@contextmanager
def _without_owner(path: Path) -> Iterator[bool]:
    """Whether nobody has a file or folder locked; nobody else can lock it until the block ends."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        yield False
        return
    try:
        lock(handle)
        dead = os.path.samestat(os.fstat(handle), os.lstat(path))
    except OSError:
        dead = False
    try:
        yield dead
    finally:
        closed(handle)


def _remove_leftover(path: Path) -> None:
    if os.name != "posix":  # there is no telling whether its owner lives
        return
    with _without_owner(path) as dead:
        if dead:
            remove(path)


def _bring_back(aside: Path, path: Path) -> None:
    """A folder that stepped aside gets its name back when nothing took it; else it was replaced, and goes."""
    with suppress(OSError):
        if path.exists():
            shutil.rmtree(aside)
        else:
            aside.rename(path)
