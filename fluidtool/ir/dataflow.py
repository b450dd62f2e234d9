"""Def-use view of a program: which operator reads and writes which version of a name.

Fluid re-assigns names: operators may write a name again, or in place. A *version* of a name in a block is what one
write (or, for version 0, whatever was there before the block ran) leaves in it. Operators with sub-blocks read and
write what the operators within do to names from outside. Passes reason on versions, never on names alone.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import field

from fluidtool.ir.block import Block
from fluidtool.ir.hidden_names import hidden_reads, hidden_writes
from fluidtool.ir.operator import EMPTY, Operator
from fluidtool.ir.program import Program
from fluidtool.records import dataclass


@dataclass(frozen=True, slots=True)
class Version:
    """The `number`-th value of `name` in a block; number 0 is the value from before the block."""

    name: str
    number: int


@dataclass(frozen=True, slots=True)
class OpEffects:
    """What an operator, with all its sub-blocks, does to the names of the block that it stands in."""

    reads: frozenset[str]
    writes: frozenset[str]


@dataclass(slots=True)
class BlockFlow:
    """Def-use of one block. Positions are indexes into `block.ops`."""

    block: Block
    effects: list[OpEffects]
    reads: list[dict[str, Version]] = field(default_factory=list)
    writes: list[dict[str, Version]] = field(default_factory=list)
    writer: dict[Version, int] = field(default_factory=dict)
    readers: dict[Version, list[int]] = field(default_factory=dict)
    last: dict[str, Version] = field(default_factory=dict)
    written_at: dict[str, list[int]] = field(default_factory=dict)

    def producer(self, position: int, name: str) -> int | None:
        """The operator that wrote the value of `name` which operator `position` reads; None: from before the block."""
        return self.writer.get(self.reads[position][name])

    def consumers(self, position: int, name: str) -> list[int]:
        """The operators that read the value of `name` which operator `position` writes."""
        return self.readers.get(self.writes[position][name], [])

    def writes_between(self, first: int, end: int, name: str) -> list[int]:
        """The operators from `first` to before `end` that write a name."""
        found = self.written_at.get(name, [])
        return found[bisect_left(found, first) : bisect_left(found, end)]

    def is_last_write(self, position: int, name: str) -> bool:
        """Whether what operator `position` writes to `name` is what remains when the block ends."""
        return self.last[name] == self.writes[position][name]


def sub_block_operators(program: Program, op: Operator) -> Iterator[Operator]:
    """Every operator of the blocks below an operator, at any depth."""
    for index in op.sub_blocks():
        for inner in program.block(index).ops:
            yield inner
            yield from sub_block_operators(program, inner)


def operator_effects(program: Program, op: Operator) -> OpEffects:
    """Names read and written by an operator and, seen from outside, by the blocks below it.

    A name that a sub-block declares itself is private to it. What a sub-block writes may not happen (a loop of no
    rounds, a branch not taken), so a name written within also counts as read.
    """
    reads = set(op.input_arg_names) | hidden_reads(op)
    writes = set(op.output_arg_names) | hidden_writes(op)
    for index in op.sub_blocks():
        inner_block = program.block(index)
        for inner in inner_block.ops:
            effects = operator_effects(program, inner)
            outside = {name for name in effects.writes if name not in inner_block.vars}
            reads |= {name for name in effects.reads if name not in inner_block.vars} | outside
            writes |= outside
    return OpEffects(frozenset(reads - {EMPTY, ""}), frozenset(writes - {EMPTY, ""}))


def block_flow(block: Block) -> BlockFlow:
    """The def-use view of one block."""
    flow = BlockFlow(block, [operator_effects(block.program, op) for op in block.ops])
    current: dict[str, Version] = {}
    for position, effects in enumerate(flow.effects):
        seen = {name: current.setdefault(name, Version(name, 0)) for name in effects.reads}
        for version in seen.values():
            flow.readers.setdefault(version, []).append(position)
        made = {}
        for name in effects.writes:
            before = current.get(name)
            version = Version(name, 1 if before is None else before.number + 1)
            made[name] = current[name] = version
            flow.writer[version] = position
            flow.written_at.setdefault(name, []).append(position)
        flow.reads.append(seen)
        flow.writes.append(made)
    flow.last = current
    return flow


def live_operators(block: Block, targets: set[str], boundary: set[str]) -> list[bool]:
    """Which operators the values left in `targets` depend on, `boundary` names counting as given from outside.

    In-place operators are followed version by version: of several writes only those that reach a target are kept.
    """
    program = block.program
    effects = [operator_effects(program, op) for op in block.ops]
    wanted = set(targets)
    live = [False] * len(block.ops)
    for position in range(len(block.ops) - 1, -1, -1):
        op, effect = block.ops[position], effects[position]
        if op.is_target or wanted & effect.writes:
            live[position] = True
            if not op.sub_blocks():
                wanted -= effect.writes - effect.reads
            wanted |= effect.reads - boundary
    return live
