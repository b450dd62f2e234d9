"""Saving a model in the layout of another: a folder with a file for each parameter, one with a combined file, a pair."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from fluidtool.errors import FluidError, OutputExistsError, ParameterFileError
from fluidtool.io.atomic import held_names, new_folder, write_files, write_into
from fluidtool.io.layout import ModelFiles, open_model
from fluidtool.io.parameters import Value, below, combined_parts, persistables, value_parts
from fluidtool.ir import Program
from fluidtool.records import dataclass

PAIR = (".pdmodel", ".pdiparams")
COMBINED = "__params__"


@dataclass(frozen=True, slots=True)
class Layout:
    """Where a model goes: `folder` None means files of their own; `parameters` None means one file for each."""

    folder: Path | None
    program: str
    parameters: str | None


def layout_like(files: ModelFiles, target: Path, has_parameters: bool) -> Layout:
    """The layout of `files` at `target`.

    A folder gives a folder with the same file names, a pair (PREFIX.pdmodel, PREFIX.pdiparams) a pair of the prefix
    `target`, a single program without parameters a single file.
    """
    program, in_folder = files.program_name, files.given == "folder"
    pair = target.suffix == PAIR[0] or (program.endswith(PAIR[0]) and not in_folder)
    if pair:
        prefix = str(target).removesuffix(PAIR[0])
        return Layout(None, prefix + PAIR[0], prefix + PAIR[1])
    if not has_parameters and not in_folder:
        return Layout(None, str(target), None)
    if files.layout == "one file per parameter":
        return Layout(target, program, None)
    return Layout(target, program, _combined_name(files, program))


def _combined_name(files: ModelFiles, program: str) -> str:
    if files.layout == "one combined file" and Path(files.parameter_source).name != program:
        return Path(files.parameter_source).name
    return program.removesuffix(PAIR[0]) + PAIR[1] if program.endswith(PAIR[0]) else COMBINED


def save_model(program: Program, values: Mapping[str, Value], layout: Layout, *, overwrite: bool = False) -> list[Path]:
    """Write a program and its parameters in one step; returns the files.

    With `overwrite`, files are replaced, and a folder is replaced if it holds nothing but a model.
    Raises OutputExistsError, OutputError, and ParameterFileError for a name that leads out of the folder.
    """
    if layout.folder is None:
        contents: dict[Path, Iterable[Any]] = {}
        if values and layout.parameters:
            contents[Path(layout.parameters)] = combined_parts(values)
        contents[Path(layout.program)] = [program.serialize_to_string()]
        write_files(contents, overwrite=overwrite)
        return list(contents)
    folder = layout.folder
    if overwrite:
        _check_replaceable(folder)
    with new_folder(folder, replace=overwrite) as temporary:
        inside: dict[str, Iterable[Any]] = {layout.program: [program.serialize_to_string()]}
        if values and layout.parameters:
            inside[layout.parameters] = combined_parts(values)
        elif values:
            inside |= _separate(temporary, values, layout.program)
        write_into(temporary, inside)
    return [folder / name for name in inside]


def _separate(folder: Path, values: Mapping[str, Value], program: str) -> dict[str, Iterable[Any]]:
    """The stream of each parameter by its file; raises ParameterFileError for one that would take the program's place."""
    files = {below(folder, name): name for name in values}
    if program in files or len(files) < len(values):
        same = sorted(set(values) - set(files.values())) or [files[program]]
        raise ParameterFileError(
            f"the parameter {same[0]!r} would be saved to the same file as another one or the program: rename it, or save the "
            "parameters in one combined file",
            variable=same[0],
        )
    return {file: _parts(values, name) for file, name in files.items()}


def _parts(values: Mapping[str, Value], name: str) -> Iterator[Any]:
    """A value is read when it is written: not all of them are in memory at once."""
    yield from value_parts(values[name])


def _check_replaceable(folder: Path) -> None:
    """Raise OutputExistsError for a folder that holds more than a model: nothing else is ever deleted."""
    if not folder.is_dir() or not held_names(folder):
        return
    try:
        files = open_model(folder, need_parameters=False)
    except FluidError as error:
        raise OutputExistsError(
            f"{folder} is not a model's folder, so it is not replaced; choose another name"
        ) from error
    own = {Path(name).parts[0] for name in (var.name for var in persistables(files.program))}
    own |= {Path(files.program_source).name, Path(files.parameter_source).name}
    foreign = sorted(name for name in held_names(folder) if name not in own)
    if foreign:
        raise OutputExistsError(
            f"{folder} contains more than a model ({', '.join(foreign[:5])}), so it is not replaced; choose another "
            f"name"
        )
