"""Finding a model: which file is the program, where its parameters are. Decided by looking, never by guessing.

When nothing fits, or more than one thing does, the error lists what was found and which option decides.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Literal

from fluidtool.errors import Hint, Location, ModelNotFoundError, ParameterFileError, UnreadableError, UsageError
from fluidtool.io import pickles
from fluidtool.io.arrays import parse_values
from fluidtool.io.atomic import finish
from fluidtool.io.checkpoints import MODEL_DIR, PREFIX, checkpoint_dir, latest_serial
from fluidtool.io.npy import NPZ
from fluidtool.io.parameter_path import parameter_path
from fluidtool.io.parameters import (
    EMPTY_STORE,
    ParameterStore,
    as_buffer,
    fits_combined,
    open_arrays,
    open_combined,
    open_separate,
    persistables,
    selected,
)
from fluidtool.io.recognition import recognize, recognize_bytes
from fluidtool.io.safetensors import is_safetensors, open_safetensors
from fluidtool.ir import Program, Variable
from fluidtool.ir.codec import decode_program
from fluidtool.records import dataclass
from fluidtool.tensor.files import map_file, read_file

PROGRAM_NAMES = ("__model__", "model.pdmodel", "__model__.main_program", "model", "model.pb")
COMBINED_NAMES = ("__params__", "params", "model.pdiparams", "weights")
NOT_MODELS = frozenset({".json", ".npz", ".npy", ".md", ".txt", ".py", ".yml", ".yaml", ".info", ".tmp", ".gz", ".log"})
PARTNERS = (".json", ".pdiparams", ".pdparams", ".onnx")  # what may stand at a prefix without a program
LARGEST_PROGRAM = 512 * 2**20
Given = Literal["folder", "file", "bytes"]


@dataclass(frozen=True, slots=True)
class ModelFiles:
    """A program and where it and its parameters come from; `fault` says why parameters are missing.

    given: what it was opened as: a folder, the program's file (or its prefix), or bytes.
    """

    program: Program
    program_source: str
    parameters: ParameterStore
    parameter_source: str
    layout: str
    fault: ParameterFileError | None = None
    given: Given = "bytes"

    @property
    def program_name(self) -> str:
        """The name of the program's file; that of Paddle if it was not read from a file."""
        return PROGRAM_NAMES[0] if self.given == "bytes" else Path(self.program_source).name


def open_model(
    source: Any,
    *,
    model_filename: str | None = None,
    params: Any = None,
    need_parameters: bool = True,
) -> ModelFiles:
    """Find and open a model.

    source: a folder, a program file, the common prefix of `.pdmodel` and `.pdiparams`, bytes or a file object.
    model_filename: the program's file within the folder. params: a file, folder, bytes or file object with the parameters.
    need_parameters: raise when parameters are missing or do not fit; else the fault is reported in the result.
    """
    program, program_source, folder, stem = _open_program(source, model_filename)
    given: Given = "bytes" if folder is None else "folder" if Path(os.fspath(source)).is_dir() else "file"
    variables = persistables(program)
    if not variables and params is None:
        return ModelFiles(program, program_source, EMPTY_STORE, "", "program without parameters", given=given)
    try:
        store, where, layout = _open_parameters(program_source, folder, stem, variables, params)
    except UnreadableError as error:
        if need_parameters:
            raise
        fault = error if isinstance(error, ParameterFileError) else ParameterFileError(str(error))
        return ModelFiles(program, program_source, EMPTY_STORE, "", "program alone", fault, given)
    return ModelFiles(program, program_source, store, where, layout, given=given)


# ---------------------------------------------------------------- the program
def _open_program(source: Any, model_filename: str | None) -> tuple[Program, str, Path | None, str | None]:
    """-> program, how to call it, the folder that it lies in, the prefix shared with its parameters."""
    if isinstance(source, (bytes, bytearray, memoryview)) or hasattr(source, "read"):
        buffer, name = as_buffer(source)
        return _decoded(buffer, name), name, None, None
    if not os.fspath(source):
        raise UsageError("the path of the model is empty")
    path = Path(os.fspath(source))
    finish(path if path.is_dir() else path.parent)
    if path.is_dir():
        file = _program_in(path, model_filename)
    elif path.exists():  # what is no regular file is refused when it is read
        file = path
    elif path.with_name(path.name + ".pdmodel").is_file():
        file = path.with_name(path.name + ".pdmodel")
    else:
        instead, hint = _instead(path.with_name(path.name + suffix) for suffix in PARTNERS)
        raise ModelNotFoundError(
            f"there is no model at {path}: no such file or folder, and no {path.name}.pdmodel next to it{instead}",
            hint=hint,
            location=Location(str(path)),
        )
    program = read_program(file)
    stem = file.name.removesuffix(".pdmodel") if file.name.endswith(".pdmodel") else None
    return program, str(file), file.parent, stem


def read_program(path: Path) -> Program:
    """The program of a file; raises UnreadableError when it is not one, which says what it is where that can be seen."""
    try:
        return decode_program(read_file(path, LARGEST_PROGRAM), Program(), str(path))
    except UnreadableError as error:
        found = recognize(path)
        if found is None:
            raise
        text = f"{path} is {found.what}, not a Fluid program"
        raise UnreadableError(text, hint=found.advice, location=Location(str(path))) from error


def _decoded(buffer: Any, name: str) -> Program:
    """The program of bytes; what they are instead is said where that can be seen."""
    try:
        return decode_program(bytes(buffer), Program(), name)
    except UnreadableError as error:
        found = recognize_bytes(buffer)
        if found is None:
            raise
        raise UnreadableError(f"{name} is {found.what}, not a Fluid program", hint=found.advice) from error


def _program_in(folder: Path, model_filename: str | None) -> Path:
    if model_filename is not None:
        file = folder / model_filename
        if not file.is_file():
            text = f"{folder} has no file {model_filename}; it contains {_listing(folder)}"
            raise ModelNotFoundError(text, location=Location(str(file)))
        return file
    for name in PROGRAM_NAMES[:1]:
        if (folder / name).is_file():
            return folder / name
    candidates = [file for file in _model_like(folder) if is_program(file)]
    if len(candidates) == 1:
        return candidates[0]
    if not candidates:
        found = recognize(folder)
        if found is not None:
            text = f"{folder} is {found.what}"
            raise ModelNotFoundError(text, hint=found.advice, location=Location(str(folder)))
        unusable = [f"{name} is {what}" for name in PROGRAM_NAMES if (what := _not_a_file(folder / name))]
        if unusable:
            text = f"{folder} contains no Fluid program: {', '.join(unusable)}; put the file itself there"
            raise ModelNotFoundError(text, location=Location(str(folder)))
        instead, hint = _instead(folder.iterdir())
        raise ModelNotFoundError(
            f"{folder} contains no Fluid program: it contains {_listing(folder)}; expected __model__, *.pdmodel or "
            f"another ProgramDesc file{instead}",
            hint=hint,
            location=Location(str(folder)),
        )
    names = ", ".join(file.name for file in candidates)
    raise ModelNotFoundError(
        f"{folder} contains {len(candidates)} programs: {names}",
        hint=Hint(
            "choose one: model_filename=NAME, or the path of the file itself",
            "choose one with --model-file NAME or the path of the file itself",
        ),
        location=Location(str(folder)),
    )


def _instead(files: Iterable[Path]) -> tuple[str, str | Hint]:
    """What the first file is of which that can be seen, as the end of a sentence, and what to do; '' where there is none."""
    for file in sorted(files):
        found = recognize(file) if file.is_file() else None
        if found is not None:
            return f". {file.name} is {found.what}", found.advice
    return "", ""


def _not_a_file(path: Path) -> str:
    """What there is at the path of a program in place of a file; '' for nothing."""
    if path.is_symlink() and not path.exists():
        return f"a link to {os.readlink(path)}, where there is no file"
    if path.is_dir():
        return "a folder"
    return "neither a file nor a folder" if path.exists() and not path.is_file() else ""


def _model_like(folder: Path) -> list[Path]:
    return [
        f for f in sorted(folder.iterdir()) if f.is_file() and f.suffix not in NOT_MODELS and not f.name.startswith(".")
    ]


def is_program(file: Path) -> bool:
    """Whether a file can be read as a program; files whose suffix says otherwise are not opened."""
    if file.suffix in NOT_MODELS or not file.is_file():
        return False
    if file.suffix in (".pdiparams", ".pdparams", ".pdopt") or not 0 < file.stat().st_size <= LARGEST_PROGRAM:
        return False
    with file.open("rb") as opened:
        if opened.read(1) != b"\x0a":  # field 1 of ProgramDesc: blocks
            return False
    try:
        read_program(file)
    except UnreadableError:
        return False
    return True


def _listing(folder: Path) -> str:
    names = sorted(entry.name + ("/" if entry.is_dir() else "") for entry in folder.iterdir())
    return (", ".join(names[:8]) + (f" and {len(names) - 8} more" if len(names) > 8 else "")) if names else "nothing"


# ---------------------------------------------------------------- the parameters
def _open_parameters(
    program_source: str, folder: Path | None, stem: str | None, variables: Sequence[Variable], params: Any
) -> tuple[ParameterStore, str, str]:
    if params is not None:
        return open_parameters(params, variables, folder)
    if folder is None:
        raise ParameterFileError(
            f"the program of {program_source} has {len(variables)} parameters, but no file of parameters was given",
            hint=Hint("name it: params=FILE", "name it with --params FILE"),
        )
    for name in _paired(folder, stem):
        return open_parameters(folder / name, variables, None)
    present = [var for var in variables if _has_file(folder, var.name)]
    if len(present) == len(variables):
        return open_separate(folder, variables), str(folder), "one file per parameter"
    fitting = _combined_candidates(folder, Path(program_source), variables)
    if len(fitting) == 1:
        return open_parameters(fitting[0], variables, None)
    if len(fitting) > 1:
        names = ", ".join(file.name for file in fitting)
        raise ModelNotFoundError(
            f"{folder} contains {len(fitting)} files that match the parameters of {Path(program_source).name}: {names}",
            hint=Hint("choose one: params=NAME", "choose one with --params NAME"),
            location=Location(str(folder)),
        )
    for name in COMBINED_NAMES:
        if (folder / name).is_file() and not present and str(folder / name) != program_source:
            return open_parameters(folder / name, variables, None)
    return open_separate(folder, variables), str(folder), "one file per parameter"


def _has_file(folder: Path, name: str) -> bool:
    """Whether a parameter has a file of its own; one whose name leads out of the folder has none."""
    try:
        return os.path.isfile(parameter_path(folder, name))
    except ParameterFileError:
        return False


def _paired(folder: Path, stem: str | None) -> list[str]:
    if stem is None:
        return []
    return [stem + suffix for suffix in (".pdiparams", ".pdparams") if (folder / (stem + suffix)).is_file()]


def _combined_candidates(folder: Path, program_file: Path, variables: Sequence[Variable]) -> list[Path]:
    files = [file for file in _model_like(folder) if file != program_file]
    named = [file for file in files if file.name in COMBINED_NAMES and fits_combined(file, variables)]
    return named or [file for file in files if fits_combined(file, variables)]


def open_parameters(params: Any, variables: Sequence[Variable], folder: Path | None) -> tuple[ParameterStore, str, str]:
    """Parameters from a file (combined, pickled, .npz or safetensors), a folder, a checkpoint, bytes or a file object.

    A relative path is taken as it stands, or within `folder` where only that exists.
    """
    path: Path | None = None
    if isinstance(params, (bytes, bytearray, memoryview)) or hasattr(params, "read"):
        buffer, source = as_buffer(params)
    else:
        path = Path(os.fspath(params))
        if not path.exists() and folder is not None and (folder / path).exists():
            path = folder / path
        if path.is_dir():
            path = _in_checkpoint(path)
            return open_separate(path, variables), str(path), "one file per parameter"
        if not path.is_file():
            raise ParameterFileError(f"there are no parameters at {path}: no such file or folder", file=str(path))
        buffer, source = map_file(path), str(path)
    if pickles.is_pickle(buffer):
        arrays = pickles.load_state(bytes(buffer) if path is None else read_file(path), source)
        optimizer = Path(source).with_suffix(".pdopt")
        if source.endswith(".pdparams") and optimizer.is_file():
            arrays |= pickles.load_state(read_file(optimizer), str(optimizer))
        return open_arrays(arrays, variables, source), source, "pickled state"
    if is_safetensors(buffer):
        return selected(open_safetensors(buffer, source), variables, source), source, "safetensors"
    if bytes(buffer[:2]) == NPZ:
        return open_arrays(parse_values(bytes(buffer), source), variables, source), source, "an .npz file"
    return open_combined(buffer, variables, source), source, "one combined file"


def _in_checkpoint(folder: Path) -> Path:
    """Where the parameters of a checkpoint of 2018 are, of the latest one of a folder of them; else the folder itself."""
    serial = latest_serial(folder)
    if serial >= 0:
        return checkpoint_dir(folder, serial) / MODEL_DIR
    inside = folder / MODEL_DIR
    return inside if folder.name.startswith(PREFIX) and inside.is_dir() else folder
