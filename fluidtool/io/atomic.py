"""Writing without half-written files: outputs appear complete or not at all (fluidtool/disk says how)."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fluidtool import disk
from fluidtool.errors import OVERWRITE, FluidError, Location, OutputError, OutputExistsError, UnreadableError


def write_file(path: str | os.PathLike[str], parts: Iterable[Any], *, overwrite: bool = True) -> None:
    """Write byte strings and buffers to `path` in one step; folders above are made.

    Raises OutputExistsError when it is there and overwrite is False, OutputError when it cannot be written.
    """
    write_files({Path(path): parts}, overwrite=overwrite)


def write_files(contents: Mapping[Path, Iterable[Any]], *, overwrite: bool = True) -> None:
    """Write several files that belong together, all of them or none, also when the process is killed.

    Raises OutputExistsError and OutputError as `write_file` does.
    """
    for target in contents:
        if not overwrite and target.parent.is_dir():
            finish(target.parent)
        if not overwrite and target.exists():
            raise OutputExistsError(f"{target} already exists", hint=OVERWRITE, location=Location(str(target)))
    with _writing(*contents):
        disk.write_files(contents)


def write_into(folder: Path, contents: Mapping[str, Iterable[Any]]) -> None:
    """Write files, named relative to it, into a folder that nobody else sees yet (`new_folder`). Raises OutputError."""
    for name, parts in contents.items():
        path = folder / name
        with _writing(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("xb") as file:
                for part in parts:
                    file.write(part)


@contextmanager
def new_folder(path: Path, *, replace: bool = False) -> Iterator[Path]:
    """A temporary folder beside `path` to write into; it takes that name when the block ends without an error.

    An empty folder of that name is taken over, any other folder only with `replace` (it is gone afterwards).
    Raises OutputExistsError when something is there, OutputError when it cannot be written.
    """
    if path.exists() and not (path.is_dir() and (replace or not held_names(path))):
        raise OutputExistsError(f"{path} already exists", hint=OVERWRITE, location=Location(str(path)))
    with _writing(path), disk.new_folder(path) as temporary:
        yield temporary


def remove_folder(path: Path) -> None:
    """Remove a folder in one step: others see all of it or nothing. Raises OutputError."""
    try:
        disk.remove_folder(path)
    except OSError as error:
        raise OutputError(f"cannot remove {path}: {error.strerror or error}") from error


def tidy(folder: Path) -> None:
    """Remove what saves into a folder that were killed left there. Raises OutputError."""
    try:
        if folder.is_dir():
            disk.settle(folder)
    except OSError as error:
        raise OutputError(f"cannot clean up {folder}: {error.strerror or error}") from error


def held_names(folder: Path) -> list[str]:
    """The names in a folder, except the leftovers of killed saves."""
    return [name for name in os.listdir(folder) if not disk.is_leftover(name)]


def finish(folder: Path) -> None:
    """Finish a save of several files into this folder that was killed after its files were written.

    Raises UnreadableError where that is not possible: some files are old, others new.
    """
    try:
        disk.finish(folder)
    except OSError as error:
        raise UnreadableError(
            f"a save into {folder} was killed before all of its files were in place, and cannot be completed: "
            f"{error.strerror or error}",
            hint="make the folder writable, or save again",
            location=Location(str(folder)),
        ) from error


@contextmanager
def _writing(*targets: Path) -> Iterator[None]:
    """Turn what the disk says into an OutputError that names the target."""
    try:
        yield
    except FluidError:
        raise
    except OSError as error:
        named = [target for target in targets if error.filename is not None and str(target) == str(error.filename)]
        place = (named or targets)[0]
        denied = isinstance(error, (PermissionError, NotADirectoryError))
        hint = "choose a folder that you may write to" if denied else ""
        text = f"cannot write {place}: {error.strerror or error}"
        raise OutputError(text, hint=hint, location=Location(str(place))) from error
