"""Whole files, read through a memory map and written in one step."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from fluidtool import disk
from fluidtool.errors import FluidError, OutputError, OutputExistsError, UnreadableError
from fluidtool.tensor.files import map_file, private


def read_file(path: str, op_type: str) -> Any:
    """The bytes of a file as a buffer; raises UnreadableError when it cannot be read."""
    try:
        return map_file(path)
    except UnreadableError as error:
        raise UnreadableError(
            f"operator {op_type}: {error}; check its attribute file_path and the working directory"
        ) from error


def own(array: Any) -> Any:
    """An array of a buffer from `read_file`, in separate memory."""
    found = private(array, any_size=True)
    return array.copy() if found is array else found


def write_file(path: str, parts: Iterable[Any], op_type: str, overwrite: bool) -> None:
    """Write the parts to `path` in one step; missing folders are created.

    Raises OutputExistsError if the file exists and overwrite is False, OutputError if it cannot be written.
    """
    target = Path(path)
    if not overwrite and target.exists():
        raise OutputExistsError(
            f"operator {op_type}: the file {target} exists and the attribute overwrite is false; remove it or set overwrite"
        )
    try:
        disk.write_files({target: parts})
    except OSError as error:
        if isinstance(error, FluidError):
            raise
        raise OutputError(f"operator {op_type} cannot write {target}: {error.strerror or error}") from error
