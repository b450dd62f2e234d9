"""Parameters by name, with a program or without: opened from anything, merged, split and renamed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import BinaryIO

from fluidtool.errors import Hint, Location, ModelNotFoundError, ProgramError, UsageError
from fluidtool.io.atomic import write_file
from fluidtool.io.layout import ModelFiles, open_model
from fluidtool.io.named import open_named
from fluidtool.io.parameters import ParameterStore, Value, value_parts, write_combined, write_separate
from fluidtool.io.saving import layout_like, save_model
from fluidtool.records import dataclass
from fluidtool.workflows.names import did_you_mean
from fluidtool.workflows.parameter_files import FORMATS, file_parts


@dataclass(frozen=True, slots=True)
class ParameterSet:
    """Parameters and where they are from. model: the program that has them, None for parameters alone."""

    source: str
    store: ParameterStore
    model: ModelFiles | None = None


def open_parameters(
    source: str | Path | BinaryIO, *, params: str | None = None, model_filename: str | None = None
) -> ParameterSet:
    """The parameters of a model, a pickled state, an .npz or safetensors file, or a folder with one file per parameter.

    Raises ModelNotFoundError, UnreadableError, ParameterFileError.
    """
    if not isinstance(source, (str, Path)):
        model = open_model(source, params=params, model_filename=model_filename)
        return ParameterSet(model.program_source, model.parameters, model)
    path = Path(source)
    named = open_named(path) if params is None and not path.is_dir() else None
    if named is not None:
        return ParameterSet(str(source), named)
    try:
        model = open_model(str(source), params=params, model_filename=model_filename)
    except ModelNotFoundError:
        named = open_named(path) if params is None and model_filename is None else None
        if named is None:
            raise
        return ParameterSet(str(source), named)
    return ParameterSet(str(source), model.parameters, model)


def merge_parameters(sets: Sequence[ParameterSet], output: Path, *, overwrite: bool = False) -> tuple[Path, ...]:
    """Save the parameters of all sets in one file: .pdparams, .npz or .safetensors by its suffix, else a combined file.

    A name may occur twice with the same bytes. Raises UsageError where they differ, NotConvertibleError for what the file
    cannot hold, OutputExistsError, OutputError.
    """
    found: dict[str, Value] = {}
    owners: dict[str, str] = {}
    for each in sets:
        for name, value in each.store.items():
            if name in found and not _same(found[name], value):
                raise UsageError(
                    f"{name!r} is another parameter in {owners[name]} than in {each.source}",
                    hint=Hint(
                        "rename one of them first, with fluidtool.rename_parameters",
                        "rename one of them first, with 'fluidtool params rename'",
                    ),
                    location=Location(each.source, variable=name),
                )
            found[name], owners[name] = value, each.source
    return _write(found, output, overwrite)


def split_parameters(given: ParameterSet, output: Path, *, overwrite: bool = False) -> tuple[Path, ...]:
    """Save each parameter in a file of its own name in a folder, as Paddle does; all of them or none.

    Raises OutputExistsError, OutputError, and ParameterFileError for a name that leads outside the folder.
    """
    write_separate(output, given.store, overwrite=overwrite)
    return tuple(output / name for name in given.store)


def rename_parameters(
    given: ParameterSet, names: Mapping[str, str], output: Path, *, overwrite: bool = False
) -> tuple[Path, ...]:
    """Save the parameters under new names: those of a model with its program, in its layout; others as `merge_parameters` does.

    Names may be swapped. Raises ProgramError for an unknown name, and if two parameters would have the same name.
    """
    for name in names:
        if name not in given.store:
            hint = did_you_mean(name, given.store) or Hint("store lists them", "'fluidtool params list' lists them")
            text = f"{given.source} has no parameter {name!r}"
            raise ProgramError(text, hint=hint, location=Location(given.source, variable=name))
    renamed = {name: names.get(name, name) for name in given.store}
    if len(set(renamed.values())) < len(renamed) or "" in renamed.values():
        raise ProgramError("two parameters would have the same name, or one an empty name; choose other names")
    values = {renamed[name]: value for name, value in given.store.items()}
    if given.model is None:
        return _write(values, output, overwrite)
    program = given.model.program.clone()
    block = program.global_block()
    steps = {old: f"{old}@RENAMED@{number}" for number, old in enumerate(names)}
    for old, between in steps.items():
        block.rename_var(old, between)
    for old, between in steps.items():
        block.rename_var(between, names[old])
    layout = layout_like(given.model, output, bool(values))
    return tuple(save_model(program, values, layout, overwrite=overwrite))


def _write(values: Mapping[str, Value], output: Path, overwrite: bool) -> tuple[Path, ...]:
    to = output.suffix.removeprefix(".")
    if to in FORMATS:
        write_file(output, file_parts(to, values), overwrite=overwrite)
    else:
        write_combined(output, values, overwrite=overwrite)
    return (output,)


def _same(one: Value, two: Value) -> bool:
    return type(one) is type(two) and [bytes(part) for part in value_parts(one)] == [
        bytes(part) for part in value_parts(two)
    ]
