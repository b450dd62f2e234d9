"""Parameter files: one per variable, or one for all. Memory-mapped: reading what is there touches no weights."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from fluidtool.errors import ArgumentTypeError, Hint, ParameterFileError, UnreadableError
from fluidtool.io.atomic import write_file, write_files
from fluidtool.io.parameter_path import parameter_path
from fluidtool.ir import Parameter, Program, Variable
from fluidtool.proto.enums import VarType
from fluidtool.records import dataclass
from fluidtool.shapes import shape_text
from fluidtool.tensor import LoDTensor, SelectedRows
from fluidtool.tensor.data_types import numpy_dtype, var_type_of
from fluidtool.tensor.files import check_unchanged, map_file, private, read_file
from fluidtool.tensor.streams import (
    TensorRecord,
    read_selected_rows,
    read_tensor,
    scan_tensor,
    write_selected_rows,
    write_tensor,
)

NOT_SAVED = frozenset(
    {
        VarType.FEED_MINIBATCH,
        VarType.FETCH_LIST,
        VarType.READER,
        VarType.RAW,
        VarType.STEP_SCOPES,
        VarType.LOD_RANK_TABLE,
    }
)
Value = LoDTensor | SelectedRows


def is_persistable(var: Variable) -> bool:
    """Whether `save_persistables` keeps a variable."""
    return var.persistable and var.type not in NOT_SAVED


def persistables(program: Program) -> list[Variable]:
    """What `save_persistables` saves of a program, in order of declaration."""
    return [var for var in program.list_vars() if is_persistable(var)]


@dataclass(frozen=True, slots=True)
class ParameterInfo:
    """What a parameter file says of one variable, without its values."""

    name: str
    shape: tuple[int, ...]
    data_type: VarType
    nbytes: int
    source: str


class ParameterStore(Mapping[str, Value]):
    """Values by variable name, read when asked for. `info` tells shapes and data types without reading values.

    The values of a mapped file lie there as long as it is as it was when it was opened; asking for one after that raises
    UnreadableError. Who keeps a value asks for a `private` one.
    """

    def __init__(self, entries: Mapping[str, tuple[Any, TensorRecord | None, str]]) -> None:
        self._entries = dict(entries)

    def __getitem__(self, name: str) -> Value:
        buffer, record, source = self._entries[name]
        if isinstance(buffer, (LoDTensor, SelectedRows)):
            return buffer
        check_unchanged([buffer])
        if record is None:
            return read_selected_rows(buffer, 0, source)[0]
        array = record.array(buffer)
        return LoDTensor(_aligned(array), [list(level) for level in record.lod])

    def private(self, name: str) -> Value:
        """A value in private memory, except a very large one (`fluidtool.tensor.files`)."""
        value = self[name]
        tensor = value.tensor if isinstance(value, SelectedRows) else value
        tensor.array = private(tensor.array)
        return value

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def mapped(self, name: str) -> Any:
        """The array of one value as it lies in its file, at any address; None for what is not one such array."""
        buffer, record, _ = self._entries[name]
        return None if record is None or record.lod else record.array(buffer)

    def entry(self, name: str) -> tuple[Any, TensorRecord | None, str]:
        """Where one value is: its buffer and the place there, or the value itself and None; and how to call its source."""
        return self._entries[name]

    def info(self, name: str) -> ParameterInfo:
        """Shape, data type, size and file of one value."""
        _, record, source = self._entries[name]
        if record is not None:
            return ParameterInfo(name, record.shape, record.data_type, record.end - record.begin, source)
        value = self[name]
        tensor = value.get_tensor() if isinstance(value, SelectedRows) else value
        array = tensor.numpy()
        return ParameterInfo(name, tuple(array.shape), var_type_of(array.dtype), array.nbytes, source)


EMPTY_STORE = ParameterStore({})


def _aligned(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The array itself, or a copy where the file put it at an address that arithmetic cannot use directly."""
    if array.flags.aligned:
        return array
    copied: np.ndarray[Any, Any] = private(array, any_size=True)
    return copied if copied is not array else array.copy()


# ---------------------------------------------------------------- reading
def open_separate(folder: Path, variables: Iterable[Variable]) -> ParameterStore:
    """One file per variable; raises ParameterFileError for missing or malformed files or others of another shape.

    Several faults are raised as one error, which has them all in `faults`.
    """
    entries: dict[str, tuple[Any, TensorRecord | None, str]] = {}
    faults: list[ParameterFileError] = []
    for var in variables:
        try:
            entries[var.name] = _open_file(folder, var)
        except ParameterFileError as fault:
            faults.append(fault)
        except UnreadableError as error:
            faults.append(ParameterFileError(str(error), variable=var.name, file=str(folder / var.name)))
    if faults:
        raise with_readable(_together(folder, faults), ParameterStore(entries))
    return ParameterStore(entries)


def _open_file(folder: Path, var: Variable) -> tuple[Any, TensorRecord | None, str]:
    path = parameter_path(folder, var.name)
    if not os.path.isfile(path):  # a name may be too long for a file
        kind = ParameterFileError.MISSING
        raise ParameterFileError(f"{folder} has no file for the parameter {var.name}", kind=kind, variable=var.name)
    buffer, source = map_file(path), str(path)
    if var.type == VarType.SELECTED_ROWS:
        _ends(read_selected_rows(buffer, 0, source)[1], buffer, source)
        return buffer, None, source
    record = scan_tensor(buffer, 0, source)
    _ends(record.end, buffer, source)
    check_declared(var, record.shape, record.data_type, source)
    return buffer, record, source


def _together(folder: Path, faults: list[ParameterFileError]) -> ParameterFileError:
    """One error for several parameters: what is missing is listed, else the first fault speaks."""
    missing = [fault.variable for fault in faults if fault.kind == ParameterFileError.MISSING]
    if not missing:
        rest = f" (and {len(faults) - 1} more parameters are at fault)" if len(faults) > 1 else ""
        first = faults[0]
        file = None if first.location is None else first.location.file
        text = f"{first}{rest}"
        return ParameterFileError(text, kind=first.kind, variable=first.variable, file=file, faults=tuple(faults))
    text = (
        f"{folder} has no file for {_some(missing)} of the program; the parameters may be elsewhere, or in one "
        "combined file"
    )
    hint = Hint("name it: params=FILE (params_filename in fluid.io)", "name it with --params FILE")
    kind = ParameterFileError.MISSING
    return ParameterFileError(text, kind=kind, variable=missing[0], file=str(folder), faults=tuple(faults), hint=hint)


def open_combined(buffer: Any, variables: Iterable[Variable], source: str) -> ParameterStore:
    """One file for all: the values in the order of the sorted names, ending exactly at the end of the file.

    Raises ParameterFileError when count, shapes or data types are not those of the program.
    """
    ordered = sorted(variables, key=lambda var: var.name)
    entries: dict[str, tuple[Any, TensorRecord | None, str]] = {}
    offset = 0
    for position, var in enumerate(ordered):
        try:
            record = _next_record(buffer, offset, var, position, len(ordered), source)
        except ParameterFileError as fault:
            raise with_readable(fault, ParameterStore(entries)) from fault.__cause__
        entries[var.name] = (buffer, record, source)
        offset = record.end
    _ends(offset, buffer, source)
    return ParameterStore(entries)


def _next_record(buffer: Any, offset: int, var: Variable, position: int, count: int, source: str) -> TensorRecord:
    """A parameter of a combined file; raises ParameterFileError where it does not stand at this offset."""
    if offset >= len(buffer):
        raise ParameterFileError(
            f"{source} ends after {position} of the {count} parameters of the program; "
            f"{var.name} is the first one missing: the file belongs to another program, or was saved with other "
            f"variables",
            kind=ParameterFileError.MISSING,
            variable=var.name,
        )
    try:
        record = scan_tensor(buffer, offset, f"{source} (parameter {position + 1} of {count}, {var.name})")
    except UnreadableError as error:
        raise ParameterFileError(str(error), variable=var.name) from error
    check_declared(var, record.shape, record.data_type, source)
    return record


def with_readable(error: ParameterFileError, readable: ParameterStore) -> ParameterFileError:
    """The error with the parameters that can be read in spite of it."""
    error.readable = readable
    return error


def open_arrays(arrays: Mapping[str, Any], variables: Iterable[Variable], source: str) -> ParameterStore:
    """Arrays or LoDTensors by name (a pickled state); raises ParameterFileError for a missing one or one of another shape."""
    wanted = list(variables)
    return selected(
        store_of({var.name: arrays[var.name] for var in wanted if var.name in arrays}, source), wanted, source
    )


def store_of(arrays: Mapping[str, Any], source: str) -> ParameterStore:
    """Arrays or LoDTensors by name; raises ParameterFileError for what no tensor can hold."""
    return ParameterStore({name: (_tensor(value, name, source), None, source) for name, value in arrays.items()})


def selected(store: ParameterStore, variables: Iterable[Variable], source: str) -> ParameterStore:
    """The values of these variables alone; raises ParameterFileError for a missing one or one of another shape."""
    entries, missing = {}, []
    for var in variables:
        if var.name not in store:
            missing.append(var.name)
            continue
        info = store.info(var.name)
        check_declared(var, info.shape, info.data_type, source)
        entries[var.name] = store.entry(var.name)
    if missing:
        kind = ParameterFileError.MISSING
        faults = tuple(
            ParameterFileError(f"{source} has no value for the parameter {name}", kind=kind, variable=name)
            for name in missing
        )
        text = f"{source} has no value for {_some(missing)} of the program"
        error = ParameterFileError(text, kind=kind, variable=missing[0], faults=faults)
        raise with_readable(error, ParameterStore(entries))
    return ParameterStore(entries)


def _tensor(value: Any, name: str, source: str) -> LoDTensor:
    if isinstance(value, LoDTensor):
        return LoDTensor(_array(value.numpy(), name, source), value.lod())
    return LoDTensor(_array(value, name, source))


def _array(value: Any, name: str, source: str) -> np.ndarray[Any, Any]:
    """An array that a tensor can hold; raises ParameterFileError."""
    if not isinstance(value, (bool, int, float)) and not hasattr(value, "__array__"):
        raise ParameterFileError(
            f"{source} has a {type(value).__name__} for the parameter {name}, expected an array of numbers",
            variable=name,
        )
    array = np.asarray(value)
    if array.dtype == np.uint16:  # what Paddle calls the bits of bfloat16 in numpy
        array = array.view(numpy_dtype(VarType.BF16))
    try:
        var_type_of(array.dtype)
    except ArgumentTypeError as error:
        kind = ParameterFileError.DATA_TYPE
        raise ParameterFileError(f"{name} in {source}: {error}", kind=kind, variable=name) from error
    return array


def check_declared(var: Variable, shape: Sequence[int], data_type: VarType, source: str) -> None:
    """Raise ParameterFileError when a value is not of the shape and data type that the program declares.

    A shape that begins with 0 is that of an `XShape`, which tells dimensions and whose numbers nothing reads: any value goes.
    """
    if var.has_shape and tuple(var.shape[:1]) == (0,):
        return
    if var.has_shape and var.type == VarType.LOD_TENSOR:
        declared = var.shape
        fits = len(declared) == len(shape) and all(d in (-1, s) for d, s in zip(declared, shape, strict=True))
        if not fits and not (declared == () and list(shape) in ([], [1])) and not _counts(var):
            raise ParameterFileError(
                f"Variable's shape does not match: {var.name} is declared {shape_text(declared)}, {source} contains "
                f"{shape_text(shape)}; the file belongs to another program",
                kind=ParameterFileError.SHAPE,
                variable=var.name,
            )
    if var.dtype is not None and data_type != var.dtype and not _halved(var.dtype, data_type):
        raise ParameterFileError(
            f"{var.name} is declared {var.dtype.name}, {source} contains {data_type.name}; the file belongs to "
            f"another program",
            kind=ParameterFileError.DATA_TYPE,
            variable=var.name,
        )


def _counts(var: Variable) -> bool:
    """Whether an operator counts in this variable, in place: `auc`, whose counts outgrow what is declared without a window.

    Paddle compares the shapes of parameters alone; the operator checks what it gets.
    """
    if var.dtype != VarType.INT64 or isinstance(var, Parameter):
        return False
    return any(var.name in op.input_arg_names and var.name in op.output_arg_names for op in var.block.ops)


def _halved(declared: VarType, found: VarType) -> bool:
    """`save_as_fp16` keeps FP32 variables as FP16."""
    return declared == VarType.FP32 and found == VarType.FP16


def _ends(end: int, buffer: Any, source: str) -> None:
    if end != len(buffer):
        raise ParameterFileError(
            f"{source} continues for {len(buffer) - end} bytes after its last parameter: Not allowed to load "
            f"partial data; the file belongs to another program, or is corrupted"
        )


def _some(names: Sequence[str]) -> str:
    shown = ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
    return f"{len(names)} parameters ({shown})" if len(names) > 1 else f"the parameter {shown}"


def fits_combined(path: Path, variables: Sequence[Variable]) -> bool:
    """Whether a file holds exactly the parameters of a program."""
    try:
        open_combined(map_file(path), variables, str(path))
    except UnreadableError:
        return False
    return True


# ---------------------------------------------------------------- writing
def value_parts(value: Value) -> list[Any]:
    """The stream of a value as byte strings and buffers."""
    return write_selected_rows(value) if isinstance(value, SelectedRows) else write_tensor(value)


def write_separate(folder: Path, values: Mapping[str, Value], *, overwrite: bool = True) -> None:
    """One file per variable, named like it; all of them or none."""
    contents = {folder / name: parts for name, parts in separate_parts(folder, values).items()}
    write_files(contents, overwrite=overwrite)


def separate_parts(folder: Path, values: Mapping[str, Value]) -> dict[str, Iterable[Any]]:
    """The streams for one file per variable, by their names below `folder`; raises ParameterFileError for one outside."""
    return {below(folder, name): _stream(values, name) for name in values}


def below(folder: Path, name: str) -> str:
    """The name of a variable's file, relative to its folder; raises as `parameter_path`."""
    return str(parameter_path(folder, name).relative_to(folder))


def _stream(values: Mapping[str, Value], name: str) -> Iterator[Any]:
    """A value is read when it is written: not all of them are in memory at once."""
    yield from value_parts(values[name])


def combined_parts(values: Mapping[str, Value]) -> Iterator[Any]:
    """The stream of all values in the order of their sorted names."""
    for name in sorted(values):
        if isinstance(values[name], SelectedRows):
            raise ParameterFileError(
                f"{name} is a SelectedRows, which a combined parameter file cannot hold; save one file per variable"
            )
        yield from value_parts(values[name])


def write_combined(path: Path, values: Mapping[str, Value], *, overwrite: bool = True) -> None:
    """One file for all."""
    write_file(path, combined_parts(values), overwrite=overwrite)


def read_value(file: Path | bytes | BinaryIO, kind: VarType | int = VarType.LOD_TENSOR) -> Value:
    """The one value of a file or of bytes; raises UnreadableError."""
    buffer, source = as_buffer(file)
    value: Value
    value, end = (
        read_selected_rows(buffer, 0, source) if kind == VarType.SELECTED_ROWS else read_tensor(buffer, 0, source)
    )
    _ends(end, buffer, source)
    return value


def as_buffer(source: Any) -> tuple[Any, str]:
    """The bytes of a path, bytes or file object, and how to call them in messages; raises UnreadableError."""
    if isinstance(source, (bytes, bytearray, memoryview)):
        return source, "the bytes given"
    if hasattr(source, "read"):
        return source.read(), str(getattr(source, "name", "the file object given"))
    return read_file(source), str(source)
