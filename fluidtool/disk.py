"""Files and folders that are on the disk whole or not at all, also after a kill, a full disk or a power failure.

The order is always the same: write under a temporary name, bring the bytes to the disk, take the name, bring the folder to
the disk. Who writes holds a lock on what is temporary; the system drops it when its owner dies, and whoever saves into
the same folder next removes it then. Several files that belong together are noted in a file, COMMIT, before the first of
them takes its name; a save that was killed in between is finished by whoever opens or saves there next.

Functions here raise OSError; who calls them knows what the file was for.
"""

from __future__ import annotations

import errno
import json
import os
import re
import secrets
import shutil
import stat
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

if os.name == "posix":
    import fcntl

COMMIT = ".fluidtool.commit"
TEMPORARY = re.compile(r"\..{0,40}\.[0-9a-f]{16}\.fluidtool\.tmp", re.DOTALL)
ASIDE = re.compile(r"\.(.+)\.[0-9a-f]{16}\.fluidtool\.old", re.DOTALL)  # a folder that stepped aside for a new one
UNSUPPORTED = frozenset({errno.ENOSYS, errno.EINVAL, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOLCK, errno.EBADF})
SYNCING = 16  # files that are brought to the disk at a time: a file system gathers what comes together
REMEMBERED = 1024
PATIENCE, LOOK = 30.0, 0.01  # seconds: for another who changes names in the same folder
LONGEST_COMMIT = 64 << 20

_settled: dict[str, int] = {}  # folders without leftovers, and when they had changed last: a cache for `settle`


# ---------------------------------------------------------------- saving
def write_files(contents: Mapping[Path, Iterable[Any]]) -> None:
    """Write byte strings and buffers to files, which take their names when all are written; folders above are made.

    After an error the old files are all there; or, when all was written but for names, the new ones will be: the next one
    who opens or saves there sees to that.
    """
    targets = list(contents)
    if not targets:
        return
    for parent in dict.fromkeys(target.parent for target in targets):
        make_folder(parent)
    folder = Path(os.path.commonpath([target.parent for target in targets]))
    settle(folder)
    if len(targets) == 1:
        _write_one(targets[0], contents[targets[0]])
    else:
        _write_all(folder, contents)
    _note_settled(folder)


def _write_one(target: Path, parts: Iterable[Any]) -> None:
    temporary = Temporary.file(target)
    try:
        temporary.write(parts)
        _sync(temporary.path)
        temporary.path.replace(target)
        sync_folder(target.parent)
    finally:
        temporary.close()


def _write_all(folder: Path, contents: Mapping[Path, Iterable[Any]]) -> None:
    """Write the files into a temporary folder, where they wait for their names together."""
    temporary = Temporary.folder(folder / "files")
    try:
        names = {temporary.path / str(number): target for number, target in enumerate(contents)}
        for path, target in names.items():
            with path.open("xb") as file:
                file.writelines(contents[target])
            _check_name(target, temporary.path)
        _sync_tree(temporary.path)
        _commit(folder, names, temporary)
    finally:
        temporary.close()


def _check_name(target: Path, temporary: Path) -> None:
    """Raise now what would keep a file from its name later, when others have theirs."""
    fault = 0
    if target.is_dir():
        fault = errno.EISDIR
    elif os.stat(target.parent).st_dev != os.stat(temporary).st_dev:
        fault = errno.EXDEV
    if fault:
        raise OSError(fault, os.strerror(fault), str(target))


@contextmanager
def new_folder(path: Path) -> Iterator[Path]:
    """A temporary folder beside `path`, which replaces it when the block ends without an error.

    Whatever is written into it, in whatever way, is brought to the disk first. Folders above are made.
    """
    make_folder(path.parent)
    settle(path.parent)
    temporary = Temporary.folder(path)
    try:
        yield temporary.path
        _sync_tree(temporary.path)
        _put_in_place(temporary.path, path)
    finally:
        temporary.close()  # after an exchange this is what was there before
    _note_settled(path.parent)


def remove_folder(path: Path) -> None:
    """Remove a folder: it is gone at once, and what is in it then."""
    settle(path.parent)
    away = _temporary_name(path)
    path.rename(away)
    sync_folder(path.parent)
    shutil.rmtree(away, ignore_errors=True)  # what stays is a leftover
    _forget_settled(path.parent)


def make_folder(path: Path) -> None:
    """Make a folder and those above it, and bring their names to the disk."""
    if path.is_dir():
        return
    make_folder(path.parent)
    with suppress(FileExistsError):  # somebody else was faster
        path.mkdir()
    if not path.is_dir():
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(path))
    sync_folder(path.parent)


# ---------------------------------------------------------------- what is temporary
class Temporary:
    """A file or folder under a temporary name, locked for as long as this process lives and does not close it."""

    def __init__(self, path: Path, handle: int) -> None:
        self.path, self._handle, self.is_promised = path, handle, False

    @classmethod
    def file(cls, target: Path) -> Temporary:
        """An empty file beside `target`."""
        flags = os.O_CREAT | os.O_EXCL | os.O_RDWR | getattr(os, "O_BINARY", 0)
        while True:
            path = _temporary_name(target)
            made = cls(path, os.open(path, flags, 0o666))
            if made._is_ours():
                return made

    @classmethod
    def folder(cls, target: Path) -> Temporary:
        """An empty folder beside `target`."""
        while True:
            path = _temporary_name(target)
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
            _lock(self._handle, PATIENCE)
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
            self._handle = _closed(self._handle)

    def close(self) -> None:
        """Remove it if it still has its temporary name and no COMMIT promises another, and give the lock back."""
        try:
            if not self.is_promised:
                _remove(self.path)
        finally:
            self._handle = _closed(self._handle)


def _temporary_name(target: Path) -> Path:
    return target.with_name(f".{target.name[:40]}.{secrets.token_hex(8)}.fluidtool.tmp")


def _remove(path: Path) -> None:
    """Remove a file or folder as far as that goes: what stays is unlocked, and somebody else's turn."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        with suppress(OSError):
            path.unlink(missing_ok=True)
    if os.path.lexists(path):
        _forget_settled(path.parent)


def _closed(handle: int) -> int:
    """Close it; the lock goes at once, also where a process forked meanwhile has the handle too."""
    if handle >= 0:
        with suppress(OSError):
            fcntl.flock(handle, fcntl.LOCK_UN)
        with suppress(OSError):  # its bytes are on the disk, or given up
            os.close(handle)
    return -1


def _lock(handle: int, patience: float = 0.0) -> None:
    """Lock a file or folder until its handle is closed; raises BlockingIOError when somebody else keeps it locked.

    Where the file system has no locks nothing is locked, and nothing is ever taken for a leftover.
    """
    end = time.monotonic() + patience
    while True:
        try:
            return fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if patience and error.errno in UNSUPPORTED:
                return None
            if not isinstance(error, BlockingIOError) or time.monotonic() >= end:
                raise
        time.sleep(LOOK)


@contextmanager
def _locked(folder: Path, patience: float = PATIENCE) -> Iterator[None]:
    """Only one process at a time changes several names in a folder."""
    if os.name != "posix" or TEMPORARY.fullmatch(folder.name):  # what is temporary is its owner's, and locked already
        yield
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        _lock(handle, patience)
        yield
    finally:
        _closed(handle)


# ---------------------------------------------------------------- what others left
def settle(folder: Path) -> None:
    """Finish a save of several files that was killed between their names, and remove what owners that died left.

    Raises OSError when a save cannot be finished. Leftovers that cannot be removed stay, for the next one.
    """
    key = os.path.abspath(folder)
    changed = os.stat(folder).st_mtime_ns
    if _settled.get(key) == changed:
        return
    try:
        with _locked(folder, patience=0):
            _finish(folder)
            names = os.listdir(folder)
            for name in filter(TEMPORARY.fullmatch, names):
                _remove_leftover(folder / name)
            for aside in filter(None, map(ASIDE.fullmatch, names)):
                _bring_back(folder / aside[0], folder / aside[1])
    except BlockingIOError:
        return  # somebody else is at it
    _note_settled(folder)


def is_leftover(name: str) -> bool:
    """Whether a file of this name is one that a save made for itself."""
    return name == COMMIT or TEMPORARY.fullmatch(name) is not None or ASIDE.fullmatch(name) is not None


def _note_settled(folder: Path) -> None:
    if len(_settled) >= REMEMBERED:
        _settled.clear()
    with suppress(OSError):
        _settled[os.path.abspath(folder)] = os.stat(folder).st_mtime_ns


def _forget_settled(folder: Path) -> None:
    _settled.pop(os.path.abspath(folder), None)


@contextmanager
def _without_owner(path: Path) -> Iterator[bool]:
    """Whether nobody has a file or folder locked; nobody else can lock it until the block ends."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        yield False
        return
    try:
        _lock(handle)
        yield os.path.samestat(os.fstat(handle), os.lstat(path))
    except OSError:
        yield False
    finally:
        _closed(handle)


def _remove_leftover(path: Path) -> None:
    if os.name != "posix":  # there is no telling whether its owner lives
        return
    with _without_owner(path) as dead:
        if dead:
            _remove(path)


# ---------------------------------------------------------------- several names at once
def _commit(folder: Path, names: Mapping[Path, Path], temporary: Temporary) -> None:
    """Give temporary files their names, all of them: from the moment that COMMIT is on the disk, this will happen."""
    note = [[*_relative(path, target, folder), _identity(path)] for path, target in names.items()]
    with _locked(folder):
        _finish(folder)
        sync_folder(folder)
        try:
            _write_one(folder / COMMIT, [json.dumps({"names": note}).encode()])
        except OSError:
            (folder / COMMIT).unlink(missing_ok=True)
            raise
        temporary.is_promised = True
        try:
            _finish(folder)
        except OSError:
            _finish(folder)  # what failed once often works the second time; else the next one who comes tries


def finish(folder: Path) -> None:
    """Finish a save of several files into this folder that was killed between their names.

    Costs one look into the folder where there is nothing to do. Raises OSError when it cannot be finished.
    """
    if (folder / COMMIT).exists():
        with _locked(folder):
            _finish(folder)


def _finish(folder: Path) -> None:
    """Only files that lay here when COMMIT was written take names: one that came from elsewhere means nothing."""
    if not (folder / COMMIT).is_file():
        return
    names = _promised(folder)
    for temporary, target in names.items():
        temporary.replace(target)
    for inner in {target.parent for target in names.values()}:
        sync_folder(inner)
    for place in {temporary.parent for temporary in names}:
        with suppress(OSError):  # empty by now, or somebody's turn later
            place.rmdir()
    (folder / COMMIT).unlink(missing_ok=True)


def _promised(folder: Path) -> dict[Path, Path]:
    """The files below temporary folders that wait for names, and the names, as COMMIT says."""
    with (folder / COMMIT).open("rb") as file:
        text = file.read(LONGEST_COMMIT)
    try:
        entries = [(Path(path), Path(name), identity) for path, name, identity in json.loads(text)["names"]]
    except (ValueError, TypeError, KeyError, RecursionError):
        return {}
    return {
        folder / path: folder / name
        for path, name, identity in entries
        if len(path.parts) == 2
        and TEMPORARY.fullmatch(path.parts[0])
        and path.parts[1].isdecimal()
        and not (name.is_absolute() or ".." in name.parts)
        and os.path.lexists(folder / path)
        and _identity(folder / path) == identity
    }


def _relative(path: Path, target: Path, folder: Path) -> tuple[str, str]:
    return str(path.relative_to(folder)), str(target.relative_to(folder))


def _identity(path: Path) -> list[int]:
    """What nobody on another machine can know of a file here."""
    found = os.lstat(path)
    return [found.st_dev, found.st_ino, found.st_mtime_ns]


# ---------------------------------------------------------------- a folder for another
def _put_in_place(temporary: Path, path: Path) -> None:
    """Give the folder its name. What is there takes the temporary one, in the same moment where the system can do that."""
    if not path.is_dir() or not any(path.iterdir()):
        temporary.replace(path)
        sync_folder(path.parent)
        return
    if _exchange(temporary, path):
        sync_folder(path.parent)
        return
    aside = path.with_name(f".{path.name}.{secrets.token_hex(8)}.fluidtool.old")
    path.rename(aside)
    try:
        temporary.rename(path)
        sync_folder(path.parent)
    except OSError:
        if not path.exists():
            aside.rename(path)
        raise
    shutil.rmtree(aside, ignore_errors=True)


def _bring_back(aside: Path, path: Path) -> None:
    """A folder that stepped aside gets its name back when nothing took it; else it was replaced, and goes."""
    with suppress(OSError):
        if path.exists():
            shutil.rmtree(aside)
        else:
            aside.rename(path)


def _exchange(one: Path, other: Path) -> bool:
    """Have two folders exchange their names in one step; False where the system or the file system cannot do that."""
    import ctypes

    functions = {"linux": "renameat2", "darwin": "renamex_np"}
    function = getattr(ctypes.CDLL(None, use_errno=True), functions[sys.platform], None) if _has_exchange() else None
    if function is None:
        return False
    here, swap = -100, 2  # AT_FDCWD; RENAME_EXCHANGE, RENAME_SWAP
    names = os.fsencode(one), os.fsencode(other)
    result = function(here, names[0], here, names[1], swap) if sys.platform == "linux" else function(*names, swap)
    fault = ctypes.get_errno()
    if result and fault not in UNSUPPORTED | {errno.EPERM}:
        raise OSError(fault, os.strerror(fault), str(other))
    return not result


def _has_exchange() -> bool:
    return sys.platform in ("linux", "darwin")


# ---------------------------------------------------------------- to the disk
def sync_folder(folder: Path) -> None:
    """Bring the names in a folder to the disk, where the system has that."""
    if os.name == "posix":
        _sync(folder)


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY if os.name == "posix" else os.O_RDWR)
    try:
        _sync_handle(handle)
    finally:
        os.close(handle)


def _sync_handle(handle: int) -> None:
    try:
        if sys.platform == "darwin":  # fsync leaves bytes in the drive's own memory there
            fcntl.fcntl(handle, fcntl.F_FULLFSYNC)
        else:
            os.fsync(handle)
    except OSError as error:
        if error.errno not in UNSUPPORTED - {errno.EBADF}:
            raise


def _sync_all(paths: Iterable[Path]) -> None:
    """Bring files to the disk, many at a time."""
    waiting = list(paths)
    if len(waiting) < SYNCING:
        for path in waiting:
            _sync(path)
        return
    with ThreadPoolExecutor(SYNCING, thread_name_prefix="sync") as pool:
        for done in [pool.submit(_sync, path) for path in waiting]:
            done.result()


def _sync_tree(folder: Path) -> None:
    """Bring a folder to the disk: files first, then the names of them, from the inside out."""
    found = [(Path(place), names) for place, _, names in os.walk(folder, topdown=False)]
    files = (place / name for place, names in found for name in names)
    _sync_all(path for path in files if stat.S_ISREG(os.lstat(path).st_mode))
    for place, _ in found:
        sync_folder(place)
