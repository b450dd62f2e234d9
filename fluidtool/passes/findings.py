"""What the verifier says: one finding for each fault."""

from __future__ import annotations

from fluidtool.ir import Operator
from fluidtool.records import dataclass


@dataclass(frozen=True, slots=True)
class Finding:
    """One fault: a stable code, the operator (block, position in it, type) or the variable concerned, and a sentence."""

    code: str
    message: str
    block: int | None = None
    operator: int | None = None
    type: str = ""
    variable: str = ""


def at(code: str, op: Operator, position: int, message: str, variable: str = "") -> Finding:
    """A finding at an operator."""
    return Finding(code, message, op.block.idx, position, op.type, variable)
