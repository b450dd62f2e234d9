"""Finding several models: patterns of the shell, and everything below a folder."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from glob import glob, has_magic
from pathlib import Path

from fluidtool.errors import ModelNotFoundError
from fluidtool.io.layout import is_program


def find_models(sources: Sequence[str], *, recursive: bool = False) -> list[str]:
    """The models that are meant, each once: a source is a path, or a pattern (`*`, `?`, `[…]`, `**`) if there is no such path.

    recursive: every program in a folder or below it, in place of the folder itself.
    Raises ModelNotFoundError for a pattern or a folder without any.
    """
    paths = (path for source in sources for path in _matching(source))
    found = (model for path in paths for model in (_below(path) if recursive and os.path.isdir(path) else [path]))
    return list(dict.fromkeys(found))


def _matching(source: str) -> list[str]:
    """The paths that a source stands for."""
    if not has_magic(source) or os.path.exists(source):
        return [source]
    paths = sorted(glob(source, recursive=True))
    if not paths:
        raise ModelNotFoundError(f"no file or folder matches {source}; quote the pattern if the shell changed it")
    return paths


def _below(folder: str) -> list[str]:
    """Every program in a folder or below, hidden folders left out."""
    found = [str(file) for file in _files(folder) if _is_model(file)]
    if not found:
        raise ModelNotFoundError(f"there is no Fluid program in {folder} or below; name the file itself")
    return found


def _files(folder: str) -> Iterator[Path]:
    for place, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        yield from (Path(place, name) for name in sorted(names) if not name.startswith("."))


def _is_model(file: Path) -> bool:
    """Whether a file is a program, or is named like one, so that a damaged one is not passed over."""
    return file.name == "__model__" or file.suffix == ".pdmodel" or is_program(file)
