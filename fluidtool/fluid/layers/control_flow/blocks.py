"""Blocks within blocks: how control flow opens one, and which values cross its boundary."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from fluidtool.errors import ProgramError
from fluidtool.fluid.framework import default_main_program
from fluidtool.ir import Block, Program, Variable


@contextmanager
def inner_block(program: Program) -> Iterator[Block]:
    """Within the `with`, operators go into a new block inside the current one."""
    block = program.create_block()
    try:
        yield block
    finally:
        program.rollback()


def parent_block() -> Block:
    """The block around the current one of the default main program; raises ProgramError in block 0."""
    parent = default_main_program().current_block().parent
    if parent is None:
        raise ProgramError("the current block is block 0, which has no block around it; call this in an inner block")
    return parent


def reads_and_writes(block: Block, written: Iterable[str] = ()) -> tuple[list[str], list[str]]:
    """The names that a block reads before it writes them, and those it writes, in order of appearance.

    written: names that count as already written.
    """
    writes = dict.fromkeys(written)
    reads: dict[str, None] = {}
    for op in block.ops:
        reads.update(dict.fromkeys(name for name in op.input_arg_names if name not in writes))
        writes.update(dict.fromkeys(op.output_arg_names))
    return list(reads), list(writes)


def declared(block: Block, names: Iterable[str]) -> list[Variable]:
    """The variables of these names that the block or one around it declares; other names are left out."""
    found = (block.find_var_recursive(name) for name in names)
    return [var for var in found if var is not None]
