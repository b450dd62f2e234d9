"""Where results go: outputs as .npy, .npz or a folder, and whether a place is free."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fluidtool.errors import OVERWRITE, Location, OutputExistsError, UsageError
from fluidtool.io.arrays import arrays_of, npy_bytes, write_archive, write_folder
from fluidtool.io.atomic import held_names, write_file

OTHER_FORMATS = frozenset(
    {
        ".bin",
        ".csv",
        ".h5",
        ".hdf5",
        ".json",
        ".mat",
        ".onnx",
        ".parquet",
        ".pickle",
        ".pb",
        ".pkl",
        ".pt",
        ".safetensors",
        ".txt",
    }
)  # that somebody who names a file so expects


def require_known_format(path: Path) -> None:
    """Raise UsageError for a name that promises a format that outputs are not saved in."""
    if path.suffix.lower() in OTHER_FORMATS:
        raise UsageError(
            f"cannot save outputs as {path.suffix}: {path}; name a .npz (all outputs by name), a .npy (one output) or a folder"
        )


def require_free(path: Path, *, overwrite: bool) -> None:
    """Raise OutputExistsError for what would be replaced without `overwrite`; an empty folder may be filled."""
    if overwrite or not path.exists() or (path.is_dir() and not held_names(path)):
        return
    raise OutputExistsError(f"{path} already exists", hint=OVERWRITE, location=Location(str(path)))


def require_picture(path: Path, *, overwrite: bool) -> None:
    """Raise UsageError where a drawing has another suffix than .svg, OutputExistsError where it would replace something."""
    if path.suffix.lower() != ".svg":
        raise UsageError(f"--draw {path}: pictures are written as SVG; give a file that ends in .svg")
    require_free(path, overwrite=overwrite)


def save_outputs(outputs: Mapping[str, Any], path: Path, *, overwrite: bool = False) -> None:
    """Save the outputs of a run: one in a .npy, all of them by name in a .npz, or a .npy for each in a folder.

    Raises UsageError for several arrays in a .npy and for other formats, OutputExistsError, OutputError.
    """
    require_known_format(path)
    if path.suffix == ".npy":
        arrays = arrays_of(outputs)
        if len(arrays) != 1:
            raise UsageError(f"{path} can hold one array, but there are {len(arrays)}: {', '.join(arrays)}; use .npz")
        write_file(path, [npy_bytes(next(iter(arrays.values())))], overwrite=overwrite)
    elif path.suffix == ".npz":
        write_archive(path, outputs, overwrite=overwrite)
    else:
        write_folder(path, outputs, overwrite=overwrite)
