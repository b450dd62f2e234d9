"""Several files that take their names together: noted in COMMIT first, so that the next process can finish it."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from fluidtool.disk.syncing import sync, sync_folder
from fluidtool.disk.temporary import TEMPORARY, Temporary, locked

COMMIT = ".fluidtool.commit"
LONGEST_COMMIT = 64 << 20


def commit(folder: Path, names: Mapping[Path, Path], temporary: Temporary) -> None:
    """Give temporary files their names, all of them: from the moment that COMMIT is on the disk, this will happen."""
    note = [[*_relative(path, target, folder), _identity(path)] for path, target in names.items()]
    with locked(folder):
        finish_locked(folder)
        sync_folder(folder)
        try:
            write_file(folder / COMMIT, [json.dumps({"names": note}).encode()])
        except BaseException:
            (folder / COMMIT).unlink(missing_ok=True)
            raise
        temporary.is_promised = True
        try:
            finish_locked(folder)
        except OSError:
            finish_locked(folder)  # what failed once often works the second time; else the next one who comes tries


def finish(folder: Path) -> None:
    """Finish a save of several files into this folder that was killed between their names.

    Costs one look into the folder where there is nothing to do. Raises OSError when it cannot be finished.
    """
    if (folder / COMMIT).exists():
        with locked(folder):
            finish_locked(folder)


def finish_locked(folder: Path) -> None:
    """Only files that lay here when COMMIT was written take names: one that came from elsewhere means nothing."""
    if not (folder / COMMIT).is_file():
        return
    entries = _entries(folder)
    for temporary, target, identity in entries:
        found = _identity(temporary)
        if found and found == identity:
            temporary.replace(target)
    for parent in {target.parent for _, target, _ in entries}:
        if parent.is_dir():
            sync_folder(parent)
    for place in {temporary.parent for temporary, _, _ in entries}:
        with suppress(OSError):  # empty by now, or somebody's turn later
            place.rmdir()
    (folder / COMMIT).unlink(missing_ok=True)


def _entries(folder: Path) -> list[tuple[Path, Path, object]]:
    """What COMMIT says: files in temporary folders, the names that they wait for, and how to know them again."""
    with (folder / COMMIT).open("rb") as file:
        text = file.read(LONGEST_COMMIT)
    try:
        entries = [(Path(path), Path(name), identity) for path, name, identity in json.loads(text)["names"]]
    except (ValueError, TypeError, KeyError, RecursionError):
        return []
    return [
        (folder / path, folder / name, identity)
        for path, name, identity in entries
        if len(path.parts) == 2
        and TEMPORARY.fullmatch(path.parts[0])
        and path.parts[1].isdecimal()
        and not (name.is_absolute() or ".." in name.parts or "\0" in f"{path}{name}")
    ]


def _relative(path: Path, target: Path, folder: Path) -> tuple[str, str]:
    return str(path.relative_to(folder)), str(target.relative_to(folder))


def _identity(path: Path) -> list[int]:
    """What nobody on another machine can know of a file here; [] where there is none."""
    try:
        found = os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return []
    return [found.st_dev, found.st_ino, found.st_mtime_ns]


def write_file(target: Path, parts: Iterable[Any]) -> None:
    """Write one file, which takes its name when it is whole."""
    temporary = Temporary.file(target)
    try:
        temporary.write(parts)
        sync(temporary.path)
        temporary.path.replace(target)
        sync_folder(target.parent)
    finally:
        temporary.close()
