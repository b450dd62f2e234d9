"""What a script saves: its programs and parameters, and how far one engine's files are from the other's."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fluidtool.errors import FluidError, UnreadableError
from fluidtool.io.layout import is_program, read_program
from fluidtool.io.named import open_named
from fluidtool.ir.difference import Change, OperatorDifference, difference
from fluidtool.ir.program import Program
from fluidtool.proto.enums import VarType
from fluidtool.tensor.files import read_file
from fluidtool.tensor.selected_rows import SelectedRows
from fluidtool.tensor.streams import read_tensor

Arrays = Mapping[str, Any]
Contents = Mapping[str, Program | Arrays]
Marks = Mapping[str, tuple[int, int]]
TENSORS = (VarType.LOD_TENSOR, VarType.SELECTED_ROWS)
UNORDERED = frozenset({"while", "while_grad", "conditional_block", "conditional_block_grad"})  # their names are sets
UNORDERED_FIELDS = {  # these are, too: Paddle goes through a set of Python, in another order in each process
    "recurrent": ("input parameters",),
    "recurrent_grad": ("input parameters", "output parameters@GRAD"),
}


@dataclass(frozen=True)
class Apart:
    """Files that both engines save; what their programs differ in; the parameters' largest difference, of the largest number."""

    files: int = 0
    faults: tuple[str, ...] = ()
    largest: float = 0.0

    def within(self, tolerance: float) -> bool:
        """Whether the programs do the same, on the same numbers."""
        return not self.faults and self.largest <= tolerance

    def __str__(self) -> str:
        if not self.files and not self.faults:
            return ""
        return "; ".join([f"{self.files} files, {self.largest:.0e}", *self.faults[:2]]).replace("|", "/")


def marks(tree: Path) -> Marks:
    """When each file below a folder was last written, and its size."""
    found = ((str(path.relative_to(tree)), path.stat()) for path in tree.rglob("*") if path.is_file())
    return {name: (status.st_mtime_ns, status.st_size) for name, status in found}


def written(tree: Path, before: Marks) -> Contents:
    """The programs and parameters that were written below a folder since then, by their paths."""
    names = sorted(name for name, mark in marks(tree).items() if before.get(name) != mark)
    found = ((name, _content(tree / name)) for name in names)
    return {name: content for name, content in found if content is not None}


def _content(path: Path) -> Program | Arrays | None:
    """A file's program, or its arrays by name (by place, where the file has no names); None for what is neither."""
    try:
        if is_program(path):
            return read_program(path)
        named = open_named(path)
        return dict(_by_place(path)) if named is None else {name: named[name] for name in named}
    except FluidError:
        return None


def _by_place(path: Path) -> Iterator[tuple[str, Any]]:
    """The tensors of a file, which stand one after the other; raises UnreadableError for another file."""
    data, offset, count = read_file(path), 0, 0
    if not data:
        raise UnreadableError(f"{path} is empty")
    while offset < len(data):
        tensor, offset = read_tensor(data, offset, str(path))
        yield str(count), tensor
        count += 1


def apart(ours: Contents, theirs: Contents) -> Apart:
    """Compare what two engines wrote."""
    faults = [f"only fluidtool saves {name}" for name in ours if name not in theirs]
    faults += [f"only Paddle saves {name}" for name in theirs if name not in ours]
    both = [name for name in theirs if name in ours]
    largest = 0.0
    for name in both:
        mine, other = ours[name], theirs[name]
        if isinstance(mine, Program) and isinstance(other, Program):
            found = list(program_faults(mine, other))
            faults += [f"{name}: {fault}" for fault in found if isinstance(fault, str)]
            largest = max([largest, *(fault for fault in found if isinstance(fault, float))])
        elif isinstance(mine, Program) or isinstance(other, Program):
            faults.append(f"{name} is a program on one side")
        else:
            largest = max(largest, _arrays_apart(mine, other))
    return Apart(len(both), tuple(faults), largest)


def program_faults(ours: Program, theirs: Program) -> Iterator[str | float]:
    """What the operators of two programs, and the variables that they keep, differ in; not the shapes of what they compute.

    Where numbers of attributes differ, as scales of trained weights do: by how much, of the largest number.
    """
    for block in difference(ours, theirs).blocks:
        for op in block.operators:
            yield from _operator_faults(op)
        for name in sorted({variable.name for variable in block.variables}):
            mine, other = (_kept(program, block_index, name) for program, block_index in _sides(ours, theirs, block))
            if mine != other:
                yield f"variable {name} is {mine} here, {other} there"


def _sides(ours: Program, theirs: Program, block: Any) -> tuple[tuple[Program, int | None], tuple[Program, int | None]]:
    return (ours, block.left), (theirs, block.right)


def _operator_faults(op: OperatorDifference) -> Iterator[str | float]:
    if op.left is None or op.right is None:
        yield f"only {'Paddle' if op.left is None else 'fluidtool'} has {op.type} ({', '.join(op.left_names or op.right_names)})"
        return
    for change in op.changes:
        if _is_of_floats(change.left) and _is_of_floats(change.right):
            yield _apart(np.atleast_1d(change.left), np.atleast_1d(change.right))
        elif not (_is_set(op.type, change) and _same_set(change)):
            yield f"{op.type}: {change.field} is {change.left} here, {change.right} there"


def _is_set(op_type: str, change: Change) -> bool:
    return op_type in UNORDERED or change.field in UNORDERED_FIELDS.get(op_type, ())


def _is_of_floats(value: Any) -> bool:
    return isinstance(value, float) or (isinstance(value, list) and all(isinstance(each, float) for each in value))


def _same_set(change: Change) -> bool:
    names = change.left, change.right
    return all(isinstance(side, (list, tuple)) for side in names) and sorted(names[0]) == sorted(names[1])


def _kept(program: Program, block: int | None, name: str) -> tuple[Any, ...] | None:
    """Type and shape of a variable that outlives the run; None for any other."""
    variable = program.block(block).vars.get(name) if block is not None else None
    if variable is None or not variable.persistable or variable.type not in TENSORS:
        return None
    return variable.type, variable.dtype, tuple(variable.shape)


def _arrays_apart(ours: Arrays, theirs: Arrays) -> float:
    if set(ours) != set(theirs):
        return math.inf
    return max((_apart(_array(ours[name]), _array(theirs[name])) for name in theirs), default=0.0)


def _array(value: Any) -> Any:
    return np.asarray(value.tensor if isinstance(value, SelectedRows) else value)


def _apart(ours: Any, theirs: Any) -> float:
    if ours.shape != theirs.shape or ours.dtype != theirs.dtype:
        return math.inf
    if ours.dtype.kind not in "biuf":
        return 0.0 if np.array_equal(ours, theirs) else math.inf
    mine, other = ours.astype(np.float64), theirs.astype(np.float64)
    finite = np.isfinite(mine) & np.isfinite(other)
    if not np.array_equal(mine[~finite], other[~finite], equal_nan=True):
        return math.inf
    scale = np.abs(other[finite]).max(initial=0.0) or 1.0
    return float(np.abs(mine[finite] - other[finite]).max(initial=0.0) / scale)
