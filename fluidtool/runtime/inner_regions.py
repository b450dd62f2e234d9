"""Regions within the blocks of loops and branches, in programs that run on a GPU and are not trained."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Sequence
from heapq import heappop, heappush

from fluidtool.ir import Block, Operator
from fluidtool.ops.registry import get_op
from fluidtool.proto.enums import AttrType
from fluidtool.runtime.dependencies import names_used
from fluidtool.runtime.engines.base import Engine
from fluidtool.runtime.partition import Region, Surroundings, find_regions, may_be_native
from fluidtool.runtime.step import Step
from fluidtool.runtime.training_regions import written_by


def find_inner_regions(
    block: Block,
    steps: Sequence[Step],
    persistable: frozenset[str],
    fetched: Collection[str],
    engine: Engine,
    numbers: frozenset[str],
) -> list[Step | Region]:
    """The steps of a block within another one, with those that the engine takes brought together and grouped into regions.

    numbers: results that the host computes.
    """
    wanted = names_elsewhere(block).union(fetched)
    around = Surroundings(persistable, frozenset(), wanted, numbers, inner=True)
    mentions = Counter(name for step in steps for name in names_used(block.program, step.op))
    shared = wanted.union(name for name, count in mentions.items() if count > 1)
    in_regions = {
        number for number, step in enumerate(steps)
        if step.op.type not in engine.left_out and may_be_native(step, around, shared)
    }  # fmt: skip
    return find_regions(brought_together(block, steps, in_regions), persistable, wanted, engine, numbers, inner=True)


def names_elsewhere(block: Block) -> frozenset[str]:
    """The names of a block that may be read outside of it, or in its next run: those of variables that it does not declare, and
    those that operators of other blocks mention, also in texts as `recurrent` does.
    """
    found = {name for op in block.ops for name in op.output_arg_names if name not in block.vars}
    for other in block.program.blocks:
        if other is not block:
            for op in other.ops:
                found.update(
                    name for name in (*op.input_arg_names, *op.output_arg_names, *_texts(op)) if name in block.vars
                )
    return frozenset(found)


def _texts(op: Operator) -> list[str]:
    """What attributes of an operator with blocks say."""
    found: list[str] = []
    for name in op.attr_names if op.sub_blocks() else ():
        if op.attr_type(name) == AttrType.STRING:
            found.append(op.attr(name))
        elif op.attr_type(name) == AttrType.STRINGS:
            found += op.attr(name)
    return found


def brought_together(block: Block, steps: Sequence[Step], together: Collection[int]) -> list[Step]:
    """The steps in an order with the same results in which those of `together` follow each other as far as they can."""
    waits_for = _order(block, steps)
    followers: dict[int, list[int]] = defaultdict(list)
    for number, earlier in enumerate(waits_for):
        for each in earlier:
            followers[each].append(number)
    ready: tuple[list[int], list[int]] = [], []
    for number, earlier in enumerate(waits_for):
        if not earlier:
            ready[number in together].append(number)
    found, kind = [], False
    while any(ready):
        kind = kind if ready[kind] else not kind
        number = heappop(ready[kind])
        found.append(steps[number])
        for each in followers[number]:
            waits_for[each].remove(number)
            if not waits_for[each]:
                heappush(ready[each in together], each)
    return found


def has_side_effects(op: Operator) -> bool:
    """Whether an operator, or any in its blocks, does more than compute its outputs: deletes, prints, receives."""
    inner = (each for index in op.sub_blocks() for each in op.block.program.block(index).ops)
    return get_op(op.type).side_effects or any(has_side_effects(each) for each in inner)


def _order(block: Block, steps: Sequence[Step]) -> list[set[int]]:
    """For each step, earlier ones that must come before it: by what they read and write, and by what they do beside that."""
    found: list[set[int]] = []
    writer: dict[str, int] = {}
    users: dict[str, list[int]] = defaultdict(list)  # since it was written
    last = -1  # the last one that draws, prints or has a block
    for number, step in enumerate(steps):
        used, written = names_used(block.program, step.op), written_by(block.program, step.op)
        if has_side_effects(step.op):
            written = used  # what it reads may be gone afterwards
        earlier = {writer[name] for name in used if name in writer}
        earlier.update(each for name in written for each in users[name])
        if has_side_effects(step.op) or step.info.random or step.op.sub_blocks():
            earlier.add(last)
            last = number
        for name in used:
            users[name].append(number)
        for name in written:
            writer[name], users[name] = number, [number]
        found.append(earlier - {-1, number})
    return found
