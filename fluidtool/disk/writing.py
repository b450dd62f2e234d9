"""Saving: a file, files that belong together, a folder."""

from __future__ import annotations

import errno
import os
import shutil
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from fluidtool.disk.committing import commit, write_file
from fluidtool.disk.leftovers import note_settled, settle
from fluidtool.disk.syncing import UNSUPPORTED, sync_folder, sync_tree
from fluidtool.disk.temporary import Temporary, temporary_name


def write_files(contents: Mapping[Path, Iterable[Any]]) -> None:
    """Write byte strings and buffers to files, which take their names when all are written; folders above are made.

    After an error the old files are all there; or, when everything except the names was written, the new ones will be: the
    next one who opens or saves there sees to that.
    """
    targets = list(contents)
    if not targets:
        return
    for parent in dict.fromkeys(target.parent for target in targets):
        make_folder(parent)
    folder = Path(os.path.commonpath([target.parent for target in targets]))
    settle(folder)
    if len(targets) == 1:
        write_file(targets[0], contents[targets[0]])
    else:
        _write_all(folder, contents)
    note_settled(folder)


def _write_all(folder: Path, contents: Mapping[Path, Iterable[Any]]) -> None:
    """Write the files into a temporary folder, where they wait for their names together."""
    temporary = Temporary.folder(folder / "files")
    try:
        names = {temporary.path / str(number): target for number, target in enumerate(contents)}
        for path, target in names.items():
            with path.open("xb") as file:
                file.writelines(contents[target])
            _check_name(target, temporary.path)
        sync_tree(temporary.path)
        commit(folder, names, temporary)
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
        sync_tree(temporary.path)
        _put_in_place(temporary.path, path)
    finally:
        temporary.close()  # after an exchange this is what was there before
    note_settled(path.parent)


def remove_folder(path: Path) -> None:
    """Remove a folder: it is gone at once, and what is in it then."""
    settle(path.parent)
    away = temporary_name(path)
    path.rename(away)
    try:
        sync_folder(path.parent)
    finally:
        shutil.rmtree(away, ignore_errors=True)  # what stays is a leftover


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


def _put_in_place(temporary: Path, path: Path) -> None:
    """Give the folder its name. What is there takes the temporary one, in the same moment where the system can do that."""
    if not path.is_dir() or not any(path.iterdir()):
        temporary.replace(path)
        sync_folder(path.parent)
        return
    if _exchange(temporary, path):
        sync_folder(path.parent)
        return
    aside = path.with_name(f".{path.name}.{os.urandom(8).hex()}.fluidtool.old")
    path.rename(aside)
    try:
        temporary.rename(path)
        sync_folder(path.parent)
    except OSError:
        if not path.exists():
            aside.rename(path)
        raise
    shutil.rmtree(aside, ignore_errors=True)


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
