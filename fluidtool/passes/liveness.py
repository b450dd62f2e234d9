"""Which variables hold a value that is still needed, operator by operator.

Followed are stretches: operators that run one after the other in one scope. Block 0 is one; the block of a loop or of a
branch is one together with the block of its gradient, which finds the forward values in the scope of the same step.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from fluidtool.ir import Block, Operator, Program
from fluidtool.ir.dataflow import operator_effects

FOLLOWED = frozenset({"while", "conditional_block", "conditional_block_infer"})


@dataclass(frozen=True, slots=True)
class Stretch:
    """Blocks whose operators run one after the other in one scope."""

    blocks: tuple[Block, ...]

    @property
    def operators(self) -> list[Operator]:
        """The operators, in the order of a run."""
        return [op for block in self.blocks for op in block.ops]

    def declares(self, name: str) -> bool:
        """Whether one of the blocks declares the name."""
        return any(name in block.vars for block in self.blocks)


def stretches(program: Program) -> Iterator[Stretch]:
    """Block 0, then every loop and branch in it, each with its gradient.

    Blocks with several owners or several gradients, blocks within blocks, and those of other operators are left out.
    """
    yield Stretch((program.global_block(),))
    owners = _owners(program)
    for index, names in owners.items():
        if len(names) != 1 or names[0].type not in FOLLOWED or names[0].block.idx != 0:
            continue
        gradients = [block for block in program.blocks if block.forward_block_idx == index]
        owned = [owners.get(block.idx, []) for block in gradients]
        if len(gradients) > 1 or any(len(ops) != 1 or ops[0].block.idx != 0 for ops in owned):
            continue
        yield Stretch((program.block(index), *gradients))


def _owners(program: Program) -> dict[int, list[Operator]]:
    """The operators that name each block."""
    owners: dict[int, list[Operator]] = {}
    for block in program.blocks:
        for op in block.ops:
            for index in op.sub_blocks():
                program.block(index)
                owners.setdefault(index, []).append(op)
    return owners


@dataclass(slots=True)
class Liveness:
    """Liveness along a stretch; positions count its operators.

    `live_in`, `live_out`: names whose value is read later, before and after each operator. `occupied`: for every name
    the positions at which its memory is in use, as the bits of a number: from the operator that writes it to the last
    one that reads that value, both included.
    """

    stretch: Stretch
    operators: list[Operator] = field(default_factory=list)
    live_in: list[frozenset[str]] = field(default_factory=list)
    live_out: list[frozenset[str]] = field(default_factory=list)
    occupied: dict[str, int] = field(default_factory=dict)

    def dying(self, position: int) -> frozenset[str]:
        """The names whose value operator `position` reads as the last one."""
        return self.live_in[position] - self.live_out[position]

    @property
    def from_before(self) -> frozenset[str]:
        """The names whose value comes from before the stretch: fed, persistable, or of a scope around."""
        return self.live_in[0] if self.live_in else frozenset()

    def first(self, name: str) -> int:
        """The first position at which a name is in use."""
        return (self.occupied[name] & -self.occupied[name]).bit_length() - 1


def liveness(stretch: Stretch) -> Liveness:
    """Follow a stretch backwards. An operator with sub-blocks reads and writes what the operators within do."""
    program = stretch.blocks[0].program
    operators = stretch.operators
    found = Liveness(stretch, operators)
    live: frozenset[str] = frozenset()
    for position in range(len(operators) - 1, -1, -1):
        effects = operator_effects(program, operators[position])
        found.live_out.append(live)
        live = (live - effects.writes) | effects.reads
        found.live_in.append(live)
        for name in live | effects.writes:
            found.occupied[name] = found.occupied.get(name, 0) | 1 << position
    found.live_in.reverse()
    found.live_out.reverse()
    return found
