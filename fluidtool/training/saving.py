"""Saving parameters into a folder in one step; a folder that holds anything else is never replaced."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from fluidtool.errors import OVERWRITE, Location, OutputExistsError
from fluidtool.io.atomic import held_names, new_folder


@contextmanager
def save_folder(folder: Path, names: Sequence[str], *, overwrite: bool = False) -> Iterator[Path]:
    """A temporary folder that becomes `folder` when the block ends without an error; `names` are the files it may hold.

    Raises OutputExistsError when something is there, with `overwrite` only if it is more than such files.
    """
    check_free(folder, names, overwrite=overwrite)
    with new_folder(folder, replace=overwrite) as temporary:
        yield temporary


def check_free(folder: Path, names: Sequence[str], *, overwrite: bool = False) -> None:
    """Raise OutputExistsError where `save_folder` would."""
    if not folder.exists() or (folder.is_dir() and not held_names(folder)):
        return
    if not overwrite:
        raise OutputExistsError(f"{folder} already exists", hint=OVERWRITE, location=Location(str(folder)))
    if not folder.is_dir():
        raise OutputExistsError(f"{folder} is a file, not a folder of parameters; choose another name")
    own = {Path(name).parts[0] for name in names}
    foreign = sorted(name for name in held_names(folder) if name not in own)
    if foreign:
        raise OutputExistsError(
            f"{folder} contains more than parameters of this program ({', '.join(foreign[:5])}), so it is not "
            "replaced; choose another name"
        )
