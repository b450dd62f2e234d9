"""`merge-common`: what is computed twice from the same values is computed once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import field
from typing import Any

from fluidtool.ir import Block, Operator, Program
from fluidtool.ir.dataflow import BlockFlow, Version, block_flow
from fluidtool.ir.operator import EMPTY, Names
from fluidtool.ir.roles import CALLSTACK_ATTR, DEVICE_ATTR, NAMESCOPE_ATTR, ROLE_ATTR, ROLE_VAR_ATTR
from fluidtool.passes.inference.queries import is_pure, is_tensor, trains, writers
from fluidtool.passes.inference.rewriting import drop_unused
from fluidtool.passes.result import Decision, PassResult, decide
from fluidtool.records import dataclass
from fluidtool.runtime.scope import Scope

NAME = "merge-common"
WITHOUT_MEANING = frozenset({CALLSTACK_ATTR, DEVICE_ATTR, NAMESCOPE_ATTR, ROLE_ATTR, ROLE_VAR_ATTR})


def merge_common(program: Program, scope: Scope, keep: Collection[str] = ()) -> PassResult:
    """Take out operators that compute again what an operator of the same block computed before, in place.

    Same means: type, attributes, and the very values (versions of names) that they read. Results must be tensors that
    are written once and not fetched; operators that draw random numbers or do more than compute stay.
    """
    decisions: list[Decision] = []
    written, training = writers(program), trains(program)
    for block in program.blocks:
        merging = _Merging(program, block, program.known(block_flow, block), written, frozenset(keep), training)
        merging.run()
        decisions += merging.decisions
    result = PassResult(tuple(decisions))
    if result.changed:
        drop_unused(program, keep)
        program.touch()
    return result


@dataclass(slots=True)
class _Merging:
    """One block: the first operator of each kind, and which value stands for which."""

    program: Program
    block: Block
    flow: BlockFlow
    written: Counter[str]
    keep: frozenset[str]
    training: bool
    first: dict[Any, int] = field(default_factory=dict)
    same: dict[Version, Version] = field(default_factory=dict)
    decisions: list[Decision] = field(default_factory=list)

    def run(self) -> None:
        """Look at every operator in order, then take the repeated ones out."""
        merged = [position for position, op in enumerate(self.block.ops) if self.merge(position, op)]
        names = {old.name: new.name for old, new in self.same.items()}
        for op in self.block.ops:
            if not names.keys().isdisjoint(op.input_arg_names):
                op.rename_inputs(names)
        gone = set(merged)
        self.block.ops = [op for position, op in enumerate(self.block.ops) if position not in gone]

    def merge(self, position: int, op: Operator) -> bool:
        """Whether the operator repeats an earlier one whose results can stand for its own."""
        if not is_pure(op) or not op.output_arg_names or set(op.input_arg_names) & set(op.output_arg_names):
            return False
        key = self.key(position, op)
        earlier = self.first.setdefault(key, position)
        if earlier == position:
            return False
        first = self.block.ops[earlier]
        why = self.why_not(first, op, position)
        if not why:
            for old, new in _pairs(op, first):
                self.same[self.flow.writes[position][old]] = self.flow.writes[earlier][new]
        self.decisions.append(decide(NAME, op, not why, why or f"{first.output_arg_names[0]} is the same"))
        return not why

    def key(self, position: int, op: Operator) -> Any:
        """What two operators must share to give the same results."""
        reads = self.flow.reads[position]
        values = [(slot, name, reads.get(name)) for slot, names in sorted(op.inputs.items()) for name in names]
        inputs = tuple((slot, self.same.get(v, v) if v is not None else name) for slot, name, v in values)
        attrs = tuple((name, repr(op.attr(name))) for name in sorted(op.attr_names) if name not in WITHOUT_MEANING)
        return op.type, inputs, attrs, _wanted(op.outputs)

    def why_not(self, first: Operator, op: Operator, position: int) -> str:
        """Why the results of `first` cannot stand for those of `op`; empty when they can."""
        if self.training:
            return "the program trains"
        pairs = _pairs(op, first)
        for name in (name for pair in pairs for name in pair):
            var = self.block.vars.get(name)
            if var is None or var.persistable or not is_tensor(self.block, name):
                return f"{name} is persistable, of an outer block, or not a tensor"
            if self.written[name] != 1:
                return f"{name} is written more than once"
        return next((why for name, other in pairs if (why := self.why_name_stays(name, other, position))), "")

    def why_name_stays(self, name: str, other: str, position: int) -> str:
        """Why readers of `name` cannot read `other`; empty when they can."""
        if name in self.keep:
            return f"{name} is fetched or must be kept"
        if self.block.vars[name].dtype != self.block.vars[other].dtype:
            return f"{name} and {other} are declared with different data types"
        for reader in self.flow.consumers(position, name):
            op = self.block.ops[reader]
            if op.type in ("fetch", "delete_var"):
                return f"{name} is {'fetched' if op.type == 'fetch' else 'deleted by the program'}"
            if op.sub_blocks():
                return f"{name} is read in a sub-block of {op.type}"
        return ""


def _wanted(outputs: Names) -> tuple[Any, ...]:
    """Which outputs an operator is asked for."""
    return tuple(sorted((slot, tuple(name == EMPTY for name in names)) for slot, names in outputs.items() if names))


def _pairs(op: Operator, first: Operator) -> list[tuple[str, str]]:
    """The results of two operators that are asked for the same outputs, side by side."""
    slots = (zip(names, first.outputs[slot], strict=True) for slot, names in op.outputs.items() if names)
    return [(name, other) for slot in slots for name, other in slot if name != EMPTY]
