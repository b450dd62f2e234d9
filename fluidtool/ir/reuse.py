"""Variables that share memory under one name, and the names that they had: what `memory_optimize` leaves in a program.

An operator that reads or writes a shared name says in one attribute which variable it means there; Paddle passes over
it. So the program as it was can be had back. A shared name in an operator that does not say so (one that was appended
later), in a list of fetches or as a target means the variable of that name.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from fluidtool.ir.operator import Operator
from fluidtool.ir.program import Program
from fluidtool.proto.enums import AttrType

ORIGINAL_NAMES_ATTR = "memory_original_names"


def original_names(op: Operator) -> dict[str, str]:
    """The shared names that an operator reads or writes, and the variable that each of them stands for there."""
    if not op.has_attr(ORIGINAL_NAMES_ATTR):
        return {}
    listed = list(op.attr(ORIGINAL_NAMES_ATTR))
    return dict(zip(listed[::2], listed[1::2], strict=False))


def set_original_names(op: Operator, originals: Mapping[str, str]) -> None:
    """Note which variables the shared names of an operator stand for."""
    if originals:
        listed = [name for pair in originals.items() for name in pair]
        op.set_attr(ORIGINAL_NAMES_ATTR, listed, AttrType.STRINGS)


def rename_arguments(op: Operator, names: Mapping[str, str]) -> None:
    """Give an operator other names to read and to write; `op_role_var` keeps those of the variables, as in Paddle."""
    for slot, old in op.inputs.items():
        if any(name in names for name in old):
            op.set_input(slot, [names.get(name, name) for name in old])
    for slot, old in op.outputs.items():
        if any(name in names for name in old):
            op.set_output(slot, [names.get(name, name) for name in old])
    op.rename_in_attrs(names)


def shares_names(program: Program) -> bool:
    """Whether any variables share a name."""
    return any(op.has_attr(ORIGINAL_NAMES_ATTR) for block in program.blocks for op in block.ops)


def restore_names(program: Program) -> None:
    """Give every variable its own name again, in place. Rewrites that make new operators of old ones do this first."""
    for block in program.blocks:
        for op in block.ops:
            if op.has_attr(ORIGINAL_NAMES_ATTR):
                rename_arguments(op, original_names(op))
                op.remove_attr(ORIGINAL_NAMES_ATTR)


def with_original_names(program: Program) -> Program:
    """A copy in which every variable has its own name again; the program itself when none shares."""
    if not shares_names(program):
        return program
    copy = program.clone()
    restore_names(copy)
    return copy


def unshared(program: Program, names: Iterable[str] = ()) -> Program:
    """The program, or a copy with original names where that makes a difference.

    It does for `names` (fetches, targets) that share memory, and for operators that were added since.
    """
    shared = set(_recorded(program))
    if shared and (not shared.isdisjoint(names) or any(name in shared for name in _meant_plainly(program))):
        return with_original_names(program)
    return program


def _recorded(program: Program) -> Iterable[str]:
    for block in program.blocks:
        for op in block.ops:
            yield from op.get_attr(ORIGINAL_NAMES_ATTR, ())


def _meant_plainly(program: Program) -> Iterable[str]:
    """The names in operators that do not say that they share them."""
    for block in program.blocks:
        for op in block.ops:
            known = original_names(op)
            yield from (name for name in (*op.input_arg_names, *op.output_arg_names) if name not in known)
