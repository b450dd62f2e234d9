"""Which feed and fetch operators a block has, as `fluid.executor` asks it (Paddle 1.8.5 executor.py)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fluidtool.errors import AssertedError, ProgramError
from fluidtool.ir import Block

__all__ = ["has_feed_operators", "has_fetch_operators"]


def has_feed_operators(block: Block, feed_targets: Mapping[str, Any], feed_holder_name: str) -> bool:
    """Whether the block begins with feed operators, which must be those of these targets; raises ProgramError.

    feed_targets: by name. Raises AssertedError for operators that read another variable than feed_holder_name.
    """
    ops = [op for op in block.ops if op.type == "feed"]
    for op in ops:
        _need_holder(op.input("X")[0], feed_holder_name)
        if op.output("Out")[0] not in feed_targets:
            raise ProgramError(f"'feed_targets' does not have {op.output('Out')[0]} variable")
    if ops and len(ops) != len(feed_targets):
        raise ProgramError("Feed operators in program desc do not match 'feed_targets'")
    return bool(ops)


def has_fetch_operators(block: Block, fetch_targets: Sequence[Any], fetch_holder_name: str) -> bool:
    """Whether the block has fetch operators, which must be those of these variables in this order; raises ProgramError.

    Raises AssertedError for operators that write another variable than fetch_holder_name, or in another order.
    """
    ops = [op for op in block.ops if op.type == "fetch"]
    names = [var.name for var in fetch_targets]
    for op in ops:
        _need_holder(op.output("Out")[0], fetch_holder_name)
        name = op.input("X")[0]
        if name not in names:
            raise ProgramError(f"'fetch_targets' does not have {name} variable")
        if names[op.attr("col")] != name:
            raise AssertedError(f"column {op.attr('col')} fetches {name}, expected {names[op.attr('col')]}")
    if ops and len(ops) != len(names):
        raise ProgramError("Fetch operators in program desc do not match 'fetch_targets'")
    return bool(ops)


def _need_holder(found: str, expected: str) -> None:
    if found != expected:
        raise AssertedError(f"the block's operators use {found}, expected {expected}")
