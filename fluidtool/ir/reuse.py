"""Variables that share memory under one name, and the names that they had: what `memory_optimize` leaves in a program.

An operator that writes a shared name says in one attribute which variable it writes there. Paddle passes over it. So a
variable can still be fetched by its own name, and the program as it was can be had back.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from fluidtool.ir.block import Block
from fluidtool.ir.operator import Operator
from fluidtool.ir.program import Program
from fluidtool.ir.roles import ROLE_VAR_ATTR
from fluidtool.proto.enums import AttrType

ORIGINAL_NAMES_ATTR = "memory_original_names"


def original_names(op: Operator) -> dict[str, str]:
    """The shared names that an operator writes, and the variable that each of them stands for there."""
    if not op.has_attr(ORIGINAL_NAMES_ATTR):
        return {}
    listed = list(op.attr(ORIGINAL_NAMES_ATTR))
    written = set(op.output_arg_names)
    return {name: original for name, original in zip(listed[::2], listed[1::2], strict=False) if name in written}


def set_original_names(op: Operator, originals: Mapping[str, str]) -> None:
    """Note which variables the shared names that an operator writes stand for."""
    if originals:
        listed = [name for pair in originals.items() for name in pair]
        op.set_attr(ORIGINAL_NAMES_ATTR, listed, AttrType.STRINGS)


def rename_arguments(op: Operator, inputs: Mapping[str, str], outputs: Mapping[str, str]) -> None:
    """Give an operator other names to read and to write, in its slots and in `op_role_var`."""
    for slot, names in op.inputs.items():
        if any(name in inputs for name in names):
            op.set_input(slot, [inputs.get(name, name) for name in names])
    for slot, names in op.outputs.items():
        if any(name in outputs for name in names):
            op.set_output(slot, [outputs.get(name, name) for name in names])
    names = list(op.get_attr(ROLE_VAR_ATTR, []))
    known = {**inputs, **outputs}
    if any(name in known for name in names):
        op.set_attr(ROLE_VAR_ATTR, [known.get(name, name) for name in names])


def shares_names(program: Program) -> bool:
    """Whether any variables share a name."""
    return any(op.has_attr(ORIGINAL_NAMES_ATTR) for block in program.blocks for op in block.ops)


def with_original_names(program: Program) -> Program:
    """A copy in which every variable has its own name again, operator by operator the same; the program if none shares."""
    if not shares_names(program):
        return program
    copy = program.clone()
    for block in copy.blocks:
        if block.forward_block_idx < 0:
            current: dict[str, str] = {}
            _restore(block, current)
            for other in copy.blocks:
                if other.forward_block_idx == block.idx:
                    _restore(other, current)
    return copy


def _restore(block: Block, current: dict[str, str]) -> None:
    """current: the shared names so far and the variable that each of them holds."""
    for op in block.ops:
        inputs, originals = dict(current), original_names(op)
        for name in op.output_arg_names:
            if name in originals:
                current[name] = originals[name]
            else:
                current.pop(name, None)
        rename_arguments(op, inputs, current)
        op.remove_attr(ORIGINAL_NAMES_ATTR)


def fetchable(program: Program, fetches: Collection[str]) -> Program:
    """The program, or the copy with original names when a fetched variable shares its memory."""
    wanted = set(fetches)
    for op in program.global_block().ops:
        if op.has_attr(ORIGINAL_NAMES_ATTR) and not wanted.isdisjoint(op.attr(ORIGINAL_NAMES_ATTR)):
            return with_original_names(program)
    return program
