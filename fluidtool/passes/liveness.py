"""Which variables hold a value that is still needed, operator by operator.

Followed are traces: operators that run one after the other in one scope. Block 0 is one; the block of a loop or of a
branch is one together with the block of its gradient, which finds the forward values in the scope of the same step.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping

from fluidtool.ir import Block, Operator, Program
from fluidtool.ir.dataflow import operator_effects
from fluidtool.records import dataclass

Span = tuple[int, int]  # the first and the last of a row of positions
Spans = tuple[Span, ...]  # in order, without a position in common

FOLLOWED = frozenset({"while", "conditional_block", "conditional_block_infer"})


@dataclass(frozen=True, slots=True)
class Trace:
    """Blocks whose operators run one after the other in one scope."""

    blocks: tuple[Block, ...]

    @property
    def operators(self) -> list[Operator]:
        """The operators, in the order of a run."""
        return [op for block in self.blocks for op in block.ops]

    def declares(self, name: str) -> bool:
        """Whether one of the blocks declares the name."""
        return any(name in block.vars for block in self.blocks)


def traces(program: Program) -> Iterator[Trace]:
    """Block 0, then every loop and branch in it, each with its gradient.

    Blocks with several owners or several gradients, blocks within blocks, and those of other operators are left out.
    """
    yield Trace((program.global_block(),))
    owners = _owners(program)
    gradients_of = defaultdict[int, list[Block]](list)
    for block in program.blocks:
        gradients_of[block.forward_block_idx].append(block)
    for index, names in owners.items():
        if len(names) != 1 or names[0].type not in FOLLOWED or names[0].block.idx != 0:
            continue
        gradients = gradients_of.get(index, [])
        owned = [owners.get(block.idx, []) for block in gradients]
        if len(gradients) > 1 or any(len(ops) != 1 or ops[0].block.idx != 0 for ops in owned):
            continue
        yield Trace((program.block(index), *gradients))


def _owners(program: Program) -> dict[int, list[Operator]]:
    """The operators that name each block."""
    owners: dict[int, list[Operator]] = {}
    for block in program.blocks:
        for op in block.ops:
            for index in op.sub_blocks():
                program.block(index)
                owners.setdefault(index, []).append(op)
    return owners


@dataclass(frozen=True, slots=True)
class Liveness:
    """Liveness along a trace; positions count its operators.

    `dying`: for each operator the names whose value it reads as the last one. `from_before`: the names whose value comes
    from before the trace: fed, persistable, or of a scope around. `occupied`: for every name where its memory is in use:
    from the operator that writes it to the last one that reads that value, both included, for one value after the other.
    """

    trace: Trace
    operators: tuple[Operator, ...]
    dying: tuple[frozenset[str], ...]
    from_before: frozenset[str]
    occupied: Mapping[str, Spans]

    def first(self, name: str) -> int:
        """The first position at which a name is in use."""
        return self.occupied[name][0][0]

    def last(self, name: str) -> int:
        """The last position at which a name is in use."""
        return self.occupied[name][-1][1]


def liveness(trace: Trace) -> Liveness:
    """Follow a trace backwards. An operator with sub-blocks reads and writes what the operators within do.

    The work goes by what the operators name, not by how many values are alive at once.
    """
    program = trace.blocks[0].program
    operators = tuple(trace.operators)
    alive: dict[str, int] = {}  # what is read later, and where for the last time
    occupied: dict[str, list[Span]] = {}
    dying: list[frozenset[str]] = []
    for position in range(len(operators) - 1, -1, -1):
        effects = operator_effects(program, operators[position])
        dying.append(frozenset(name for name in effects.reads if name not in alive))
        for name in effects.writes - effects.reads:
            occupied.setdefault(name, []).append((position, alive.pop(name, position)))
        for name in effects.reads:
            alive.setdefault(name, position)
    for name, last in alive.items():
        occupied.setdefault(name, []).append((0, last))
    spans = {name: tuple(reversed(found)) for name, found in occupied.items()}
    return Liveness(trace, operators, tuple(reversed(dying)), frozenset(alive), spans)
