"""`with_single_writes(program)`: a copy in which no tensor is overwritten, so that each of its values can be fetched."""

from __future__ import annotations

from collections import Counter

from fluidtool.ir import Operator, Program
from fluidtool.ir.dataflow import sub_block_operators
from fluidtool.ir.reuse import with_original_names
from fluidtool.ir.surgery import copy_variable
from fluidtool.proto.enums import VarType

FEED = "feed"


def with_single_writes(program: Program) -> Program:
    """The program with the names from before `memory_optimize`, and NAME@1, NAME@2, … for all but the last value of a tensor.

    Only tensors of block 0 that no sub-block and no feed touches are renamed; the program itself is returned where nothing is.
    """
    program = with_original_names(program)
    often = _written_often(program)
    if not often:
        return program
    copy = program.clone()
    block = copy.global_block()
    taken, current, seen = set(block.vars), dict[str, str](), Counter[str]()
    for op in block.ops:
        read = {name: current[name] for name in op.input_arg_names if current.get(name, name) != name}
        written: dict[str, str] = {}
        for name in dict.fromkeys(op.output_arg_names):
            if name in often:
                seen[name] += 1
                written[name] = name if seen[name] == often[name] else _fresh(f"{name}@{seen[name]}", taken)
        _rename(op, read, written)
        for name, new in written.items():
            if new != name:
                var = copy_variable(block.vars[name], block)
                var.name = new
                block.add_var(var)
        current |= written
    copy.touch()
    return copy


def _written_often(program: Program) -> dict[str, int]:
    """How many operators write a tensor, for those that may be renamed and that several do."""
    block = program.global_block()
    writes: Counter[str] = Counter()
    apart: set[str] = set()
    for op in block.ops:
        writes.update(set(op.output_arg_names))
        if op.type == FEED:
            apart.update(op.output_arg_names)
        if op.sub_blocks():
            for each in (op, *sub_block_operators(program, op)):
                apart.update(each.input_arg_names, each.output_arg_names)
        apart.update(
            name
            for name in op.input_arg_names
            if not writes[name] or (name in op.output_arg_names and writes[name] == 1)
        )
    return {
        name: count
        for name, count in writes.items()
        if count > 1
        and name not in apart
        and (var := block.vars.get(name)) is not None
        and not var.persistable
        and var.type == VarType.LOD_TENSOR
    }


def _fresh(name: str, taken: set[str]) -> str:
    while name in taken:
        name += "@"
    taken.add(name)
    return name


def _rename(op: Operator, read: dict[str, str], written: dict[str, str]) -> None:
    if read:
        for slot, names in op.inputs.items():
            op.set_input(slot, [read.get(name, name) for name in names])
    if any(new != name for name, new in written.items()):
        for slot, names in op.outputs.items():
            op.set_output(slot, [written.get(name, name) for name in names])
