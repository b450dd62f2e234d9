"""Writing without half-written files: everything goes to a temporary name beside the target and is then renamed."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fluidtool.errors import FluidError, OutputError, OutputExistsError


def write_file(path: str | os.PathLike[str], parts: Iterable[Any], *, overwrite: bool = True) -> None:
    """Write byte strings and buffers to `path` in one step; folders above are made.

    Raises OutputExistsError when it is there and overwrite is False, OutputError when it cannot be written.
    """
    write_files({Path(path): parts}, overwrite=overwrite)


def write_files(contents: Mapping[Path, Iterable[Any]], *, overwrite: bool = True) -> None:
    """Write several files that belong together: none of them takes its name before all are written.

    Raises OutputExistsError and OutputError as `write_file` does.
    """
    for target in contents:
        if not overwrite and target.exists():
            raise OutputExistsError(f"{target} exists already; choose another name, or allow overwriting it (--force)")
    written: dict[Path, Path] = {}
    try:
        for target, parts in contents.items():
            written[target] = _temporary_beside(target)
            _fill(written[target], parts, target)
        for target, temporary in written.items():
            _rename(temporary, target)
    except BaseException:
        for temporary in written.values():
            temporary.unlink(missing_ok=True)
        raise


def _temporary_beside(target: Path) -> Path:
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix=f".{target.name[:40]}.", suffix=".tmp", dir=target.parent)
    except OSError as error:
        raise OutputError(
            f"cannot write {target}: {error.strerror or error}; choose a folder that you may write to"
        ) from error
    os.close(handle)
    return Path(name)


def _fill(temporary: Path, parts: Iterable[Any], target: Path) -> None:
    try:
        with temporary.open("wb") as file:
            for part in parts:
                file.write(part)
        temporary.chmod(0o666 & ~_umask())
    except OSError as error:
        raise OutputError(f"cannot write {target}: {error.strerror or error}") from error


def _rename(temporary: Path, target: Path) -> None:
    try:
        temporary.replace(target)
    except OSError as error:
        raise OutputError(f"cannot write {target}: {error.strerror or error}") from error


@contextmanager
def new_folder(path: Path, *, replace: bool = False) -> Iterator[Path]:
    """A temporary folder beside `path` to write into; it takes that name when the block ends without an error.

    An empty folder of that name is taken over, any other folder only with `replace` (it is gone afterwards).
    Raises OutputExistsError when something is there, OutputError when it cannot be written.
    """
    if path.exists() and not (path.is_dir() and (replace or not any(path.iterdir()))):
        raise OutputExistsError(f"{path} exists already; choose another name, or allow overwriting it (--force)")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = Path(tempfile.mkdtemp(prefix=f".{path.name[:40]}.", suffix=".tmp", dir=path.parent))
    except OSError as error:
        raise OutputError(
            f"cannot write {path}: {error.strerror or error}; choose a folder that you may write to"
        ) from error
    try:
        yield temporary
        temporary.chmod(0o777 & ~_umask())
        _put_in_place(temporary, path)
    except OSError as error:
        shutil.rmtree(temporary, ignore_errors=True)
        if isinstance(error, FluidError):
            raise
        raise OutputError(f"cannot write {path}: {error.strerror or error}") from error
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise


def _put_in_place(temporary: Path, path: Path) -> None:
    """Give the folder its name; a full folder of that name steps aside first and comes back if this fails."""
    if not path.exists() or not any(path.iterdir()):
        temporary.replace(path)
        return
    aside = Path(tempfile.mkdtemp(prefix=f".{path.name[:40]}.", suffix=".old", dir=path.parent))
    path.replace(aside)
    try:
        temporary.replace(path)
    except OSError:
        aside.replace(path)
        raise
    shutil.rmtree(aside, ignore_errors=True)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
