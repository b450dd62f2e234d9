"""What every program must be, wherever it comes from: blocks that form a tree, and framework attributes of their types.

Code that walks a program relies on this: a walk through sub-blocks ends, is not deeper than Python's stack, and takes time
in proportion to the program. Every program that Paddle writes has its blocks in this order: a block stands behind its
parent and behind the operator that runs it (block_desc.cc, backward.py).
"""

from __future__ import annotations

from collections.abc import Iterator

from fluidtool.ir.operator import Operator
from fluidtool.ir.program import Program
from fluidtool.ir.roles import FRAMEWORK_ATTR_TYPES
from fluidtool.proto.enums import AttrType

DEEPEST = 64  # blocks within blocks; programs of Paddle's own layers have four levels at most
MOST_REPEATED = 100  # how many times its operators a program may become when every sub-block is followed
MOST_LOD_LEVELS = 32  # Paddle's layers make three at most
MOST_DIMENSIONS = 32  # what every version of numpy holds; Paddle 1.8.5 stops at 9


def structure_fault(program: Program) -> str:
    """What is wrong with the structure, as the end of a sentence about the program ('names …'); '' if nothing."""
    return next(_faults(program), "")


def _faults(program: Program) -> Iterator[str]:
    yield from _parents(program)
    yield from _operators(program)
    yield from _sub_blocks(program)
    for block in program.blocks:
        for var in block.vars.values():
            if len(var.shape) > MOST_DIMENSIONS:
                yield (
                    f"declares variable {var.name} in block {block.idx} with {len(var.shape)} dimensions; a tensor has "
                    f"at most {MOST_DIMENSIONS}"
                )
            if not 0 <= var.lod_level <= MOST_LOD_LEVELS:
                yield (
                    f"declares variable {var.name} in block {block.idx} with {var.lod_level} levels of LoD; "
                    f"expected 0 to "
                    f"{MOST_LOD_LEVELS}"
                )


def _parents(program: Program) -> Iterator[str]:
    depth: list[int] = []
    for position, block in enumerate(program.blocks):
        if not (block.parent_idx == -1 if position == 0 else 0 <= block.parent_idx < position):
            wanted = "none, -1" if position == 0 else f"one of 0 to {position - 1}"
            yield f"names block {block.parent_idx} as the parent of block {position}, which must be {wanted}"
            return
        if not -1 <= block.forward_block_idx < len(program.blocks):
            yield (
                f"names block {block.forward_block_idx} as what block {position} is the gradient of, but there are "
                f"{len(program.blocks)} blocks"
            )
        depth.append(0 if position == 0 else depth[block.parent_idx] + 1)
    yield from _too_deep(max(depth))


def _operators(program: Program) -> Iterator[str]:
    for block in program.blocks:
        for position, op in enumerate(block.ops):
            types = op._attr_types
            for name, wanted in FRAMEWORK_ATTR_TYPES.items():
                found = types.get(name, wanted)
                if found != wanted:
                    where = f"operator {op.type} (block {block.idx}, position {position})"
                    yield f"has attribute {name} of {where} as {attr_type_name(found)}, expected {wanted.name}"


def _sub_blocks(program: Program) -> Iterator[str]:
    """Sub-blocks that do not exist or lie outside their order, are nested too deep, or run too often."""
    count = len(program.blocks)
    depth = [0] * count
    below: list[list[int]] = []
    for block in program.blocks:
        inner = []
        for op in block.ops:
            for index in op.sub_blocks():
                if not block.idx < index < count:
                    yield f"names block {index} in {_block_attribute(op, index)}; expected {_expected(block.idx, count)}"
                    return
                depth[index] = max(depth[index], depth[block.idx] + 1)
                inner.append(index)
        below.append(inner)
    yield from _too_deep(max(depth))
    unfolded = [0] * count
    for block in reversed(program.blocks):
        unfolded[block.idx] = len(block.ops) + sum(unfolded[index] for index in below[block.idx])
    operators = sum(len(block.ops) for block in program.blocks)
    if unfolded[0] > MOST_REPEATED * operators:
        yield (
            f"names the same sub-blocks so often that its {operators} operators become {unfolded[0]}; each block "
            f"belongs "
            "to one operator"
        )


def _too_deep(deepest: int) -> Iterator[str]:
    if deepest > DEEPEST:
        yield f"nests blocks {deepest} deep; fluidtool takes at most {DEEPEST} levels"


def _block_attribute(op: Operator, index: int) -> str:
    names = [name for name, kind in op._attr_types.items() if kind in (AttrType.BLOCK, AttrType.BLOCKS)]
    held = [name for name in names if index in (op.attr(name) if isinstance(op.attr(name), list) else [op.attr(name)])]
    return f"attribute {held[0]} of operator {op.type} in block {op.block.idx}"


def _expected(index: int, count: int) -> str:
    if index + 1 >= count:
        return f"a block behind its own, but the last one is block {count - 1}"
    return f"one of those behind its own, {index + 1} to {count - 1}"


def attr_type_name(kind: int) -> str:
    """'INTS'; what an attribute without a known type is."""
    return AttrType(kind).name if kind in AttrType._value2member_map_ else "of no known type"
