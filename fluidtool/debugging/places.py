"""Where each value of a program is computed, in the order in which that happens."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from fluidtool.ir import Operator, Program
from fluidtool.ir.callstack import written_in
from fluidtool.ir.dataflow import operator_effects
from fluidtool.ops.registry import find_op
from fluidtool.proto.enums import VarType
from fluidtool.records import dataclass

FEED_FETCH = frozenset({"feed", "fetch"})
VALUES = frozenset({VarType.LOD_TENSOR, VarType.SELECTED_ROWS, VarType.LOD_TENSOR_ARRAY})


@dataclass(frozen=True, slots=True)
class Place:
    """The last operator that writes a value, and its position in its block."""

    op: Operator
    operator: int

    @property
    def block(self) -> int:
        """The number of the block."""
        return self.op.block.idx

    @property
    def written_in(self) -> str:
        """The line of the script that made the operator; '' if it is not recorded."""
        return written_in(self.op)


def places(program: Program) -> dict[str, Place]:
    """The place of every value that operators compute, in program order; parameters and notes for gradients are left out.

    An operator that runs a block is no place of what an operator within that block writes.
    """
    found: dict[str, Place] = {}
    read = {name for block in program.blocks for op in block.ops for name in op.input_arg_names}
    for position, op, inner in _walk(program, 0):
        notes = set(_notes(op)) - read
        for name in op.output_arg_names:
            if name in inner or name in notes or not _is_value(op, name):
                continue
            found.pop(name, None)
            found[name] = Place(op, position)
    return found


def _walk(program: Program, index: int) -> Iterator[tuple[int, Operator, set[str]]]:
    """Each operator with its position and what the operators of its blocks write; those come before it."""
    for position, op in enumerate(program.block(index).ops):
        if op.type in FEED_FETCH:
            continue
        inner: set[str] = set()
        for block in op.sub_blocks():
            for at, below, deeper in _walk(program, block):
                inner.update(below.output_arg_names, deeper)
                yield at, below, deeper
        yield position, op, inner


def _notes(op: Operator) -> Iterator[str]:
    """What an operator writes for its gradient alone; Paddle leaves some of it without numbers in inference."""
    info = find_op(op.type)
    for slot in () if info is None else info.outputs:
        if slot.intermediate:
            yield from op.output(slot.name)


def _is_value(op: Operator, name: str) -> bool:
    var = op.block.find_var_recursive(name)
    return var is not None and not var.persistable and var.type in VALUES


def nearest(program: Program, there: Mapping[str, Any]) -> dict[str, str]:
    """For each value of block 0 that is not in `there`: the first value that is and that is computed from it.

    A fusion keeps the names of what it leaves, so this is where the computation of a value went.
    """
    block = program.global_block()
    after: dict[str, str] = {}
    for op in reversed(block.ops):
        effects = operator_effects(program, op)
        goal = next(
            (name if name in there else after[name] for name in op.output_arg_names if name in there or name in after),
            "",
        )
        if goal:
            for name in effects.reads - effects.writes:
                after[name] = goal
    return {name: goal for name, goal in after.items() if name not in there}
