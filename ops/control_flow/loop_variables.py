"""The variables of loops: those that are new in every step, and those outside, which an engine reads and leaves."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fluidtool.ops.context import OpContext
from fluidtool.ops.control_flow.compiled import ABSENT, LoopResult
from fluidtool.tensor import LoDTensor


def fresh(block: Any) -> set[str]:
    """The variables that each step of a block begins without."""
    return {variable.name for variable in block.vars.values() if not variable.persistable}


def arrays_around(block: Any) -> frozenset[str]:
    """The variables outside that are written as arrays of tensors."""
    written = {name for op in block.ops if op.type == "write_to_array" for name in op.output("Out")}
    return frozenset(written - fresh(block))


def outside(ctx: OpContext) -> Callable[[str], Any]:
    """Looks up values of variables that the loop can see; ABSENT if there is no such variable."""

    def find(name: str) -> Any:
        variable = ctx.scope.find_var(name)
        return ABSENT if variable is None else variable.value

    return find


def commit(ctx: OpContext, result: LoopResult) -> None:
    """Give variables outside what the loop has left."""
    for name, value in result.changed.items():
        variable = ctx.scope.find_var(name)
        if type(value) is LoDTensor and value.array is not None:
            variable.set_tensor(value.array, value.offsets)
        else:
            variable.value = value
